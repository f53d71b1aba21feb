"""A request on a platform, as pure code: which machines, how many workers, what price.

    fit = find_fit(request, platform)           # or a BadRequest
    print(price(fit, fit.workers))

Users count in GPUs, Kubernetes in workers: here is where one becomes the other. Nothing here reserves a machine or picks
the zone; the controller does, with newer knowledge.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ebb.api.needs import shared_network
from ebb.api.parts import SPOT_THEN_ON_DEMAND
from ebb.api.platform import CAPACITY_BLOCK, FLEX_START, ON_DEMAND, SPOT, NodeGroup, Platform
from ebb.client.errors import BadRequest
from ebb.client.submission.request import Request, check, check_worker_name

CPU_RESERVE = 0.1
"""The share of a machine's CPUs that jobs leave alone: of 4 cores GKE and EKS keep 0.08, pods on every machine need the rest."""

_AGENTS_GIB = 0.5  # what the platform's own pods on each machine ask for
_UNKNOWN_SHARE = 3 / 4  # of a machine's memory, where the stack does not know what it keeps: the devcluster's are small

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T|)")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A request fitted to the platform. `groups` are all that may carry it; each worker is one pod on one machine."""

    groups: tuple[NodeGroup, ...]
    gpu_type: str
    capacity: str
    gpus_per_worker: int
    workers: int
    min_workers: int
    max_workers: int
    cpu_millis: int
    memory_mib: int
    shm_mib: int
    network: str = ""  # the fast one between its workers, in whichever zone they are; "": TCP

    @property
    def zones(self) -> tuple[str, ...]:
        return _unique(group.zone for group in self.groups)

    @property
    def instance_types(self) -> tuple[str, ...]:
        return _unique(group.instance_type for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Price:
    """USD per hour in the cheapest of the fitting groups. Spot is assumed: on-demand less the platform's discount."""

    machines: int
    usd_per_hour: float
    on_demand_usd_per_hour: float


def find_fit(request: Request, platform: Platform) -> Fit:
    """Check a request against the platform and split its GPUs into workers. Raises BadRequest."""
    check(request)
    groups = _groups(request, platform)
    size = _gpus_per_worker(request, groups)
    groups = tuple(group for group in groups if group.gpus_per_node >= size)
    network = _network(groups, size)  # the controller does not look at images
    groups = groups if request.image else _of_one_image(groups)
    _check_room(request, groups, size)
    max_workers = (request.max_gpus or request.gpus) // size
    check_worker_name(request.name, max_workers)
    beside = platform.sidecars_in(platform.jobs_namespace)
    memory_mib = min(int(size / group.gpus_per_node * _usable_gib(group) * 1024) for group in groups)
    memory_mib -= int(sum(one.memory_gib for one in beside) * 1024)
    cpu_millis = min(int(size / group.gpus_per_node * group.cpu * (1 - CPU_RESERVE) * 1000) for group in groups)
    return Fit(
        groups=groups,
        gpu_type=groups[0].gpu_type,
        capacity=SPOT_THEN_ON_DEMAND if request.capacity == SPOT_THEN_ON_DEMAND else groups[0].capacity_type,
        gpus_per_worker=size,
        workers=request.gpus // size,
        min_workers=(request.min_gpus or size) // size,
        max_workers=max_workers,
        cpu_millis=cpu_millis - int(sum(one.cpu for one in beside) * 1000),
        memory_mib=memory_mib,
        shm_mib=_shm_mib(request.shm, memory_mib),
        network=network,
    )


def price(fit: Fit, workers: int) -> Price:
    """Return what `workers` workers cost per hour, whole machines counted, in the cheapest group."""

    def machines(group: NodeGroup) -> int:
        return math.ceil(workers / (group.gpus_per_node // fit.gpus_per_worker))

    group = min(fit.groups, key=lambda group: machines(group) * group.usd_per_hour)
    count = machines(group)
    return Price(
        machines=count, usd_per_hour=count * group.usd_per_hour, on_demand_usd_per_hour=count * group.on_demand_usd_per_hour
    )


def quota_notes(fit: Fit, namespace: str, platform: Platform) -> list[str]:
    """Say where a job needs more GPUs to start than its team has a right to."""
    team = next((team for team in platform.teams if team.namespace == namespace), None)
    need = fit.min_workers * fit.gpus_per_worker
    if team is None or team.gpus is None or need <= team.gpus:
        return []
    quota, fewer = f"the quota of team {team.name!r} is {team.gpus}", f"--min {team.gpus} or fewer"
    if need > min(team.gpus + team.borrow, sum(one.gpus or 0 for one in platform.teams)):
        beyond = f", beyond which it may borrow {team.borrow}" if team.borrow else ""
        return [
            f"This job needs {need} GPUs to start, and {quota}{beyond}: it can never start. "
            f"Use {fewer}, or have the quota raised."
        ]
    return [
        f"This job needs {need} GPUs to start, and {quota}: it has no right to the rest, and starts when other teams leave "
        "enough, or after a day without any machine, when what becomes free is kept for it. With "
        f"{fewer} it starts within the quota."
    ]


def memory_bytes(quantity: str) -> int:
    """Bytes of a Kubernetes quantity such as 512Mi, 1.5Gi or 2G. Raises ValueError."""
    match = _QUANTITY.fullmatch(quantity)
    if not match:
        raise ValueError(f"{quantity!r} is not an amount of memory")
    return int(float(match[1]) * _FACTORS[match[2]])


def _groups(request: Request, platform: Platform) -> tuple[NodeGroup, ...]:
    """The groups of the wanted GPU type, capacity and zone; what was not said is chosen if there is one sensible choice."""
    of_type = platform.gpu_groups(gpu_type=_gpu_type(request, platform))
    gpu_type, kinds = of_type[0].gpu_type, _unique(group.capacity_type for group in of_type)
    capacity = request.capacity or next(kind for kind in (CAPACITY_BLOCK, SPOT, FLEX_START, ON_DEMAND) if kind in kinds)
    for kind in _kinds(capacity):
        if kind not in kinds:
            raise BadRequest(
                f"capacity {capacity!r}: this platform has {gpu_type} as {_listed(kinds)} only. "
                "Leave the capacity out, or add a node group to the stack and run `pulumi up`."
            )
    of_kind = tuple(group for kind in _kinds(capacity) for group in of_type if group.capacity_type == kind)
    groups = tuple(group for group in of_kind if request.zone in (None, group.zone))
    if not groups:
        zones = _unique(group.zone for group in of_kind)
        raise BadRequest(
            f"zone {request.zone!r}: {gpu_type} as {capacity} is in {_listed(zones)}. "
            "Choose one of these, or leave --zone out and the platform picks one."
        )
    return groups


def _kinds(capacity: str) -> tuple[str, ...]:
    return (SPOT, ON_DEMAND) if capacity == SPOT_THEN_ON_DEMAND else (capacity,)


def _of_one_image(groups: tuple[NodeGroup, ...]) -> tuple[NodeGroup, ...]:
    """A job has one image. Where groups of one GPU type name different ones, those of the first group's count; a worker that
    lands on another of them runs as well, for an image goes with a GPU type."""
    return tuple(group for group in groups if group.trainer_image == groups[0].trainer_image)


def _gpu_type(request: Request, platform: Platform) -> str:
    types = _unique(group.gpu_type for group in platform.gpu_groups())
    if not types:
        raise BadRequest("this platform has no machines with GPUs: add a node group to the stack and run `pulumi up`.")
    if request.gpu is None and len(types) > 1:
        raise BadRequest(f"gpu is missing, and this platform has several: choose one of {_listed(types)} with --gpu.")
    wanted = request.gpu or types[0]
    if not platform.gpu_groups(gpu_type=wanted):
        raise BadRequest(f"gpu {wanted!r} is not on this platform: it has {_listed(types)}. Choose one of these with --gpu.")
    return wanted


def _gpus_per_worker(request: Request, groups: tuple[NodeGroup, ...]) -> int:
    """The largest machine that divides all counts; fewer GPUs than the smallest one has make one worker on part of it."""
    counts = [count for count in (request.gpus, request.min_gpus, request.max_gpus) if count is not None]
    sizes = sorted({group.gpus_per_node for group in groups}, reverse=True)
    for size in sizes:
        if all(count % size == 0 for count in counts):
            return size
    if len(set(counts)) == 1 and counts[0] < sizes[-1]:
        return counts[0]
    held = _listed(str(size) for size in reversed(sizes))
    raise BadRequest(
        f"{_counts(request)}: not a whole number of machines; those with {groups[0].gpu_type} hold {held} GPUs each. "
        f"Use multiples of {sizes[-1]}."
    )


def _check_room(request: Request, groups: tuple[NodeGroup, ...], size: int) -> None:
    """A job stays in one zone, so one zone must be able to hold what it asks for."""
    kinds: dict[tuple[str, str], int] = {}
    for group in groups:
        place = group.zone, group.capacity_type  # spot and on-demand machines of a zone carry it one after the other
        kinds[place] = kinds.get(place, 0) + group.max * (group.gpus_per_node // size) * size
    room = {zone: max(count for place, count in kinds.items() if place[0] == zone) for zone, _ in kinds}
    most = max(room.values())
    if request.gpus > most:
        held = ", ".join(f"{zone} {count}" for zone, count in room.items())
        raise BadRequest(
            f"gpus {request.gpus} is more than one zone can hold, and a job stays in one zone: {groups[0].gpu_type} as "
            f"{groups[0].capacity_type}, at most: {held}. Use --gpus {most} or fewer, or raise the node group's max in the stack."
        )


def _network(groups: tuple[NodeGroup, ...], size: int) -> str:
    kinds = dict.fromkeys((group.zone, group.capacity_type) for group in groups)
    found = [shared_network(size, [one for one in groups if (one.zone, one.capacity_type) == kind]) for kind in kinds]
    return found[0].name if found[0] and all(one == found[0] for one in found) else ""


def _usable_gib(group: NodeGroup) -> float:
    """A machine's memory that workers may ask for, all together."""
    known = group.allocatable_memory_gib
    return known - _AGENTS_GIB if known else group.memory_gib * _UNKNOWN_SHARE


def _shm_mib(shm: str | None, memory_mib: int) -> int:
    if shm is None:
        return memory_mib // 4
    try:
        mib = memory_bytes(shm) // 2**20
    except ValueError as error:
        raise BadRequest(f"shm {shm!r} is not an amount of memory: use for example 512Mi or 1Gi.") from error
    if not 1 <= mib <= memory_mib:
        raise BadRequest(
            f"shm {shm!r} does not fit: /dev/shm is part of the worker's memory of {memory_mib}Mi. Use 1Mi to {memory_mib}Mi."
        )
    return mib


def _counts(request: Request) -> str:
    named = (("gpus", request.gpus), ("min", request.min_gpus), ("max", request.max_gpus))
    return ", ".join(f"{label} {value}" for label, value in named if value is not None)


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _listed(values: Iterable[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    *most, last = values
    return f"{', '.join(most)} and {last}" if most else last
