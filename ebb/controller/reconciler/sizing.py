"""Creates the workers that are missing: the first minReplicas, and with a lower priority the elastic rest. Pure.

resize(view, draft)

With that priority all are made at once: whoever needs machines for its first workers gets those of others' elastic ones, and a
second round would cost every start the boot of a machine. Where it is missing, the rest is made when the first have machines; but
on a cluster that no stack of ours describes, where nothing says that machines come one by one, all at once again. What makes jobs
let go of halves (gang.py) holds everywhere.
"""

from collections.abc import Sequence
from dataclasses import replace

from ebb.api import contract as names
from ebb.api.clock import unix
from ebb.api.template import worker_container
from ebb.controller.reconciler.candidates import seat
from ebb.controller.reconciler.containers import rendezvous_id
from ebb.controller.reconciler.pods import worker_name, worker_pod
from ebb.controller.reconciler.rendezvous import run_id
from ebb.controller.reconciler.scheduling import doubled, enough_seated
from ebb.controller.reconciler.service import serve
from ebb.controller.reconciler.target import aim
from ebb.controller.reconciler.types import CreatePod, CreateRun, Draft, View
from ebb.controller.reconciler.worker_state import Fate

ELASTIC_CLASS = (
    "ebb-elastic"  # the PriorityClass of workers that make room for another job's first ones (manifests/priorities.yaml)
)
MOST_SHUNNED = 100  # a pod's size has a limit; where more are silent, nothing is believed of any (control/silence.py)
RESTART_SECONDS, RESTART_MAX_SECONDS = 5.0, 60.0  # the pause before the first restart; doubles with every failure


def resize(view: View, draft: Draft) -> None:
    """Create the workers that are missing, never more than maxReplicas pods at once, those on their way out included:
    one agent too many makes torch's legacy rendezvous end and restart without end."""
    aim(view, draft)
    serve(view, draft)
    missing = _missing(view, draft)
    free = [index for index in missing if worker_name(view.job.name, index) not in view.observed.taken]
    if len(free) < len(missing):
        draft.wakes.append(view.now + RESTART_SECONDS)
    created = free[: max(0, view.job.max_replicas - len(view.workers))]
    if not created or _pausing(view, draft):
        return
    assert draft.status.placement is not None
    placed = seat(view.job, draft.status.placement, view.observed.platform)
    shunned = tuple(sorted(view.observed.shunned))[:MOST_SHUNNED]
    placed = replace(placed, shunned=shunned, planned=_planned(view) + len(created))
    if placed.met and placed.met.prefix:
        container = worker_container(view.job.worker.template["spec"]["containers"])
        meeting = run_id(container, rendezvous_id(view.job, draft.status.restarts))
        draft.actions.append(CreateRun(endpoint=placed.met.endpoint, folder=placed.met.folder(meeting)))
    elastic = _elastic_class(view)
    for index in created:
        pod = worker_pod(view.job, index=index, attempt=draft.status.restarts, seat=placed, elastic_class=elastic)
        draft.actions.append(CreatePod(pod))
    draft.event(names.REASON_POD_CREATED, f"Created {numbered(created)}.")


def _planned(view: View) -> int:
    """Workers that exist and that newer ones should wait for when all of them start: those with a machine, and the first
    minReplicas, without which nothing starts. An elastic one that has none may not get any; it joins when it does."""
    alive = [worker for worker, verdict in view.workers if verdict.fate is Fate.LIVES and worker.index < view.wanted]
    return sum(1 for worker in alive if worker.node or worker.index < view.job.min_replicas)


def _missing(view: View, draft: Draft) -> list[int]:
    """Indices without a pod that are to get one now."""
    held = {worker.index for worker, _ in view.workers} | set(draft.status.succeeded_indices)
    missing = [index for index in range(view.wanted) if index not in held]
    if view.observed.platform is None or _elastic_class(view) or enough_seated(view):
        return missing
    return [index for index in missing if index < view.job.min_replicas]


def _elastic_class(view: View) -> str:
    """The PriorityClass of workers beyond minReplicas; "" where there is none below that of the first ones."""
    priorities, asked = view.observed.priorities, view.job.worker.template["spec"].get("priorityClassName")
    first = priorities.get(asked or view.job.spec.priority_class_name or "", priorities.get("", 0))
    return ELASTIC_CLASS if priorities.get(ELASTIC_CLASS, first) < first else ""


def _pausing(view: View, draft: Draft) -> bool:
    """Whether the pause after a failure of the program is not over."""
    failed = unix(draft.status.last_failure_time)
    if failed is None or failed > view.now:  # a time to come is of another clock
        return False
    until = failed + doubled(RESTART_SECONDS, draft.status.failures - 1, RESTART_MAX_SECONDS)
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
