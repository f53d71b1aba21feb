"""The end, suspension and cleanup of jobs: the planner's half for those that get no more workers. Pure.

An end is written to the status in one round and its workers are stopped in the next, so that a controller killed in between finds
an ended job, never one whose workers have disappeared.
"""

from dataclasses import replace

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.parts import CLEAN_ALL, CLEAN_NONE
from ebb.api.status import ENDED, HELD, HeldMachine, HistoryEntry, Hold
from ebb.controller.reconciler.failure_policy import stand_down, stop
from ebb.controller.reconciler.money import holders
from ebb.controller.reconciler.pods import drop_services
from ebb.controller.reconciler.records import record
from ebb.controller.reconciler.summary import count
from ebb.controller.reconciler.types import CreateRecord, DeleteJob, JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Outcome

ASKED = (names.REASON_SUSPENDED, "spec.suspend is true: workers are stopped, checkpoints are kept.")
# A job over its ttlSecondsAfterFinished waits this long for its record: a namespace full of ConfigMaps must not keep it for ever.
RECORD_SECONDS = 3600.0

SUCCESS_GRACE_SECONDS = 120.0  # after the first worker finished; rank 0 may still be testing the last weights


def finish(view: JobView, draft: PlanBuilder) -> None:
    """One worker finished, so the training is done: the others may finish too, those that never started need not."""
    for worker, verdict in view.workers:
        if verdict.outcome is Outcome.LIVES and not worker.started:
            stop(draft, worker)
    ends = (unix(draft.status.first_success_time) or view.now) + SUCCESS_GRACE_SECONDS
    if view.running and view.now < ends:
        draft.wakes.append(ends)
        draft.status = count(view, draft.status)
        return
    done = view.finished(draft.status)
    end(
        view,
        draft,
        names.SUCCEEDED,
        names.REASON_SUCCEEDED,
        f"The training finished: {done} of {view.wanted} workers exited with 0.",
    )


def hold(view: JobView, draft: PlanBuilder, reason: str, message: str, machine: HeldMachine | None = None) -> None:
    """Stop the job until its spec changes. Its workers leave in the next round, once that is written; but for the one on a
    machine that is held."""
    at = stamp(view.now, digits=3)
    held = Hold(reason=reason, message=message, generation=view.job.generation, at=at, machine=machine)
    draft.status = replace(draft.status, hold=held)
    draft.remember(HistoryEntry(at=at, what=HELD, cause=reason))


def suspend(view: JobView, draft: PlanBuilder, reason: str, message: str, *, keep: str = "") -> None:
    """All workers but the one with the UID `keep` leave within their grace; nothing is counted; the next start is as the first,
    from the checkpoint."""
    for worker, verdict in view.workers:
        if worker.uid != keep and not worker.leaving and not (verdict.outcome is Outcome.DONE and worker.finished):
            draft.delete(worker, once_written=True)
    stand_down(view, draft)
    status = count(view, draft.status)
    for kind in (names.RUNNING, names.RESTARTING):
        if status.condition(kind):
            status = status.with_condition(kind, False, reason, message, view.now)
    before = status.condition(names.SUSPENDED)
    if before is None or (before.status, before.message) != ("True", message):
        wanted = (names.REASON_SUSPENDED, names.REASON_SWEEP_WORST, names.REASON_SWEEP_PAUSED)
        draft.event(reason, message, warning=reason not in wanted)
    status = status.with_condition(names.SUSPENDED, True, reason, message, view.now)
    placement = status.placement if any(not worker.finished for worker, _ in view.workers) else None  # chosen anew on resume
    start = status.start_time if keep else None  # the job's time goes on with its machine
    draft.status = replace(
        status, state=names.SUSPENDED, start_time=start, placement=placement, short_lived=(), quota=None, gpus=()
    )


def end(view: JobView, draft: PlanBuilder, kind: str, reason: str, message: str) -> None:
    """The job is over for good. Its workers are cleaned up in the next round, once that is written."""
    status = count(view, draft.status)
    for other in (names.RUNNING, names.RESTARTING):
        if status.condition(other):
            status = status.with_condition(other, False, reason, message, view.now)
    status = status.with_condition(kind, True, reason, message, view.now)
    entry = HistoryEntry(at=stamp(view.now, digits=3), what=ENDED, cause=reason)
    draft.status = replace(status, state=kind, completion_time=stamp(view.now))
    draft.remember(entry)
    draft.event(reason, message, warning=kind == names.FAILED)


def after_end(view: JobView, draft: PlanBuilder) -> None:
    """Clean up as cleanPodPolicy says, and remove the job when its time is over. It never runs again, whatever is deleted."""
    policy = view.job.spec.clean_pod_policy
    if policy != CLEAN_NONE:
        for worker, _ in view.workers:
            if not worker.leaving and (policy == CLEAN_ALL or not worker.finished):
                draft.delete(worker)
        drop_services(view, draft)
    draft.status = replace(count(view, draft.status), members=())
    if not draft.status.recorded and (policy == CLEAN_NONE or not holders(view)):
        draft.actions.append(CreateRecord(record(view.job, draft.status, view.now)))
        draft.status = replace(draft.status, recorded=True)
    ended, ttl = unix(draft.status.completion_time), view.job.spec.ttl_seconds_after_finished
    if ended is not None and ttl is not None:
        due = ended + ttl + (0 if view.job.status.recorded else RECORD_SECONDS)
        if view.now >= due:
            draft.actions.append(DeleteJob())
        else:
            draft.wakes.append(due)  # a time in the past would bring the job back without end, should its deletion hang
