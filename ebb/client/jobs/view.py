"""A job in a researcher's words: ElasticJob + pods -> `JobView`, which tables, `-o json` and `--watch` all show. Pure code.

The field names of `JobView` and `WorkerView` are what `-o json` prints: scripts rely on them, so they are only added to.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ebb.api import contract as names
from ebb.api.quantities import counted
from ebb.api.status import IDLE_SECONDS
from ebb.client.jobs.goodput import goodput
from ebb.client.secrets.uses import SecretUse, uses_of
from ebb.kube import Object

FINISHED, FAILED_STATE, RUNNING_STATE, WAITING_STATE = "finished", "failed", "running", "waiting"
RECOVERING, STOPPED, DELETING = "recovering", "stopped", "deleting"
OVER = frozenset({FINISHED, FAILED_STATE})

CAUSES = {
    names.CAUSE_NODE_GONE: "its machine was taken away",
    names.CAUSE_NODE_SILENT: "its machine fell silent",
    names.CAUSE_NODE_NOT_READY: "its machine broke down",
    names.CAUSE_NOTICE: "the cloud takes its machine back",
    names.CAUSE_AGE: "its machine is as old as it may get",
    names.CAUSE_DISRUPTED: "its machine was drained",
    names.CAUSE_PREEMPTED: "its place went to a job of higher priority",
    names.CAUSE_DELETED: "somebody deleted it",
    names.CAUSE_VANISHED: "it vanished",
    names.CAUSE_LEFT: "it left its machine in time",
    names.CAUSE_HARDWARE: "its machine's hardware failed",
    names.CAUSE_PROGRAM: "the program failed",
    names.REASON_SUCCEEDED: "finished",
    names.REASON_FAILED: "failed",
    names.REASON_DEADLINE: "its time was over",
    names.REASON_BUDGET: "its budget is spent",
    names.REASON_TIME_UP: "its deadline has passed",
    names.REASON_CANNOT_START: "its workers cannot start",
    names.REASON_NO_PROGRESS: "it makes no steps",
    names.REASON_SWEEP_WORST: "other runs of its sweep do better",
    names.REASON_SWEEP_PAUSED: "it pauses, to be compared with the other runs of its sweep",
    names.REASON_REPEATEDLY_LOST: "its workers are lost as soon as they come",
}
"""history[].cause in words."""
REASONS = {
    names.WAITING_FOR_MACHINES: "waiting for machines",
    names.WAITING_BOOTING: "its machines are booting",
    names.WAITING_FOR_DATA: "copying its data",
    names.WAITING_FOR_GATES: "waiting for a scheduling gate",
    names.WAITING_FOR_START: "starting on its machines",
    names.WAITING_FOR_WORKERS: "waiting for more workers",
}


_SCHEDULER = re.compile(r" \(.*\)\.$")
"""The scheduler's own words at the end of a message: nodes, taints, affinity, which say nothing to who waits for a machine."""


@dataclass(frozen=True, kw_only=True)
class Happening:
    """One line of a job's history. `cause` is contract.py's word, "" where there is none."""

    at: str
    what: str
    worker: int | None
    machine: str
    cause: str


@dataclass(frozen=True, kw_only=True)
class GpuView:
    """A GPU of a job as it was last read. None: it does not tell."""

    worker: int
    gpu: int  # among those of its worker
    ranks: tuple[int, ...]
    utilization: int | None  # percent of the last 30 s in which a kernel ran
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    idle_seconds: int  # for how long the utilization has been below 10 %

    @property
    def is_idle(self) -> bool:
        """Return whether it is worth a warning."""
        return self.idle_seconds >= IDLE_SECONDS


@dataclass(frozen=True, kw_only=True)
class WorkerView:
    """One worker as it is now."""

    worker: int
    state: str  # waiting for a machine, starting, running, leaving, finished, failed
    machine: str
    since: str
    instance_type: str = ""  # of its machine; "" where it has none, or one may not look at machines
    zone: str = ""
    machine_since: str = ""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """One job. Times are RFC 3339 texts, "" where it has not happened; numbers are None before the trainer said any."""

    name: str
    namespace: str
    state: str
    detail: str  # why it is in that state, in the controller's words
    workers: int  # running now
    wanted_workers: int
    min_workers: int
    max_workers: int
    gpus_per_worker: int
    gpu_type: str
    capacity: str
    zone: str
    step: int | None
    total_steps: int | None
    epoch: int | None
    loss: float | None
    samples_per_second: float | None
    world_size: int | None
    generation: int | None
    reclaims: int
    failures: int
    usd_spent: float | None  # until now; None where prices are not known
    usd_per_hour: float | None
    usd_on_demand: float | None  # what the same machines would have cost on demand until now
    created: str
    started: str
    ended: str
    history: tuple[Happening, ...]
    steps_per_second: float | None = None  # over the time in steps that count, at whatever size the job had
    eta_seconds: float | None = None  # until the last step, at that rate; None while it does not train
    goodput: float | None = None  # share of the paid machine time that trained: goodput.py
    seconds_lost: float = 0.0  # after the first start, with fewer than min_workers
    usd_saved: float | None = None  # against on-demand machines, until now
    network: str = ""  # the fast one between its workers, such as EFA; "": TCP
    gpus: tuple[GpuView, ...] = ()  # of many the least busy ones
    held_worker: int | None = None  # whose program failed and whose machine is held to look into it
    held_until: str = ""
    tracker: str = ""  # address of the run in the program's own experiment tracker
    secrets: tuple[SecretUse, ...] = ()  # by name, and where their values go


def view(job: Object, now: float | None = None) -> JobView:
    """Return what is worth knowing of a job, whatever is missing from it. `now` (unix seconds) brings its cost up to date."""
    spec, status = job["spec"], job.get("status") or {}
    worker = worker_spec(job)
    replicas = int(worker.get("replicas") or 1)
    pod = (worker.get("template") or {}).get("spec") or {}
    chosen, asked = status.get("placement") or {}, spec.get("placement") or {}
    selector = pod.get("nodeSelector") or {}
    progress, cost = status.get("progress") or {}, _cost(status.get("cost") or {}, now)
    held = (status.get("hold") or {}).get("machine") or {}
    rate, spent, on_demand = steps_per_second(status), cost.get("usdSpent"), cost.get("usdOnDemand")
    asked_zone = asked.get("zone") if asked.get("zone") not in ("single", "any") else None
    return JobView(
        name=job["metadata"]["name"],
        namespace=job["metadata"]["namespace"],
        state=_state(job),
        detail=_detail(job),
        workers=int(((status.get("replicaStatuses") or {}).get("Worker") or {}).get("active") or 0),
        wanted_workers=int(status.get("target") or replicas) if spec.get("scaling") == "automatic" else replicas,
        min_workers=int(spec.get("minReplicas") or replicas),
        max_workers=int(spec.get("maxReplicas") or replicas),
        gpus_per_worker=gpus_per_worker(job),
        gpu_type=chosen.get("gpuType") or asked.get("gpuType") or selector.get(names.LABEL_GPU_TYPE) or "",
        capacity=chosen.get("capacityType") or selector.get(names.LABEL_CAPACITY) or asked.get("capacity") or "",
        zone=chosen.get("zone") or selector.get(names.LABEL_ZONE) or asked_zone or "",
        step=progress.get("step"),
        total_steps=progress.get("totalSteps"),
        epoch=progress.get("epoch"),
        loss=progress.get("loss"),
        samples_per_second=progress.get("samplesPerSecond"),
        world_size=progress.get("worldSize"),
        generation=progress.get("generation"),
        reclaims=int(status.get("reclaims") or 0),
        failures=int(status.get("failures") or 0),
        usd_spent=spent,
        usd_per_hour=cost.get("usdPerHour"),
        usd_on_demand=on_demand,
        created=job["metadata"].get("creationTimestamp") or "",
        started=status.get("startTime") or "",
        ended=status.get("completionTime") or "",
        history=tuple(_happening(item) for item in status.get("history") or []),
        steps_per_second=rate,
        eta_seconds=_eta(progress, rate) if _state(job) == RUNNING_STATE else None,
        goodput=goodput(status, now),
        seconds_lost=float(status.get("secondsLost") or 0),
        usd_saved=None if spent is None or on_demand is None else on_demand - spent,
        network=chosen.get("network") or "",
        gpus=tuple(map(_gpu, status.get("gpus") or [])),
        held_worker=held.get("worker"),
        held_until=held.get("until") or "",
        tracker=progress.get("tracker") or "",
        secrets=uses_of(pod),
    )


def steps_per_second(status: Mapping[str, Any]) -> float | None:
    """Over the time in steps that count; None before the first."""
    progress = status.get("progress") or {}
    step, useful = progress.get("step"), progress.get("usefulSeconds")
    return float(step) / float(useful) if step and useful else None


def _eta(progress: Mapping[str, Any], rate: float | None) -> float | None:
    """The rest at the rate so far, as if no machine were lost any more."""
    if not rate or progress.get("totalSteps") is None:
        return None
    return float(max(0, progress["totalSteps"] - progress["step"])) / rate


def held_machine(job: Object) -> str:
    """The UID of the pod on the machine that is held to look into it; "" for none."""
    return str((((job.get("status") or {}).get("hold") or {}).get("machine") or {}).get("uid") or "")


def worker_view(pod: Object, held: str = "") -> WorkerView:
    """One worker out of its pod; what its machine is, watch.py adds. `held`: the UID of the pod whose machine is held."""
    state = _worker_state(pod)
    return WorkerView(
        worker=worker_index(pod),
        state="held" if state == "running" and held == pod["metadata"].get("uid") else state,
        machine=pod["spec"].get("nodeName") or "",
        since=(pod.get("status") or {}).get("startTime") or pod["metadata"].get("creationTimestamp") or "",
    )


def own_pods(job: Object, pods: Iterable[Object]) -> list[Object]:
    """Those of this very job: pods of an earlier one of its name may still be going."""
    uid = job["metadata"]["uid"]
    return [pod for pod in pods if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or ())]


def worker_index(pod: Object) -> int:
    """The worker's number; pods whose label is broken come last."""
    label = str((pod["metadata"].get("labels") or {}).get(names.LABEL_INDEX, ""))
    return int(label) if label.isdigit() else 10**6


def worker_container(pod: Object) -> tuple[str, Object]:
    """Name and status of the container that trains; {} before the machine has reported any."""
    containers = [container["name"] for container in pod["spec"]["containers"]]
    name = names.WORKER_CONTAINER if names.WORKER_CONTAINER in containers else containers[0]
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return name, next((status for status in statuses if status["name"] == name), {})


def worker_spec(job: Object) -> dict[str, Any]:
    """spec.replicaSpecs.Worker."""
    return (job["spec"].get("replicaSpecs") or {}).get("Worker") or {}


def gpus_per_worker(job: Object) -> int:
    """GPUs of one worker; 0 for a job file that asks for none."""
    pod = (worker_spec(job).get("template") or {}).get("spec") or {}
    limits = [(container.get("resources") or {}).get("limits") or {} for container in pod.get("containers") or []]
    return sum(int(counted(limit.get(names.GPU_RESOURCE))) for limit in limits)


def condition(job: Object, kind: str) -> Object | None:
    """The condition of that type if it is True."""
    return next((item for item in _conditions(job) if item["type"] == kind and item["status"] == "True"), None)


def _conditions(job: Object) -> list[Object]:
    return (job.get("status") or {}).get("conditions") or []


def _state(job: Object) -> str:
    if condition(job, names.SUCCEEDED):
        return FINISHED
    if condition(job, names.FAILED):
        return FAILED_STATE
    if job["metadata"].get("deletionTimestamp"):
        return DELETING
    if condition(job, names.SUSPENDED) or job["spec"].get("suspend"):
        return STOPPED
    if condition(job, names.RESTARTING):
        return RECOVERING
    return RUNNING_STATE if condition(job, names.RUNNING) else WAITING_STATE


def stage(job: Object) -> str:
    """Return how far a job is that has not said anything yet, in a few words; "" for one that is over."""
    state, found = _state(job), _explaining(job) or {}
    if state in OVER:
        return ""
    return "starting" if state == RUNNING_STATE else REASONS.get(found.get("reason") or "", "waiting for machines")


def _explaining(job: Object) -> Object | None:
    """The condition that explains the state: the True one of an end or a restart, else that of Running."""
    decisive = (names.FAILED, names.SUCCEEDED, names.SUSPENDED, names.RESTARTING)
    found = next(filter(None, (condition(job, kind) for kind in decisive)), None)
    return found or next((item for item in _conditions(job) if item["type"] == names.RUNNING), None)


def _detail(job: Object) -> str:
    found = _explaining(job)
    if found is None:
        return ""
    reason, message = found.get("reason") or "", found.get("message") or ""
    if reason == names.WAITING_FOR_MACHINES:
        message = _SCHEDULER.sub(".", message)
    return message or REASONS.get(reason, "")


def _cost(cost: Object, now: float | None) -> dict[str, float]:
    """status.cost with its sums brought up to `now` by its rates; nothing where nothing has a price."""
    until = datetime.fromisoformat(cost["at"]).timestamp() if cost.get("at") else None
    hours = 0.0 if now is None or until is None else max(0.0, now - until) / 3600
    spent = float(cost.get("usdSpent") or 0) + hours * float(cost.get("usdPerHour") or 0)
    compared = float(cost.get("usdOnDemand") or 0) + hours * float(cost.get("usdOnDemandPerHour") or 0)
    if not compared:
        return {}
    return {"usdSpent": spent, "usdPerHour": float(cost.get("usdPerHour") or 0), "usdOnDemand": compared}


def _happening(item: Object) -> Happening:
    worker = item.get("worker")
    return Happening(
        at=item.get("at") or "",
        what=item.get("what") or "",
        worker=int(worker) if worker is not None else None,
        machine=item.get("node") or "",
        cause=item.get("cause") or "",
    )


def _gpu(item: Object) -> GpuView:
    return GpuView(
        worker=int(item.get("worker") or 0),
        gpu=int(item.get("gpu") or 0),
        ranks=tuple(item.get("ranks") or ()),
        utilization=item.get("utilization"),
        memory_used_bytes=item.get("memoryUsedBytes"),
        memory_total_bytes=item.get("memoryTotalBytes"),
        idle_seconds=int(item.get("idleSeconds") or 0),
    )


def mean_utilization(gpus: Iterable[GpuView]) -> float | None:
    """Percent, over those that tell; None for none."""
    told = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    return sum(told) / len(told) if told else None


def _worker_state(pod: Object) -> str:
    _, status = worker_container(pod)
    state = status.get("state") or {}
    if ended := state.get("terminated"):
        return "finished" if ended.get("exitCode") == 0 else f"ended with exit code {ended.get('exitCode')}"
    if pod["metadata"].get("deletionTimestamp"):
        return "leaving"
    if "running" in state:
        return "running"
    if not pod["spec"].get("nodeName"):
        return "waiting for a machine"
    reason = (state.get("waiting") or {}).get("reason") or ""
    return f"cannot start: {reason}" if reason not in ("", "ContainerCreating", "PodInitializing") else "starting"


def describe(item: Happening) -> str:
    """A line of history without its time."""
    why = CAUSES.get(item.cause, item.cause)
    who = f"worker {item.worker}" + (f" on {item.machine}" if item.machine else "")
    sentences = {
        "placed": f"goes to {why}",
        "reclaimed": f"{who} was lost: {why}",
        "left": f"{who} moves on: {why}",
        "failed": f"the program failed in {who}: {why}",
        "stalled": f"all workers start again: {why}",
        "held": f"stopped: {why}",
        "ended": f"ended: {why}",
    }
    return sentences.get(item.what) or " ".join(filter(None, (item.what, who if item.worker is not None else "", why)))


def duration(seconds: float) -> str:
    """A duration in two units: 41 s, 3 min 12 s, 2 h 5 min."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
