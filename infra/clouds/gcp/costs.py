"""Costs of a stack on Google Cloud beside its machines: control plane, network, disks, file systems, images.

List prices of us-central1 in USD. Google's price pages build their tables as one looks; what could be read on 2026-11-22 are
stored copies of them, some years old, named beside each figure. What none of them had says that it is an estimate. Other regions
cost up to a third more, as an estimate. Taxes, support, traffic between zones and out to the internet are not in it.
"""

from collections.abc import Iterator, Mapping, Sequence

from infra.account.records import HOURS_PER_MONTH, Line, Sheet, Use, always
from infra.clouds.gcp import pools
from infra.clouds.gcp.settings import Settings
from infra.config import Stack
from infra.groups import split_by_role
from workloads.cluster import FLEX_START, NodeGroup

GKE_HOUR = 0.10  # cloud.google.com/kubernetes-engine/pricing; the free tier is for zonal clusters alone
NAT_VM_HOUR, NAT_GB, ADDRESS_HOUR = 0.0014, 0.045, 0.005  # cloud.google.com/nat/pricing: per machine, up to 32 of them
# The first two: an estimate that Google's price calculator printed on 2023-05-18 (github.com/developmentseed/bioacoustics-api).
# Hyperdisk: SKU 5BC4-9775-DEC9, of its storage pools, and 3,000 IOPS and 140 MiB/s are included.
DISK_GIB_MONTH: Mapping[str, float] = {"pd-balanced": 0.10, "pd-ssd": 0.17, "hyperdisk-balanced": 0.08}
# cloud.google.com/filestore/docs/service-tiers, from when it had prices.
FILESTORE_GIB_MONTH: Mapping[str, float] = {"BASIC_HDD": 0.16, "BASIC_SSD": 0.30, "ZONAL": 0.25, "REGIONAL": 0.45}
# By MB/s per TiB: an estimate, from memory.
LUSTRE_GIB_MONTH: Mapping[int, float] = {125: 0.145, 250: 0.21, 500: 0.34, 1000: 0.60}
REGISTRY_GB_MONTH = 0.10  # cloud.google.com/artifact-registry/pricing
BUILD_MINUTE = 0.016  # e2-highcpu-8: cloud.google.com/build/pricing
# Of Cloud Logging, as remembered: cloud.google.com/stackdriver/pricing. The price of a line has 30 days in it.
LOG_GIB, LOG_GIB_MONTH, FREE_DAYS = 0.50, 0.01, 30
TRAINER_GB, CONTROLLER_GB = 4.0, 0.1  # compressed; an assumption
NAT_CAP = 32


def sheet(stack: Stack, groups: Sequence[NodeGroup]) -> Sheet:
    """Everything but the machines."""
    settings: Settings = stack.settings
    lines = [
        always("GKE control plane", GKE_HOUR),
        *_network(settings, groups),
        *_disks(settings, groups),
        *_file_systems(settings),
        *_images(stack, settings),
    ]
    return Sheet(lines=tuple(lines), uses=tuple(_uses(stack, settings)), basis=_basis(settings, groups))


def _network(settings: Settings, groups: Sequence[NodeGroup]) -> Iterator[Line]:
    if settings.network.name is None:
        idle, full = (sum(counts) for counts in ([one.min for one in groups], [one.max for one in groups]))
        each = NAT_VM_HOUR
        yield Line(
            what="NAT",
            idle=ADDRESS_HOUR + min(NAT_CAP, idle) * each,
            full=ADDRESS_HOUR + min(NAT_CAP, full) * each,
            note="by machines",
        )


def _disks(settings: Settings, groups: Sequence[NodeGroup]) -> Iterator[Line]:
    managers, jobs = split_by_role(groups)
    etcd = settings.storage.etcd_gib * DISK_GIB_MONTH[pools.etcd_disk_type(managers[0])] / HOURS_PER_MONTH
    _, kind = pools.disk(managers[0], settings)
    yield always("disks: manager and etcd", len(managers) * disk_usd_per_hour(managers[0], settings) + etcd, kind)
    if jobs:
        each = [(group, disk_usd_per_hour(group, settings)) for group in jobs]
        idle, full = sum(group.min * usd for group, usd in each), sum(group.max * usd for group, usd in each)
        yield Line(what="disks: machines for jobs", idle=idle, full=full, note=settings.nodes.disk_type)


def disk_usd_per_hour(group: NodeGroup, settings: Settings) -> float:
    """The system disk of one machine."""
    gib, kind = pools.disk(group, settings)
    return gib * DISK_GIB_MONTH[kind] / HOURS_PER_MONTH


def _file_systems(settings: Settings) -> Iterator[Line]:
    file, lustre = settings.storage.filestore, settings.storage.lustre
    if file.address is None:
        usd = file.size_gib * FILESTORE_GIB_MONTH[file.tier] / HOURS_PER_MONTH
        yield always("Filestore", usd, f"{file.size_gib} GiB {file.tier}, used or not")
    if lustre is not None:
        usd = lustre.size_gib * LUSTRE_GIB_MONTH[lustre.throughput] / HOURS_PER_MONTH
        yield always("Managed Lustre", usd, f"{lustre.size_gib} GiB, used or not")


def _images(stack: Stack, settings: Settings) -> Iterator[Line]:
    if settings.images.build != "none":
        size = len({"default", *stack.trainers}) * TRAINER_GB + CONTROLLER_GB
        usd = size * REGISTRY_GB_MONTH / HOURS_PER_MONTH
        yield always("Artifact Registry", usd, f"one build of each image, some {size:.0f} GB")


def _uses(stack: Stack, settings: Settings) -> Iterator[Use]:
    if settings.network.name is None:
        yield Use(what="NAT", usd=NAT_GB, unit="per GB from and to the internet; Google's own services come past it")
    if settings.images.build == "cloudbuild":
        yield Use(what="Cloud Build", usd=BUILD_MINUTE, unit="per minute of a build")
    if stack.logs.ship:
        beyond = f"; from day 31 on {LOG_GIB_MONTH} per GiB and month" if stack.logs.keep_days > FREE_DAYS else ""
        yield Use(what="logs of pods", usd=LOG_GIB, unit=f"per GiB of lines, the project's first 50 a month free{beyond}")


def _basis(settings: Settings, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    where = "us-central1" if settings.region == "us-central1" else f"us-central1 ({settings.region} may cost up to a third more)"
    flex = any(group.capacity_type == FLEX_START for group in groups)
    return (
        f"Google's list prices of {where}: machines as of 2026-08, the rest older, Lustre estimated (costs.py, machines.yaml)",
        "spot machines at the discount of the price list; it moves from day to day",
        *(["flex-start at the on-demand price; Google gives a discount that depends on the GPU"] if flex else []),
        "not included: traffic between zones and to the internet, logs and metrics beyond the free share, taxes, support",
    )
