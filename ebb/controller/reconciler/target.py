"""How many workers an automatic job wants: as many as there is room for, from minReplicas to maxReplicas. Pure.

    aim(view, draft)            # status.target; the planner acts on it in the next round

It grows in one batch and at most once a minute, because every change of size costs all workers a pause; it shrinks at once, when
machines do not come or others need theirs. Room is what the node groups may grow to, less what others have and less the
minReplicas of those that wait.
"""

from collections.abc import Sequence
from dataclasses import replace

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.controller.reconciler import stockouts as dry
from ebb.controller.reconciler.candidates import Site
from ebb.controller.reconciler.capacity import Claim, claim
from ebb.controller.reconciler.queue import Ledger, queue
from ebb.controller.reconciler.scheduling import homeless, missing_base, seated, waiting_since
from ebb.controller.reconciler.stockouts import Drought, Kind
from ebb.controller.reconciler.types import Draft, View
from ebb.controller.reconciler.waiting import here

Near = Sequence[tuple[Claim, Site]]  # the other jobs that are at the same site
GROWS_SECONDS = 60.0
SHRINKS_SECONDS = 60.0  # between two times, where what the first freed may be on its way


def aim(view: View, draft: Draft) -> None:
    """Set status.target where scaling is automatic; elsewhere there is none."""
    if not view.job.automatic:
        draft.status = replace(draft.status, target=None, target_time=None)
        return
    site, wanted = here(view, draft.status), view.wanted
    me = claim(view.job, view.observed.priorities, view.now)
    near = [other for other in queue(me, view.observed.market, view.observed.platform).holders if other[1].overlaps(site)]
    room = _room(view, me, near, site)
    smaller = max(me.least, min(room, _without_late(view, draft, site), _without_needed(view, draft, near, site)))
    if smaller < wanted or draft.status.target is None:
        _set(view, draft, min(smaller, wanted))
        return
    larger = min(view.job.max_replicas, room)
    if larger > wanted and len(view.running) >= wanted:
        due = (unix(draft.status.target_time) or view.now) + GROWS_SECONDS
        if dry.seen(view, draft.status, site) is not None:
            due = max(due, view.now + GROWS_SECONDS)
        if view.now < due:
            draft.wakes.append(due)
            return
        draft.event(names.REASON_SCALED, f"The job grows from {wanted} to {larger} workers: there is room in {site.title}.")
        _set(view, draft, larger)


def _set(view: View, draft: Draft, target: int) -> None:
    draft.status = replace(draft.status, target=target, target_time=stamp(view.now))


def _room(view: View, me: Claim, near: Near, site: Site) -> int:
    """Workers for which there would be room; without a stack nobody knows a bound."""
    if not site.fits:
        return view.job.max_replicas
    ledger = Ledger(view.observed.platform)
    in_need = any(other.hungry_since is not None for other, _ in near)
    for other, place in near:
        # Of several that can make room, those behind do so first.
        gives = in_need and other.automatic and other.rank > me.rank
        ledger.take(place, other.holds if gives else max(other.holds, other.placed))
    return ledger.room(site)


def _without_late(view: View, draft: Draft, site: Site) -> int:
    """Workers that there are machines for, if those for the others are long overdue."""
    begun = waiting_since(view, homeless(view))
    if begun is None:
        return view.job.max_replicas
    # What the last change freed may be on its way to them.
    late = max(begun + site.patience_seconds, (unix(draft.status.target_time) or 0.0) + SHRINKS_SECONDS)
    if view.now < late:
        draft.wakes.append(late)
        return view.job.max_replicas
    words = [view.observed.supply.words.get(worker.uid) for worker in homeless(view)]
    none = f"no machine came for {site.patience_seconds:.0f} s"
    said = next((word.message for word in words if word and not word.triggered), none)
    if site.fits and not missing_base(view):  # else that is remembered already, perhaps in other words (placing.py)
        dry.remember(view, draft, site, Drought(kind=dry.kind_of(said) or Kind.DRY, message=said, sure=True))
    return len(seated(view))


def _without_needed(view: View, draft: Draft, near: Near, site: Site) -> int:
    """Without as many as the jobs lack that have waited there for longer than a machine takes: the cloud gives no more."""
    limit = view.now - site.patience_seconds
    lacking = sum(
        other.least - other.placed for other, _ in near if other.hungry_since is not None and other.hungry_since <= limit
    )
    if lacking <= 0:
        return view.job.max_replicas
    due = (unix(draft.status.target_time) or 0.0) + SHRINKS_SECONDS
    if view.now < due:
        draft.wakes.append(due)
        return view.job.max_replicas
    return len(seated(view)) - lacking
