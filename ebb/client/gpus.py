"""GPUs of a platform: how many are free now and how many more could come, their price, and how the zones are doing.

report = await gpus(ebb)            # of one platform
report.groups[0].gpus_free, report.reclaims, report.dry
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ebb.api.clock import stamp, unix
from ebb.api.costs import group_of
from ebb.api.needs import needs
from ebb.api.platform import SPOT, NodeGroup, Platform
from ebb.api.usage import MachineUsage
from ebb.client.costs.read import read_records, read_usage
from ebb.client.errors import ClientError
from ebb.client.jobs.nodes import MachineView, machine_view
from ebb.client.jobs.reclaims import losses
from ebb.client.platform.connection import Ebb
from ebb.kube import ELASTIC_JOBS, NODES, PODS, Denied, Object

RECENT_SECONDS = 86400.0  # of reclaims
DRY_SECONDS = 3600.0  # nobody tried since: it may have machines again


@dataclass(frozen=True, kw_only=True)
class GpuGroup:
    """A node group as it is now. None: one may not look at machines."""

    group: NodeGroup
    machines: int | None  # that are there, ready or not
    gpus_now: int | None  # of machines that take workers
    free_by_machine: tuple[int, ...]  # of those that are usable; a worker needs all its GPUs on one
    gpus_free: int | None
    gpus_to_come: int | None  # of machines that could still boot, if the cloud has them
    usd_per_gpu_hour: float
    usd_on_demand_per_gpu_hour: float
    price_assumed: bool  # a spot price
    boot_seconds: int  # until a machine that is asked for takes workers, at most; later than that it does not come


@dataclass(frozen=True, kw_only=True)
class ZoneReclaims:
    """Workers that were lost with their machine in the last day."""

    zone: str  # "" where nobody knows
    count: int
    last: str  # RFC 3339


@dataclass(frozen=True, kw_only=True)
class DryZone:
    """A zone in which a job could not get machines lately."""

    zone: str
    gpu_type: str
    capacity: str
    since: str
    at: str  # when it was last tried
    message: str  # in the words of the cloud or the autoscaler


@dataclass(frozen=True, kw_only=True)
class GpuReport:
    """One platform."""

    platform: str
    groups: tuple[GpuGroup, ...]
    reclaims: tuple[ZoneReclaims, ...]
    dry: tuple[DryZone, ...]


async def gpus(ebb: Ebb, *, reclaims: bool = True) -> GpuReport:
    """Raises KubeError. Without `reclaims` the records of ended jobs, of which there may be many, are not read."""
    now = time.time()
    nodes = await list_nodes(ebb)
    pods = await ebb.kube.list(PODS, ebb.namespace)
    jobs = await ebb.kube.list(ELASTIC_JOBS, ebb.namespace)
    usage = await machine_usage(ebb)
    records = await read_records(ebb) if reclaims else None
    return gpu_report(ebb.platform, nodes, pods, jobs, usage=usage, records=records, now=now)


def gpu_report(
    platform: Platform,
    nodes: Iterable[Object] | None,
    pods: Iterable[Object],
    jobs: Collection[Object],
    *,
    usage: MachineUsage | None,
    records: Iterable[Mapping[str, object]] | None = None,
    now: float,
) -> GpuReport:
    """The report out of what was read. `nodes` None: one may not look at machines; `records` None: no reclaims are wanted."""
    groups = _groups(platform, nodes, pods, usage)
    return GpuReport(
        platform=platform.stack,
        groups=tuple(sorted(groups, key=lambda one: (one.group.gpu_type, one.usd_per_gpu_hour, one.group.zone))),
        reclaims=() if records is None else _reclaims(jobs, records, now),
        dry=_dry(jobs, now),
    )


async def list_nodes(ebb: Ebb) -> list[Object] | None:
    """All nodes; None where one may not look at them."""
    try:
        return await ebb.kube.list(NODES)
    except Denied:
        return None


async def machine_usage(ebb: Ebb) -> MachineUsage | None:
    """The usage record, if this version can read it: it only says what jobs of other namespaces hold."""
    try:
        return await read_usage(ebb)
    except ClientError:
        return None


def _groups(
    platform: Platform, nodes: Iterable[Object] | None, pods: Iterable[Object], usage: MachineUsage | None
) -> Iterator[GpuGroup]:
    there: dict[str, list[MachineView]] = {}
    for node in nodes or ():
        group = group_of(node, platform)
        if group is not None:
            there.setdefault(group.name, []).append(machine_view(node))
    taken = _taken(pods)
    for group in platform.gpu_groups():
        machines = there.get(group.name, [])
        usable = [machine for machine in machines if machine.ready and not machine.leaving]
        free = [machine.gpus - max(taken[machine.name], _held(machine, usage)) for machine in usable]
        known = nodes is not None
        yield GpuGroup(
            group=group,
            machines=len(machines) if known else None,
            gpus_now=sum(machine.gpus for machine in usable) if known else None,
            gpus_free=sum(max(0, count) for count in free) if known else None,
            free_by_machine=tuple(max(0, count) for count in free) if known else (),
            gpus_to_come=max(0, group.max - len(machines)) * group.gpus_per_node if known else None,
            usd_per_gpu_hour=group.usd_per_hour / max(group.gpus_per_node, 1),
            usd_on_demand_per_gpu_hour=group.on_demand_usd_per_hour / max(group.gpus_per_node, 1),
            price_assumed=group.capacity_type == SPOT,
            boot_seconds=group.provision_seconds,
        )


def _taken(pods: Iterable[Object]) -> Counter[str]:
    """GPUs that pods hold, by machine."""
    taken: Counter[str] = Counter()
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            taken[pod["spec"].get("nodeName") or ""] += needs(pod).gpus
    return taken


def _held(machine: MachineView, usage: MachineUsage | None) -> int:
    """GPUs that jobs of whatever namespace hold: one sees the pods of one's own only."""
    standing = usage.open.get(machine.name) if usage else None
    return round(standing.share * standing.gpus) if standing else 0


def _reclaims(jobs: Iterable[Object], records: Iterable[Mapping[str, object]], now: float) -> tuple[ZoneReclaims, ...]:
    """A job remembers its last events, a record only how many there were: those count where the job ended."""
    when: dict[str, list[str]] = {}
    alive = set()
    for job in jobs:
        alive.add(job["metadata"]["uid"])
        for loss in losses(job, (), {}):
            when.setdefault(loss.zone, []).append(loss.at)
    for record in records:
        if record["uid"] not in alive:
            when.setdefault(str(record.get("zone") or ""), []).extend([str(record["ended"])] * _count(record.get("reclaims")))
    recent = {zone: [at for at in times if (unix(at) or 0) >= now - RECENT_SECONDS] for zone, times in when.items()}
    found = [ZoneReclaims(zone=zone, count=len(times), last=max(times)) for zone, times in recent.items() if times]
    return tuple(sorted(found, key=lambda one: (-one.count, one.zone)))


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _dry(jobs: Iterable[Object], now: float) -> tuple[DryZone, ...]:
    """The newest word about each place."""
    found: dict[tuple[str, str, str], DryZone] = {}
    for job in jobs:
        for entry in (job.get("status") or {}).get("dry") or ():
            one = DryZone(
                zone=entry["zone"],
                gpu_type=entry.get("gpuType") or "",
                capacity=entry.get("capacityType") or "",
                since=entry["since"],
                at=entry["at"],
                message=entry.get("message") or "",
            )
            key = one.zone, one.gpu_type, one.capacity
            if one.at >= stamp(now - DRY_SECONDS) and (key not in found or found[key].at < one.at):
                found[key] = one
    return tuple(sorted(found.values(), key=lambda one: (one.zone, one.gpu_type, one.capacity)))
