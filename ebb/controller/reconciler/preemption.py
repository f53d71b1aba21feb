"""Jobs that stop, with a checkpoint, for one of higher priority that cannot start otherwise. Pure.

    found = preempted_by(view, me)          # (the other job, its site) for which this one lets go of all that it holds
    first = pushed_off(view, draft, me)     # the same on a cluster that no stack of ours describes
    first = kept_off(view, draft, me)       # as long as that lasts

Workers beyond minReplicas make room by themselves: they do not count for the order of jobs (queue.py), and the scheduler takes
their machines. Where that is not enough for the first job in the order that waits, jobs of lower priority stop, as few as will
do: those of the lowest priority first, of these the ones that had the fewest whole GPU-hours, and then the newest. Jobs of equal
priority never stop for one another, and none stops where that would not let the other one start.

Every job finds this out by itself, from the same claims, so all come to the same answer. Those that stop wait in the order as any
other job, behind the one that they stopped for, and go on by themselves when there is room.

On a cluster that no stack of ours describes nobody knows what room there is, and the scheduler takes the machines: workers beyond
minReplicas first, as their class is the lowest. A job that it leaves with too few lets go of the others too. It tries again when
the jobs of higher priority have fewer workers than then, and every now and then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.platform import PROVISION_SECONDS, Platform
from ebb.api.status import Placed, Preemption, Status
from ebb.controller.reconciler.candidates import PATIENCE_SECONDS, Candidate, candidate_of
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity
from ebb.controller.reconciler.lending import QuotaPool, borrowers
from ebb.controller.reconciler.queue import queue, sites_for, starving
from ebb.controller.reconciler.scheduling import doubled, missing_base, waiting_since
from ebb.controller.reconciler.types import JobView, PlanBuilder

MOST_PRUNED = 16  # beyond that one job more or less matters little, and each costs a look at all jobs

TRIAL_SECONDS, TRIAL_MAX_SECONDS = 600.0, 3600.0

Price = tuple[int, int, float, tuple[str, str]]


def preempted_by(view: JobView, me: Claim) -> tuple[Claim, Candidate] | None:
    """The job of higher priority for which this one stops now, and where that one will run."""
    others, platform = view.observed.cluster_capacity, view.observed.platform
    waiting = sorted(others.urgent(me.priority), key=lambda one: one.order)
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


def pushed_off(view: JobView, draft: PlanBuilder, me: Claim) -> Claim | None:
    """Without a stack: the job of higher priority to which the scheduler gave so many of this one's machines that the others are
    of no use; the trial of one that was pushed off before ends likewise, when no machines come."""
    if view.observed.platform is not None:
        return None
    old = draft.status.preemption
    if old and view.trains(draft.status):
        draft.status = replace(draft.status, preemption=None)
    missing = missing_base(view)
    first = _first_above(view, me) if missing else None
    if first is None:
        return None
    begun = waiting_since(view, missing)
    late = (view.now if begun is None else begun) + PROVISION_SECONDS + PATIENCE_SECONDS
    if not _taken_since_placed(view, draft.status) and not (old and view.now >= late):
        draft.wakes += [late] if old else []
        return None
    times = old.times + 1 if old else 1
    draft.status = replace(draft.status, preemption=Preemption(at=stamp(view.now), taken=_held_above(view, me), times=times))
    return first


def kept_off(view: JobView, draft: PlanBuilder, me: Claim) -> Claim | None:
    """Without a stack: the job of higher priority for which one that was pushed off still waits."""
    old, first = draft.status.preemption, _first_above(view, me)
    if old is None or first is None or _held_above(view, me) < old.taken:
        return None
    due = (unix(old.at) or view.now) + doubled(TRIAL_SECONDS, old.times - 1, TRIAL_MAX_SECONDS)
    draft.wakes += [due] if view.now < due else []
    return first if view.now < due else None


def _above(view: JobView, me: Claim) -> list[Claim]:
    return [one for one in view.observed.cluster_capacity.claims if one.located and one.priority > me.priority]


def _first_above(view: JobView, me: Claim) -> Claim | None:
    return min(_above(view, me), key=lambda one: one.rank, default=None)


def _held_above(view: JobView, me: Claim) -> int:
    return sum(one.pods for one in _above(view, me))


def _taken_since_placed(view: JobView, status: Status) -> bool:
    """Return whether the scheduler has taken a machine of the job since it was placed."""
    since = (unix(status.placement.since) if status.placement else None) or 0.0
    return any(entry.cause == names.CAUSE_PREEMPTED and (unix(entry.at) or 0.0) >= since for entry in status.history)


def _price(one: Claim) -> Price:
    """Its place in the order in which jobs stop: the smallest first."""
    return one.priority, one.gpu_hours, -one.created, one.key


def _cost(gone: Sequence[Claim]) -> tuple[int, int, int]:
    return max(one.priority for one in gone), sum(one.gpu_hours for one in gone), len(gone)


def _victims(first: Claim, site: Candidate, everybody: ClusterCapacity, platform: Platform, now: float) -> tuple[Claim, ...]:
    """The jobs that must stop for this one to start at that site; none where it could not even so."""
    pool = QuotaPool.of(platform)
    borrowing = borrowers(everybody.claims, pool) if pool else {}

    def suffice(gone: Sequence[Claim]) -> bool:
        return any(one == site for one in _open(first, gone, everybody, platform, now))

    able = sorted(
        (
            one
            for one in everybody.claims
            if one.located and not one.elsewhere and one.priority < first.priority and _site(one, platform).overlaps(site)
            # A job that would borrow takes nothing from another team's own: that would take it back.
            if first.key not in borrowing or one.key in borrowing or one.key[0] == first.key[0]
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
