"""Jobs that stop, with a checkpoint, for one of higher priority that cannot start otherwise. Pure.

    found = preempted_by(view, me)          # (the other job, its site) for which this one lets go of all that it holds

Workers beyond minReplicas make room by themselves: they do not count for the order of jobs (queue.py), and the scheduler takes
their machines. Where that is not enough for the first job in the order that waits, jobs of lower priority stop, as few as will
do: those of the lowest priority first, of these the ones that had the fewest whole GPU-hours, and then the newest. Jobs of equal
priority never stop for one another, and none stops where that would not let the other one start.

Every job finds this out by itself, from the same claims, so all come to the same answer. Those that stop wait in the order as any
other job, behind the one that they stopped for, and go on by themselves when there is room.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ebb.api.platform import Platform
from ebb.api.status import Placed
from ebb.controller.reconciler.candidates import Candidate, candidate_of
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity
from ebb.controller.reconciler.queue import queue, sites_for, starving
from ebb.controller.reconciler.types import JobView

MOST_PRUNED = 16  # beyond that one job more or less matters little, and each costs a look at all jobs

Price = tuple[int, int, float, tuple[str, str]]


def preempted_by(view: JobView, me: Claim) -> tuple[Claim, Candidate] | None:
    """The job of higher priority for which this one stops now, and where that one will run."""
    others, platform = view.observed.cluster_capacity, view.observed.platform
    waiting = sorted([one for one in others.claims if one.waits_behind and one.priority > me.priority], key=lambda one: one.rank)
    if not waiting or platform is None:
        return None
    # Without the line that all share: there nobody stops for anybody.
    everybody = ClusterCapacity(claims=(*others.claims, me), dry=others.dry)
    for first in waiting:
        if next(_open(first, (), everybody, platform, view.now), None) is not None:
            continue  # it can start as it is
        found = [
            (site, gone)
            for site in sites_for(first.wish, platform)
            if (gone := _victims(first, site, everybody, platform, view.now))
        ]
        if found:
            # One at a time: when it has its place, it is the next one's turn.
            site, gone = min(found, key=lambda item: (_cost(item[1]), item[0].zone, item[0].gpu_type))
            return (first, site) if any(one.key == me.key for one in gone) else None
    return None


def _price(one: Claim) -> Price:
    """Its place in the order in which jobs stop: the smallest first."""
    return one.priority, one.gpu_hours, -one.created, one.key


def _cost(gone: Sequence[Claim]) -> tuple[int, int, int]:
    return max(one.priority for one in gone), sum(one.gpu_hours for one in gone), len(gone)


def _victims(first: Claim, site: Candidate, everybody: ClusterCapacity, platform: Platform, now: float) -> tuple[Claim, ...]:
    """The jobs that must stop for this one to start at that site; none where it could not even so."""

    def suffice(gone: Sequence[Claim]) -> bool:
        return any(one == site for one in _open(first, gone, everybody, platform, now))

    able = sorted(
        (
            one
            for one in everybody.claims
            if one.located and one.priority < first.priority and _site(one, platform).overlaps(site)
        ),
        key=_price,
    )
    if not able or not suffice(able):
        return ()
    needed = able[: _least(len(able), lambda count: suffice(able[:count]))]
    if len(needed) <= MOST_PRUNED:
        for one in reversed(needed[:-1]):
            rest = [other for other in needed if other is not one]
            needed = rest if suffice(rest) else needed
    return tuple(needed)


def _least(most: int, suffices: Callable[[int], bool]) -> int:
    """The smallest number from 1 that suffices; `most` does."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle + 1, high)
    return high


def _open(first: Claim, gone: Sequence[Claim], everybody: ClusterCapacity, platform: Platform, now: float) -> Iterator[Candidate]:
    """Sites where a job that waits may start at once, as it sees them itself, when those others have let go."""
    without = {one.key for one in gone} | {first.key}
    line = queue(first, replace(everybody, claims=tuple(one for one in everybody.claims if one.key not in without)), platform)
    for site in sites_for(first.wish, platform):
        if line.free.room(site) >= first.least and not starving(first, line, site, now):
            yield site


def _site(one: Claim, platform: Platform) -> Candidate:
    return candidate_of(one.wish, Placed(zone=one.zone, gpu_type=one.gpu_type, capacity_type=one.capacity_type), platform)
