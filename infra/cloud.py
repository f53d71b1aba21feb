"""What a cloud gives to the rest of the program: the interface `Cloud` and the records that pass through it.

A node group's labels, taints, resources and prices come from one record, NodeGroup, and from nowhere else: what the machines
carry, what pods tolerate and what `ebb-platform` tells the CLI cannot disagree. No cloud's name occurs here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pulumi
import pulumi_kubernetes as kubernetes

from infra.catalog import InstanceType
from infra.config.model import DEFAULT_IMAGE

LABEL_NODE_GROUP = "ebb.dev/node-group"
LABEL_CAPACITY = "ebb.dev/capacity-type"
LABEL_GPU_TYPE = "ebb.dev/gpu-type"
TAINT_GPU = "nvidia.com/gpu"
# How machines are bought. Which of them a cloud has, its module says (CAPACITIES).
SPOT, ON_DEMAND, CAPACITY_BLOCK, FLEX_START = "spot", "on-demand", "capacity-block", "flex-start"
# How much longer jobs wait for a machine of flex-start before they try another zone. Nobody promises when one comes, so this is
# a choice: long enough that waiting is worth it, and two jobs that each hold half of what both need do not stand still for a day.
FLEX_START_SECONDS = 3600


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
    settings: Any = None  # the cloud's own section of the group

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its nodes, beside those that every cloud sets (zone, region, instance type)."""
        gpu = {LABEL_GPU_TYPE: self.instance.gpu_type} if self.instance.gpus else {}
        own = dict(self.instance.spot_labels) if self.capacity_type == SPOT else {}
        return {LABEL_NODE_GROUP: self.name, LABEL_CAPACITY: self.capacity_type, **gpu, **own}

    @property
    def taints(self) -> list[dict[str, str]]:
        """Only jobs shall be on machines with GPUs, and only what can bear a reclaim on spot machines."""
        gpu = [{"key": TAINT_GPU, "value": "present", "effect": "NoSchedule"}] if self.instance.gpus else []
        keys = [(LABEL_CAPACITY, SPOT), *self.instance.spot_taints] if self.capacity_type == SPOT else []
        return gpu + [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in keys]

    @property
    def usd_per_hour(self) -> float:
        """What one machine costs."""
        discount = self.instance.spot_discount if self.capacity_type == SPOT else 0.0
        return round(self.instance.usd_per_hour * (1 - discount), 4)

    def facts(self) -> dict[str, Any]:
        """Its entry in `ebb-platform` (ebb/api/platform.py reads it)."""
        oldest = {"maxAgeSeconds": self.max_age_seconds} if self.max_age_seconds else {}
        return {
            "name": self.name,
            "zone": self.zone,
            "instanceType": self.instance.name,
            "gpuType": self.instance.gpu_type,
            "gpusPerNode": self.instance.gpus,
            "cpu": self.instance.cpu,
            "memoryGiB": self.instance.memory_gib,
            "capacityType": self.capacity_type,
            "min": self.min,
            "max": self.max,
            "taints": self.taints,
            "labels": self.labels,
            "pricePerHourOnDemand": self.instance.usd_per_hour,
            "spotDiscount": self.instance.spot_discount,
            "noticeSeconds": self.notice_seconds,
            **oldest,
        }


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Kubernetes cluster and how to speak to it."""

    name: str
    region: str
    provider: kubernetes.Provider
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

    def facts(self) -> dict[str, Any]:
        """Its entry in `ebb-platform`."""
        zone = {"zone": self.zone} if self.zone else {}
        return {"name": self.name, "claim": self.claim, "mountPath": self.mount_path, "readOnly": self.read_only, **zone}


@dataclass(frozen=True, kw_only=True)
class Storage:
    """`jobs` are mounted by every worker, `etcd` by etcd alone. `root` shows the file system of data and output with both in it,
    for job files that mount it whole."""

    jobs: tuple[Volume, ...]
    root: Volume
    etcd: Volume


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
    """A DaemonSet that tells the kubelets of some machines of their devices. `labels`: a machine needs one of these keys with
    one of these values."""

    name: str
    image: str
    arguments: Sequence[str] = ()
    label: str
    values: Sequence[str]
    privileged: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Helpers:
    """What the cloud needs to have run in the cluster, beside what Ebb runs everywhere."""

    autoscaler: Autoscaler | None = None
    device_plugins: tuple[DevicePlugin, ...] = ()


class Cloud(Protocol):
    """One cloud. Each method declares resources and returns at once; none speaks to a cloud by itself."""

    @property
    def notice_seconds(self) -> int:
        """How long before a reclaim of a spot machine the cloud warns."""

    def cluster(self) -> Cluster:
        """The cluster with its network, or the connection to one that exists."""

    def node_group(self, cluster: Cluster, group: NodeGroup) -> pulumi.Resource:
        """Machines for the cluster. What is returned exists once machines can boot; deleting it removes them all."""

    def add_ons(self, cluster: Cluster, manager: pulumi.Resource) -> Sequence[pulumi.Resource]:
        """What pods need of the cloud beside machines (DNS, storage drivers), running on the manager machine."""

    def images(self, cluster: Cluster) -> Images:
        """Where the images are."""

    def storage(self, cluster: Cluster, add_ons: Sequence[pulumi.Resource]) -> Storage:
        """What the claims shall ask for."""

    def helpers(self, cluster: Cluster, groups: Sequence[NodeGroup]) -> Helpers:
        """What must run in the cluster for this cloud. `groups`: those for jobs."""

    def outputs(self, cluster: Cluster) -> Mapping[str, pulumi.Input[Any]]:
        """What a person wants to read after `up`: how to connect, to mount, where to look."""
