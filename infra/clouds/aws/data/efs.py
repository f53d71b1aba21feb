"""The EFS file system that data and output are on: in every zone, of no fixed size, paid by what is stored, read and written.

    file_system = declare(part, "ebb-dev", settings.storage, network, allowed)

With `fileSystemId` it is one that exists, e.g. one that an earlier destroy has kept; its access points, mount targets and rules
are made in any case, and go with the stack.

No lifecycle policy moves files to Infrequent Access. It goes by the last reading, so it would move a whole data set at once; the
first epoch after a break would then pay for every byte that it reads and wait for every one of a million small files, while the
machines that wait cost more than the storage saves
(https://docs.aws.amazon.com/efs/latest/ug/lifecycle-management-efs.html, read 2026-11-21). What is not read for months belongs in
S3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2, efs

from infra.clouds.aws.data.clients import Client, admit
from infra.clouds.aws.network import Network
from infra.clouds.aws.settings import Efs, Storage
from infra.part import Part

NFS = (2049, 2049)
OWNER = 1000  # the images' user
KEEP, PROTECT = "keep", "protect"


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """`data` and `output`: access points, on which every file is the images' user's, whoever writes it. `ready`: what a mount
    needs; it goes after all mounts."""

    id: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    data: pulumi.Output[str]
    output: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]


def declare(part: Part, name: str, settings: Storage, network: Network, allowed: Sequence[Client]) -> FileSystem:
    """The file system and all that a mount of it needs."""
    assert settings.efs is not None
    found = _file_system(part, name, settings.efs, settings.data)
    targets = _mount_targets(part, name, found, network, allowed)
    data, output = (access_point(part, name, found, folder) for folder in ("data", "output"))
    return FileSystem(
        id=found,
        dns_name=targets[0].dns_name,
        data=data.id,
        output=output.id,
        ready=[*targets, data, output],
    )


def _file_system(part: Part, name: str, settings: Efs, on_destroy: str) -> pulumi.Output[str]:
    if settings.file_system_id is not None:
        return pulumi.Output.from_input(settings.file_system_id)
    # Kept is the file system alone: its mount targets would keep the network, and access points are made anew with the next one.
    return efs.FileSystem(
        f"{name}-efs",
        encrypted=True,
        throughput_mode=settings.throughput_mode,
        tags={"Name": name},
        opts=part.child(retain_on_delete=on_destroy == KEEP, protect=on_destroy == PROTECT),
    ).id


def _mount_targets(
    part: Part, name: str, file_system: pulumi.Output[str], network: Network, allowed: Sequence[Client]
) -> list[efs.MountTarget]:
    """One per zone: a machine mounts from its own."""
    firewall = ec2.SecurityGroup(
        f"{name}-efs",
        vpc_id=network.vpc_id,
        description=f"EFS of {name}: NFS from its clients",
        tags={"Name": f"{name}-efs"},
        opts=part.child(),
    )
    rules = admit(part, firewall, f"{name}-efs", allowed, [NFS])
    return [
        efs.MountTarget(
            f"{name}-{zone}",
            file_system_id=file_system,
            subnet_id=subnet,
            security_groups=[firewall.id],
            opts=part.child(depends_on=rules),
        )
        for zone, subnet in sorted(network.private.items())
    ]


def access_point(part: Part, name: str, file_system: pulumi.Output[str], folder: str) -> efs.AccessPoint:
    """EFS makes the folder at the first mount, unless it is there already."""
    return efs.AccessPoint(
        f"{name}-{folder.replace('/', '-')}",
        file_system_id=file_system,
        posix_user={"uid": OWNER, "gid": OWNER},
        root_directory={
            "path": f"/{folder}",
            "creation_info": {"owner_uid": OWNER, "owner_gid": OWNER, "permissions": "0775"},
        },
        tags={"Name": f"{name}-{folder.replace('/', '-')}"},
        opts=part.child(),
    )
