"""Which of a job's workers have a machine, and since when. Pure.

seated(view), homeless(view)          # that live and have one, and that live and have none
missing_base(view)                    # of the first minReplicas workers, those whose lack keeps the job below minReplicas
"""

from workloads.clock import unix
from workloads.plan.losses import Fate, Worker
from workloads.plan.values import View


def seated(view: View) -> list[Worker]:
    """Workers that are on a machine and not lost."""
    return [worker for worker, verdict in view.workers if verdict.fate is Fate.LIVES and worker.node]


def homeless(view: View) -> list[Worker]:
    """Workers that wait for a machine."""
    return [worker for worker, verdict in view.workers if verdict.fate is Fate.LIVES and not worker.node]


def enough_seated(view: View) -> bool:
    """Whether minReplicas workers have a machine; those that finished need none any more."""
    return len(seated(view)) + len(view.job.status.succeeded_indices) >= view.job.min_replicas


def missing_base(view: View) -> list[Worker]:
    """The first minReplicas workers without a machine, of a job that has fewer than minReplicas with one."""
    return [] if enough_seated(view) else [worker for worker in homeless(view) if worker.index < view.job.min_replicas]


def created_at(worker: Worker) -> float | None:
    """When its pod was made, unix seconds."""
    return unix(worker.pod["metadata"].get("creationTimestamp"))


def last_seated_at(view: View) -> float:
    """When a worker last got a machine, unix seconds; 0: never, as far as is known."""
    times = (unix(worker.condition("PodScheduled").get("lastTransitionTime")) for worker in seated(view))
    return max((time for time in times if time), default=0.0)
