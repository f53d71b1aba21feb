"""Creates the workers that are missing. Pure.

resize(view, draft)
"""

from collections.abc import Sequence
from dataclasses import replace

from workloads import contract as names
from workloads.clock import stamp, unix
from workloads.plan.endings import drop_services
from workloads.plan.pods import worker_name, worker_pod, worker_service
from workloads.plan.values import CreatePod, CreateService, Draft, View
from workloads.plan.zones import seat

RESTART_SECONDS, RESTART_MAX_SECONDS = 5.0, 60.0  # the pause before the first restart; doubles with every failure


def resize(view: View, draft: Draft) -> None:
    """Create the workers that are missing, never more than maxReplicas pods at once, those on their way out included:
    one agent too many makes torch's legacy rendezvous end and restart without end."""
    held = {worker.index for worker, _ in view.workers}
    drop_services(view, draft, keep=held | set(range(view.wanted)))
    missing = [index for index in range(view.wanted) if index not in held]
    free = [index for index in missing if worker_name(view.job.name, index) not in view.observed.taken]
    if len(free) < len(missing):
        draft.wakes.append(view.now + RESTART_SECONDS)
    created = free[: max(0, view.job.max_replicas - len(view.workers))]
    if not created or _pausing(view, draft):
        return
    assert draft.status.placement is not None
    placed = seat(view.job, draft.status.placement, view.observed.platform)
    served = {service["metadata"]["name"] for service in view.observed.services}
    for index in created:
        if worker_name(view.job.name, index) not in served:
            draft.actions.append(CreateService(worker_service(view.job, index)))
        draft.actions.append(CreatePod(worker_pod(view.job, index=index, attempt=draft.status.restarts, seat=placed)))
    draft.status = replace(draft.status, start_time=draft.status.start_time or stamp(view.now))
    draft.event(names.REASON_POD_CREATED, f"Created {numbered(created)}.")


def _pausing(view: View, draft: Draft) -> bool:
    """Whether the pause after a failure of the program is not over."""
    failed = unix(draft.status.last_failure_time)
    if failed is None:
        return False
    until = failed + min(RESTART_MAX_SECONDS, RESTART_SECONDS * 2.0 ** (draft.status.failures - 1))
    if view.now < until:
        draft.wakes.append(until)
    return view.now < until


def numbered(indices: Sequence[int]) -> str:
    """'worker 3', 'workers 0-2, 5'."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return ("worker " if len(indices) == 1 else "workers ") + shown
