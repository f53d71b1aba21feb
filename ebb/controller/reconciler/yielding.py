"""Two jobs that each hold half of what both need would wait for ever: the one behind lets go. Pure.

    starving(me, line, site, now)                   # a job before this one that gets no machines there: nobody joins it
    gives_way_to(view, draft, me, site)             # the job for which this one shall let go of all that it holds

All follows from the order of jobs, in which nobody is before himself: the first that waits at a site keeps what it has, and those
behind let go one after the other until it has minReplicas. They come back when it has, or is gone.
"""

from dataclasses import replace

from ebb.controller.reconciler.candidates import Site
from ebb.controller.reconciler.capacity import Claim, Market
from ebb.controller.reconciler.queue import Line, queue
from ebb.controller.reconciler.scheduling import missing_base, waiting_since
from ebb.controller.reconciler.types import Draft, View


def starving(me: Claim, line: Line, site: Site, now: float) -> Claim | None:
    """The first of the jobs before this one that has waited there for longer than a machine takes."""
    latest = now - site.patience_seconds
    found = [
        claim
        for claim, place in line.holders
        if claim.hungry_since is not None and claim.hungry_since <= latest and claim.rank < me.rank and place.overlaps(site)
    ]
    return min(found, key=lambda claim: claim.rank, default=None)


def gives_way_to(view: View, draft: Draft, me: Claim, site: Site) -> Claim | None:
    """Only of a job that has waited for so long itself: before that its machines may still come."""
    begun = waiting_since(view, missing_base(view))
    if begun is None:
        return None
    due = begun + site.patience_seconds
    if view.now < due:
        draft.wakes.append(due)
        return None
    market, platform = view.observed.market, view.observed.platform
    alone = queue(me, market, platform)
    return starving(me, alone, site, view.now) or _kept_out(me, market, alone, view)


def _kept_out(me: Claim, market: Market, alone: Line, view: View) -> Claim | None:
    """A job before this one that has no place, and would have one without it."""
    with_me = queue(me, replace(market, claims=(*market.claims, me)), view.observed.platform)
    blocked = {turn.claim.key for turn in alone.waiting if turn.blocked}
    return next((turn.claim for turn in with_me.waiting if turn.blocked and turn.claim.key not in blocked), None)
