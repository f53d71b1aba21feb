"""What a job's state is called: counts, conditions and the sentence that says what it waits for. Pure.

status = summarize(view, status)          # of a job that is neither suspended nor ended
"""

from dataclasses import replace

from workloads import contract as names
from workloads.job.status import ReplicaStatus, ReplicaStatuses, Status
from workloads.plan.losses import Fate, Worker
from workloads.plan.values import View

DETAIL_LENGTH = 200


def count(view: View, status: Status) -> Status:
    """The figures: ready, replicas, replicaStatuses."""
    running = len(view.running)
    existing = sum(1 for worker, _ in view.workers if not worker.finished)
    figures = ReplicaStatus(active=running, succeeded=len(status.succeeded_indices), failed=status.failures)
    return replace(
        status,
        ready=f"{running}/{view.wanted}",
        replicas=existing,
        replica_statuses=ReplicaStatuses(worker=figures),
    )


def summarize(view: View, status: Status) -> Status:
    """Counts, then Running or Restarting, or why neither."""
    status, running, least = count(view, status), len(view.running), view.job.min_replicas
    if running >= least:
        status = _off(status, names.RESTARTING, names.REASON_RUNNING, "Enough workers run.", view.now)
        message = f"{running} of {view.wanted} workers run."
        return replace(status, state=names.RUNNING).with_condition(names.RUNNING, True, names.REASON_RUNNING, message, view.now)
    reason, detail = waiting_for(view)
    message = f"{running} of at least {least} workers run: {detail}"
    had_run = status.is_true(names.RUNNING) or status.is_true(names.RESTARTING)
    status = status.with_condition(names.RUNNING, False, reason, message, view.now)
    if not had_run:
        return replace(status, state=names.WAITING)
    restarting = status.with_condition(names.RESTARTING, True, names.REASON_RESTARTING, message, view.now)
    return replace(restarting, state=names.RESTARTING)


def waiting_for(view: View) -> tuple[str, str]:
    """(reason, sentence) of what the workers that do not run yet wait for."""
    waiting = [worker for worker, verdict in view.workers if verdict.fate is Fate.LIVES and not worker.started]
    homeless = [worker for worker in waiting if not worker.node]
    if homeless:
        said = homeless[0].condition("PodScheduled").get("message", "")
        where = _where(view)
        return names.WAITING_FOR_MACHINES, _sentence(f"{_workers(homeless)} for a machine{where}", said)
    if waiting:
        return names.WAITING_FOR_START, _sentence(f"{_workers(waiting)} for containers to start", _start_problem(waiting))
    if view.observed.taken:
        first = min(view.observed.taken)
        return names.WAITING_FOR_NAMES, f"pod {first} belongs to somebody else: it must be gone before its name is free."
    return names.WAITING_FOR_WORKERS, "the others are being created."


def _off(status: Status, kind: str, reason: str, message: str, now: float) -> Status:
    """Set a condition to False if it was ever set."""
    return status.with_condition(kind, False, reason, message, now) if status.is_true(kind) else status


def _workers(workers: list[Worker]) -> str:
    return "1 worker waits" if len(workers) == 1 else f"{len(workers)} workers wait"


def _where(view: View) -> str:
    placed = view.job.status.placement
    return f" in {placed.zone}" if placed and placed.zone not in ("", "any") else ""


def _sentence(what: str, detail: str) -> str:
    short = detail.strip().rstrip(".")[:DETAIL_LENGTH]
    return f"{what} ({short})." if short else f"{what}."


def _start_problem(workers: list[Worker]) -> str:
    """What the kubelet says about the first container that cannot start; "" while it is merely being created."""
    for worker in workers:
        for item in (worker.pod.get("status") or {}).get("containerStatuses") or ():
            waiting = (item.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                return f"{worker.name}: {waiting['reason']}: {waiting.get('message', '')}"
    return ""
