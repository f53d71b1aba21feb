"""The stack's storage on Google Cloud: Filestore for data and output, a disk for etcd, Managed Lustre if asked for.

    declared = storage.declare(part, name, stack, settings, network=.., kubernetes_provider=.., add_ons=..)
    declared.commands                                  # what a researcher types to mount the data: for the stack's outputs

Data and output are folders of the one file share, which the platform's first Job gives to the trainer's user. Machines mount it
by NFS, without a driver. On the way down: claims, volumes, the file system, the network; with `data: keep` the last two stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute, filestore, servicenetworking
from pulumi_gcp import lustre as gcp_lustre
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.gcp import buckets, pools
from infra.clouds.gcp.network import Network
from infra.clouds.gcp.settings import Lustre, Settings
from infra.config import Stack
from infra.groups import manager_group
from infra.part import Part
from infra.volumes import Csi, Nfs, Source, Volumes
from workloads import cluster as records

ROOT_CLAIM, ROOT_PATH = "efs-claim", "/mnt/efs"  # as the step-by-step articles have them
KEEP, PROTECT = "keep", "protect"
SNAPSHOTS_KEPT_DAYS = 7
DISK_DRIVER, LUSTRE_DRIVER = "pd.csi.storage.gke.io", "lustre.csi.storage.gke.io"
# hard: what writes to a file system that is away waits, and does not lose what it writes. The sizes and the two connections are
# those of Google's page filestore/docs/mounting-fileshares as remembered: it could not be read.
NFS_OPTIONS = ("hard", "timeo=600", "retrans=3", "rsize=524288", "wsize=524288", "nconnect=2")
PEERING_BITS = 20  # for Lustre: managed-lustre/docs/vpc asks for a /20, as remembered


@dataclass(frozen=True, kw_only=True)
class Storage(records.Storage):
    """`commands`: what to type on a machine of `storage.clients`, by what it does."""

    commands: Mapping[str, pulumi.Output[str]]


def declare(
    part: Part,
    name: str,
    stack: Stack,
    settings: Settings,
    *,
    network: Network,
    kubernetes_provider: KubernetesProvider,
    add_ons: Sequence[pulumi.Resource],
) -> Storage:
    """File systems, the disk of etcd, and their volumes."""
    address, ready = _filestore(part, name, stack, settings, network)
    share, sizes = settings.storage.filestore.share, stack.storage
    lustre = _lustre(part, name, settings.storage.lustre, network) if settings.storage.lustre else None
    volumes = Volumes(part, name, kubernetes_provider, [*ready, *([lustre] if lustre else []), *add_ons])

    def folder(where: str) -> Source:
        return Nfs(server=address, path=f"/{share}{where}", mount_options=NFS_OPTIONS)

    jobs = [
        volumes.shared("data", folder("/data"), claim="ebb-data", mount_path="/mnt/data", size_gib=sizes.data_gib),
        volumes.shared("output", folder("/output"), claim="ebb-output", mount_path="/mnt/output", size_gib=sizes.output_gib),
    ]
    if lustre and settings.storage.lustre:
        own = settings.storage.lustre
        fast = volumes.shared(
            "lustre",
            _lustre_source(lustre, settings),
            claim="ebb-lustre",
            mount_path="/mnt/lustre",
            size_gib=own.size_gib,
            zone=own.zone,
        )
        jobs.append(fast)
    files = buckets.mounts(part, name, settings, kubernetes_provider, add_ons)
    jobs += files.pop("", [])
    disk, zone = _etcd_disk(part, name, stack, settings), stack.manager.zone
    handle = pulumi.Output.concat(f"projects/{settings.project}/zones/{zone}/disks/", disk.name)
    etcd = Csi(driver=DISK_DRIVER, handle=handle, fs_type="ext4")
    copies = buckets.copies(part, name, settings)
    return Storage(
        jobs=tuple(jobs),
        root=volumes.shared(
            "efs", folder(""), claim=ROOT_CLAIM, mount_path=ROOT_PATH, size_gib=sizes.data_gib + sizes.output_gib
        ),
        etcd=volumes.disk(
            "etcd", etcd, claim="etcd-data", mount_path="/var/lib/etcd", zone=zone, size_gib=settings.storage.etcd_gib
        ),
        commands=_commands(address, share, lustre),
        copies=copies.pop("", None),
        team_copies=copies,
        teams={
            team: (*held, *files.get(team, ()))
            for team, held in volumes.of_teams(
                stack.teams, lambda path: folder(f"/{path}"), {"data": sizes.data_gib, "output": sizes.output_gib}
            ).items()
        },
    )


def _filestore(
    part: Part, name: str, stack: Stack, settings: Settings, network: Network
) -> tuple[pulumi.Output[str], list[pulumi.Resource]]:
    """Its address, and what a mount needs."""
    wanted, on_destroy = settings.storage.filestore, settings.storage.data
    if wanted.address is not None:
        return pulumi.Output.from_input(wanted.address), []
    zone = wanted.zone or stack.manager.zone
    # In an own network the subnet and the clients alone may mount. What an existing subnet's range is, only Google knows.
    allowed = [] if settings.network.name else [settings.network.cidr, *settings.storage.clients]
    made = filestore.Instance(
        name,
        location=settings.region if wanted.tier == "REGIONAL" else zone,
        tier=wanted.tier,
        file_shares={
            "name": wanted.share,
            "capacity_gb": wanted.size_gib,
            # The Job that gives the folders to the trainer's user is root, and must stay so.
            "nfs_export_options": [{"ip_ranges": allowed, "access_mode": "READ_WRITE", "squash_mode": "NO_ROOT_SQUASH"}]
            if allowed
            else None,
        },
        networks=[{"network": network.network, "modes": ["MODE_IPV4"], "connect_mode": "DIRECT_PEERING"}],
        opts=part.child(
            depends_on=[network.part],
            retain_on_delete=on_destroy == KEEP,
            protect=on_destroy == PROTECT,
            # It would be deleted for its successor: a new name is a new file system, and the old one holds the data.
            delete_before_replace=False,
        ),
    )
    return made.networks[0].ip_addresses[0], [made]


def _lustre(part: Part, name: str, wanted: Lustre, network: Network) -> gcp_lustre.Instance:
    """With the peering to Google's own network that it is reached by. An existing network may have one: Google joins the two."""
    block = compute.GlobalAddress(
        f"{name}-services",
        purpose="VPC_PEERING",
        address_type="INTERNAL",
        prefix_length=PEERING_BITS,
        network=network.network,
        opts=part.child(depends_on=[network.part]),
    )
    peering = servicenetworking.Connection(
        f"{name}-services",
        network=network.network,
        service="servicenetworking.googleapis.com",
        reserved_peering_ranges=[block.name],
        update_on_creation_fail=True,
        opts=part.child(),
    )
    return gcp_lustre.Instance(
        name,
        instance_id=f"{name}-lustre",
        location=wanted.zone,
        filesystem="ebb",
        capacity_gib=str(wanted.size_gib),
        per_unit_storage_throughput=str(wanted.throughput),
        network=network.network,
        opts=part.child(depends_on=[peering]),
    )


def _lustre_source(instance: gcp_lustre.Instance, settings: Settings) -> Csi:
    """`mountPoint` is <address>@tcp:/<filesystem> (.../managed-lustre/docs/lustre-csi-driver-existing-instance)."""
    assert settings.storage.lustre is not None
    return Csi(
        driver=LUSTRE_DRIVER,
        handle=pulumi.Output.concat(f"{settings.project}/{settings.storage.lustre.zone}/", instance.instance_id),
        attributes={"ip": instance.mount_point.apply(lambda point: point.partition("@")[0]), "filesystem": instance.filesystem},
    )


def _etcd_disk(part: Part, name: str, stack: Stack, settings: Settings) -> compute.Disk:
    """The disk of etcd, of a kind that the manager machine can attach, and a snapshot of it every night. Snapshots stay when the
    stack goes, for a week: infra.account.leftovers finds them."""
    manager = manager_group(stack)
    zone = manager.zone
    disk = compute.Disk(
        f"{name}-etcd",
        zone=zone,
        type=pools.etcd_disk_type(manager),
        size=settings.storage.etcd_gib,
        labels={"ebb-volume": "etcd"},
        opts=part.child(),
    )
    nightly = compute.ResourcePolicy(
        f"{name}-etcd",
        region=settings.region,
        description=f"Nightly snapshots of the etcd disk of {name}",
        snapshot_schedule_policy={
            "schedule": {"daily_schedule": {"days_in_cycle": 1, "start_time": "03:00"}},
            "retention_policy": {"max_retention_days": SNAPSHOTS_KEPT_DAYS, "on_source_disk_delete": "APPLY_RETENTION_POLICY"},
            "snapshot_properties": {
                "labels": {"ebb-stack": name.removeprefix("ebb-")},
                "storage_locations": settings.region,  # or they would be copied over the continent, which costs more
            },
        },
        opts=part.child(),
    )
    compute.DiskResourcePolicyAttachment(f"{name}-etcd", disk=disk.name, name=nightly.name, zone=zone, opts=part.child())
    return disk


def _commands(address: pulumi.Output[str], share: str, lustre: gcp_lustre.Instance | None) -> dict[str, pulumi.Output[str]]:
    options = ",".join(NFS_OPTIONS)
    found = {
        key: pulumi.Output.concat(
            f"sudo mkdir -p {place} && sudo mount -t nfs -o {options} ", address, f":/{share}{folder} {place}"
        )
        for key, place, folder in (("mountData", "/mnt/data", "/data"), ("mountOutput", "/mnt/output", "/output"))
    }
    if lustre:
        where = pulumi.Output.concat("sudo mkdir -p /mnt/lustre && sudo mount -t lustre ", lustre.mount_point, " /mnt/lustre")
        found["mountLustre"] = where
    return found
