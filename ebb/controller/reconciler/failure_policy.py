"""Counts what happened to workers, each loss once: the planner's bookkeeping in status.members, reclaims and failures.

    failed = account(view, draft)       # workers whose program failed and for which nothing is counted yet
    number, rule = matching_rule(view.job, draft.status, failed[0][0])     # what the job itself says of such a failure

Only here do reclaims grow. Failures of the program are handed back, because what they cost is the planner's decision. Losses that
the controller caused itself (scaled down, restarted with the group, a machine left before it is too old) are settled without
being counted, and that is written before the pods are deleted: afterwards there is no trace of who wanted them away. Pure.
"""

import re
from dataclasses import replace

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.parts import ALL_WORKERS, RESTART_IN_PLACE, FailureRule
from ebb.api.spec import Job
from ebb.api.status import LEFT, PROGRAM_FAILED, RECLAIMED, HistoryEntry, Member, RuleUse, Status
from ebb.controller.reconciler import short_lives
from ebb.controller.reconciler.types import JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Outcome, Worker, WorkerVerdict, numbered

OURS = "Stopped"  # settled: the controller itself stopped it
BY_PLAN = frozenset({OURS, names.CAUSE_AGE})  # settled before it went, for the controller's own reasons
FINISHED = "Finished"
MOST_NAMED = 3  # machines in one sentence
OF_ONE = re.compile("^its ")
# A program that asks its GPUs for something wrong, or an image that does not fit the machines' driver, breaks every machine that
# it gets: so many that fail one job, each so soon after the last, are not believed any more. It is not so many within so long:
# machines that take half an hour to come, and then fail their check, would be bought for ever. A large job loses a GPU in weeks.
MOST_FAULTS, FAULTS_SECONDS = 3, 3600.0

Loss = tuple[Worker, WorkerVerdict]


def account(view: JobView, draft: PlanBuilder) -> list[Loss]:
    """Update members, succeeded indices and reclaims; return the failures of the program that are new."""
    known = {member.uid: member for member in draft.status.members}
    present = {worker.uid for worker, _ in view.workers}
    losses = _Losses(view, draft)
    for uid, member in known.items():
        if uid not in present:
            _vanished(losses, member)
    losses.tell(again=True)
    members, failures = [], []
    for worker, verdict in view.workers:
        member = replace(known.get(worker.uid) or Member(index=worker.index, uid=worker.uid), node=worker.node)
        # A worker that was to be stopped may have finished by itself before anybody asked for its deletion.
        unasked = member.settled in BY_PLAN and verdict.outcome is Outcome.DONE and not worker.leaving
        if not member.settled or unasked:
            believed = _limit_faults(view, draft.status, verdict)
            cause = _settle(losses, worker, believed)
            member = replace(member, settled=cause)
            if believed.outcome is Outcome.RECLAIMED and cause == believed.cause:
                short_lives.note(view, draft, worker, believed)
            if cause == names.CAUSE_PROGRAM:
                failures.append((worker, believed))
        members.append(member)
    losses.tell()
    draft.status = replace(draft.status, members=tuple(members))
    return failures


class _Losses:
    """Workers that are lost in this look: each in the history, and one event for all that have one reason. Of a machine with
    eight of them, or of a whole zone, people and the API server need no more."""

    def __init__(self, view: JobView, draft: PlanBuilder) -> None:
        self.view, self.draft = view, draft
        self._lost: dict[str, list[tuple[int, str]]] = {}  # why -> workers and their machines

    def add(self, index: int, node: str, verdict: WorkerVerdict, *, again: bool = False) -> None:
        """`again`: the next look would find the same."""
        if not node:
            return
        at, draft = stamp(self.view.now, digits=3), self.draft
        draft.status = replace(draft.status, reclaims=draft.status.reclaims + 1)
        draft.remember(HistoryEntry(at=at, what=RECLAIMED, worker=index, node=node, cause=verdict.cause), again=again)
        reason = verdict.message.rstrip(".")
        if verdict.cause == names.CAUSE_HARDWARE:
            message = (
                f"Worker {index} left {node}: {reason}. It will be replaced on another machine, and nothing is spent. Other jobs "
                f"may still go to {node}: `kubectl cordon {node}` keeps them off until somebody has looked at it."
            )
            draft.event(names.REASON_HARDWARE, message, warning=True)
            return
        self._lost.setdefault(reason, []).append((index, node))

    def tell(self, *, again: bool = False) -> None:
        """Tell of those that were added since the last time."""
        for reason, lost in self._lost.items():
            machines = list(dict.fromkeys(node for _, node in lost))
            more = len(machines) - MOST_NAMED
            where = ", ".join(machines[:MOST_NAMED]) + (f" and {more} more machine{'s' * (more > 1)}" if more > 0 else "")
            who = numbered([index for index, _ in lost]).capitalize()
            if len(lost) == 1:
                message = f"{who} on {where} is lost: {reason}. It will be replaced."
            else:
                each = OF_ONE.sub("each one's ", reason)
                message = f"{who} on {where} are lost: {each}. They will be replaced."
            self.draft.event(names.REASON_RECLAIMED, message, warning=True, again=again)
        self._lost.clear()


def stand_down(view: JobView, draft: PlanBuilder) -> None:
    """Settle all workers as stopped by us; but one that has finished by itself has finished."""
    settled = {item.uid for item in draft.status.members if item.settled}
    for worker, verdict in view.workers:
        if verdict.outcome is Outcome.DONE and worker.uid not in settled:
            _succeeded(view, draft, worker)
    members = tuple(Member(index=item.index, uid=item.uid, node=item.node, settled=OURS) for item, _ in view.workers)
    draft.status = replace(draft.status, members=members)


def trained(view: JobView, status: Status) -> bool:
    """Return whether the training is over for the job: spec.successPolicy says how many workers must have finished."""
    if view.job.spec.success_policy == ALL_WORKERS:
        return view.finished(status) >= view.wanted
    return bool(status.succeeded_indices)


def stop(draft: PlanBuilder, worker: Worker) -> None:
    """Delete a worker for the controller's own reasons: whatever becomes of it is not counted."""
    draft.delete(worker, once_written=True)
    draft.settle(worker.uid, OURS)


def dismiss(draft: PlanBuilder) -> None:
    """Write down that all workers are to be stopped, which is done in the next round: what becomes of them is not counted."""
    members = tuple(replace(member, settled=member.settled or OURS) for member in draft.status.members)
    draft.status = replace(draft.status, members=members)


def faulty_machines(status: Status) -> frozenset[str]:
    """The machines whose hardware has failed this job: it goes there no more."""
    return frozenset(entry.node for entry in status.history if entry.cause == names.CAUSE_HARDWARE and entry.node)


def dismissed(view: JobView) -> set[str]:
    """UIDs of the pods of which that is written. They are stopped, even if the reason has passed."""
    return {member.uid for member in view.job.status.members if member.settled in BY_PLAN}


def _settle(losses: _Losses, worker: Worker, verdict: WorkerVerdict) -> str:
    """Count one worker's outcome; returns the cause to write down, "" as long as it lives."""
    view, draft = losses.view, losses.draft
    if verdict.outcome is Outcome.LIVES:
        return ""
    if verdict.outcome is Outcome.DONE:
        return _succeeded(view, draft, worker)
    if worker.index >= view.wanted or worker.attempt < draft.status.restarts or trained(view, draft.status):
        return OURS
    if verdict.outcome is Outcome.RECLAIMED:
        losses.add(worker.index, worker.node, verdict)
    if verdict.outcome is Outcome.LEAVES:
        # Told, not counted: the time that it costs is in the job's figures as any other.
        at = stamp(view.now, digits=3)
        draft.remember(HistoryEntry(at=at, what=LEFT, worker=worker.index, node=worker.node, cause=verdict.cause))
        draft.event(names.REASON_LEAVES, f"Worker {worker.index} leaves {worker.node}: {verdict.message}. It will be replaced.")
    return verdict.cause


def _limit_faults(view: JobView, status: Status, verdict: WorkerVerdict) -> WorkerVerdict:
    """The same, but for one hardware fault too many."""
    in_a_row, last = 0, view.now
    for entry in reversed(status.history):
        if entry.cause == names.CAUSE_HARDWARE or entry.what == PROGRAM_FAILED:  # as which the fourth was counted
            at = unix(entry.at) or 0.0
            if last - at > FAULTS_SECONDS:
                break
            in_a_row, last = in_a_row + (entry.cause == names.CAUSE_HARDWARE), at
    if verdict.cause != names.CAUSE_HARDWARE or in_a_row < MOST_FAULTS:
        return verdict
    believed = f"after {MOST_FAULTS} other machines, each soon after the last: the program or its image is at fault"
    message = f"{verdict.message} ({believed})"
    return replace(verdict, outcome=Outcome.FAILED, cause=names.CAUSE_PROGRAM, message=message)


def _succeeded(view: JobView, draft: PlanBuilder, worker: Worker) -> str:
    status = draft.status
    indices = tuple(sorted({*status.succeeded_indices, worker.index}))
    first = status.first_success_time or stamp(view.now)
    draft.status = replace(status, succeeded_indices=indices, first_success_time=first)
    return FINISHED


def _vanished(losses: _Losses, member: Member) -> None:
    """A pod that is gone without a trace. One that never had a machine cost nothing, and nobody reclaimed it."""
    view, draft = losses.view, losses.draft
    if member.settled or not member.node or member.index >= view.wanted or trained(view, draft.status):
        return
    gone = member.node in view.observed.gone
    verdict = WorkerVerdict(
        outcome=Outcome.RECLAIMED,
        cause=names.CAUSE_NODE_GONE if gone else names.CAUSE_VANISHED,
        message="its machine is gone" if gone else "its pod disappeared",
    )
    losses.add(member.index, member.node, verdict, again=True)


def matching_rule(job: Job, status: Status, worker: Worker) -> tuple[int, FailureRule] | None:
    """The first rule of spec.failurePolicy that fits this failure and is not used up, with its number, from 1; where there is
    none, restartPolicy and backoffLimit say what happens."""
    policy = job.spec.failure_policy
    for number, rule in enumerate(policy.rules if policy else (), 1):
        used_up = rule.times is not None and _times(status, number) >= rule.times
        # What the launcher was to start again in its pod, and did not, or too often, is the next rule's.
        if rule.action != RESTART_IN_PLACE and not used_up and _fits(rule, worker):
            return number, rule
    return None


def count_rule(status: Status, number: int) -> Status:
    """Write down another use of the rule."""
    others = [use for use in status.failure_rules if use.rule != number]
    uses = [*others, RuleUse(rule=number, times=_times(status, number) + 1)]
    return replace(status, failure_rules=tuple(sorted(uses, key=lambda use: use.rule)))


def _times(status: Status, number: int) -> int:
    return next((use.times for use in status.failure_rules if use.rule == number), 0)


def _fits(rule: FailureRule, worker: Worker) -> bool:
    """All that the rule names has to fit; a rule that names nothing is refused before."""
    reasons = {worker.exit_reason, (worker.pod.get("status") or {}).get("reason", "")}
    words = worker.exit_message or str((worker.pod.get("status") or {}).get("message") or "")
    return (
        (not rule.on_exit_codes or worker.exit_code in rule.on_exit_codes)
        and (not rule.on_reasons or not reasons.isdisjoint(rule.on_reasons))
        and (not rule.on_message or rule.on_message in words)
    )
