"""The file systems and the disk of etcd as Kubernetes sees them: volumes that are there before any claim, each for one claim.

    volumes = Volumes(part, "ebb-dev", kubernetes_provider, needs=[*efs.ready, *add_ons])
    volumes.shared("data", efs_handle("fs-1", "fsap-1"), claim="ebb-data", mount_path="/mnt/data", size_gib=100)

Nothing is provisioned by a driver: so drivers need no rights in the account, and no file system can outlive the stack unseen.
A volume names its claim and has no class, so that no other claim can take it. The kubelet takes two volumes of one handle for
one: every volume here has a handle of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.core.v1 import (
    CSIPersistentVolumeSourceArgsDict,
    NodeSelectorTermArgsDict,
    PersistentVolume,
    PersistentVolumeSpecArgsDict,
)

from infra.cloud import Volume
from infra.clouds.aws.part import Part
from infra.services.names import JOBS, SYSTEM

EFS_DRIVER, FSX_DRIVER, EBS_DRIVER = "efs.csi.aws.com", "fsx.csi.aws.com", "ebs.csi.aws.com"
ZONE_LABEL = "topology.kubernetes.io/zone"
SHOWN = "ebb.dev/volume"  # annotation of a claim: what it is in the account; tag of a disk: what it is for
BACKED_UP = "ebb.dev/backup"
SNAPSHOTS_KEPT = 7
# A claim of a static volume cannot be resized, so what it asks for must never change: it is always 1, and `kubectl get pvc` shows
# the capacity of the volume.
ASKED_GIB = 1


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a CSI driver mounts."""

    driver: str
    handle: pulumi.Output[str]
    attributes: Mapping[str, pulumi.Input[str]] | None = None
    mount_options: tuple[str, ...] = ()
    fs_type: str | None = None  # of a disk


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The one claim that a volume is for."""

    namespace: str
    name: str
    mount_path: str
    access_mode: str


def efs_source(file_system: pulumi.Output[str], access_point: pulumi.Output[str] | None = None) -> Source:
    """The root of an EFS file system, or an access point of it. The driver's default is TLS, and there is no mount option for it
    any more (aws-efs-csi-driver, pkg/driver/node.go, 2026-07-24)."""
    handle = file_system if access_point is None else pulumi.Output.concat(file_system, "::", access_point)
    return Source(driver=EFS_DRIVER, handle=handle)


def lustre_source(
    file_system: pulumi.Output[str], dns_name: pulumi.Output[str], mount_name: pulumi.Output[str], folder: str = ""
) -> Source:
    """The root of a Lustre file system, or a folder of it, which must exist: clients mount <server>:/<name>/<folder>.

    The driver passes `mountname` on as it is, and reads the file system from `dnsname` and not from the handle
    (aws-fsx-csi-driver, pkg/driver/node.go, 2026-04-21), so a folder has a handle of its own.
    """
    below = f"/{folder}" if folder else ""
    return Source(
        driver=FSX_DRIVER,
        handle=pulumi.Output.concat(file_system, below),
        attributes={"dnsname": dns_name, "mountname": pulumi.Output.concat(mount_name, below)},
        mount_options=("flock",),  # or locks of files fail
    )


class Volumes:
    """Makes volumes and says what their claims shall ask for. `needs`: what mounts need, and so goes after them."""

    def __init__(self, part: Part, name: str, provider: kubernetes.Provider, needs: Sequence[pulumi.Resource]) -> None:
        self._part, self._name, self._provider, self._needs = part, name, provider, list(needs)

    def shared(self, name: str, source: Source, *, claim: str, mount_path: str, size_gib: int, zone: str = "") -> Volume:
        """One that every machine may mount, for a claim of the jobs. EFS has no size; `size_gib` is for people to read. `zone`:
        where it is, if in one alone: machines elsewhere pay for what they read, and read it late."""
        wanted = Claim(namespace=JOBS, name=claim, mount_path=mount_path, access_mode="ReadWriteMany")
        return replace(self._volume(name, source, wanted, _spec(source, wanted, size_gib)), zone=zone)

    def disk(self, name: str, disk: aws.ebs.Volume, *, claim: str, mount_path: str, zone: str, size_gib: int) -> Volume:
        """One that a machine of its zone may mount, for a claim of the platform."""
        source = Source(driver=EBS_DRIVER, handle=disk.id, fs_type="ext4")
        wanted = Claim(namespace=SYSTEM, name=claim, mount_path=mount_path, access_mode="ReadWriteOnce")
        in_zone: NodeSelectorTermArgsDict = {"match_expressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}
        spec = _spec(source, wanted, size_gib)
        return self._volume(name, source, wanted, {**spec, "node_affinity": {"required": {"node_selector_terms": [in_zone]}}})

    def _volume(self, name: str, source: Source, claim: Claim, spec: PersistentVolumeSpecArgsDict) -> Volume:
        made = PersistentVolume(
            f"volume-{name}",
            metadata={"name": f"{self._name}-{name}"},
            spec=spec,
            opts=self._part.child(provider=self._provider, depends_on=self._needs),
        )
        return Volume(
            name=name,
            claim=claim.name,
            mount_path=claim.mount_path,
            size_gib=ASKED_GIB,
            access_mode=claim.access_mode,
            storage_class=pulumi.Output.from_input(""),
            volume_name=made.metadata.apply(lambda metadata: str(metadata.name)),
            annotations={SHOWN: source.handle},
        )


def etcd_disk(part: Part, name: str, zone: str, size_gib: int, snapshots_role: pulumi.Input[str]) -> aws.ebs.Volume:
    """The disk of etcd, and a snapshot of it every night. Snapshots stay when the stack goes: infra.leftovers finds them."""
    # A policy takes every disk that has any of its tags, and a tag may be in one policy only: so it carries the stack's name.
    backed_up = {BACKED_UP: name}
    disk = aws.ebs.Volume(
        f"{name}-etcd",
        availability_zone=zone,
        type="gp3",
        size=size_gib,
        encrypted=True,
        tags={"Name": f"{name}-etcd", SHOWN: "etcd", **backed_up},
        opts=part.child(),
    )
    aws.dlm.LifecyclePolicy(
        f"{name}-etcd",
        description=f"Nightly snapshots of the etcd disk of {name}",
        execution_role_arn=snapshots_role,
        state="ENABLED",
        policy_details={
            "resource_types": ["VOLUME"],
            "target_tags": backed_up,
            "schedules": [
                {
                    "name": "nightly",
                    "create_rule": {"interval": 24, "interval_unit": "HOURS", "times": "03:17"},
                    "retain_rule": {"count": SNAPSHOTS_KEPT},
                    "copy_tags": True,
                }
            ],
        },
        tags={"Name": f"{name}-etcd"},
        opts=part.child(),
    )
    return disk


def _spec(source: Source, claim: Claim, size_gib: int) -> PersistentVolumeSpecArgsDict:
    csi: CSIPersistentVolumeSourceArgsDict = {"driver": source.driver, "volume_handle": source.handle}
    if source.attributes:
        csi["volume_attributes"] = dict(source.attributes)
    if source.fs_type:
        csi["fs_type"] = source.fs_type
    spec: PersistentVolumeSpecArgsDict = {
        "capacity": {"storage": f"{size_gib}Gi"},
        "access_modes": [claim.access_mode],
        "persistent_volume_reclaim_policy": "Retain",
        "storage_class_name": "",
        "claim_ref": {"api_version": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace, "name": claim.name},
        "csi": csi,
    }
    if source.mount_options:
        spec["mount_options"] = list(source.mount_options)
    return spec
