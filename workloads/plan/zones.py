"""Chooses the zone of a job before its pods exist: workers in one zone talk fast and free, and cannot deadlock an autoscaler.

    choice = choose(job, platform, market)      # or NoZone: one sentence that says what would help

Taints do not matter here: the stack's machines are for jobs, so workers are given what tolerates them.
A zone must hold minReplicas on machines that the pods fit on. Among those: room for all wanted workers, few recent reclaims,
price, then the least used. The machines need not exist yet: node groups may be at zero, that is what the autoscaler is for. Pure.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads import contract as names
from workloads.job.parts import ANY, SINGLE
from workloads.job.spec import Job
from workloads.job.status import Placed
from workloads.plan.market import Market
from workloads.plan.pods import Seat
from workloads.platform import NodeGroup, Platform

Object = dict[str, Any]

FACTORS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
WELL_KNOWN = ("kubernetes.io/", "node.kubernetes.io/", "beta.kubernetes.io/")  # every machine has these, no platform record does


class NoZone(ValueError):
    """No zone of the stack fits; the message is the job's waiting reason."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What one worker asks of a machine."""

    gpus: int
    cpu: float
    memory_bytes: float
    selector: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class _Site:
    """The machines of one zone and one GPU type that a job may use."""

    zone: str
    gpu_type: str
    groups: tuple[NodeGroup, ...]
    room: int
    usd_per_worker_hour: float


def choose(job: Job, platform: Platform, market: Market) -> Placed:
    """The best zone for the job. Raises NoZone."""
    sites = _sites(job, platform)
    fitting = [site for site in sites if site.room >= job.min_replicas]
    if not fitting:
        raise NoZone(_complaint(job, platform, sites))
    best = min(fitting, key=lambda site: _rank(site, job, market))
    zone = ANY if job.spec.placement.zone == ANY else best.zone
    capacities = sorted({group.capacity_type for group in best.groups}, reverse=True)
    return Placed(zone=zone, capacity_type=", ".join(capacities), gpu_type=best.gpu_type)


def seat(job: Job, placed: Placed, platform: Platform | None) -> Seat:
    """What holds the workers to their placement, and lets them in there."""
    selector = {names.LABEL_ZONE: placed.zone} if placed.zone not in ("", ANY) else {}
    if placed.gpu_type:
        selector[names.LABEL_GPU_TYPE] = placed.gpu_type
    if job.spec.placement.capacity:
        selector[names.LABEL_CAPACITY] = job.spec.placement.capacity
    if platform is None:
        return Seat(selector=selector)
    groups = [group for group in platform.node_groups if placed.zone in (ANY, group.zone) and placed.gpu_type == group.gpu_type]
    taints = dict.fromkeys(taint for group in groups for taint in group.taints)
    # Claims are of one namespace; a job elsewhere brings its own.
    volumes = platform.volumes if job.namespace == platform.jobs_namespace else ()
    return Seat(selector=selector, taints=tuple(taints), volumes=volumes)


def unplaced(job: Job) -> Placed:
    """The placement on a cluster that no stack of ours describes: what the job itself says."""
    zone = job.spec.placement.zone
    return Placed(
        zone="" if zone in (SINGLE, ANY) else zone,
        capacity_type=job.spec.placement.capacity or "",
        gpu_type=job.spec.placement.gpu_type or "",
    )


def needs(template: Object) -> Needs:
    """What a pod of this template asks for; the sum over its containers, as the scheduler counts."""
    spec = template["spec"]
    wanted: defaultdict[str, float] = defaultdict(float)
    for container in spec["containers"]:
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            wanted[name] += quantity(amount)
    return Needs(
        gpus=int(wanted[names.GPU_RESOURCE]),
        cpu=wanted["cpu"],
        memory_bytes=wanted["memory"],
        selector=spec.get("nodeSelector") or {},
    )


def quantity(amount: str | float) -> float:
    """A Kubernetes quantity as a number: "500m" is 0.5, "1Gi" is 2**30."""
    text = str(amount)
    for suffix in sorted(FACTORS, key=len, reverse=True):
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * FACTORS[suffix]
    return float(text)


def workers_per_machine(needed: Needs, group: NodeGroup) -> int:
    """How many such workers one machine of the group holds; 0 if none fits or none may run there."""
    if not _admits(needed, group):
        return 0
    limits = [
        (needed.gpus, group.gpus_per_node),
        (needed.cpu, group.cpu),
        (needed.memory_bytes, group.memory_gib * 2**30),
    ]
    return int(min((has // asks for asks, has in limits if asks), default=1))


def _sites(job: Job, platform: Platform) -> list[_Site]:
    needed, asked = needs(job.worker.template), job.spec.placement
    usable: dict[tuple[str, str], list[tuple[NodeGroup, int]]] = {}
    for group in platform.node_groups:
        fits = workers_per_machine(needed, group)
        right_zone = asked.zone in (SINGLE, ANY, group.zone)
        right_gpu = asked.gpu_type is None or asked.gpu_type.lower() == group.gpu_type.lower()
        if fits and group.max and right_zone and right_gpu and asked.capacity in (None, group.capacity_type):
            zone = ANY if asked.zone == ANY else group.zone
            usable.setdefault((zone, group.gpu_type), []).append((group, fits))
    return [
        _Site(
            zone=zone,
            gpu_type=gpu_type,
            groups=tuple(group for group, _ in groups),
            room=sum(group.max * fits for group, fits in groups),
            usd_per_worker_hour=min(group.usd_per_hour / fits for group, fits in groups),
        )
        for (zone, gpu_type), groups in usable.items()
    ]


def _rank(site: _Site, job: Job, market: Market) -> tuple[float, float, float, float, str, str]:
    """Smaller is better."""
    here = [claim for claim in market.claims if claim.zone == site.zone]
    claimed = sum(claim.wanted for claim in here)
    free = max(0, site.room - claimed)
    missing = job.worker.replicas - min(free, job.worker.replicas)
    return (
        missing,
        sum(claim.reclaims for claim in here),
        site.usd_per_worker_hour,
        claimed,
        site.zone,
        site.gpu_type,
    )


def _admits(needed: Needs, group: NodeGroup) -> bool:
    """Whether the pod's own node selector lets it onto the group's machines."""
    labels = {
        names.LABEL_ZONE: group.zone,
        names.LABEL_NODE_GROUP: group.name,
        names.LABEL_CAPACITY: group.capacity_type,
        "node.kubernetes.io/instance-type": group.instance_type,
        "beta.kubernetes.io/instance-type": group.instance_type,  # in upstream's examples
        **({names.LABEL_GPU_TYPE: group.gpu_type} if group.gpu_type else {}),
        **group.labels,
    }
    return all(labels.get(key, value if key.startswith(WELL_KNOWN) else None) == value for key, value in needed.selector.items())


def _complaint(job: Job, platform: Platform, sites: list[_Site]) -> str:
    asked, needed = job.spec.placement, needs(job.worker.template)
    if sites:
        most = max(sites, key=lambda site: site.room)
        return (
            f"no zone has room for minReplicas {job.min_replicas}: the most is {most.room} in {most.zone}; "
            "lower minReplicas, or raise max of a node group in the stack and run `pulumi up`"
        )
    known = sorted({group.gpu_type for group in platform.node_groups if group.gpu_type})
    if asked.gpu_type and asked.gpu_type.lower() not in {name.lower() for name in known}:
        return f"placement.gpuType {asked.gpu_type!r} is not in the stack: choose one of {', '.join(known) or '(it has no GPUs)'}"
    zones = sorted({group.zone for group in platform.node_groups})
    if asked.zone not in (SINGLE, ANY, *zones):
        return (
            f"placement.zone {asked.zone!r} is not in the stack, which has {', '.join(zones)}; choose one of these, or 'single'"
        )
    return (
        f"no node group fits a worker that asks for {needed.gpus} GPUs, {needed.cpu:g} CPUs and "
        f"{needed.memory_bytes / 2**30:.3g} GiB of memory with its nodeSelector and placement; "
        "ConfigMap ebb-system/ebb-platform lists the groups"
    )
