"""Typed model of ConfigMap `ebb-platform`, in which the Pulumi program describes the stack.

    platform = parse(config_map["data"])            # the CLI and the controller read the ConfigMap; nothing here does I/O
    groups = platform.gpu_groups(gpu_type="T4", capacity_type="spot")

Unknown keys are ignored, so that a newer Pulumi program can add some within one schema; a missing or mistyped one is a
PlatformError that names its path. It holds no decisions: which group a job gets is the controller's, what a pod asks for is
cli/request.py's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ebb.api.contract import BACKEND_ETCD, BACKEND_ETCD3

NAMESPACE = "ebb-system"
NAME = "ebb-platform"
SCHEMA = "1"
WHERE = f"ConfigMap {NAMESPACE}/{NAME}"

SPOT, ON_DEMAND, CAPACITY_BLOCK, FLEX_START = "spot", "on-demand", "capacity-block", "flex-start"
PROVISION_SECONDS = 300  # where the stack does not say; a cloud's GPU machine takes 2 to 5 minutes until pods run on it


class PlatformError(ValueError):
    """The ConfigMap is not one that this version understands; the message names the key and the fix."""


@dataclass(frozen=True, kw_only=True)
class Taint:
    """The mark that keeps other pods off a machine; a job's pods tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """A container that the cloud adds to each pod that mounts a volume and carries these annotations, and what it asks of the
    machine beside the pod's own containers. One serves all volumes of its kind."""

    annotations: tuple[tuple[str, str], ...]
    cpu: float
    memory_gib: float


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A claim in the jobs' namespace and where workers see it."""

    name: str
    claim: str
    mount_path: str
    read_only: bool
    zone: str = ""  # the only zone that has it; "": every zone does
    sidecar: Sidecar | None = None  # None: the machine mounts it


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network between machines that is faster than TCP over the usual one, and what workers need to use it."""

    name: str  # for people: EFA
    resources: Mapping[str, str]  # of Kubernetes, that a worker with the whole machine asks for: the interfaces, huge pages
    environment: Mapping[str, str]
    # Where Kubernetes hands the interfaces out by dynamic resource allocation: the ResourceClaimTemplate in the jobs' namespace.
    claim: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)  # labels of the machines that workers then ask for, too

    def reaches(self, namespace: str, jobs_namespace: str) -> bool:
        """Return whether jobs of a namespace can have it: a template for claims is of one namespace, as claims of volumes are."""
        return not self.claim or namespace == jobs_namespace


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """One kind of machine in one zone, between `min` and `max` of them. Prices are USD for a whole machine."""

    name: str
    zone: str
    instance_type: str
    gpu_type: str  # "" for machines without GPUs
    gpus_per_node: int
    cpu: float
    memory_gib: float
    capacity_type: str  # SPOT, ON_DEMAND, CAPACITY_BLOCK or FLEX_START
    min: int
    max: int
    taints: tuple[Taint, ...]
    labels: Mapping[str, str]
    on_demand_usd_per_hour: float
    spot_discount: float  # assumed, a fraction of the on-demand price: 0.7 means that spot costs 30 % of it
    notice_seconds: int  # how long before a reclaim the cloud warns; 0: it does not
    provision_seconds: int = PROVISION_SECONDS  # from being asked for until pods run on it; later than that it does not come
    max_age_seconds: int = 0  # the cloud takes older machines away; 0: it does not look at their age
    trainer_image: str = ""  # where jobs on it need another one than the platform's: its GPU is too old for that one's torch
    allocatable_memory_gib: float = 0.0  # what a machine offers to all pods; 0: the stack does not know
    network: Network | None = None  # None: TCP

    @property
    def pod_memory_gib(self) -> float:
        """The memory of a machine for all its pods; all of it where the stack does not know what the machine keeps."""
        return self.allocatable_memory_gib or self.memory_gib

    @property
    def spot_usd_per_hour(self) -> float:
        """The assumed spot price of a machine."""
        return self.on_demand_usd_per_hour * (1 - self.spot_discount)

    @property
    def usd_per_hour(self) -> float:
        """The price of a machine of this group."""
        return self.spot_usd_per_hour if self.capacity_type == SPOT else self.on_demand_usd_per_hour


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The pods that copy buckets: their image, the labels of the machines for them, their ServiceAccount where the cloud gives
    that an identity ("": the job brings credentials), and variables."""

    image: str
    selector: Mapping[str, str]
    account: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Team:
    """People with a namespace of their own, and their limits; None: no limit."""

    name: str
    namespace: str
    volumes: tuple[Volume, ...] = ()
    gpus: int | None = None
    borrow: int = 0  # GPUs beyond these that it may use while other teams leave them of theirs
    usd_per_month: float | None = None
    priority: str = ""  # of jobs that name none, as `ebb submit --priority` says it
    buckets: Mapping[str, str] = field(
        default_factory=dict
    )  # name -> address, those that its copies may read without credentials
    copy_account: str = ""  # the ServiceAccount of these copies, in its namespace; "": its jobs bring credentials


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Everything that the CLI and the controller know about the stack."""

    cloud: str
    region: str
    stack: str
    trainer_image: str
    jobs_namespace: str
    etcd_endpoint: str
    volumes: tuple[Volume, ...]
    node_groups: tuple[NodeGroup, ...]
    dashboards: Mapping[str, str] = field(default_factory=dict)  # by name; {namespace} and {job} stand for a job's
    launcher_image: str = ""  # has the launcher for workers in other images (ebb/elastic/portable); "": an older stack's has not
    buckets: Mapping[str, str] = field(default_factory=dict)  # name -> address, those that copies may read without credentials
    copies: Copies | None = None  # None: the stack is of a version that copies no buckets
    legacy_etcd_endpoint: str = ""  # an etcd with the v2 API, for torch's own etcd backends; "": the stack has none
    teams: tuple[Team, ...] = ()
    closed_buckets: frozenset[str] = frozenset()  # names of those of other teams; see seen_from()

    def team_of(self, namespace: str) -> Team | None:
        """The team whose namespace it is."""
        return next((team for team in self.teams if team.namespace == namespace), None)

    def sidecars_in(self, namespace: str) -> tuple[Sidecar, ...]:
        """The containers that the cloud adds to each worker there."""
        team = self.team_of(namespace)
        own = self.volumes if namespace == self.jobs_namespace else ()
        volumes = team.volumes if team else own
        return tuple(dict.fromkeys(volume.sidecar for volume in volumes if volume.sidecar))

    def dashboards_of(self, namespace: str, job: str) -> dict[str, str]:
        """The addresses of a job's dashboards, by name."""
        return {name: text.replace("{namespace}", namespace).replace("{job}", job) for name, text in self.dashboards.items()}

    def seen_from(self, namespace: str) -> "Platform":
        """The platform as jobs in a namespace find it: in a team's, with the volumes, the gateway and the buckets of that team,
        and the identity that reads these."""
        team = self.team_of(namespace)
        own = self.buckets if team is None else team.buckets
        volumes = self.volumes if team is None else team.volumes
        held = (self.volumes, *(each.volumes for each in self.teams))
        mounted = {one.name for each in held for one in each if one.read_only}
        every = {*self.buckets, *(name for each in self.teams for name in each.buckets), *mounted}
        closed = frozenset(every) - own.keys() - {one.name for one in volumes}
        if team is None:
            return replace(self, closed_buckets=closed)
        copies = replace(self.copies, account=team.copy_account) if self.copies else None
        return replace(self, jobs_namespace=namespace, volumes=volumes, buckets=own, copies=copies, closed_buckets=closed)

    def is_etcd(self, endpoint: str) -> bool:
        """Return whether it is the stack's etcd that a job names, and not one of its author's."""
        port = ":2379"  # launchers add it where it is missing
        return endpoint.removesuffix(port) == self.etcd_endpoint.removesuffix(port)

    def usual_backend(self, image: str) -> str:
        """The rendezvous backend for workers of an image where the job names none. `legacyRendezvous` is for images that are
        not the stack's."""
        return BACKEND_ETCD if self.legacy_etcd_endpoint and self.is_foreign(image) else BACKEND_ETCD3

    def is_foreign(self, image: str) -> bool:
        """Return whether an image is none of the stack's trainers, of any build."""
        own = {self.trainer_image, *(group.trainer_image for group in self.node_groups)}
        return _repository(image) not in {_repository(one) for one in own if one}

    def gpu_groups(
        self, *, gpu_type: str | None = None, capacity_type: str | None = None, zone: str | None = None
    ) -> tuple[NodeGroup, ...]:
        """The groups with GPUs that have room for at least one machine and match; None matches all, GPU types in any case."""
        return tuple(
            group
            for group in self.node_groups
            if group.gpu_type
            and group.max > 0
            and (gpu_type is None or group.gpu_type.lower() == gpu_type.lower())
            and (capacity_type is None or group.capacity_type == capacity_type)
            and (zone is None or group.zone == zone)
        )


def parse(data: Mapping[str, str]) -> Platform:
    """The platform out of the ConfigMap's `data`. Raises PlatformError."""
    schema = data.get("schema")
    if schema != SCHEMA:
        raise PlatformError(
            f"{WHERE}: schema is {schema!r}, this version of Ebb reads {SCHEMA!r}: bring `ebb` and the stack to one version, "
            "then run `pulumi up`."
        )
    try:
        root = json.loads(data["platform.json"])
    except KeyError as error:
        raise PlatformError(f"{WHERE}: key platform.json is missing: run `pulumi up`.") from error
    except ValueError as error:
        raise PlatformError(f"{WHERE}: platform.json is not JSON ({error}): run `pulumi up`.") from error
    return _platform(_FactsReader(root, ""))


def _repository(image: str) -> str:
    """An image's name without tag and digest: jobs outlive a build of their image."""
    named = image.partition("@")[0]
    name, _, tag = named.rpartition(":")
    return name if name and "/" not in tag else named


class _FactsReader:
    """Reads typed keys of one JSON object; every complaint carries the key's path."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(path or "platform.json", "an object", value)
        self._value: dict[str, Any] = value
        self._path = path

    def _get(self, key: str, default: object) -> tuple[str, object]:
        path = f"{self._path}.{key}" if self._path else key
        value = self._value.get(key, default)
        if value is None:
            raise PlatformError(f"{WHERE}: {path} is missing: run `pulumi up` with this version of Ebb.")
        return path, value

    def text(self, key: str, default: str | None = None) -> str:
        path, value = self._get(key, default)
        if not isinstance(value, str):
            raise _wrong(path, "text", value)
        return value

    def one_of(self, key: str, *allowed: str) -> str:
        value = self.text(key)
        if value not in allowed:
            raise _wrong(self._get(key, None)[0], " or ".join(map(repr, allowed)), value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        path, value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise _wrong(path, "a number of at least 0", value)
        return float(value)

    def fraction(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if value > 1:
            raise _wrong(self._get(key, default)[0], "a fraction from 0 to 1", value)
        return value

    def count(self, key: str, default: int | None = None) -> int:
        path, value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _wrong(path, "a whole number of at least 0", value)
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        path, value = self._get(key, default)
        if not isinstance(value, bool):
            raise _wrong(path, "true or false", value)
        return value

    def present(self, *keys: str) -> set[str]:
        return {key for key in keys if self._value.get(key) is not None}

    def part(self, key: str) -> "_FactsReader | None":
        if self._value.get(key) is None:
            return None
        path, value = self._get(key, None)
        return _FactsReader(value, path)

    def texts(self, key: str) -> dict[str, str]:
        path, value = self._get(key, {})
        reader = _FactsReader(value, path)
        return {name: reader.text(name) for name in reader._value}

    def objects(self, key: str, default: list[object] | None = None) -> list["_FactsReader"]:
        path, value = self._get(key, default)
        if not isinstance(value, list):
            raise _wrong(path, "a list", value)
        return [_FactsReader(item, f"{path}[{index}]") for index, item in enumerate(value)]


def _wrong(path: str, wanted: str, found: object) -> PlatformError:
    return PlatformError(f"{WHERE}: {path} must be {wanted}, found {found!r}: run `pulumi up` with this version of Ebb.")


def _platform(root: _FactsReader) -> Platform:
    return Platform(
        cloud=root.text("cloud"),
        region=root.text("region"),
        stack=root.text("stack"),
        trainer_image=root.text("trainerImage"),
        launcher_image=root.text("launcherImage", ""),
        jobs_namespace=root.text("jobsNamespace"),
        etcd_endpoint=root.text("etcdEndpoint"),
        volumes=tuple(_volume(item) for item in root.objects("volumes")),
        node_groups=tuple(_node_group(item) for item in root.objects("nodeGroups")),
        dashboards=root.texts("dashboards"),
        buckets={item.text("name"): item.text("url") for item in root.objects("buckets", [])},
        copies=_copies(root.part("copies")),
        legacy_etcd_endpoint=root.text("legacyEtcdEndpoint", ""),
        teams=tuple(_team(item) for item in root.objects("teams", [])),
    )


def _team(item: _FactsReader) -> Team:
    limits = item.present("gpus", "usdPerMonth")
    return Team(
        name=item.text("name"),
        namespace=item.text("namespace"),
        volumes=tuple(_volume(one) for one in item.objects("volumes", [])),
        gpus=item.count("gpus") if "gpus" in limits else None,
        borrow=item.count("borrow", 0),
        usd_per_month=item.number("usdPerMonth") if "usdPerMonth" in limits else None,
        priority=item.text("priority", ""),
        buckets={one.text("name"): one.text("url") for one in item.objects("buckets", [])},
        copy_account=item.text("copyAccount", ""),
    )


def _volume(item: _FactsReader) -> Volume:
    return Volume(
        name=item.text("name"),
        claim=item.text("claim"),
        mount_path=item.text("mountPath"),
        read_only=item.flag("readOnly", False),
        zone=item.text("zone", ""),
        sidecar=_sidecar(item.part("sidecar")),
    )


def _sidecar(item: _FactsReader | None) -> Sidecar | None:
    if item is None:
        return None
    return Sidecar(
        annotations=tuple(item.texts("annotations").items()), cpu=item.number("cpu"), memory_gib=item.number("memoryGiB")
    )


def _node_group(item: _FactsReader) -> NodeGroup:
    return NodeGroup(
        name=item.text("name"),
        zone=item.text("zone"),
        instance_type=item.text("instanceType"),
        gpu_type=item.text("gpuType", ""),
        gpus_per_node=item.count("gpusPerNode", 0),
        cpu=item.number("cpu"),
        memory_gib=item.number("memoryGiB"),
        capacity_type=item.one_of("capacityType", SPOT, ON_DEMAND, CAPACITY_BLOCK, FLEX_START),
        min=item.count("min"),
        max=item.count("max"),
        taints=tuple(_taint(taint) for taint in item.objects("taints", [])),
        labels=item.texts("labels"),
        on_demand_usd_per_hour=item.number("pricePerHourOnDemand"),
        spot_discount=item.fraction("spotDiscount", 0.0),
        notice_seconds=item.count("noticeSeconds", 0),
        provision_seconds=item.count("provisionSeconds", PROVISION_SECONDS),
        max_age_seconds=item.count("maxAgeSeconds", 0),
        trainer_image=item.text("trainerImage", ""),
        allocatable_memory_gib=item.number("allocatableMemoryGiB", 0.0),
        network=_network(item.part("network")),
    )


def _copies(item: _FactsReader | None) -> Copies | None:
    if item is None:
        return None
    return Copies(
        image=item.text("image"),
        selector=item.texts("selector"),
        account=item.text("account", ""),
        environment=item.texts("environment"),
    )


def _network(item: _FactsReader | None) -> Network | None:
    if item is None:
        return None
    return Network(
        name=item.text("name"),
        resources=item.texts("resources"),
        environment=item.texts("environment"),
        claim=item.text("claim", ""),
        selector=item.texts("selector"),
    )


def _taint(item: _FactsReader) -> Taint:
    return Taint(key=item.text("key"), value=item.text("value", ""), effect=item.text("effect"))
