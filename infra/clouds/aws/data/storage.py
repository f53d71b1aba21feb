"""The stack's storage on AWS: EFS and FSx for Lustre for the jobs, a disk for etcd.

    declared = storage.declare(part, name, stack, settings, network=.., control=.., kubernetes_provider=.., add_ons=..)
    declared.commands                                  # what a researcher types to mount the data: for the stack's outputs

With EFS, data and output are on it, and FSx is a third volume at /mnt/fsx. With FSx alone, data and output are folders of its
root. Claims (workloads/storage.py) bind to the volumes that are made here. On the way down: claims, volumes, then access
points and mount targets, then the file system, then the network.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pulumi
from pulumi_aws import dlm, ebs
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.aws.control import pod_identity
from infra.clouds.aws.control.cluster import ControlPlane
from infra.clouds.aws.data import efs, fsx
from infra.clouds.aws.data.clients import clients
from infra.clouds.aws.iam import identity
from infra.clouds.aws.iam.rights import bucket_words
from infra.clouds.aws.machines import machine
from infra.clouds.aws.network import Network
from infra.clouds.aws.settings import Bucket, Settings
from infra.clouds.aws.settings import Storage as StorageSettings
from infra.config import Stack
from infra.config.buckets import by_reader, mounted
from infra.part import Part
from infra.volumes import SHOWN, Csi, Source, Volumes
from workloads import cluster as records
from workloads.cluster import COPY_ACCOUNT, JOBS, TEAMS, CopyIdentity, Volume

ROOT_CLAIM, ROOT_PATH = "efs-claim", "/mnt/efs"  # as the step-by-step articles have them
NFS_OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
SNAPSHOTS = "snapshots"  # its role in iam/rights.py
EFS_DRIVER, FSX_DRIVER, EBS_DRIVER, S3_DRIVER = "efs.csi.aws.com", "fsx.csi.aws.com", "ebs.csi.aws.com", "s3.csi.aws.com"
SNAPSHOTS_KEPT = 7
# Of the EKS Pod Identity agent (https://docs.aws.amazon.com/eks/latest/userguide/pod-id-agent-setup.html, read 2026-11-26).
AGENT = ("169.254.170.23/32", 80)

Command = pulumi.Output[str]


@dataclass(frozen=True, kw_only=True)
class Storage(records.Storage):
    """`commands`: what to type on a machine of `storage.clients`, by what it does."""

    commands: Mapping[str, Command]


def declare(
    part: Part,
    name: str,
    stack: Stack,
    settings: Settings,
    *,
    network: Network,
    control: ControlPlane,
    kubernetes_provider: KubernetesProvider,
    add_ons: Sequence[pulumi.Resource],
) -> Storage:
    """File systems, the disk of etcd, and their volumes. `add_ons`: the storage drivers."""
    wanted, machines = settings.storage, control.security_group_id
    allowed = clients(wanted.clients, machines)
    shared = efs.declare(part, name, wanted, network, allowed) if wanted.efs else None
    fast = fsx.declare(part, name, wanted, network, machines=machines, allowed=allowed) if wanted.fsx else None
    disk = etcd_disk(part, name, stack.manager.zone, wanted.etcd_gib, identity.role(part, name, SNAPSHOTS).arn)

    ready = [resource for made in (shared, fast) if made for resource in made.ready]
    volumes = Volumes(part, name, kubernetes_provider, [*ready, *add_ons])
    data, output, root = _places(shared, fast)
    sizes = stack.storage
    fast_zone = wanted.fsx.zone if wanted.fsx else ""
    zone = "" if shared else fast_zone
    jobs = [
        volumes.shared("data", data, claim="ebb-data", mount_path="/mnt/data", size_gib=sizes.data_gib, zone=zone),
        volumes.shared("output", output, claim="ebb-output", mount_path="/mnt/output", size_gib=sizes.output_gib, zone=zone),
    ]
    if shared and fast and wanted.fsx:
        whole = lustre_source(fast.id, fast.dns_name, fast.mount_name)
        size = wanted.fsx.size_gib
        jobs.append(volumes.shared("fsx", whole, claim="ebb-fsx", mount_path="/mnt/fsx", size_gib=size, zone=fast_zone))
    if wanted.fsx:
        linked = "fsx" if shared else "data"
        jobs = [replace(one, preload=wanted.fsx.preload) if one.name == linked else one for one in jobs]
    jobs += [_bucket(volumes, one) for one in mounted(wanted.buckets)]
    copies = _copies(part, name, settings, control)
    return Storage(
        jobs=tuple(jobs),
        root=volumes.shared("efs", root, claim=ROOT_CLAIM, mount_path=ROOT_PATH, size_gib=sizes.data_gib + sizes.output_gib),
        etcd=_etcd(volumes, disk, stack.manager.zone, wanted.etcd_gib),
        commands=_commands(shared, fast, wanted),
        copies=copies.pop("", None),
        team_copies=copies,
        teams=volumes.of_teams(
            stack.teams, _team_folders(part, name, shared, fast), {"data": sizes.data_gib, "output": sizes.output_gib}, zone
        ),
    )


def _copies(part: Part, name: str, settings: Settings, control: ControlPlane) -> dict[str, CopyIdentity]:
    """By team ("": jobs without one): the role of its pods that copy, also from buckets that are mounted."""
    made = {}
    for team, read in by_reader(settings.storage.buckets).items():
        namespace, suffix = (f"{TEAMS}{team}", f"-{team}") if team else (JOBS, "")
        role = identity.role(part, name, "s3-copy", suffix=suffix, namespace=namespace, **bucket_words(read))
        link = pod_identity.associate(part, control, namespace, COPY_ACCOUNT, role, suffix=suffix)
        made[team] = CopyIdentity(
            buckets={one.name: one.url for one in read},
            environment={"AWS_REGION": settings.region},
            addresses=[AGENT],
            ready=[link],
        )
    return made


def _bucket(volumes: Volumes, one: Bucket) -> Volume:
    """A bucket as files, by the driver's own role, which may read it and nothing else
    (https://github.com/awslabs/mountpoint-s3-csi-driver, docs/CONFIGURATION.md and examples/kubernetes/static_provisioning, and
    doc/CONFIGURATION.md of https://github.com/awslabs/mountpoint-s3, read 2026-11-26)."""
    source = Csi(
        driver=S3_DRIVER,
        handle=pulumi.Output.from_input(f"s3-{one.name}"),  # of the volume; the bucket is an attribute, and may be in two
        attributes={"bucketName": one.bucket},
        mount_options=("read-only", "allow-other", *((f"prefix {one.prefix}",) if one.prefix else ())),
    )
    made = volumes.shared(one.name, source, claim=f"ebb-{one.name}", mount_path=f"/mnt/{one.name}", size_gib=1)
    return replace(made, read_only=True)


def _team_folders(part: Part, name: str, shared: efs.FileSystem | None, fast: fsx.FileSystem | None) -> Callable[[str], Source]:
    """A folder of a team as a source of a volume. On EFS by an access point, which nothing can leave."""

    def folder(path: str) -> Source:
        if shared:
            return efs_source(shared.id, efs.access_point(part, name, shared.id, path).id)
        assert fast is not None, "as in _places"
        return lustre_source(fast.id, fast.dns_name, fast.mount_name, path)

    return folder


def _places(shared: efs.FileSystem | None, fast: fsx.FileSystem | None) -> tuple[Source, Source, Source]:
    """The volumes of data, of output, and of the root of both."""
    if shared:
        return efs_source(shared.id, shared.data), efs_source(shared.id, shared.output), efs_source(shared.id)
    assert fast is not None, "checks/storage.py asks for one of efs and fsx"
    lustre = (fast.id, fast.dns_name, fast.mount_name)
    return lustre_source(*lustre, "data"), lustre_source(*lustre, "output"), lustre_source(*lustre)


def _etcd(volumes: Volumes, disk: ebs.Volume, zone: str, size_gib: int) -> Volume:
    return volumes.disk("etcd", ebs_source(disk), claim="etcd-data", mount_path="/var/lib/etcd", zone=zone, size_gib=size_gib)


def _commands(shared: efs.FileSystem | None, fast: fsx.FileSystem | None, wanted: StorageSettings) -> dict[str, Command]:
    """EFS by amazon-efs-utils (https://docs.aws.amazon.com/efs/latest/ug/mounting-fs-mount-helper-ec2-linux.html), or by any NFS
    client with the options that EFS recommends (mounting-fs-nfs-mount-settings.html); Lustre by lustre-client
    (https://docs.aws.amazon.com/fsx/latest/LustreGuide/mounting-ec2-instance.html); all read 2026-11-21."""
    found: dict[str, Command] = {}
    if shared:
        for key, folder, point in (("mountData", "/mnt/data", shared.data), ("mountOutput", "/mnt/output", shared.output)):
            found[key] = _mount(folder, "-t efs -o tls,accesspoint=", point, " ", shared.id, ":/")
        found["mountAllByNfs"] = _mount(ROOT_PATH, f"-t nfs4 -o {NFS_OPTIONS} ", shared.dns_name, ":/")
    if fast:
        server = pulumi.Output.concat("-t lustre -o relatime,flock ", fast.dns_name, "@tcp:/", fast.mount_name)
        folders = {"mountFsx": ""} if shared else {"mountData": "/data", "mountOutput": "/output"}
        for key, folder in folders.items():
            found[key] = _mount(f"/mnt{folder or '/fsx'}", server, folder)
    if fast and wanted.fsx and wanted.fsx.bucket:
        task = "aws fsx create-data-repository-task --type EXPORT_TO_REPOSITORY --report Enabled=false --file-system-id "
        found["exportFsxBeforeDestroy"] = pulumi.Output.concat(task, fast.id)
    return found


def _mount(folder: str, *what: pulumi.Input[str]) -> Command:
    return pulumi.Output.concat(f"sudo mkdir -p {folder} && sudo mount ", *what, f" {folder}")


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
    backed_up = {machine.BACKED_UP: name}
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
