"""Costs of a stack on AWS beside its machines: control plane, network, disks, file systems, images. Settings in, money out.

List prices of us-east-1 in USD, as of 2026-11; the page of each is beside it. Other regions cost up to a third more. Taxes,
support plans, traffic between zones and out to the internet are not in it.
"""

from collections.abc import Iterator, Mapping, Sequence

from infra.account.records import HOURS_PER_MONTH, Line, Sheet, Use, always
from infra.clouds.aws.machines import machine
from infra.clouds.aws.settings import Settings
from infra.config import Stack
from infra.groups import split_by_role
from workloads.cluster import NodeGroup

EKS_HOUR = 0.10  # https://aws.amazon.com/eks/pricing/, standard support; extended support is 0.60
NAT_HOUR, NAT_GB = 0.045, 0.045  # https://aws.amazon.com/vpc/pricing/
ADDRESS_HOUR = 0.005  # a public IPv4 address, each NAT gateway has one: the same page
ENDPOINT_HOUR, ENDPOINT_GB = 0.01, 0.01  # an interface endpoint, per zone: https://aws.amazon.com/privatelink/pricing/
GP3_GIB_MONTH, GP3_MIB_MONTH, GP3_FREE_MIB = 0.08, 0.04, 125  # https://aws.amazon.com/ebs/pricing/
EFS_GIB_MONTH, EFS_READ_GB, EFS_WRITE_GB = 0.30, 0.03, 0.06  # https://aws.amazon.com/efs/pricing/, Regional, Elastic Throughput
EFS_BURST_READ_KB = 150  # bursting: 50 kB/s per GB stored, reads count a third (the same page)
# USD per GiB and month of SSD, by MB/s per TiB: https://aws.amazon.com/fsx/lustre/pricing/
FSX_PERSISTENT_2: Mapping[int, float] = {125: 0.145, 250: 0.210, 500: 0.340, 1000: 0.600}
FSX_SCRATCH_2 = 0.140
ECR_GB_MONTH = 0.10  # https://aws.amazon.com/ecr/pricing/
LOG_GB, LOG_GB_MONTH = 0.50, 0.03  # taken in, kept: https://aws.amazon.com/cloudwatch/pricing/
BUILD_MINUTE = 0.01  # general1.medium: https://aws.amazon.com/codebuild/pricing/
# Assumptions.
TRAINER_GB, CONTROLLER_GB = 4.0, 0.1  # compressed; `up` prints the real size
EFS_FITS_GB = 50  # above it, reading each epoch from EFS costs more than a file system that is paid by size
EPOCHS = 90  # ImageNet's usual training, for an example


def sheet(stack: Stack, groups: Sequence[NodeGroup]) -> Sheet:
    """Everything but the machines."""
    settings: Settings = stack.settings
    lines = [
        Line(what="EKS control plane", idle=EKS_HOUR, full=EKS_HOUR),
        *_network(stack, settings),
        *_disks(settings, groups),
        *_file_systems(stack, settings),
        *_images(stack, settings),
    ]
    return Sheet(
        lines=tuple(lines), uses=tuple(_uses(stack, settings)), advice=tuple(_advice(stack, settings)), basis=_basis(settings)
    )


def _network(stack: Stack, settings: Settings) -> Iterator[Line]:
    network = settings.network
    if network.vpc_id is None:
        count = len(stack.zones) if network.nat == "per-zone" else 1
        yield always(f"{_count(count, 'NAT gateway')}", count * (NAT_HOUR + ADDRESS_HOUR), "with its address; per GB see below")
    if network.interface_endpoints:
        count = len(network.interface_endpoints) * len(stack.zones)
        yield always(_count(count, "interface endpoint"), count * ENDPOINT_HOUR, "one per service and zone")


def _disks(settings: Settings, groups: Sequence[NodeGroup]) -> Iterator[Line]:
    nodes, etcd = settings.nodes, settings.storage.etcd_gib
    managers, jobs = split_by_role(groups)
    yield always(
        "disks: manager and etcd", (nodes.manager_disk_gib * len(managers) + etcd) * GP3_GIB_MONTH / HOURS_PER_MONTH, "gp3"
    )
    disks = [(group, machine.disk(group, settings)) for group in jobs]
    each = [(group, disk_usd_per_hour(disk.gib, disk.throughput_mib)) for group, disk in disks]
    if each:
        idle, full = sum(group.min * usd for group, usd in each), sum(group.max * usd for group, usd in each)
        yield Line(what="disks: machines for jobs", idle=idle, full=full, note="gp3")


def disk_usd_per_hour(gib: int, mib_per_second: int) -> float:
    """A gp3 volume: its size, and the throughput above what is free."""
    return (gib * GP3_GIB_MONTH + max(0, mib_per_second - GP3_FREE_MIB) * GP3_MIB_MONTH) / HOURS_PER_MONTH


def _file_systems(stack: Stack, settings: Settings) -> Iterator[Line]:
    storage = settings.storage
    if storage.efs is not None:
        gib = stack.storage.data_gib + stack.storage.output_gib
        yield always("EFS", gib * EFS_GIB_MONTH / HOURS_PER_MONTH, f"with {gib} GiB of data and output; it bills what is stored")
    if storage.fsx is not None:
        usd = storage.fsx.size_gib * fsx_usd_per_gib(storage.fsx.deployment, storage.fsx.throughput) / HOURS_PER_MONTH
        yield always("FSx for Lustre", usd, f"{storage.fsx.size_gib} GiB {storage.fsx.deployment}, used or not")


def fsx_usd_per_gib(deployment: str, throughput: int) -> float:
    """Per GiB and month."""
    return FSX_SCRATCH_2 if deployment == "SCRATCH_2" else FSX_PERSISTENT_2[throughput]


def _images(stack: Stack, settings: Settings) -> Iterator[Line]:
    if settings.images.build != "none":
        trainers = len({"default", *stack.trainers})
        size = trainers * TRAINER_GB + CONTROLLER_GB
        yield always("ECR", size * ECR_GB_MONTH / HOURS_PER_MONTH, f"one build of each image, some {size:.0f} GB")


def _uses(stack: Stack, settings: Settings) -> Iterator[Use]:
    storage = settings.storage
    if storage.efs is not None and storage.efs.throughput_mode == "elastic":
        data = stack.storage.data_gib
        yield Use(what="EFS: reading", usd=EFS_READ_GB, unit="per GB")
        if storage.fsx is None:
            yield Use(what="EFS: one epoch", usd=epoch_usd(data), unit=f"per pass over {data} GiB of data, on one job")
        yield Use(what="EFS: writing", usd=EFS_WRITE_GB, unit="per GB (checkpoints, results)")
    if settings.network.vpc_id is None:
        yield Use(what="NAT gateway", usd=NAT_GB, unit="per GB from the internet; S3 and the layers of ECR's images come past it")
    if settings.network.interface_endpoints:
        yield Use(what="interface endpoints", usd=ENDPOINT_GB, unit="per GB")
    if settings.cluster.logs:
        yield Use(what="control-plane logs", usd=LOG_GB, unit=f"per GB ({', '.join(settings.cluster.logs)})")
    if stack.logs.ship:
        unit = f"per GB of lines; kept for {stack.logs.keep_days} days, at {LOG_GB_MONTH} per compressed GB and month"
        yield Use(what="logs of pods", usd=LOG_GB, unit=unit)
    if settings.images.build == "codebuild":
        yield Use(what="CodeBuild", usd=BUILD_MINUTE, unit="per minute of a build")


def epoch_usd(data_gib: float) -> float:
    """Reading all data once from EFS with elastic throughput, whose GB is a GiB."""
    return data_gib * EFS_READ_GB


def _advice(stack: Stack, settings: Settings) -> Iterator[str]:
    storage, data = settings.storage, stack.storage.data_gib
    if storage.efs is None or storage.fsx is not None:
        return
    if storage.efs.throughput_mode == "bursting":
        hours = 1e6 / EFS_BURST_READ_KB / 3600  # a GB in kB: what is stored cancels out
        yield (
            f"EFS with `throughputMode: bursting` needs {hours:.1f} hours for one pass over the data, its credits used up, "
            "however much that is: take `elastic`, or FSx"
        )
    elif data > EFS_FITS_GB:
        fsx = 1200 * FSX_PERSISTENT_2[250]
        yield (
            f"{data} GiB of data on EFS: {epoch_usd(data):.2f} USD for each epoch of each job, {EPOCHS} epochs "
            f"{epoch_usd(data) * EPOCHS:,.0f} USD. Above {EFS_FITS_GB} GB take FSx for Lustre (aws.storage.fsx; 1200 GiB cost "
            f"{fsx:,.0f} USD per month, reads are free), or keep shards on the machines' disks after the first epoch"
        )


def _basis(settings: Settings) -> tuple[str, ...]:
    where = "us-east-1" if settings.region == "us-east-1" else f"us-east-1 ({settings.region} may cost up to a third more)"
    return (
        f"AWS's list prices of {where}, as of 2026-11 (infra/clouds/aws/costs.py, machines.yaml)",
        "spot machines at an assumed discount; the spot price moves by the hour",
        "not included: traffic between zones and to the internet, taxes, support",
    )


def _count(number: int, what: str) -> str:
    return what if number == 1 else f"{number} {what}s"
