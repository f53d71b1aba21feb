"""What a job's state is called: counts, conditions, and how long it has been kept from training. Pure.

    status = summarize(view, status)                            # of a job that is neither suspended nor ended
    status = blocked(view, status, reason, message)             # of one that may have no new workers yet

waitingSince is when the workers became fewer than minReplicas. When enough run again, or the job ends or is suspended, that time
is added to secondsLost, if the job had trained before.
"""

from dataclasses import replace

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.status import ReplicaStatus, ReplicaStatuses, Status
from ebb.controller.reconciler.types import View
from ebb.controller.reconciler.waiting import waiting_for


def count(view: View, status: Status) -> Status:
    """The figures: ready, replicas, replicaStatuses; and the job waits for nothing any more."""
    return _end_of_wait(view, _figures(view, status))


def summarize(view: View, status: Status) -> Status:
    """Counts, then Running or Restarting, or why neither."""
    running, least = len(view.running), view.job.min_replicas
    if view.trains(status):
        status = count(view, status)
        status = _off(status, names.RESTARTING, names.REASON_RUNNING, "Enough workers run.", view.now)
        message = f"{running} of {view.wanted} workers run."
        return replace(status, state=names.RUNNING).with_condition(names.RUNNING, True, names.REASON_RUNNING, message, view.now)
    reason, detail = waiting_for(view, status)
    return blocked(view, status, reason, f"{running} of at least {least} workers run: {detail}")


def blocked(view: View, status: Status, reason: str, message: str) -> Status:
    """Fewer than minReplicas workers run, for this reason."""
    had_run = status.is_true(names.RUNNING) or status.is_true(names.RESTARTING)
    status = _figures(view, status).with_condition(names.RUNNING, False, reason, message, view.now)
    # maxParallel is the author's own wish, as suspension is: no time is lost by it.
    waits = None if reason == names.WAITING_FOR_GROUP else status.waiting_since or stamp(view.now, digits=3)
    status = replace(status, waiting_since=waits)
    if not had_run:
        return replace(status, state=names.WAITING)
    restarting = status.with_condition(names.RESTARTING, True, names.REASON_RESTARTING, message, view.now)
    return replace(restarting, state=names.RESTARTING)


def _figures(view: View, status: Status) -> Status:
    running = len(view.running)
    existing = sum(1 for worker, _ in view.workers if not worker.finished)
    figures = ReplicaStatus(active=running, succeeded=len(status.succeeded_indices), failed=status.failures)
    return replace(
        status,
        ready=f"{running}/{view.wanted}",
        replicas=existing,
        replica_statuses=ReplicaStatuses(worker=figures),
    )


def _end_of_wait(view: View, status: Status) -> Status:
    since = unix(status.waiting_since)
    if since is None:
        return status
    lost = max(0.0, view.now - since) if status.is_true(names.RESTARTING) else 0.0
    return replace(status, waiting_since=None, seconds_lost=round(status.seconds_lost + lost, 3))


def _off(status: Status, kind: str, reason: str, message: str, now: float) -> Status:
    """Set a condition to False if it was ever set."""
    return status.with_condition(kind, False, reason, message, now) if status.is_true(kind) else status
