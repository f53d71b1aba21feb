"""The cluster as workloads see it: records that a cloud fills, and names on which services must agree.

A node group's labels, taints, resources and prices come from one record, NodeGroup, and from nowhere else: what the nodes carry,
what pods tolerate and what `ebb-platform` reports to the CLI cannot disagree. No cloud's name occurs here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pulumi
from pulumi_kubernetes.provider import Provider as KubernetesProvider

SYSTEM, JOBS = "ebb-system", "elastic-job"
COPY_ACCOUNT = "ebb-copy"  # the ServiceAccount, in a namespace of jobs, of pods that copy buckets
TEAMS = "ebb-team-"  # of a team's namespace, its name follows: what the policies of manifests/owners.yaml go by
PLATFORM_PRIORITY, JOB_PRIORITY = "ebb-system", "ebb-job"
ETCD, ETCD_PORT = "etcd", 2379
ETCD_ENDPOINT = f"etcd-service:{ETCD_PORT}"  # the name that job files of pytorch/elastic have always used
LEGACY_ETCD = "etcd-legacy"
# Through the search list of a pod's resolver, so in every namespace and under every cluster domain.
LEGACY_ETCD_ENDPOINT = f"{LEGACY_ETCD}.{SYSTEM}.svc:{ETCD_PORT}"
COMPONENT_LABEL, RENDEZVOUS = "app.kubernetes.io/component", "rendezvous"  # of both etcds
NAME_LABEL = "app.kubernetes.io/name"
GATEWAY = "ebb-gateway"  # of its pod's NAME_LABEL
NOBODY = 1000  # the images' user; shared volumes are its own
DEFAULT_IMAGE = "default"  # the trainer image of node groups that name no other
JOB_API, JOB_KIND = "elastic.pytorch.org/v1alpha1", "ElasticJob"
LABEL_NODE_GROUP = "ebb.dev/node-group"
MANAGER = "manager"  # its value on the machines that carry the platform itself
LABEL_CAPACITY = "ebb.dev/capacity-type"
LABEL_GPU_TYPE = "ebb.dev/gpu-type"
TAINT_GPU = "nvidia.com/gpu"
# How machines are bought. Which of them a cloud has, its module says (CAPACITIES).
SPOT, ON_DEMAND, CAPACITY_BLOCK, FLEX_START = "spot", "on-demand", "capacity-block", "flex-start"
# How much longer jobs wait for a machine of flex-start before they try another zone. Nobody promises when one comes, so this is
# a choice: long enough that waiting is worth it, and two jobs that each hold half of what both need do not stand still for a day.
FLEX_START_SECONDS = 3600

Resources = list[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class DeviceClaim:
    """Devices of a machine that Kubernetes hands out by dynamic resource allocation, as one template for the jobs' namespace."""

    name: str  # of the ResourceClaimTemplate
    device_class: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network between machines that is faster than TCP over the usual one, and what workers need to use it."""

    name: str  # for people
    environment: Mapping[str, str]
    # What a worker with the whole machine asks for, by device plugins or by dynamic resource allocation.
    resources: Mapping[str, str] = field(default_factory=dict)
    claim: DeviceClaim | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # of the machines that have it, so that the cloud sets it up
    selector: Mapping[str, str] = field(default_factory=dict)  # labels that the cloud adds, and workers must ask for

    def facts(self) -> dict[str, Any]:
        """Its entry in `ebb-platform`."""
        return {
            "name": self.name,
            "resources": dict(self.resources),
            "environment": dict(self.environment),
            **({"claim": self.claim.name} if self.claim else {}),
            **({"selector": dict(self.selector)} if self.selector else {}),
        }


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """One machine. `spot_discount` is a fraction of the on-demand price: 0.6 means that spot costs 40 % of it."""

    name: str
    cpu: int
    memory_gib: int
    usd_per_hour: float
    gpu_type: str = ""
    gpus: int = 0
    spot_discount: float = 0.0
    refused: str = ""  # why no node group may be made of it
    # What the cloud puts on its spot machines by itself, as (key, value); taints are NoSchedule.
    spot_taints: tuple[tuple[str, str], ...] = ()
    spot_labels: tuple[tuple[str, str], ...] = ()

    def like(self, name: str, facts: Mapping[str, Any]) -> Self:
        """Another machine that differs in these fields, or this one corrected."""
        return replace(self, name=name, **facts)

    def allocatable_mib(self, _settings: Any) -> int:
        """MiB that one machine offers to all pods, daemons among them; 0 where nobody knows what it keeps for itself.

        `_settings`: the cloud's own section of its node group.
        """
        return 0

    def network(self, _settings: Any) -> Network | None:
        """The fast network that machines with these settings have; None: TCP. `_settings`: as above."""
        return None

    @property
    def shape(self) -> dict[str, object]:
        """Facts that must be equal in a node group: the autoscaler judges a group that has no machine yet by its first type."""
        return {"vCPU": self.cpu, "GiB of memory": self.memory_gib, "GPU type": self.gpu_type or "none", "GPUs": self.gpus}


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Machines of one shape in one zone, from `min` to `max` of them. `others`: further instance types of the same shape."""

    name: str
    zone: str
    instance: InstanceType
    others: tuple[InstanceType, ...] = ()
    capacity_type: str
    min: int
    max: int
    notice_seconds: int  # how long before a reclaim the cloud warns; 0 for machines that are never reclaimed
    max_age_seconds: int = 0  # no machine is kept for longer: jobs leave it by plan before; 0: for ever
    image: str = DEFAULT_IMAGE  # which trainer image jobs on it get: a key of Images.trainers
    # Of machines that Ebb does not make: the labels that choose them among a cluster's nodes, and the taints that they have.
    selector: Mapping[str, str] = field(default_factory=dict)
    own_taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect
    settings: Any = None  # the cloud's own section of the group
    label: str = ""  # of its nodes, where it is not the name: pods of the platform may be on each manager machine

    @property
    def is_manager(self) -> bool:
        """True if its machines carry the platform itself."""
        return (self.label or self.name) == MANAGER

    @property
    def network(self) -> Network | None:
        """Its fast network; of one shape, its other types have the same."""
        return self.instance.network(self.settings)

    @property
    def node_selector(self) -> dict[str, str]:
        """The node selector that holds a pod of the platform to the group's machines."""
        return dict(self.selector) or {LABEL_NODE_GROUP: self.label or self.name}

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its nodes, beside those that every cloud sets (zone, region, instance type)."""
        gpu = {LABEL_GPU_TYPE: self.instance.gpu_type} if self.instance.gpus else {}
        own = dict(self.instance.spot_labels) if self.capacity_type == SPOT else {}
        fast = dict(self.network.labels) if self.network else {}
        return {LABEL_NODE_GROUP: self.label or self.name, LABEL_CAPACITY: self.capacity_type, **gpu, **own, **fast}

    @property
    def taints(self) -> list[dict[str, str]]:
        """Only jobs shall be on machines with GPUs, and only what can bear a reclaim on spot machines."""
        gpu = [{"key": TAINT_GPU, "value": "present", "effect": "NoSchedule"}] if self.instance.gpus else []
        keys = [(LABEL_CAPACITY, SPOT), *self.instance.spot_taints] if self.capacity_type == SPOT else []
        spot = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in keys]
        return gpu + spot + [{"key": key, "value": value, "effect": effect} for key, value, effect in self.own_taints]

    @property
    def usd_per_hour(self) -> float:
        """The price of one machine."""
        discount = self.instance.spot_discount if self.capacity_type == SPOT else 0.0
        return round(self.instance.usd_per_hour * (1 - discount), 4)

    def facts(self) -> dict[str, Any]:
        """Its entry in `ebb-platform` (ebb/api/platform.py reads it)."""
        oldest = {"maxAgeSeconds": self.max_age_seconds} if self.max_age_seconds else {}
        allocatable_mib = min(one.allocatable_mib(self.settings) for one in (self.instance, *self.others))
        allocatable = {"allocatableMemoryGiB": allocatable_mib / 1024} if allocatable_mib else {}
        return {
            "name": self.name,
            "zone": self.zone,
            "instanceType": self.instance.name,
            "gpuType": self.instance.gpu_type,
            "gpusPerNode": self.instance.gpus,
            "cpu": self.instance.cpu,
            "memoryGiB": self.instance.memory_gib,
            **allocatable,
            "capacityType": self.capacity_type,
            "min": self.min,
            "max": self.max,
            "taints": self.taints,
            "labels": self.labels,
            "pricePerHourOnDemand": self.instance.usd_per_hour,
            "spotDiscount": self.instance.spot_discount,
            "noticeSeconds": self.notice_seconds,
            **oldest,
            **({"network": self.network.facts()} if self.network else {}),
            **({"selector": dict(self.selector)} if self.selector else {}),
        }


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Kubernetes cluster and how to speak to it."""

    name: str
    region: str
    provider: KubernetesProvider
    # How long a machine of a job may take from being asked for until pods run on it: jobs go elsewhere when one takes longer.
    # Those of flex-start may take FLEX_START_SECONDS more.
    provision_seconds: int = 300
    # Who the researchers are, as (kind, name) of Kubernetes' subjects. A cloud whose identities cannot be put into a group of
    # Kubernetes names its own groups and users.
    researchers: tuple[tuple[str, str], ...] = (("Group", "ebb:researchers"),)

    def options(
        self, *, depends_on: Sequence[pulumi.Resource] = (), parent: pulumi.Resource | None = None
    ) -> pulumi.ResourceOptions:
        """Options of a resource in this cluster."""
        return pulumi.ResourceOptions(provider=self.provider, depends_on=list(depends_on), parent=parent)


@dataclass(frozen=True, kw_only=True)
class Images:
    """The images that the platform's pods run. `trainers` has DEFAULT_IMAGE, and what the stack builds beside it."""

    controller: pulumi.Output[str]
    trainers: Mapping[str, pulumi.Output[str]]
    etcd: pulumi.Output[str]
    legacy_etcd: pulumi.Output[str] | None = None  # of a stack that has `legacyRendezvous`

    @property
    def trainer(self) -> pulumi.Output[str]:
        return self.trainers[DEFAULT_IMAGE]


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """A container that the cloud adds to each pod that mounts a volume and carries these annotations. `cpu`, `memory_gib`: its
    requests, which workers leave room for. `addresses`: link-local ranges and ports where it gets its credentials. Pods of the
    platform mount no such volume: they have no way to these."""

    annotations: Mapping[str, str]
    cpu: float
    memory_gib: float
    addresses: Sequence[tuple[str, int]] = ()

    def facts(self) -> dict[str, Any]:
        """Its entry in `ebb-platform`."""
        return {"annotations": dict(self.annotations), "cpu": self.cpu, "memoryGiB": self.memory_gib}


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A claim to be made. With `volume_name` it binds to that volume, without it the storage class makes one."""

    name: str
    claim: str
    mount_path: str
    size_gib: int
    access_mode: str
    read_only: bool = False
    storage_class: pulumi.Output[str]
    volume_name: pulumi.Output[str] | None = None
    annotations: Mapping[str, pulumi.Input[str]] = field(
        default_factory=dict
    )  # of the claim: what the cloud wants to know or tell
    zone: str = ""  # the only zone whose machines shall mount it; "": all may
    sidecar: Sidecar | None = None  # None: the machine mounts it
    preload: tuple[str, ...] = ()  # folders whose files it would fetch from a bucket only when they are first read

    def facts(self) -> dict[str, Any]:
        """Its entry in `ebb-platform`."""
        zone = {"zone": self.zone} if self.zone else {}
        sidecar = {"sidecar": self.sidecar.facts()} if self.sidecar else {}
        own = {"name": self.name, "claim": self.claim, "mountPath": self.mount_path, "readOnly": self.read_only}
        return {**own, **zone, **sidecar}


def mounted_by_machines(volumes: Iterable[Volume]) -> list[Volume]:
    """Those that pods of the platform may mount."""
    return [volume for volume in volumes if volume.sidecar is None]


def team_folder(team: str, what: str) -> str:
    """The folder of a team's data or output in the file system of all."""
    return f"teams/{team}/{what}"


@dataclass(frozen=True, kw_only=True)
class CopyIdentity:
    """The cloud's identity of the pods that copy buckets, in one namespace of jobs. `buckets`: name -> address, those that it may
    read, and that jobs may call by name. `annotations`: of ServiceAccount COPY_ACCOUNT, which has it. `addresses`: link-local
    ranges and ports where these pods get its credentials, and other pods nothing. `ready`: what must be there before such a
    pod."""

    buckets: Mapping[str, str]
    annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    addresses: Sequence[tuple[str, int]] = ()
    ready: Sequence[pulumi.Resource] = ()


@dataclass(frozen=True, kw_only=True)
class Storage:
    """`jobs` are mounted by every worker, `etcd` by etcd alone. `root` shows the file system of data and output with both in it,
    for job files that mount it whole. `copies`: None where jobs bring the credentials for copies of buckets themselves."""

    jobs: tuple[Volume, ...]
    root: Volume
    etcd: Volume
    copies: CopyIdentity | None = None
    # Name of a team -> its own data and output, each a folder beside those of others, and what else its workers mount.
    teams: Mapping[str, tuple[Volume, ...]] = field(default_factory=dict)
    team_copies: Mapping[str, CopyIdentity] = field(default_factory=dict)  # as `copies`, of teams that have buckets


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """Cluster-autoscaler for a cloud that does not bring one.

    `priorities`: a number -> regular expressions of node group names; groups of the highest number are tried first.
    """

    image: str
    arguments: Sequence[pulumi.Input[str]]
    environment: Mapping[str, pulumi.Input[str]]
    priorities: Mapping[int, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class DevicePlugin:
    """A DaemonSet that reports devices to the kubelets of some nodes. `label`, `values`: a node needs one of these keys with
    one of these values. `config`: a file that it reads, by its path."""

    name: str
    image: str
    arguments: Sequence[str] = ()
    label: str
    values: Sequence[str]
    privileged: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    config: tuple[str, str] | None = None

    @classmethod
    def nvidia(cls, image: str, groups: Iterable[NodeGroup]) -> list["DevicePlugin"]:
        """NVIDIA's, for clouds whose machines have its driver alone; none where no group has GPUs."""
        gpu_types = sorted({group.instance.gpu_type for group in groups if group.instance.gpus})
        plugin = cls(
            name="nvidia-device-plugin",
            image=image,
            # It runs on machines with GPUs alone: one that finds none has a broken driver, and a pod that fails shows that.
            arguments=["--fail-on-init-error=true"],
            label=LABEL_GPU_TYPE,
            values=gpu_types,
            environment={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
        )
        return [plugin] if gpu_types else []


@dataclass(frozen=True, kw_only=True)
class RdmaMachines:
    """Machines whose network reads and writes the memory of programs. `modules`: of the kernel, that nothing else loads."""

    groups: Sequence[str]  # names of their node groups
    modules: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Helpers:
    """Programs that the cloud needs in the cluster, beside what Ebb runs everywhere."""

    autoscaler: Autoscaler | None = None
    device_plugins: tuple[DevicePlugin, ...] = ()
    rdma: RdmaMachines | None = None
    # An agent on each spot machine asks the cloud whether it takes the machine back. False where something else marks Nodes.
    notices: bool = True
    # The machines are a cluster's own: the nodes that match a group's selector get its labels.
    labels: bool = False
    # With ebb:monitoring, DCGM exporters of ours on machines with GPUs. False where the cloud or the cluster brings one.
    gpu_figures: bool = False
