"""The devcluster: node groups are objects that devcluster/ acts on. No machine is made here.

The devcluster writes what it has built (images, storage class, the volume with the Python environment) to kube-system/ebb-box.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pulumi
from pulumi_kubernetes import core
from pulumi_kubernetes.apiextensions import CustomResource
from pydantic import Field

from infra import connection
from infra.cloud import Cloud
from infra.config import ConfigError, Problem, Section, Stack
from workloads import logs
from workloads.cluster import (
    DEFAULT_IMAGE,
    ON_DEMAND,
    SPOT,
    TEAMS,
    Cluster,
    Helpers,
    Images,
    InstanceType,
    NodeGroup,
    Storage,
    Volume,
    team_folder,
)
from workloads.logs import Destination
from workloads.monitoring import Managed

REGION = "local"
FACTS = "kube-system/ebb-box"
SCHEMA = "1"
NO_DEVCLUSTER = "start the devcluster (python -m devcluster up); for another cluster take `ebb:cloud: kubeconfig`"
LEGACY_ETCD = "image.etcd-legacy"
FOLDER, ROOT_FOLDER = (
    "box.ebb.dev/folder",
    "shared",
)  # the annotation by which a claim names its folder (devcluster/cloud/volumes.py)
# The devcluster makes machines of any size, but no larger than the computer that it runs on: 2 cores and 8 GiB are what
# the smallest computers have that we care for. Prices are those of AWS on-demand in us-east-1, so that estimates look real:
# g4dn.xlarge (1 T4) 0.526 USD/h, m7i.large 0.1008 USD/h, spot about 60 % off (https://aws.amazon.com/ec2/pricing/on-demand/,
# read 2026-07-20).
TYPES = (
    InstanceType(name="ebb.cpu", cpu=2, memory_gib=8, usd_per_hour=0.1008, spot_discount=0.6),
    InstanceType(name="ebb.t4", cpu=2, memory_gib=8, usd_per_hour=0.526, gpu_type="T4", gpus=1, spot_discount=0.6),
)

# Beyond boot_seconds: a node of the devcluster is ready 0.7 s later, and with a cold disk 30 s.
SLOWEST_BOOT_SECONDS = 30


class Settings(Section):
    """Section `local` of the stack."""

    kubeconfig: str = Field(description="A path relative to the checkout, or absolute.", examples=[".ebb/boxes/ebb/kubeconfig"])
    context: str | None = Field(default=None, description="The kubeconfig's context. Default: its current one.")
    boot_seconds: float = Field(
        default=3.0, ge=0, strict=False, description="How long a machine takes from being wanted to starting its kubelet."
    )
    notice_seconds: int = Field(default=30, ge=0, description="How long before a reclaim a spot machine is warned.")
    take_over: bool = Field(default=False, description="For one `pulumi up`: objects that exist already become the stack's.")


def problems(stack: Stack) -> Iterator[Problem]:
    """Settings that have no effect on this cloud."""
    for name in stack.trainers:
        if name != DEFAULT_IMAGE:
            yield Problem(f"trainers.{name}", "there is one trainer image here, the devcluster's: remove this one")


class Local:
    """See infra.cloud.Infrastructure."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        self._stack, self._settings = stack, settings
        self._read: pulumi.Output[Mapping[str, str]] | None = None

    @property
    def notice_seconds(self) -> int:
        return self._settings.notice_seconds

    def cluster(self) -> Cluster:
        path = connection.file("local.kubeconfig", self._settings.kubeconfig, NO_DEVCLUSTER)
        provider = connection.provider(path, self._settings.context, take_over=self._settings.take_over)
        provision_seconds = math.ceil(self._settings.boot_seconds) + SLOWEST_BOOT_SECONDS
        return Cluster(name=self._stack.cloud, region=REGION, provider=provider, provision_seconds=provision_seconds)

    def node_group(self, cluster: Cluster, group: NodeGroup) -> pulumi.Resource:
        spec = {
            "zone": group.zone,
            "instanceType": group.instance.name,
            "gpuType": group.instance.gpu_type,
            "gpus": group.instance.gpus,
            "cpu": group.instance.cpu,
            "memoryGiB": group.instance.memory_gib,
            "capacityType": group.capacity_type,
            "labels": group.labels,
            "taints": group.taints,
            "min": group.min,
            "max": group.max,
            "bootSeconds": self._settings.boot_seconds,
            "pricePerHour": group.usd_per_hour,
            "noticeSeconds": group.notice_seconds,
            **({"maxAgeSeconds": group.max_age_seconds} if group.max_age_seconds else {}),
        }
        return CustomResource(
            f"node-group-{group.name}",
            api_version="box.ebb.dev/v1alpha1",
            kind="NodeGroup",
            metadata={"name": group.name},
            spec=spec,
            opts=cluster.options(),
        )

    def add_ons(self, cluster: Cluster, manager: pulumi.Resource) -> Sequence[pulumi.Resource]:
        return []  # the devcluster has its DNS, and its daemon makes the volumes

    def images(self, cluster: Cluster) -> Images:
        return Images(
            controller=self._fact(cluster, "image.controller"),
            trainers={DEFAULT_IMAGE: self._fact(cluster, "image.trainer")},
            etcd=self._fact(cluster, "image.etcd"),
            legacy_etcd=self._fact(cluster, LEGACY_ETCD) if self._stack.legacy_rendezvous else None,
        )

    def storage(self, cluster: Cluster, add_ons: Sequence[pulumi.Resource]) -> Storage:
        made = self._fact(cluster, "storageClass")
        data, output = self._stack.storage.data_gib, self._stack.storage.output_gib
        environment = _environment(self._fact(cluster, "environmentVolume"))
        etcd = Volume(
            name="etcd-data",
            claim="etcd-data",
            mount_path="/var/lib/etcd",
            size_gib=2,
            access_mode="ReadWriteOnce",
            storage_class=made,
        )
        sizes = {"data": data, "output": output}
        return Storage(
            jobs=(*(_shared(name, size, made) for name, size in sizes.items()), environment),
            root=_root(data + output, made),
            etcd=etcd,
            teams={
                team: (
                    *(_shared(name, size, made, team_folder(team, name)) for name, size in sizes.items()),
                    self._team_environment(cluster, team, environment),
                )
                for team in self._stack.teams
            },
        )

    def _team_environment(self, cluster: Cluster, team: str, volume: Volume) -> Volume:
        """The same folder once more: a volume is for one claim."""
        assert volume.volume_name is not None
        name = f"{volume.name}-team-{team}"
        there = core.v1.PersistentVolume.get(f"box-{name}", volume.volume_name, opts=cluster.options())
        made = core.v1.PersistentVolume(
            f"volume-{name}",
            metadata={"name": f"ebb-{name}"},
            spec={
                "capacity": there.spec.capacity,
                "access_modes": ["ReadOnlyMany"],
                "persistent_volume_reclaim_policy": "Retain",
                "storage_class_name": "",
                "host_path": there.spec.host_path,
                "claim_ref": {
                    "api_version": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": f"{TEAMS}{team}",
                    "name": volume.claim,
                },
            },
            opts=cluster.options(),
        )
        return replace(volume, volume_name=made.metadata.apply(lambda metadata: str(metadata.name)))

    def helpers(self, cluster: Cluster, groups: Sequence[NodeGroup]) -> Helpers:
        return Helpers(notices=False)  # the devcluster's daemon scales and gives notice; its kubelets advertise GPUs

    def monitoring(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Managed:
        return Managed()  # there is none, and the settings refuse it

    def logs(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Destination:
        volume = Volume(
            name="logs",
            claim="ebb-logs",
            mount_path=logs.PLACE,
            size_gib=self._stack.logs.keep_gib + logs.ROOM_GIB,
            access_mode="ReadWriteMany",
            storage_class=self._fact(cluster, "storageClass"),
        )
        return logs.files(volume)

    def outputs(self, cluster: Cluster) -> Mapping[str, pulumi.Input[Any]]:
        return {"kubeconfig": str(connection.file("local.kubeconfig", self._settings.kubeconfig, NO_DEVCLUSTER))}

    def _fact(self, cluster: Cluster, key: str) -> pulumi.Output[str]:
        if self._read is None:
            found = core.v1.ConfigMap.get("box", FACTS, opts=cluster.options())
            self._read = found.data.apply(_checked)
        return self._read.apply(lambda data: _fact_of(data, key))


def _shared(name: str, size_gib: int, storage_class: pulumi.Output[str], folder: str = "") -> Volume:
    """A folder of the devcluster's file share, beside the others in ROOT_FOLDER."""
    return Volume(
        name=name,
        claim=f"ebb-{name}",
        mount_path=f"/mnt/{name}",
        size_gib=size_gib,
        access_mode="ReadWriteMany",
        storage_class=storage_class,
        annotations={FOLDER: f"{ROOT_FOLDER}/{folder or name}"},
    )


def _root(size_gib: int, storage_class: pulumi.Output[str]) -> Volume:
    """The folder that data and output are in, under the claim's name of the step-by-step articles."""
    return Volume(
        name="efs",
        claim="efs-claim",
        mount_path="/mnt/efs",
        size_gib=size_gib,
        access_mode="ReadWriteMany",
        storage_class=storage_class,
        annotations={FOLDER: ROOT_FOLDER},
    )


def _environment(volume: pulumi.Output[str]) -> Volume:
    """torch and its kin, built once on the host: an image with them would be 5 GB on every machine."""
    return Volume(
        name="environment",
        claim="ebb-environment",
        mount_path="/opt/ebb/site-packages",
        size_gib=1,
        access_mode="ReadOnlyMany",
        read_only=True,
        storage_class=pulumi.Output.from_input(""),
        volume_name=volume,
    )


def _fact_of(data: Mapping[str, str], key: str) -> str:
    """Check that all facts are there; an image of etcd 3.5 is made on request only."""
    if key == LEGACY_ETCD and not data.get(key):
        raise ConfigError(
            "legacyRendezvous: the devcluster has no image of etcd 3.5: run `python -m devcluster up --legacy-etcd`, once"
        )
    return data[key]


def _checked(data: Mapping[str, str] | None) -> Mapping[str, str]:
    """The devcluster's facts. In a preview of the SDK's mocks there may be none."""
    found = (data or {}).get("schema")
    if found != SCHEMA:
        raise ConfigError(
            f"ConfigMap {FACTS}: schema is {found!r}, this version of Ebb reads {SCHEMA!r}: run `python -m devcluster up`"
        )
    assert data is not None
    return data


class LocalCloud(Cloud):
    """See infra.cloud.Cloud. It has no account, and costs nothing."""

    TYPES = TYPES
    CAPACITIES = (SPOT, ON_DEMAND)
    Settings = Settings

    def problems(self, stack: Stack) -> Iterator[Problem]:
        return problems(stack)

    def make(self, stack: Stack) -> Local:
        return Local(stack, stack.settings)


CLOUD = LocalCloud()
