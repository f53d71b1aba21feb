"""The FSx for Lustre file system: fast, in one zone, of a fixed size, and a cache of an S3 bucket if one is named.

    file_system = declare(part, "ebb-dev", settings.storage, network, machines=.., allowed=..)

What is in the bucket shows up in the file system and is read from S3 on first use; what jobs write goes to the bucket by itself,
some time later: before a destroy, run the export of the outputs. `data: keep` does not keep the file system, which costs money
for its size and not for its content: the bucket is what stays. `data: protect` protects it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2, fsx, vpc

from infra.clouds.aws.data.clients import MACHINES, Client, admit, let_out
from infra.clouds.aws.network import Network
from infra.clouds.aws.settings import Storage
from infra.part import Part

# https://docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html, read 2026-11-21: in and out, between the
# servers, and between servers and clients.
LUSTRE = ((988, 988), (1018, 1023))
CHANGES = ["NEW", "CHANGED", "DELETED"]
PROTECT, PERSISTENT = "protect", "PERSISTENT_2"
# The association is there once the names of all objects are imported; the provider gives up after 10 minutes. Four million
# objects took more than an hour (https://github.com/aws/aws-parallelcluster/issues/4211), and 1200 GiB hold some eleven million
# of ImageNet's size. It is a limit, not a delay; a stack that waits for a day has another problem.
IMPORT_HOURS_PER_1200_GIB, MOST_IMPORT_HOURS = 3, 24


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """`mount_name`: what Lustre calls it. `ready`: what a mount needs; it goes after all mounts."""

    id: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]


def declare(
    part: Part, name: str, settings: Storage, network: Network, *, machines: pulumi.Output[str], allowed: Sequence[Client]
) -> FileSystem:
    """The file system, its association with the bucket, and all that a mount needs. `machines`: their security group."""
    assert settings.fsx is not None
    firewall, rules = _firewall(part, name, network, machines, allowed)
    found = _file_system(part, name, settings, network, firewall=firewall, rules=rules)
    linked = [_association(part, name, found, settings.fsx.bucket, settings.fsx.size_gib)] if settings.fsx.bucket else []
    return FileSystem(id=found.id, dns_name=found.dns_name, mount_name=found.mount_name, ready=[found, *rules, *linked])


def _firewall(
    part: Part, name: str, network: Network, machines: pulumi.Output[str], allowed: Sequence[Client]
) -> tuple[ec2.SecurityGroup, list[pulumi.Resource]]:
    firewall = ec2.SecurityGroup(
        f"{name}-fsx",
        vpc_id=network.vpc_id,
        description=f"FSx of {name}: Lustre among its servers and with its clients",
        tags={"Name": f"{name}-fsx"},
        opts=part.child(),
    )
    own = Client(name="servers", group=firewall.id)
    rules = [
        *admit(part, firewall, f"{name}-fsx", [own, *allowed], LUSTRE),
        *let_out(part, firewall, f"{name}-fsx", [own, *allowed], LUSTRE),
        *_servers_to_machines(part, name, firewall, machines),
    ]
    return firewall, rules


def _servers_to_machines(
    part: Part, name: str, firewall: ec2.SecurityGroup, machines: pulumi.Output[str]
) -> list[pulumi.Resource]:
    """Servers call back their clients, and the machines' security group lets in nobody but machines by itself."""
    return [
        vpc.SecurityGroupIngressRule(
            f"{name}-{MACHINES}-from-fsx-{first}",
            security_group_id=machines,
            referenced_security_group_id=firewall.id,
            description=f"FSx of {name} calls back",
            ip_protocol="tcp",
            from_port=first,
            to_port=last,
            opts=part.child(),
        )
        for first, last in LUSTRE
    ]


def _file_system(
    part: Part,
    name: str,
    settings: Storage,
    network: Network,
    *,
    firewall: ec2.SecurityGroup,
    rules: Sequence[pulumi.Resource],
) -> fsx.LustreFileSystem:
    wanted = settings.fsx
    assert wanted is not None
    persistent = wanted.deployment == PERSISTENT
    return fsx.LustreFileSystem(
        f"{name}-fsx",
        subnet_ids=network.private[wanted.zone],
        security_group_ids=[firewall.id],
        deployment_type=wanted.deployment,
        storage_type="SSD",
        storage_capacity=wanted.size_gib,
        per_unit_storage_throughput=wanted.throughput if persistent else None,
        file_system_type_version=wanted.version,
        data_compression_type="LZ4",  # costs nothing, and text and uncompressed tensors take less room
        skip_final_backup=True,  # with a bucket there can be none, and without one the settings ask for `data: delete`
        tags={"Name": name},
        # FSx tries the ports while it creates the file system.
        opts=part.child(protect=settings.data == PROTECT, depends_on=rules),
    )


def _association(
    part: Part, name: str, file_system: fsx.LustreFileSystem, bucket: str, size_gib: int
) -> fsx.DataRepositoryAssociation:
    """The bucket is the root of the file system: data/ and output/ are in both."""
    hours = min(IMPORT_HOURS_PER_1200_GIB * size_gib // 1200, MOST_IMPORT_HOURS)
    return fsx.DataRepositoryAssociation(
        f"{name}-fsx",
        file_system_id=file_system.id,
        file_system_path="/",
        data_repository_path=bucket,
        batch_import_meta_data_on_create=True,
        delete_data_in_filesystem=False,
        s3={"auto_import_policy": {"events": CHANGES}, "auto_export_policy": {"events": CHANGES}},
        tags={"Name": name},
        opts=part.child(custom_timeouts=pulumi.CustomTimeouts(create=f"{hours}h", update="30m", delete="30m")),
    )
