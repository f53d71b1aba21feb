"""Running jobs with their speed, and machines with their GPUs, busy and free.

    top = await top_now(ebb)                  # once
    top = await top_now(ebb, before=top)      # later: steps per second are those since the look before

GPUs count as taken by what the pods of the namespace ask for; how busy they are, launchers tell the controller. Other
teams' namespaces cannot be seen with a researcher's rights, so GPUs that they hold look free.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ebb.api.contract import GPU_RESOURCE, LABEL_JOB, MANAGER_GROUP
from ebb.client.jobs.nodes import MachineView, Nodes
from ebb.client.jobs.view import OVER, JobView, mean_utilization, view
from ebb.client.platform.connection import Ebb
from ebb.client.timeline.timeline import unix
from ebb.kube import ELASTIC_JOBS, PODS, Object

GONE = frozenset({"Succeeded", "Failed"})  # phases of pods that hold nothing any more


@dataclass(frozen=True, kw_only=True)
class TopJob:
    """A job that is not over."""

    name: str
    state: str
    workers: int
    wanted_workers: int
    gpus: int  # that its running workers hold
    zone: str
    step: int | None
    steps_per_second: float | None  # since the look before; the mean over its useful time at the first look
    samples_per_second: float | None
    usd_per_hour: float | None
    at: str  # when the step was read
    utilization: float | None = None  # percent of the time in which its GPUs compute, their mean
    gpus_idle: int = 0  # of them, those that have hardly been used for 10 minutes


@dataclass(frozen=True, kw_only=True)
class TopMachine:
    """A machine for jobs."""

    machine: MachineView
    gpus_busy: int
    jobs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Top:
    """All of it at one moment."""

    jobs: tuple[TopJob, ...]  # those that run first, each kind by name
    machines: tuple[TopMachine, ...]  # by zone and name
    gpus: int
    gpus_busy: int
    samples_per_second: float
    usd_per_hour: float  # what the jobs' machines cost; not those that boot or idle


async def top_now(ebb: Ebb, before: Top | None = None) -> Top:
    """Read everything once."""
    jobs, pods, nodes = await asyncio.gather(
        ebb.kube.list(ELASTIC_JOBS, ebb.namespace), ebb.kube.list(PODS, ebb.namespace), Nodes.read(ebb.kube)
    )
    return top(jobs, pods, nodes.machines.values(), before)


def top(jobs: Iterable[Object], pods: Iterable[Object], machines: Iterable[MachineView], before: Top | None = None) -> Top:
    """The table out of what was read. Pure."""
    held = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in GONE and pod["spec"].get("nodeName")]
    earlier = {job.name: job for job in before.jobs} if before else {}
    rows = [_job(job, earlier.get(job["metadata"]["name"])) for job in jobs if view(job).state not in OVER]
    seats = [_machine(machine, held) for machine in machines if machine.group != MANAGER_GROUP]
    return Top(
        jobs=tuple(sorted(rows, key=lambda job: (job.state != "running", job.name))),
        machines=tuple(sorted(seats, key=lambda seat: (seat.machine.zone, seat.machine.name))),
        gpus=sum(seat.machine.gpus for seat in seats),
        gpus_busy=sum(seat.gpus_busy for seat in seats),
        samples_per_second=sum(job.samples_per_second or 0.0 for job in rows if job.state == "running"),
        usd_per_hour=sum(job.usd_per_hour or 0.0 for job in rows),
    )


def _job(job: Object, before: TopJob | None) -> TopJob:
    found: JobView = view(job)
    progress = (job.get("status") or {}).get("progress") or {}
    row = TopJob(
        name=found.name,
        state=found.state,
        workers=found.workers,
        wanted_workers=found.wanted_workers,
        gpus=found.workers * found.gpus_per_worker,
        zone=found.zone,
        step=found.step,
        steps_per_second=found.steps_per_second,
        samples_per_second=found.samples_per_second,
        usd_per_hour=found.usd_per_hour,
        at=progress.get("at") or "",
        utilization=mean_utilization(found.gpus),
        gpus_idle=sum(gpu.is_idle for gpu in found.gpus),
    )
    return replace(row, steps_per_second=_rate(row, before)) if before else row


def _rate(job: TopJob, before: TopJob) -> float | None:
    """Between two readings; while none came since, what was known before."""
    if job.step is None or before.step is None or not before.at or not job.at:
        return job.steps_per_second
    passed = unix(job.at) - unix(before.at)
    if passed <= 0:
        return before.steps_per_second
    return max(0, job.step - before.step) / passed


def _machine(machine: MachineView, pods: Iterable[Object]) -> TopMachine:
    on_it = [pod for pod in pods if pod["spec"]["nodeName"] == machine.name]
    jobs = Counter(str((pod["metadata"].get("labels") or {}).get(LABEL_JOB) or pod["metadata"]["name"]) for pod in on_it)
    return TopMachine(machine=machine, gpus_busy=sum(map(_gpus, on_it)), jobs=tuple(sorted(jobs)))


def _gpus(pod: Object) -> int:
    limits = [(container.get("resources") or {}).get("limits") or {} for container in pod["spec"]["containers"]]
    return sum(int(limit.get(GPU_RESOURCE, 0)) for limit in limits)
