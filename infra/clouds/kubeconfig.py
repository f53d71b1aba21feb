"""A cluster that somebody else runs: kind, k3s, Lambda, Nebius, CoreWeave, a lab's own machines. No machine is made here.

A line of ebb:nodeGroups chooses nodes by their labels; what they have (GPU, memory, price) the stack says in ebb:instanceTypes,
storage classes and images by their names. A program in the cluster (ebb/controller/node_labels.py) gives the chosen nodes the
labels by which the rest of Ebb knows its machines.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pulumi
from pydantic import Field

from infra import connection
from infra.cloud import Cloud
from infra.config import Problem, Section, Stack, checks
from workloads import logs, manifest
from workloads.cluster import ON_DEMAND, SPOT, Cluster, Helpers, InstanceType, NodeGroup, Storage, Volume
from workloads.cluster import Images as ImageReferences
from workloads.logs import Destination
from workloads.monitoring import Managed


class Taint(Section):
    """A taint that the nodes have, which workers tolerate."""

    key: str = Field(description="Its key.", examples=["dedicated"])
    value: str = Field(default="", description="Its value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(default="NoSchedule", description="Its effect.")


class Images(Section):
    """The images, in a registry from which the nodes can pull."""

    controller: str | None = Field(description="The controller's.", examples=["registry.example.org/ebb/controller:1"])
    trainers: dict[str, str] = Field(
        description="Of `default`, and of each entry of ebb:trainers, the trainer's.",
        examples=[{"default": "registry.example.org/ebb/trainer:1"}],
    )
    etcd: str | None = Field(default=None, description="etcd's. Default: the public one of workloads/manifests.")
    legacy_etcd: str | None = Field(
        default=None, description="That of an etcd 3.5, with ebb:legacyRendezvous. Default: the public one."
    )

    @property
    def build(self) -> str:
        """Say as other clouds do that nothing is built."""
        return "none"


class Settings(Section):
    """Section `kubeconfig` of the stack."""

    file: str = Field(default="~/.kube/config", description="A path relative to the checkout, or absolute.")
    context: str | None = Field(default=None, description="The kubeconfig's context. Default: its current one.")
    manager_selector: dict[str, str] = Field(
        description="Labels of the node, or nodes, that carry etcd and the controller. They may be those of workers.",
        examples=[{"kubernetes.io/hostname": "head"}],
    )
    storage_class: str = Field(description="It gives ReadWriteMany volumes for data and output.", examples=["nfs"])
    etcd_storage_class: str | None = Field(
        default=None, description="It gives etcd a volume of 2 GiB, best a fast local one. Default: storageClass."
    )
    images: Images = Field(description="The images.")
    region: str = Field(default="cluster", description="Where it is, for people to read.")
    provision_seconds: int = Field(
        default=60,
        ge=0,
        description="How long a worker may wait for a machine until its job tries another zone; with an autoscaler, longer.",
    )
    notice_seconds: int = Field(default=0, ge=0, description="How long before a reclaim spot machines are warned.")
    notices: bool = Field(
        default=False, description="Run the agents that read the notices of AWS, Google Cloud or Azure on spot machines."
    )
    take_over: bool = Field(default=False, description="For one `pulumi up`: objects that exist already become the stack's.")


class GroupSettings(Section):
    """Section `kubeconfig` of a node group."""

    selector: dict[str, str] = Field(
        default_factory=dict,
        description="Labels of its nodes. Those that have a zone, in topology.kubernetes.io/zone, are of that zone's group.",
        examples=[{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}],
    )
    taints: tuple[Taint, ...] = Field(default=(), strict=False, description="Taints that its nodes have, which workers tolerate.")


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """Settings that do not agree."""
    if not settings.manager_selector:
        text = "is empty: it names labels of the node that carries etcd and the controller, e.g. {kubernetes.io/hostname: head}"
        yield Problem("kubeconfig.managerSelector", text)
    if stack.manager.count > 1:
        text = f"found {stack.manager.count}; allowed is 1: kubeconfig.managerSelector may choose several nodes by itself"
        yield Problem("manager.count", f"{text}; remove count", ("cloud",))
    for index, line in enumerate(stack.node_groups):
        if line.settings is not None and not line.settings.selector:
            text = "is missing: it names labels of the nodes that are this group's, e.g. {kubernetes.io/hostname: node-1}"
            yield Problem(f"nodeGroups[{index}].kubeconfig.selector", text)
    yield from checks.images("kubeconfig.images", settings.images, stack)


class Existing:
    """See infra.cloud.Infrastructure."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        self._stack, self._settings = stack, settings

    @property
    def notice_seconds(self) -> int:
        return self._settings.notice_seconds

    def cluster(self) -> Cluster:
        own = self._settings
        path = connection.file("kubeconfig.file", own.file, "name the kubeconfig of the cluster")
        provider = connection.provider(path, own.context, take_over=own.take_over)
        return Cluster(name=self._stack.cloud, region=own.region, provider=provider, provision_seconds=own.provision_seconds)

    def node_group(self, cluster: Cluster, group: NodeGroup) -> pulumi.Resource:
        return cluster.provider  # its nodes are there, or the cluster's own autoscaler makes them

    def add_ons(self, cluster: Cluster, manager: pulumi.Resource) -> Sequence[pulumi.Resource]:
        return []

    def images(self, cluster: Cluster) -> ImageReferences:
        own = self._settings.images
        legacy = own.legacy_etcd or manifest.pinned("ebb-etcd-legacy", manifest.LEGACY)
        return ImageReferences(
            controller=pulumi.Output.from_input(own.controller or ""),
            trainers={name: pulumi.Output.from_input(image) for name, image in own.trainers.items()},
            etcd=pulumi.Output.from_input(own.etcd or manifest.pinned("ebb-etcd")),
            legacy_etcd=pulumi.Output.from_input(legacy) if self._stack.legacy_rendezvous else None,
        )

    def storage(self, cluster: Cluster, add_ons: Sequence[pulumi.Resource]) -> Storage:
        sizes, shared = self._stack.storage, self._settings.storage_class
        etcd = self._settings.etcd_storage_class or shared
        jobs = (
            _volume("data", "ebb-data", "/mnt/data", sizes.data_gib, shared),
            _volume("output", "ebb-output", "/mnt/output", sizes.output_gib, shared),
        )
        return Storage(
            jobs=jobs,
            # A storage class gives a volume for each claim: here it is one of its own, beside data and output.
            root=_volume("efs", "efs-claim", "/mnt/efs", sizes.data_gib + sizes.output_gib, shared),
            etcd=_volume("etcd-data", "etcd-data", "/var/lib/etcd", 2, etcd),
            # As much for each team: volumes of its own, too.
            teams=dict.fromkeys(self._stack.teams, jobs),
        )

    def helpers(self, cluster: Cluster, groups: Sequence[NodeGroup]) -> Helpers:
        return Helpers(notices=self._settings.notices, labels=True)

    def monitoring(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Managed:
        return Managed()  # there is none, and the settings refuse it

    def logs(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Destination:
        size = self._stack.logs.keep_gib + logs.ROOM_GIB
        return logs.files(_volume("logs", "ebb-logs", logs.PLACE, size, self._settings.storage_class))

    def outputs(self, cluster: Cluster) -> Mapping[str, pulumi.Input[Any]]:
        return {"kubeconfig": str(connection.file("kubeconfig.file", self._settings.file, ""))}


def _volume(name: str, claim: str, path: str, size_gib: int, storage_class: str) -> Volume:
    etcd = name == "etcd-data"
    return Volume(
        name=name,
        claim=claim,
        mount_path=path,
        size_gib=size_gib,
        access_mode="ReadWriteOnce" if etcd else "ReadWriteMany",
        storage_class=pulumi.Output.from_input(storage_class),
    )


class KubeconfigCloud(Cloud):
    """See infra.cloud.Cloud. Its machine types are the stack's own; it has no account."""

    TYPES: Sequence[InstanceType] = ()
    CAPACITIES = (SPOT, ON_DEMAND)
    Settings = Settings
    GroupSettings = GroupSettings

    def problems(self, stack: Stack) -> Iterator[Problem]:
        return problems(stack, stack.settings)

    def make(self, stack: Stack) -> Existing:
        return Existing(stack, stack.settings)


CLOUD = KubeconfigCloud()
