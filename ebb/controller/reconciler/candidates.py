"""Sites where a job may run, and the best of them. One zone: fast and free traffic, no deadlock of an autoscaler.

    found = sites(Wish.of(job), platform, capacity)       # every zone and GPU with machines that its workers fit on
    site = best(found, job.worker.replicas, market)
    pod_placement(job, site.placed(), platform)                    # what holds the pods there

A site must hold minReplicas. Among those: not known to be dry, room for all wanted workers, few recent reclaims, price, then the
least used. The machines need not exist yet: node groups may be at zero, that is what the autoscaler is for. What other jobs leave
of a site is in queue.py. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebb.api import contract as names
from ebb.api.needs import Needs, Wish, shared_network, with_sidecars, workers_per_machine
from ebb.api.parts import ANY, ON_DEMAND, SINGLE, SPOT, SPOT_THEN_ON_DEMAND
from ebb.api.platform import PROVISION_SECONDS, NodeGroup, Platform, Volume
from ebb.api.spec import Job
from ebb.api.status import Placed
from ebb.api.template import worker_container
from ebb.controller.reconciler.capacity import ClusterCapacity
from ebb.controller.reconciler.containers import rendezvous
from ebb.controller.reconciler.pods import PodPlacement, leave_seconds

Rank = tuple[float, float, float, float, float, str, str]

PATIENCE_SECONDS = 60.0  # beyond the time that a machine takes: to be scheduled, and for the autoscaler to act


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The machines of one zone, GPU type and way of buying that a job may use. `fits`: its node groups, the cheapest first, each
    with the workers that one machine holds; none on a cluster that no stack of ours describes."""

    zone: str
    gpu_type: str
    capacity_type: str
    fits: tuple[tuple[NodeGroup, int], ...] = ()
    network: str = ""  # that all its machines share; "": TCP
    namespace: str = ""  # of the job
    gpus: int = 0  # of one worker

    @property
    def room(self) -> int:
        """Workers that fit when all its machines are there."""
        return sum(group.max * fits for group, fits in self.fits)

    @property
    def usd_per_worker_hour(self) -> float:
        return min(group.usd_per_hour / fits for group, fits in self.fits)

    @property
    def patience_seconds(self) -> float:
        """The time for which workers may wait for a machine here before something is wrong."""
        return max((group.provision_seconds for group, _ in self.fits), default=PROVISION_SECONDS) + PATIENCE_SECONDS

    @property
    def title(self) -> str:
        """For people: 'local-a (spot T4)'."""
        machines = " ".join(part for part in (self.capacity_type, self.gpu_type) if part)
        place = {"": "the cluster", ANY: "any zone"}.get(self.zone, self.zone)
        return f"{place} ({machines})" if machines else place

    def overlaps(self, other: "Candidate") -> bool:
        """Return whether a machine may belong to both."""
        if self.gpu_type != other.gpu_type or (self.zone != other.zone and ANY not in (self.zone, other.zone)):
            return False
        if not self.fits or not other.fits:
            return self.zone == other.zone
        mine = {group.name for group, _ in self.fits}
        return any(group.name in mine for group, _ in other.fits)

    def placed(self, since: str | None = None, fallbacks: int = 0, *, on_loan: bool = False) -> Placed:
        """As status.placement says it."""
        return Placed(
            zone=self.zone,
            capacity_type=self.capacity_type,
            gpu_type=self.gpu_type,
            network=self.network,
            since=since,
            fallbacks=fallbacks,
            on_loan=on_loan,
        )


def sites(wish: Wish, platform: Platform, capacity: str | None) -> list[Candidate]:
    """Sites where such a job may go on machines bought like that, None: in any way. It need not hold minReplicas."""
    home = home_of(wish, platform)
    needed = _whole_needs(wish, platform)
    usable: dict[tuple[str, str], list[tuple[NodeGroup, int]]] = {}
    for group in platform.node_groups:
        fits = workers_per_machine(needed, group)
        right_zone = wish.zone in (SINGLE, ANY, group.zone) and (home is None or home.zone == group.zone)
        right_gpu = wish.gpu_type is None or wish.gpu_type.lower() == group.gpu_type.lower()
        if fits and group.max and right_zone and right_gpu and capacity in (None, group.capacity_type):
            usable.setdefault((ANY if wish.zone == ANY else group.zone, group.gpu_type), []).append((group, fits))
    return [_candidate(zone, gpu_type, fits, wish, platform) for (zone, gpu_type), fits in usable.items()]


def candidate_of(wish: Wish, placed: Placed, platform: Platform | None) -> Candidate:
    """The site of a job that was placed."""
    bought = placed.capacity_type.split(", ") if placed.capacity_type else []
    needed = _whole_needs(wish, platform) if platform else wish.needs
    groups = [
        (group, workers_per_machine(needed, group))
        for group in (platform.node_groups if platform else ())
        if placed.zone in (ANY, group.zone) and placed.gpu_type == group.gpu_type
    ]
    fits = sorted((item for item in groups if item[1] and (not bought or item[0].capacity_type in bought)), key=_price)
    return Candidate(
        zone=placed.zone,
        gpu_type=placed.gpu_type,
        capacity_type=placed.capacity_type,
        fits=tuple(fits),
        network=placed.network,
        namespace=wish.namespace,
        gpus=wish.needs.gpus,
    )


def ways(wish: Wish) -> tuple[str | None, ...]:
    """Ways of buying its machines, the one to be tried first before the rest. None: in any way."""
    return (SPOT, ON_DEMAND) if wish.capacity == SPOT_THEN_ON_DEMAND else (wish.capacity,)


def best(
    found: Iterable[Candidate],
    wanted: int,
    cluster_capacity: ClusterCapacity,
    dry_since: Callable[[Candidate], float | None] = lambda site: None,
) -> Candidate:
    """The one to take. `dry_since`: when a site was last seen dry, None: not lately; where all are, the one longest ago."""

    def rank(site: Candidate) -> Rank:
        here = [claim for claim in cluster_capacity.claims if (claim.zone, claim.gpu_type) == (site.zone, site.gpu_type)]
        claimed = sum(claim.wanted for claim in here)
        missing = wanted - min(max(0, site.room - claimed), wanted)
        reclaims = sum(claim.reclaims for claim in here)
        return dry_since(site) or 0.0, missing, reclaims, site.usd_per_worker_hour, claimed, site.zone, site.gpu_type

    return min(found, key=rank)


def pod_placement(job: Job, placed: Placed, platform: Platform | None) -> PodPlacement:
    """The labels and tolerations that hold the workers to their placement and let them in there."""
    selector = _selector(job, placed)
    met = rendezvous(job, worker_container(job.worker.template["spec"]["containers"]), platform)
    if platform is None:
        return PodPlacement(selector=selector, met=met)
    groups = [group for group in platform.node_groups if placed.zone in (ANY, group.zone) and placed.gpu_type == group.gpu_type]
    taints = dict.fromkeys(taint for group in groups for taint in group.taints)
    # Claims are of one namespace; a job elsewhere brings its own.
    platform = platform.seen_from(job.namespace)
    volumes = platform.volumes if job.namespace == platform.jobs_namespace else ()
    carrying = [group for group in groups if group.capacity_type in placed.capacity_type.split(", ")]
    notices = [group.notice_seconds for group in carrying if group.notice_seconds]
    return PodPlacement(
        selector=selector,
        taints=tuple(taints),
        volumes=volumes,
        memory_bytes=_share_bytes(Wish.of(job), carrying, platform),
        grace_seconds=leave_seconds(min(notices, default=0)),
        # As it was chosen: workers that came before the stack had it would not find those that came after.
        network=next((one.network for one in carrying if one.network and one.network.name == placed.network), None),
        open_to_all=not placed.gpu_type,
        met=met,
    )


def elsewhere(job: Job, placed: Placed, pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is held to another place than this. One that is held to none may stay."""
    asks: Mapping[str, str] = pod["spec"].get("nodeSelector") or {}
    return any(asks.get(label, value) != value for label, value in _selector(job, placed).items())


def unplaced(job: Job) -> Placed:
    """The placement on a cluster that no stack of ours describes: what the job itself says."""
    asked = job.spec.placement
    return Placed(
        zone="" if asked.zone in (SINGLE, ANY) else asked.zone,
        capacity_type="" if asked.capacity in (None, SPOT_THEN_ON_DEMAND) else asked.capacity,
        gpu_type=asked.gpu_type or "",
    )


def home_of(wish: Wish, platform: Platform) -> Volume | None:
    """The volume that ties the job to a zone, if it mounts one that is in one zone alone. `any` says that zones do not matter."""
    platform = platform.seen_from(wish.namespace)
    if wish.namespace != platform.jobs_namespace or wish.zone == ANY:
        return None
    in_one_zone = [volume for volume in platform.volumes if volume.zone]
    return next((one for one in in_one_zone if one.claim in wish.claims or one.mount_path.rstrip("/") not in wish.paths), None)


def complaint(wish: Wish, platform: Platform, found: Sequence[Candidate]) -> str:
    """The reason why no site holds minReplicas, and the fix. `found`: those that the job may go to."""
    needed, home = _whole_needs(wish, platform), home_of(wish, platform)
    if found:
        most = max(found, key=lambda site: site.room)
        return (
            f"no zone has room for minReplicas {wish.least}: the most is {most.room} in {most.zone}; "
            "lower minReplicas, or raise max of a node group in the stack and run `pulumi up`"
        )
    known = sorted({group.gpu_type for group in platform.node_groups if group.gpu_type})
    if wish.gpu_type and wish.gpu_type.lower() not in {name.lower() for name in known}:
        return f"placement.gpuType {wish.gpu_type!r} is not in the stack: choose one of {', '.join(known) or '(it has no GPUs)'}"
    zones = sorted({group.zone for group in platform.node_groups})
    if wish.zone not in (SINGLE, ANY, *zones):
        return f"placement.zone {wish.zone!r} is not in the stack, which has {', '.join(zones)}; choose one of these, or 'single'"
    if home and wish.zone not in (SINGLE, home.zone):
        return (
            f"placement.zone {wish.zone!r} contradicts volume {home.name!r}, which is in {home.zone} alone: name that zone, or "
            f"mount something else at {home.mount_path}"
        )
    tied = f" in {home.zone}, where volume {home.name!r} is," if home else ""
    return (
        f"no node group{tied} fits a worker that asks for {needed.gpus} GPUs, {needed.cpu:g} CPUs and "
        f"{needed.memory_bytes / 2**30:.3g} GiB of memory with its nodeSelector and placement; "
        "ConfigMap ebb-system/ebb-platform lists the groups"
    )


def _candidate(zone: str, gpu_type: str, fits: list[tuple[NodeGroup, int]], wish: Wish, platform: Platform) -> Candidate:
    capacities = sorted({group.capacity_type for group, _ in fits}, reverse=True)
    network = shared_network(wish.needs.gpus, [group for group, _ in fits])
    network = network if network and network.reaches(wish.namespace, platform.seen_from(wish.namespace).jobs_namespace) else None
    return Candidate(
        zone=zone,
        gpu_type=gpu_type,
        capacity_type=", ".join(capacities),
        fits=tuple(sorted(fits, key=_price)),
        network=network.name if network else "",
        namespace=wish.namespace,
        gpus=wish.needs.gpus,
    )


def _whole_needs(wish: Wish, platform: Platform) -> Needs:
    """The needs of a worker with what the cloud adds to its pod."""
    return with_sidecars(wish.needs, platform.sidecars_in(wish.namespace))


def _price(item: tuple[NodeGroup, int]) -> tuple[float, str]:
    group, fits = item
    return group.usd_per_hour / fits, group.name


def _selector(job: Job, placed: Placed) -> dict[str, str]:
    """A job that names no way of buying takes what there is."""
    bought = placed.capacity_type if job.spec.placement.capacity and ", " not in placed.capacity_type else ""
    labels = {
        names.LABEL_ZONE: "" if placed.zone == ANY else placed.zone,
        names.LABEL_GPU_TYPE: placed.gpu_type,
        names.LABEL_CAPACITY: bought,
    }
    return {label: value for label, value in labels.items() if value}


def _share_bytes(wish: Wish, groups: Sequence[NodeGroup], platform: Platform) -> float:
    """The memory of its machine that one worker's own containers may use, on the smallest of these machines; 0 if it fits on
    none."""
    needed = _whole_needs(wish, platform)
    fits = [(group.pod_memory_gib * 2**30, workers_per_machine(needed, group)) for group in groups]
    share = min((memory / count for memory, count in fits if count), default=0.0)
    return max(0.0, share - (needed.memory_bytes - wish.needs.memory_bytes))
