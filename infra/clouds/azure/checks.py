"""Checks of a stack on Azure. Each check yields Problems; none raises, none asks Azure (preflight does)."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Network

from infra import catalog
from infra.clouds.azure import names
from infra.clouds.azure.catalog import AzureInstance
from infra.clouds.azure.settings import GroupSettings, Settings
from infra.config import NodeGroupSettings, Problem, Stack, buckets, checks, cidrs
from workloads.cluster import DEFAULT_IMAGE

# Azure allows 50 on a resource, and AKS adds some (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources)
TAGS = 40
VOLUMES = ("data", "output", "efs", "etcd", "environment")  # names that are taken
WIDEST, NARROWEST = 16, 22
RESERVED = 5  # addresses that Azure keeps in each subnet; pods have addresses of their own network
# Of pods and of services: networks of their own, which nothing else may overlap.
PODS, SERVICES = "10.244.0.0/16", "10.245.0.0/16"
RANGES = 200  # https://learn.microsoft.com/azure/aks/api-server-authorized-ip-ranges, as of 2026-08
LOG_DAYS = (30, 730)  # https://learn.microsoft.com/azure/azure-monitor/logs/data-retention-configure, as remembered
SHARE_GIB = (100, 102400)  # of a premium share: https://learn.microsoft.com/azure/storage/files/understanding-billing


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """Everything that disagrees, in the order of the file."""
    yield from _zones(stack, settings)
    yield from _tags(settings)
    yield from _network(stack, settings)
    yield from _endpoint(settings)
    yield from _people(settings)
    yield from _pools(stack)
    for index, line in enumerate(stack.node_groups):
        yield from _driver(f"nodeGroups[{index}]", line, stack)
        yield from _infiniband(f"nodeGroups[{index}]", line, stack)
        if len(line.instance_types) > 1:
            text = f"found {len(line.instance_types)}; an agent pool has one: make a line of each"
            yield Problem(f"nodeGroups[{index}].instanceTypes", text)
        if line.max < 1:
            yield Problem(f"nodeGroups[{index}].max", f"found {line.max}; AKS allows 1 to 1000: raise it, or remove the line")
    yield from _storage(stack, settings)
    yield from buckets.check("azure.storage.buckets", settings.storage.buckets, stack, taken=VOLUMES)
    yield from checks.images("azure.images", settings.images, stack)
    shortest, longest = LOG_DAYS
    if stack.logs.ship and not shortest <= stack.logs.keep_days <= longest:
        text = (
            f"found {stack.logs.keep_days}; allowed are {shortest} to {longest}, as a workspace of Azure Monitor keeps: change it"
        )
        yield Problem("logs.keepDays", text, ("logs.ship",))


def _zones(stack: Stack, settings: Settings) -> Iterator[Problem]:
    region = settings.location
    for zone in dict.fromkeys(stack.zones):
        if not re.fullmatch(rf"{region}-[123]", zone):
            text = f"found {zone!r}; allowed are {region}-1, {region}-2 and {region}-3: change it, or azure.location"
            yield Problem("zones", text, ("azure.location",))


def _tags(settings: Settings) -> Iterator[Problem]:
    if len(settings.tags) > TAGS:
        yield Problem("azure.tags", f"found {len(settings.tags)} tags; allowed are {TAGS}, as AKS and Ebb add some: remove some")
    for key, value in settings.tags.items():
        where = f"azure.tags.{key}"
        if key in (names.STACK, names.PROJECT):
            yield Problem(where, "Ebb sets this tag itself: remove it")
        elif not 1 <= len(key) <= 128 or len(value) > 256:
            text = f"found {len(key)} characters with a value of {len(value)}; allowed are 128 and 256: shorten it"
            yield Problem(where, text)
        elif bad := set(key) & set("<>%&\\?/"):
            yield Problem(where, f"found {''.join(sorted(bad))!r} in the key; Azure allows none of <>%&\\?/: rename it")


def _network(stack: Stack, settings: Settings) -> Iterator[Problem]:
    given, key = settings.network, "azure.network"
    if given.subnet_id is None:
        for name in sorted(given.model_fields_set & {"endpoint_subnet_id", "outbound"}):
            camel = {"endpoint_subnet_id": "endpointSubnetId", "outbound": "outbound"}[name]
            yield Problem(f"{key}.{camel}", "belongs to an existing network: remove it, or give subnetId", (f"{key}.subnetId",))
        yield from _own_network(stack, given.cidr)
        return
    if "cidr" in given.model_fields_set:
        yield Problem(
            f"{key}.cidr", "is for an own network, and subnetId names an existing one: remove one", (f"{key}.subnetId",)
        )
    if given.endpoint_subnet_id is None:
        text = "missing: the file share needs an address in a subnet of the same network (it may be subnetId's)"
        yield Problem(f"{key}.endpointSubnetId", text, (f"{key}.subnetId",))


def _own_network(stack: Stack, cidr: str) -> Iterator[Problem]:
    key, network = "azure.network.cidr", cidrs.network_of(cidr)
    if network is None:
        yield Problem(key, cidrs.malformed(cidr))
    elif not cidrs.is_private(network):
        yield Problem(key, f"found {cidr!r}; allowed are private ranges: within {', '.join(map(str, cidrs.PRIVATE))}")
    elif not WIDEST <= network.prefixlen <= NARROWEST:
        yield Problem(key, f"found {cidr!r}; allowed are /{WIDEST} to /{NARROWEST}: change its length")
    elif taken := [one for one in (PODS, SERVICES) if network.overlaps(IPv4Network(one))]:
        yield Problem(key, f"found {cidr!r}, which overlaps with {taken[0]}, where pods and services are: choose another")
    else:
        room = network.num_addresses // 2 - RESERVED
        wanted = stack.manager.count + sum(line.max * len(line.names(stack.zones)) for line in stack.node_groups)
        if room < wanted:
            text = f"found {cidr!r}, which has {room} addresses for machines; the stack has up to {wanted}: take a larger range"
            yield Problem(key, text, ("zones", "nodeGroups"))


def _endpoint(settings: Settings) -> Iterator[Problem]:
    cluster, key = settings.cluster, "azure.cluster.authorizedRanges"
    if cluster.endpoint == "private":
        if cluster.authorized_ranges:
            text = "a private endpoint is reached from its network alone: remove it, or set endpoint: public"
            yield Problem(key, text, ("azure.cluster.endpoint",))
        if not cluster.up_reaches_network:
            yield Problem(
                "azure.cluster.upReachesNetwork",
                "a private endpoint is reached from inside the network only, and `pulumi up` makes Kubernetes objects: run it "
                "there (VPN, bastion) and set upReachesNetwork: true, or set endpoint: public",
                ("azure.cluster.endpoint",),
            )
        return
    if not cluster.authorized_ranges:
        text = "missing: a public endpoint needs the ranges that may reach it, such as the office's 198.51.100.0/24"
        yield Problem(key, text, ("azure.cluster.endpoint",))
    if len(cluster.authorized_ranges) > RANGES:
        yield Problem(key, f"found {len(cluster.authorized_ranges)} ranges; AKS allows {RANGES}: join some")
    for cidr in dict.fromkeys(cluster.authorized_ranges):
        if text := cidrs.not_public(cidr):
            yield Problem(key, text)


def _people(settings: Settings) -> Iterator[Problem]:
    cluster = settings.cluster
    if not cluster.administrators:
        text = "missing: there are no local accounts, so without a group of administrators nobody can enter, `pulumi up` included"
        yield Problem("azure.cluster.administrators", text)
    for key, groups in {"administrators": cluster.administrators, "researchers": cluster.researchers}.items():
        for one in sorted({one for one in groups if groups.count(one) > 1}):
            yield Problem(f"azure.cluster.{key}", f"{one!r} is there twice: remove one")


def pools(stack: Stack) -> Iterator[tuple[int, str, str]]:
    """Of every node group for jobs: its line, its name, its agent pool."""
    for index, line in enumerate(stack.node_groups):
        machines = catalog.machines(stack, line)
        for zone, name in line.names(stack.zones).items():
            yield index, name, names.pool(name, line.capacity, machines[0].gpu_type if machines else "", zone)


def _pools(stack: Stack) -> Iterator[Problem]:
    """Two names may, if seldom, be the same when they are made short."""
    taken = {pool: group for group, pool in names.MANAGERS.items()}
    for index, name, pool in pools(stack):
        if taken.setdefault(pool, name) != name:
            where = f"nodeGroups[{index}]"
            text = f"{name!r} and {taken[pool]!r} would both be agent pool {pool!r} (12 characters): set another `name`"
            yield Problem(f"{where}.name", text, ("zones", f"{where}.gpu", f"{where}.instanceTypes", f"{where}.capacity"))


def _driver(where: str, line: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    """The driver that AKS installs is new enough for the torch of the group's image. AKS gives no choice of driver."""
    if line.image not in {DEFAULT_IMAGE, *stack.trainers}:
        return
    trainer = stack.trainer(line.image)
    build = catalog.torch_build(trainer.torch, trainer.cuda)
    for machine in catalog.machines(stack, line):
        if build and isinstance(machine, AzureInstance) and 0 < machine.driver < build.driver and not machine.refused:
            older = next(one for one in catalog.BUILDS if one.driver <= machine.driver)
            vision = f"0.{int(older.torch.split('.')[1]) + catalog.TORCHVISION_OFFSET}.0"
            entry = f"cuda12: {{torch: {older.torch}.0, torchvision: {vision}, cuda: '{older.cuda}'}}"
            yield Problem(
                f"{where}.image",
                f"AKS installs NVIDIA's driver {machine.driver} on {machine.name}, and torch {trainer.torch} for CUDA "
                f"{trainer.cuda} (image {line.image!r}) needs {build.driver}: add `{entry}` to ebb:trainers, with image: cuda12",
                ("trainers", f"{where}.gpu", f"{where}.instanceTypes"),
            )


def _infiniband(where: str, line: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    if not isinstance(line.settings, GroupSettings) or not line.settings.infiniband:
        return
    for machine in catalog.machines(stack, line):
        if isinstance(machine, AzureInstance) and not machine.infiniband:
            with_it = [one.name for one in catalog.types(stack) if isinstance(one, AzureInstance) and one.infiniband]
            text = f"{machine.name} has no InfiniBand: take {', '.join(with_it)}, or remove infiniband"
            yield Problem(f"{where}.azure.infiniband", text, (f"{where}.gpu", f"{where}.instanceTypes"))


def _storage(stack: Stack, settings: Settings) -> Iterator[Problem]:
    size, (least, most) = stack.storage.data_gib + stack.storage.output_gib, SHARE_GIB
    if settings.storage.files.share_id is None and not least <= size <= most:
        text = f"data and output together are {size} GiB; a premium share has {least} to {most}: change dataGiB or outputGiB"
        yield Problem("storage", text)
    if settings.storage.clients and settings.network.subnet_id:
        text = "in an existing network its owner's security group says who may mount the share: remove it"
        yield Problem("azure.storage.clients", text, ("azure.network.subnetId",))
    for cidr in dict.fromkeys(settings.storage.clients):
        network = cidrs.network_of(cidr)
        if network is None:
            yield Problem("azure.storage.clients", cidrs.malformed(cidr))
        elif not cidrs.is_private(network):
            text = f"found {cidr!r}; the share has a private address alone: give private ranges, of peered networks or a VPN"
            yield Problem("azure.storage.clients", text)
