"""Moves of a placed job as a whole: out of a zone without machines, to on-demand machines and back to spot. Pure.

    move = to_other_machines(view, draft, me, site) or out_of_stockout(view, draft, me, site, stockout)
    move = next_try(view, draft, me, site, stockout)         # where no zone has machines: each in its turn, ever more seldom

A job that has minReplicas never moves for the sake of more, nor does one whose author names the zone. The one exception: what
spot-then-on-demand sent to on-demand machines goes back to spot from a checkpoint.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ebb.api.clock import unix
from ebb.api.needs import Wish
from ebb.api.parts import ANY, FALLBACK_SECONDS, ON_DEMAND, SINGLE, SPOT, SPOT_THEN_ON_DEMAND
from ebb.controller.reconciler import stockouts
from ebb.controller.reconciler.candidates import Candidate, best, sites
from ebb.controller.reconciler.capacity import Claim
from ebb.controller.reconciler.deadline_pace import Pace, pace
from ebb.controller.reconciler.queue import FreeCapacity, Queue, starving
from ebb.controller.reconciler.scheduling import doubled, missing_base, unscheduled
from ebb.controller.reconciler.stockouts import Stockout
from ebb.controller.reconciler.turns import turns_of
from ebb.controller.reconciler.types import JobView, PlanBuilder

# Spot shortages last minutes to hours (as market.RECENT_SECONDS); every way there and back costs the job a start.
RETURN_SECONDS, RETURN_MAX_SECONDS = 1800.0, 4 * 3600.0
RETRY_MAX_SECONDS = 1800.0  # between two tries of zones without machines; by then the first is not recent any more


@dataclass(frozen=True, kw_only=True)
class Move:
    """The target, the reason, and the number of fallbacks to on-demand machines by then."""

    site: Candidate
    why: str
    fallbacks: int


def to_other_machines(view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Move | None:
    """For spot-then-on-demand: to the other of the two."""
    if view.job.spec.placement.capacity != SPOT_THEN_ON_DEMAND:
        return None
    return _fall_back(view, draft, me) if site.capacity_type == SPOT else _return(view, draft, me, site)


def out_of_stockout(view: JobView, draft: PlanBuilder, me: Claim, site: Candidate, stockout: Stockout | None) -> Move | None:
    """To the best place that is not known to be dry."""
    if stockout is None or not stockouts.lasting(view, draft, site, stockout):
        return None
    for others in _others(view, me, site):
        available = [other for other in others if stockouts.seen(view, draft.status, other) is None]
        if available:
            return _go(view, draft, available, f"{site.title} has no machines for it: {stockout.message.rstrip('.')}")
    return None


def next_try(view: JobView, draft: PlanBuilder, me: Claim, site: Candidate, stockout: Stockout | None) -> Move | None:
    """Each try takes as long as all before it together, so that the job does not spend its time on the way."""
    if stockout is None or not stockouts.lasting(view, draft, site, stockout):
        return None
    assert draft.status.placement is not None
    placed = unix(draft.status.placement.since) or 0.0
    waited = placed - (unix(draft.status.waiting_since) or placed)
    due = placed + min(max(site.patience_seconds, waited), RETRY_MAX_SECONDS)
    found = [other for others in _others(view, me, site) for other in others] if view.now >= due else []
    if not found:
        # Others may be dry no longer before that.
        draft.wakes.append(min(due, view.now + site.patience_seconds) if view.now < due else view.now + site.patience_seconds)
        return None
    return _go(view, draft, found, f"{site.title} is still dry, and this was not tried for longest")


def open_sites(view: JobView, me: Claim, line: Queue, found: list[Candidate], left: FreeCapacity) -> list[Candidate]:
    """Those of which enough is left for minReplicas, and where no job before it starves."""
    return [site for site in found if left.room(site) >= me.least and not starving(me, line, site, view.now)]


def fallback_due(view: JobView, wakes: list[float]) -> bool:
    """Return whether spot machines could not be had for as long as the job says or, where it does not, its deadline permits."""
    since, known = unix(view.job.status.waiting_since), _deadline_pace(view)
    if known:
        due = known.presses_at
    elif since is not None:
        due = since + _patience(view)
    else:
        return False
    if view.now < due:
        wakes.append(due)
    return view.now >= due


def _patience(view: JobView) -> int:
    asked = view.job.spec.placement.fallback_after_seconds
    return FALLBACK_SECONDS if asked is None else asked


def _deadline_pace(view: JobView) -> Pace | None:
    """Only where the job does not say itself when to fall back."""
    return pace(view) if view.job.spec.placement.fallback_after_seconds is None else None


def _fall_back(view: JobView, draft: PlanBuilder, me: Claim) -> Move | None:
    """Move a job below minReplicas. One that its deadline presses goes if it lacks any worker: with fewer it is too slow."""
    known = _deadline_pace(view)
    if not (unscheduled(view) if known else missing_base(view)) or not fallback_due(view, draft.wakes):
        return None
    placed = draft.status.placement
    assert placed is not None
    why = f"no spot machines for {_patience(view)} s"
    if known:
        why = f"spot machines are lacking, and {known.left / 3600:.1f} h of training are left until {view.job.spec.deadline}"
    return _go(view, draft, _sites_of(view, me, ON_DEMAND), why, placed.fallbacks + 1)


def _return(view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Move | None:
    """The pause doubles with every fallback, as each shows that spot machines are hard to keep. Not if the deadline is near."""
    placed = draft.status.placement
    assert placed is not None
    pause = doubled(RETURN_SECONDS, placed.fallbacks - 1, RETURN_MAX_SECONDS)
    due = (unix(placed.since) or view.now) + pause
    known = _deadline_pace(view)
    if known and view.now >= known.roomy_until:
        return None
    if view.now < due:
        draft.wakes.append(due)
        return None
    if not _at_checkpoint(view):
        return None
    available = [other for other in _sites_of(view, me, SPOT) if stockouts.seen(view, draft.status, other) is None]
    if not available:
        draft.wakes.append(view.now + site.patience_seconds)
    return _go(view, draft, available, "spot machines may be had again")


def _at_checkpoint(view: JobView) -> bool:
    """Return whether one was just written. A job that reports none writes one when stopped; one that waits loses nothing."""
    if not view.trains(view.job.status):
        return True
    known, seen = view.job.status.progress, view.observed.progress
    before, after = (progress.checkpoint_step if progress else None for progress in (known, seen))
    if before is None and after is None:
        return True
    return before is not None and after is not None and after > before


def _others(view: JobView, me: Claim, site: Candidate) -> Iterator[list[Candidate]]:
    """Sites that the job may go to from here, by how the machines are bought."""
    if view.job.spec.placement.zone not in (SINGLE, ANY):
        return
    asked = view.job.spec.placement.capacity
    # From on-demand zones that have run out of machines there is also the way back.
    ways = dict.fromkeys((site.capacity_type, SPOT)) if asked == SPOT_THEN_ON_DEMAND else (asked,)
    for way in ways:
        # One that is not in the stack any more may go anywhere.
        yield [other for other in _sites_of(view, me, way) if not (site.fits and other.overlaps(site))]


def _sites_of(view: JobView, me: Claim, way: str | None) -> list[Candidate]:
    platform = view.observed.platform
    if platform is None:
        return []
    line = turns_of(view).line(view, me)
    return open_sites(view, me, line, sites(Wish.of(view.job), platform, way), line.free)


def _go(view: JobView, draft: PlanBuilder, found: list[Candidate], why: str, fallbacks: int | None = None) -> Move | None:
    if not found:
        return None
    placed = draft.status.placement
    assert placed is not None
    to = best(found, view.wanted, view.observed.cluster_capacity, partial(stockouts.seen, view, draft.status))
    return Move(site=to, why=why, fallbacks=placed.fallbacks if fallbacks is None else fallbacks)
