"""The queue that says when a job may have machines: the controller's own, or Kueue for a job that names a queue of Kueue's. Pure.

    turns = turns_of(view)                      # the one place where the planner asks whose turn it is
    turns.refusal(view, draft, me)              # why the job is to have no workers now
    turns.line(view, me)                        # what others leave of every site
    turns.displaced(view, draft, me, site)      # the job for which this one gives up its place
    turns.yields(view, draft, me, site)         # the job for which it lets go of too few machines to start with

The own queue is in queue.py, fair_share.py, lending.py, preemption.py and quotas.py. Under Kueue nobody waits behind anybody
here, and no place is given up but by eviction (workload.py): what other jobs leave only says which of several zones to take
first. A job that Kueue has admitted still holds its machines against those of the own queue, but none of them makes it stop.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from ebb.api import contract as names
from ebb.controller.reconciler import lending, quotas, team_budget
from ebb.controller.reconciler.candidates import Candidate
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity
from ebb.controller.reconciler.preemption import preempted_by, pushed_off
from ebb.controller.reconciler.queue import FreeCapacity, Queue, borrows, queue, yields_to
from ebb.controller.reconciler.types import JobView, PlanBuilder

AGAIN_SECONDS = 30.0  # what changes for a waiting job wakes it (claims.py); this is for what was missed

Wait = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Displaced:
    """A job's place goes to another one. `loan`: it was that one's from the beginning; `quota`: that one's team has lent it of
    its quota; `turn`: that one has its turn beyond its team's quota; else that one's priority is higher."""

    by: Claim
    there: Candidate
    loan: bool = False
    quota: bool = False
    turn: bool = False


class Turns(Protocol):
    """See the module's docstring."""

    lends: bool  # what is spare beyond what others leave is on loan

    def refusal(self, view: JobView, draft: PlanBuilder, me: Claim) -> Wait | None: ...
    def line(self, view: JobView, me: Claim) -> Queue: ...
    def displaced(self, view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Displaced | None: ...
    def yields(self, view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Claim | None: ...


class OwnQueue:
    """The controller's own queue."""

    lends = True

    def refusal(self, view: JobView, draft: PlanBuilder, me: Claim) -> Wait | None:
        return team_budget.verdict(view, draft) or lending.verdict(view, me) or quotas.verdict(view, draft, me)

    def line(self, view: JobView, me: Claim) -> Queue:
        return queue(me, view.observed.cluster_capacity, view.observed.platform)

    def displaced(self, view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Displaced | None:
        urgent = preempted_by(view, me)
        if urgent:
            return Displaced(by=urgent[0], there=urgent[1])
        observed = view.observed
        lent = me.loan or borrows(me, observed.cluster_capacity, observed.platform)
        ended = self._loan_ends(view, draft, me, site) if lent else None
        if ended:
            return ended
        above = pushed_off(view, draft, me)
        return Displaced(by=above, there=site) if above else None

    def yields(self, view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Claim | None:
        return yields_to(view, draft, me, site)

    def _loan_ends(self, view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Displaced | None:
        """The job that was placed on the machines, or within the quota, that this one has on loan. Where its own turn has come,
        the place is its own."""
        line = self.line(view, me)
        assert draft.status.placement is not None
        draft.wakes.append(view.now + AGAIN_SECONDS)
        if me.loan and line.free.room(site) >= me.least:
            draft.status = replace(draft.status, placement=replace(draft.status.placement, on_loan=False))
            return None
        if not site.fits or line.firm is None or line.firm.room(site) >= me.least:
            return None
        allowed = line.firm.within_quota(site)
        quota = allowed is not None and allowed < me.least
        found = [one for one, place in line.holders if (not line.borrows(one) if quota else place.overlaps(site))]
        by = min(found, key=lambda one: (not one.waits, one.loan, -one.created if quota else 0.0, one.order), default=None)
        turn = by is not None and by.key == line.turn
        return Displaced(by=by, there=site, loan=not quota and not turn, quota=quota and not turn, turn=turn) if by else None


class KueueQueue:
    """Kueue's queue, as the job's Workload says; and the team's budget, which is not Kueue's."""

    lends = False

    def refusal(self, view: JobView, draft: PlanBuilder, me: Claim) -> Wait | None:
        admission = view.admission
        if admission.unknown or (admission.wait and admission.wait[0] == names.WAITING_NO_KUEUE):
            draft.wakes.append(view.now + AGAIN_SECONDS)  # that its objects can be seen again is no change of any of them
        return team_budget.verdict(view, draft) or admission.wait

    def line(self, view: JobView, me: Claim) -> Queue:
        others, platform = view.observed.cluster_capacity, view.observed.platform
        located = ClusterCapacity(claims=tuple(one for one in others.claims if one.located), dry=others.dry)
        # Quotas that teams lend are the own queue's.
        platform = replace(platform, teams=()) if platform else None
        return replace(queue(me, located, platform), spare=FreeCapacity(platform), holders=(), waiting=())

    def displaced(self, view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Displaced | None:
        return None

    def yields(self, view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Claim | None:
        return None


OWN, KUEUE = OwnQueue(), KueueQueue()
EVENTS = {names.WAITING_FOR_KUEUE: names.REASON_EVICTED}
"""By the reason to wait: the event of a job that had workers until then, where it is not MachinesReleased."""


def turns_of(view: JobView) -> Turns:
    """The queue that a job is in."""
    return KUEUE if view.job.queue else OWN
