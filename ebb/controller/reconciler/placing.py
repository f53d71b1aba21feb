"""The choice of a place for the workers, before any pod exists, and their move as a whole. Pure.

    may_create = place(view, draft)         # False: the job has no new pods now, and its condition says for what it waits

A change of status.placement is written first; in the next round the pods that are held to another place are stopped, and new ones
are made when the last of those is gone: a job is never in two places.
"""

from dataclasses import replace
from functools import partial

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.needs import Wish
from ebb.api.platform import Platform
from ebb.api.status import PLACED, HistoryEntry, Placed
from ebb.api.template import worker_container
from ebb.controller.reconciler import stockouts, sweep
from ebb.controller.reconciler.candidates import Candidate, best, candidate_of, complaint, sites, unplaced, ways
from ebb.controller.reconciler.capacity import TURN_SECONDS, Claim, claim
from ebb.controller.reconciler.containers import rendezvous
from ebb.controller.reconciler.failure_policy import dismiss, stop
from ebb.controller.reconciler.preemption import kept_off
from ebb.controller.reconciler.queue import Queue, starving
from ebb.controller.reconciler.relocation import (
    Move,
    fallback_due,
    next_try,
    open_sites,
    out_of_stockout,
    to_other_machines,
)
from ebb.controller.reconciler.scheduling import gated_base
from ebb.controller.reconciler.summary import blocked, here, strangers, summarize
from ebb.controller.reconciler.turns import AGAIN_SECONDS, EVENTS, Displaced, turns_of
from ebb.controller.reconciler.types import JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Outcome

IN_LINE = (
    names.WAITING_BEHIND,
    names.WAITING_FOR_GROUP,
    names.WAITING_FOR_QUOTA,
    names.WAITING_TEAM_BUDGET,
    names.WAITING_FOR_KUEUE,
)


def place(view: JobView, draft: PlanBuilder) -> bool:
    """See the module's docstring."""
    me = replace(claim(view.job, view.observed.priorities, view.now), share=view.observed.share)
    refused = turns_of(view).refusal(view, draft, me)
    if refused:
        return _give_back(view, draft, *refused)
    _tell_admission(view, draft)
    if draft.status.placement is None:
        return _first(view, draft, me) and not _too_early(view, draft)
    if _too_early(view, draft):
        return False
    lacking = _lacking(view)
    if lacking:
        return _wait(view, draft, *lacking)
    if gated_base(view):
        return True  # the job stays as it is, for as long as somebody wants
    return _stay_or_go(view, draft, me)


def _too_early(view: JobView, draft: PlanBuilder) -> bool:
    """Return whether no worker may be made yet. Those that are at another place are stopped."""
    leaving = strangers(view, draft.status)
    for worker in leaving:
        if not worker.leaving:
            stop(draft, worker)
    if leaving or view.admission.unknown:  # workers that were made now would lack what Kueue wants of them
        draft.status = summarize(view, draft.status)
        return True
    return False


def _stay_or_go(view: JobView, draft: PlanBuilder, me: Claim) -> bool:
    """Leave the place of a job for another one, or for a job that goes first, where there is a reason to."""
    turns, site = turns_of(view), here(view, draft.status)
    displaced = turns.displaced(view, draft, me, site)
    if displaced:
        return _give_way(view, draft, displaced)
    stockout = stockouts.find(view, site, draft.wakes)
    if site.fits:
        stockouts.remember(view, draft, site, stockout)
    move = to_other_machines(view, draft, me, site) or out_of_stockout(view, draft, me, site, stockout)
    first = None if move else turns.yields(view, draft, me, site)
    if first:
        return _release(view, draft, first, site)
    move = move or next_try(view, draft, me, site, stockout)
    return _move(view, draft, move, site) if move else True


def _lacking(view: JobView) -> tuple[str, str] | None:
    """The need of the platform that cannot be met now: reason and message."""
    if view.observed.platform_problem:
        # Workers made now would lack the volumes and tolerations that only the platform knows of.
        return names.WAITING_FOR_PLATFORM, view.observed.platform_problem
    container = worker_container(view.job.worker.template["spec"]["containers"])
    problem = rendezvous(view.job, container, view.observed.platform).problem
    return (names.WAITING_FOR_RENDEZVOUS, problem) if problem else None


def _first(view: JobView, draft: PlanBuilder, me: Claim) -> bool:
    """Choose a place for a job that has none."""
    observed, held = view.observed, _held(view)
    lacking = _lacking(view)
    if lacking:
        return _wait(view, draft, *lacking)
    turns = turns_of(view)
    line = turns.line(view, me)
    full = sweep.waits(view, draft)
    if me.group and line.in_group >= me.group_max:
        full = full or f"group {me.group!r} runs {me.group_max} at once, as its maxParallel says: this one waits for its turn."
    if full and not held:
        return _wait(view, draft, names.WAITING_FOR_GROUP, full)
    if observed.platform is None:
        return _first_without_stack(view, draft, me, line)
    known = _candidates(view, observed.platform, draft.wakes)
    for left in (line.free, line.spare):
        for some in known:
            found = ([site for site in some if site.zone in held] or some) if held else open_sites(view, me, line, some, left)
            if found:
                last_dry = partial(stockouts.seen, view, draft.status)
                site = best(found, view.wanted, observed.cluster_capacity, last_dry)
                owned = left is line.free or not turns.lends
                return _settle(view, draft, me, line, site) if owned else _borrow(view, draft, line, site)
    if not known:
        return _wait(view, draft, names.WAITING_FOR_ZONE, _complaint(view, observed.platform))
    roomiest = max((site for some in known for site in some), key=lambda site: (line.free.room(site), site.zone))
    return _wait_behind(view, draft, me, line, roomiest)


def _first_without_stack(view: JobView, draft: PlanBuilder, me: Claim, line: Queue) -> bool:
    """On a cluster that no stack of ours describes, nothing is known of zones and of what may grow."""
    site = candidate_of(Wish.of(view.job), unplaced(view.job), None)
    above = None if view.job.queue else kept_off(view, draft, me)
    if above:
        return _wait(view, draft, names.WAITING_BEHIND, f"{_title(above)} goes first in {site.title}.")
    if starving(me, line, site, view.now) and not _held(view):
        return _wait_behind(view, draft, me, line, site)
    return _settle(view, draft, me, line, site)


def _candidates(view: JobView, platform: Platform, wakes: list[float]) -> list[list[Candidate]]:
    """Sites that hold minReplicas, by how the machines are bought: what is to be tried first, and if that could not be had for
    long enough, the next."""
    wish = Wish.of(view.job)
    able = [[site for site in sites(wish, platform, way) if site.room >= wish.least] for way in ways(wish)]
    found = [some for some in able if some]
    return found if len(found) < 2 or fallback_due(view, wakes) else found[:1]


def _complaint(view: JobView, platform: Platform) -> str:
    wish = Wish.of(view.job)
    return complaint(wish, platform, [site for way in ways(wish) for site in sites(wish, platform, way)])


def _held(view: JobView) -> set[str]:
    """Zones to which workers are held that the controller does not mean to stop: a status was lost. "": they are held to none."""
    settled = {member.uid for member in view.job.status.members if member.settled}
    alive = [worker for worker, verdict in view.workers if verdict.outcome is Outcome.LIVES and worker.uid not in settled]
    return {(worker.pod["spec"].get("nodeSelector") or {}).get(names.LABEL_ZONE, "") for worker in alive}


def _settle(view: JobView, draft: PlanBuilder, me: Claim, line: Queue, site: Candidate) -> bool:
    placed = site.placed(stamp(view.now))
    turn = line.turn == me.key
    until = stamp(view.now + TURN_SECONDS) if turn and not me.turn else draft.status.turn_until
    draft.status = replace(draft.status, placement=placed, turn_until=until)
    if placed.zone:
        _enter(view, draft, placed)
        lent, after = line.loan_words(me), f"after {until}, " if turn else ""
        back = f", {lent}: {after}when that needs them, this one stops with a checkpoint." if lent else "."
        draft.event(names.REASON_PLACED, f"Workers go to zone {site.title}{back}")
    return True


def _borrow(view: JobView, draft: PlanBuilder, line: Queue, site: Candidate) -> bool:
    """Use machines on loan (queue.py)."""
    placed = site.placed(stamp(view.now), on_loan=True)
    draft.status = replace(draft.status, placement=placed)
    _enter(view, draft, placed)
    first = next((turn.claim for turn in line.waiting if turn.blocked and turn.site.overlaps(site)), None)
    kept = f"{_title(first)}, which cannot start yet" if first else "jobs that cannot start yet"
    message = f"Workers go to zone {site.title}, on machines kept for {kept}: when it can, this one stops with a checkpoint."
    draft.event(names.REASON_PLACED, message)
    return True


def _give_way(view: JobView, draft: PlanBuilder, displaced: Displaced) -> bool:
    """Let go of the place for the job that it goes to; the workers are stopped in the next round."""
    first, there, who = _title(displaced.by), displaced.there.title, "this one"
    if displaced.loan:
        who, why = "it", f"{first}, which goes first in {there}, can start now on the machines that this one had meanwhile"
    elif displaced.turn:
        why = f"{first} is larger than its team's quota, has waited for a day, and can start now"
    elif displaced.quota:
        why = f"{first} needs the GPUs of its team's quota that this one's team has borrowed"
    else:
        why = f"{first} has a higher priority ({displaced.by.priority}) and needs the machines in {there}"
    dismiss(draft)
    draft.status = replace(draft.status, placement=None)
    message = f"{why}: {who} is stopped with a checkpoint, and goes on by itself when there is room."
    lent = displaced.loan or displaced.quota or displaced.turn
    draft.event(names.REASON_RELEASED if lent else names.REASON_PREEMPTED, message)
    return _wait(view, draft, names.WAITING_BEHIND, f"{first} goes first in {there}.")


def _move(view: JobView, draft: PlanBuilder, move: Move, site: Candidate) -> bool:
    """Write it down; the workers are stopped in the next round."""
    placed = move.site.placed(stamp(view.now), move.fallbacks)
    dismiss(draft)
    draft.status = replace(draft.status, placement=placed)
    _enter(view, draft, placed)
    draft.event(names.REASON_MOVED, f"The job goes from {site.title} to {move.site.title}: {move.why}.")
    draft.status = summarize(view, draft.status)
    return False


def _release(view: JobView, draft: PlanBuilder, first: Claim, site: Candidate) -> bool:
    """Let go of the place; the workers are stopped in the next round."""
    dismiss(draft)
    draft.status = replace(draft.status, placement=None)
    message = f"Not all machines came in time, and {_title(first)} goes first in {site.title}: this one lets go of what it has."
    draft.event(names.REASON_RELEASED, message)
    return _wait(view, draft, names.WAITING_BEHIND, f"{_title(first)} goes first in {site.title}.")


def _give_back(view: JobView, draft: PlanBuilder, reason: str, message: str) -> bool:
    """Let go of what a quota let in, which is less than the job needs; the workers are stopped in the next round."""
    if draft.status.placement is not None or _held(view):
        dismiss(draft)
        draft.status = replace(draft.status, placement=None)
        draft.event(EVENTS.get(reason, names.REASON_RELEASED), message)
    return _wait(view, draft, reason, message)


def _tell_admission(view: JobView, draft: PlanBuilder) -> None:
    """Say that Kueue lets a job have machines that waited for that until now."""
    before = draft.status.condition(names.RUNNING)
    if view.job.queue and view.admission.most is not None and before and before.reason == names.WAITING_FOR_KUEUE:
        most, asked = view.admission.most, view.job.max_replicas if view.job.automatic else view.job.worker.replicas
        through = f"ClusterQueue {view.admission.cluster_queue!r}"
        draft.event(names.REASON_ADMITTED, f"Kueue admitted {min(most, asked)} of {asked} workers through {through}.")


def _enter(view: JobView, draft: PlanBuilder, placed: Placed) -> None:
    draft.remember(HistoryEntry(at=stamp(view.now, digits=3), what=PLACED, cause=placed.zone))


def _wait_behind(view: JobView, draft: PlanBuilder, me: Claim, line: Queue, site: Candidate) -> bool:
    if line.turn == me.key:
        kept = f"This job is larger than its team's quota and has waited for a day: machines in {site.title} are kept for it."
        return _wait(view, draft, names.WAITING_BEHIND, kept)
    short = line.short_of_quota(me, site)
    if short:
        return _wait(view, draft, names.WAITING_BEHIND, short)
    first = starving(me, line, site, view.now) or line.before(me, site)
    assert first is not None, site
    return _wait(view, draft, names.WAITING_BEHIND, f"{_title(first)} goes first in {site.title}.")


def _title(other: Claim) -> str:
    return f"job {other.key[0]}/{other.key[1]}"


def _wait(view: JobView, draft: PlanBuilder, reason: str, message: str) -> bool:
    """The job has no new pods; without a place it has none at all."""
    if draft.status.placement is None and not _held(view):
        for worker, _ in view.workers:
            if not worker.leaving:
                stop(draft, worker)
    if view.trains(draft.status):
        draft.status = summarize(view, draft.status)
        return False
    before = draft.status.condition(names.RUNNING)
    draft.status = blocked(view, draft.status, reason, message)
    in_line = reason in IN_LINE
    if in_line:
        draft.wakes.append(view.now + AGAIN_SECONDS)
    if before is None or before.reason != reason or (before.message != message and not in_line):
        draft.event(reason, message, warning=not in_line)
    return False
