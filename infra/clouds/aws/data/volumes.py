"""The file systems and the disk of etcd as Kubernetes sees them: what EFS, FSx and EBS are to infra/volumes.py."""

import pulumi
from pulumi_aws import dlm, ebs

from infra.part import Part
from infra.volumes import SHOWN, Csi

EFS_DRIVER, FSX_DRIVER, EBS_DRIVER = "efs.csi.aws.com", "fsx.csi.aws.com", "ebs.csi.aws.com"
BACKED_UP = "ebb.dev/backup"
SNAPSHOTS_KEPT = 7


def efs_source(file_system: pulumi.Output[str], access_point: pulumi.Output[str] | None = None) -> Csi:
    """The root of an EFS file system, or an access point of it. The driver's default is TLS, and there is no mount option for it
    any more (aws-efs-csi-driver, pkg/driver/node.go, 2026-07-24)."""
    handle = file_system if access_point is None else pulumi.Output.concat(file_system, "::", access_point)
    return Csi(driver=EFS_DRIVER, handle=handle)


def lustre_source(
    file_system: pulumi.Output[str], dns_name: pulumi.Output[str], mount_name: pulumi.Output[str], folder: str = ""
) -> Csi:
    """The root of a Lustre file system, or a folder of it, which must exist: clients mount <server>:/<name>/<folder>.

    The driver passes `mountname` on as it is, and reads the file system from `dnsname` and not from the handle
    (aws-fsx-csi-driver, pkg/driver/node.go, 2026-04-21), so a folder has a handle of its own.
    """
    below = f"/{folder}" if folder else ""
    return Csi(
        driver=FSX_DRIVER,
        handle=pulumi.Output.concat(file_system, below),
        attributes={"dnsname": dns_name, "mountname": pulumi.Output.concat(mount_name, below)},
        mount_options=("flock",),  # or locks of files fail
    )


def ebs_source(disk: ebs.Volume) -> Csi:
    """A disk, formatted at its first mount."""
    return Csi(driver=EBS_DRIVER, handle=disk.id, fs_type="ext4")


def etcd_disk(part: Part, name: str, zone: str, size_gib: int, snapshots_role: pulumi.Input[str]) -> ebs.Volume:
    """The disk of etcd, and a snapshot of it every night. Snapshots stay when the stack goes: infra.account.leftovers finds
    them."""
    # A policy takes every disk that has any of its tags, and a tag may be in one policy only: so it carries the stack's name.
    backed_up = {BACKED_UP: name}
    disk = ebs.Volume(
        f"{name}-etcd",
        availability_zone=zone,
        type="gp3",
        size=size_gib,
        encrypted=True,
        tags={"Name": f"{name}-etcd", SHOWN: "etcd", **backed_up},
        opts=part.child(),
    )
    dlm.LifecyclePolicy(
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
