"""Workers with and without a machine, since when, and the errors that keep them from starting. Pure.

scheduled(view), unscheduled(view)          # that live and have one, and that live and wait for one
gated(view)                           # that somebody keeps from the scheduler: they wait for no machine yet
missing_base(view)                    # of the first minReplicas workers, those whose lack keeps the job below minReplicas
"""

from ebb.api.clock import unix
from ebb.controller.reconciler.types import JobView
from ebb.controller.reconciler.worker_state import Outcome, Worker

ROUNDED = 0.01  # seconds: times are written to the millisecond


def start_error(worker: Worker) -> str:
    """The kubelet's error about the first container that cannot start; "" while it is merely being created."""
    for state in container_states(worker):
        waiting = state.get("waiting") or {}
        if waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def container_states(worker: Worker) -> list[dict[str, dict[str, str]]]:
    """Of all containers, in the order in which they start."""
    status = worker.pod.get("status") or {}
    reported = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return [item.get("state") or {} for item in reported]


def doubled(seconds: float, times: int, most: float) -> float:
    """A pause that doubles with everything that went wrong, however often that was."""
    return min(most, seconds * 2.0 ** min(max(0, times), 64))


def scheduled(view: JobView) -> list[Worker]:
    """Workers that are on a machine and not lost."""
    return [worker for worker, verdict in view.workers if verdict.outcome is Outcome.LIVES and worker.node]


def unscheduled(view: JobView) -> list[Worker]:
    """Workers that wait for a machine."""
    alive = [worker for worker, verdict in view.workers if verdict.outcome is Outcome.LIVES and not worker.node]
    return [worker for worker in alive if not gates(worker)]


def gated(view: JobView) -> list[Worker]:
    """Workers that the scheduler may not look at, and the autoscaler does not."""
    return [worker for worker, verdict in view.workers if verdict.outcome is Outcome.LIVES and not worker.node and gates(worker)]


def gates(worker: Worker) -> list[str]:
    """The names of its scheduling gates. Who set one takes it out of the pod when it may be scheduled."""
    return [gate["name"] for gate in worker.pod["spec"].get("schedulingGates") or ()]


def enough_scheduled(view: JobView) -> bool:
    """Return whether minReplicas workers have a machine; those that finished need none any more."""
    return len(scheduled(view)) + view.finished(view.job.status) >= view.job.min_replicas


def missing_base(view: JobView) -> list[Worker]:
    """The first minReplicas workers without a machine, of a job that has fewer than minReplicas with one."""
    return [] if enough_scheduled(view) else [worker for worker in unscheduled(view) if worker.index < view.job.min_replicas]


def gated_base(view: JobView) -> list[Worker]:
    """The same, for lack of a gate's removal."""
    return [] if enough_scheduled(view) else [worker for worker in gated(view) if worker.index < view.job.min_replicas]


def waiting_since(view: JobView, workers: list[Worker]) -> float | None:
    """Since when the first of these workers exists, unix seconds; None: since now, as far as is known.

    The API server wrote that, and its clock may be hours away: what cannot be by the times that this controller wrote is taken
    from those."""
    status = view.job.status
    placed = status.placement
    ours = [unix(text) for text in (placed.since if placed else None, status.waiting_since, status.target_time)]
    if status.waiting_since is None and not enough_scheduled(view):
        return None  # it had enough until now
    earliest = max((time for time in ours if time is not None and time <= view.now + ROUNDED), default=None)
    times = [unix(worker.pod["metadata"].get("creationTimestamp")) for worker in workers]
    made = min((time for time in times if time is not None), default=None)
    if made is None or earliest is None:
        return made if made is None or made <= view.now else None
    return made if earliest <= made <= view.now else earliest


def last_scheduled_at(view: JobView) -> float:
    """The last time at which a worker got a machine, unix seconds; 0: none is known. A time to come is of another clock."""
    times = (unix(worker.condition("PodScheduled").get("lastTransitionTime")) for worker in scheduled(view))
    return max((time for time in times if time and time <= view.now), default=0.0)
