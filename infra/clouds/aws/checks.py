"""Checks of a stack on AWS that read several settings. Each yields Problems; none raises, none asks AWS (preflight does)."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from infra import catalog
from infra.clouds.aws import forms
from infra.clouds.aws.catalog import AMI_CPU, AMI_GPU, AwsInstance
from infra.clouds.aws.settings import Fsx, GroupSettings, Settings
from infra.config import NodeGroupSettings, Problem, Stack, buckets, checks, choice
from infra.config.cidrs import PRIVATE, is_private, malformed, network_of, not_public
from workloads.cluster import CAPACITY_BLOCK, SPOT

TAGS = 40  # AWS allows 50 on a resource, and services and Ebb add some (https://docs.aws.amazon.com/tag-editor, 2026-11-21)
OURS = ("ebb.dev/stack", "ebb.dev/project", "Name")
WIDEST, NARROWEST = 16, 20  # AWS has no VPC wider than /16; below /20 a zone has no addresses for a handful of machines
LETTERS, PRIVATE_BITS = "abcdef", 3  # the places of zones in an own VPC, as network.py has them (a test holds them together)
RESERVED = 5  # of each subnet, by AWS (VPC user guide, subnet sizing, read 2026-11-21)
# The network plugin takes a spare interface's worth of addresses ahead: 2 x 30 on a medium machine (10 to 50 an interface in
# https://github.com/aws/karpenter-provider-aws, zz_generated.vpclimits.go, 2026-08).
ADDRESSES_PER_MACHINE = 60
OWN_ONLY = {"cidr": "cidr", "nat": "nat", "interface_endpoints": "interfaceEndpoints"}
ADD_ONS = (
    "vpc-cni",
    "kube-proxy",
    "coredns",
    "eks-pod-identity-agent",
    "aws-ebs-csi-driver",
    "metrics-server",
    "eks-node-monitoring-agent",
)
EFS_ADD_ON, FSX_ADD_ON, S3_ADD_ON = "aws-efs-csi-driver", "aws-fsx-csi-driver", "aws-mountpoint-s3-csi-driver"
INSIGHTS_ADD_ON = "amazon-cloudwatch-observability"
VOLUMES = ("data", "output", "efs", "fsx", "etcd", "environment")  # names that are taken
VERSION = "aws.cluster.kubernetesVersion"
KARPENTER_MINOR = 14  # as machines/karpenter.py was made for; before 1.11 an EC2NodeClass lacks what EFA needs
RANGES = 40  # EKS's quota "Public endpoint access CIDR ranges per cluster" (EKS user guide, service quotas, read 2026-11-21)
# Major version of NVIDIA's driver in AL2023_x86_64_NVIDIA, from the release with that date on, for each minor of Kubernetes
# (https://github.com/awslabs/amazon-eks-ami, CHANGELOG.md of 2026-07-14). From v20260917 on there are two, and each machine
# loads the one for its GPU (same repository, #2768); the older of them is 580.
DRIVERS = {"1.34": ((20250915, 570), (20251023, 580)), "1.35": ((20260114, 580),)}
STEP_GIB = (
    2400  # fsx CreateFileSystem StorageCapacity: 1200, 2400 and increments of 2400 for SCRATCH_2 and PERSISTENT_2 (botocore)
)


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """Everything that disagrees, in the order of the file."""
    yield from _zones(stack, settings)
    yield from _tags(settings)
    yield from checks.images("aws.images", settings.images, stack)
    yield from _drill(stack, settings)
    yield from _network(stack, settings)
    yield from _cluster(stack, settings)
    yield from _machines(stack, settings)
    yield from _storage(stack, settings)
    days = get_args(forms.LogDays)
    if stack.logs.ship and stack.logs.keep_days not in days:
        yield Problem("logs.keepDays", choice(stack.logs.keep_days, [str(one) for one in days]), ("logs.ship",))


# ------------------------------------------------------------------------------------------------------------- zones, tags, drill


def _zones(stack: Stack, settings: Settings) -> Iterator[Problem]:
    region = settings.region
    for zone in dict.fromkeys(stack.zones):
        if not re.fullmatch(rf"{region}[a-z]", zone):
            text = f"found {zone!r}; allowed are {region}a, {region}b and so on: change it, or aws.region"
            yield Problem("zones", text, ("aws.region",))


def _tags(settings: Settings) -> Iterator[Problem]:
    if len(settings.tags) > TAGS:
        yield Problem("aws.tags", f"found {len(settings.tags)} tags; allowed are {TAGS}, as AWS and Ebb add some: remove some")
    for key, value in settings.tags.items():
        where = f"aws.tags.{key}"
        if key.lower().startswith("aws:"):
            yield Problem(where, "keys that begin with aws: are for AWS: choose another")
        elif key in OURS:
            yield Problem(where, "Ebb sets this tag itself: remove it")
        elif not 1 <= len(key) <= 128 or len(value) > 256:
            text = f"found {len(key)} characters with a value of {len(value)}; allowed are 128 and 256: shorten it"
            yield Problem(where, text)
        elif not re.fullmatch(r"[\w .:/=+@-]*", key + value):
            yield Problem(where, f"found {value!r}; allowed are letters, digits, spaces and _.:/=+-@ in keys and values")


def _drill(stack: Stack, settings: Settings) -> Iterator[Problem]:
    drill = settings.drill
    if drill is None:
        return
    groups = {name: line for line in stack.node_groups if line.capacity == SPOT for name in line.names(stack.zones).values()}
    if drill.group not in groups:
        found = choice(drill.group, list(groups)) if groups else f"found {drill.group!r}; there is no spot node group"
        yield Problem("aws.drill.group", f"{found}: name a spot node group, with its zone", ("zones", "nodeGroups"))
    elif drill.machines > groups[drill.group].max:
        text = f"found {drill.machines}; {drill.group} has {groups[drill.group].max} machines at most: take fewer"
        yield Problem("aws.drill.machines", text, ("nodeGroups", "aws.drill.group"))


# ------------------------------------------------------------------------------------------------------------------------ the VPC


def _network(stack: Stack, settings: Settings) -> Iterator[Problem]:
    yield from _existing_network(stack, settings) if settings.network.vpc_id else _own_network(stack, settings)


def _own_network(stack: Stack, settings: Settings) -> Iterator[Problem]:
    uses = ("aws.network.vpcId",)
    for key, value in {
        "privateSubnets": settings.network.private_subnets,
        "publicSubnets": settings.network.public_subnets,
    }.items():
        if value:
            yield Problem(f"aws.network.{key}", "subnets belong to an existing VPC: set vpcId too, or remove them", uses)
    if not 2 <= len(set(stack.zones)) <= 4:
        text = f"found {', '.join(stack.zones)}; allowed are 2 to 4 zones, as EKS wants two"
        yield Problem("zones", f"{text}; machines may be in fewer (nodeGroups.zones)", uses)
    for zone in stack.zones:
        if zone[-1:] not in LETTERS:
            text = f"found {zone!r}; allowed are zones a to f, as each letter has its place in the own VPC: leave it out"
            yield Problem("zones", f"{text}, or name an existing VPC (aws.network.vpcId)", uses)
    yield from _cidr(stack, settings.network.cidr)


def _cidr(stack: Stack, cidr: str) -> Iterator[Problem]:
    key, network = "aws.network.cidr", network_of(cidr)
    if network is None:
        yield Problem(key, malformed(cidr))
    elif not is_private(network):
        yield Problem(key, f"found {cidr!r}; allowed are private ranges: within {', '.join(map(str, PRIVATE))}")
    elif not WIDEST <= network.prefixlen <= NARROWEST:
        yield Problem(key, f"found {cidr!r}; allowed are /{WIDEST} to /{NARROWEST}: change its length")
    else:
        yield from _room(stack, cidr, (network.num_addresses >> PRIVATE_BITS) - RESERVED)


def _room(stack: Stack, cidr: str, addresses: int) -> Iterator[Problem]:
    """Every machine that a zone may have gets its addresses."""
    machines = Counter(stack.manager_zones)
    for line in stack.node_groups:
        machines.update(dict.fromkeys(line.names(stack.zones), line.max))
    zone, most = machines.most_common(1)[0]
    if most * ADDRESSES_PER_MACHINE > addresses:
        yield Problem(
            "aws.network.cidr",
            f"found {cidr!r}, which gives each zone {addresses} addresses for machines; {zone} has up to {most}, which need "
            f"{most * ADDRESSES_PER_MACHINE}: take a larger range, or lower max",
            ("nodeGroups", "zones", "manager"),
        )


def _existing_network(stack: Stack, settings: Settings) -> Iterator[Problem]:
    network = settings.network
    for name, key in OWN_ONLY.items():
        if name in network.model_fields_set:
            yield Problem(f"aws.network.{key}", "for an own VPC, and vpcId names an existing one: remove one of the two")
    if len(set(stack.zones)) < 2:
        text = f"found {', '.join(stack.zones)}; allowed are 2 zones or more, as EKS wants two"
        yield Problem("zones", f"{text}; machines may be in fewer (nodeGroups.zones)")
    missing = [zone for zone in stack.zones if zone not in network.private_subnets]
    if missing:
        text = f"there is none for {', '.join(missing)}: name one for each of ebb:zones"
        yield Problem("aws.network.privateSubnets", text, ("zones",))
    yield from _subnets(stack, settings)


def _subnets(stack: Stack, settings: Settings) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    network = settings.network
    for key, subnets in {"privateSubnets": network.private_subnets, "publicSubnets": network.public_subnets}.items():
        for zone, subnet in subnets.items():
            where = f"aws.network.{key}.{zone}"
            if zone not in stack.zones:
                yield Problem(where, f"{choice(zone, stack.zones)}: add the zone to ebb:zones, or remove it", ("zones",))
            if subnet in taken:
                yield Problem(where, f"{subnet!r} is also {taken[subnet]}: a subnet is in one zone, and private or public")
            taken.setdefault(subnet, where)


# -------------------------------------------------------------------------------------------------------------- the control plane


SOURCES = ("aws.storage.efs", "aws.storage.fsx", "aws.storage.buckets")


def needed_add_ons(settings: Settings, *, managed: bool = False) -> tuple[str, ...]:
    """The EKS add-ons of the stack, each of which is pinned. `managed`: it has `monitoring.managed`."""
    storage = settings.storage
    wanted = {
        EFS_ADD_ON: storage.efs,
        FSX_ADD_ON: storage.fsx,
        S3_ADD_ON: buckets.mounted(storage.buckets),
        INSIGHTS_ADD_ON: managed,
    }
    return (*ADD_ONS, *(name for name, used in wanted.items() if used))


def _cluster(stack: Stack, settings: Settings) -> Iterator[Problem]:
    yield from _endpoint(settings)
    yield from _people(settings)
    yield from _add_ons(settings, managed=stack.monitoring.managed)
    key = settings.cluster.encryption_key_arn
    if key and key.split(":")[3] != settings.region:
        text = f"found a key of {key.split(':')[3]}; the cluster is in {settings.region}: name a key of that region"
        yield Problem("aws.cluster.encryptionKeyArn", text, ("aws.region",))
    yield from _autoscaler(stack, settings)


def _autoscaler(stack: Stack, settings: Settings) -> Iterator[Problem]:
    version, key, kind = settings.autoscaler.release, "aws.autoscaler.version", "aws.autoscaler.kind"
    if settings.autoscaler.kind == "cluster-autoscaler":
        minor = settings.cluster.kubernetes_version
        if not version.startswith(f"v{minor}."):
            yield Problem(
                key,
                f"found {version!r}; allowed is v{minor}.x, as the cluster is {minor} and the autoscaler is "
                "made for one minor version: change one of the two",
                (VERSION, kind),
            )
        return
    major, _, rest = version.partition(".")
    if major != "1" or int(rest.partition(".")[0]) < KARPENTER_MINOR:
        text = f"found {version!r}; allowed are 1.{KARPENTER_MINOR}.0 and later ones of karpenter 1: change it, or {kind}"
        yield Problem(key, text, (kind,))
    for index, line in enumerate(stack.node_groups):
        if line.min:
            text = f"found {line.min}; karpenter keeps no machine that no pod needs: set min: 0, or change {kind}"
            yield Problem(f"nodeGroups[{index}].min", text, (kind,))


def _endpoint(settings: Settings) -> Iterator[Problem]:
    cluster, key = settings.cluster, "aws.cluster.publicAccessCidrs"
    if cluster.endpoint == "private":
        if cluster.public_access_cidrs:
            yield Problem(
                key, "a private endpoint has no public access: remove it, or set endpoint: public", ("aws.cluster.endpoint",)
            )
        if not cluster.up_reaches_vpc:
            yield Problem(
                "aws.cluster.upReachesVpc",
                "a private endpoint is reached from inside the VPC only, and `pulumi up` makes Kubernetes objects: run it there "
                "(VPN, bastion) and set upReachesVpc: true, or set endpoint: public",
                ("aws.cluster.endpoint",),
            )
        return
    if not cluster.public_access_cidrs:
        text = "missing: a public endpoint needs the ranges that may reach it, such as the office's 198.51.100.0/24"
        yield Problem(key, text, ("aws.cluster.endpoint",))
    if len(cluster.public_access_cidrs) > RANGES:
        yield Problem(key, f"found {len(cluster.public_access_cidrs)} ranges; EKS allows {RANGES}: join some")
    for cidr in dict.fromkeys(cluster.public_access_cidrs):
        if text := not_public(cidr):
            yield Problem(key, text)


def _people(settings: Settings) -> Iterator[Problem]:
    cluster = settings.cluster
    for key, arns in {"administrators": cluster.administrators, "researchers": cluster.researchers}.items():
        for arn in sorted({one for one in arns if arns.count(one) > 1}):
            yield Problem(f"aws.cluster.{key}", f"{arn!r} is there twice: remove one")


def _add_ons(settings: Settings, *, managed: bool) -> Iterator[Problem]:
    cluster, needed, key = settings.cluster, needed_add_ons(settings, managed=managed), "aws.cluster.addOns"
    uses = {INSIGHTS_ADD_ON: ("monitoring.managed",)}
    for name in needed:
        if name not in cluster.add_ons:
            yield Problem(
                f"{key}.{name}",
                f"missing: pin a version, or any `up` could change it under running jobs; `aws eks describe-addon-versions "
                f"--addon-name {name} --kubernetes-version {cluster.kubernetes_version}` lists them",
                (*SOURCES, key) if name in {EFS_ADD_ON, FSX_ADD_ON, S3_ADD_ON} else (key, *uses.get(name, ())),
            )
    proxy = cluster.add_ons.get("kube-proxy", "")
    if proxy and not proxy.startswith(f"v{cluster.kubernetes_version}."):
        allowed = f"v{cluster.kubernetes_version}.x-eksbuild.y"
        text = f"found {proxy!r}; allowed is {allowed}: kube-proxy is of the cluster's minor version"
        yield Problem(f"{key}.kube-proxy", text, (VERSION,))


# ----------------------------------------------------------------------------------------------------------------------- machines


def _machines(stack: Stack, settings: Settings) -> Iterator[Problem]:
    yield from _releases(stack, settings)
    yield from _drivers(stack, settings)
    for index, line in enumerate(stack.node_groups):
        where = f"nodeGroups[{index}]"
        yield from _efa(where, line, stack)
        yield from _block(where, line, stack)


def _releases(stack: Stack, settings: Settings) -> Iterator[Problem]:
    minor, releases, key = settings.cluster.kubernetes_version, settings.nodes.releases, "aws.nodes.releases"
    with_gpus = any(machine.gpus for line in stack.node_groups for machine in catalog.machines(stack, line))
    for ami in (AMI_CPU, *((AMI_GPU,) if with_gpus else ())):
        if ami not in releases:
            yield Problem(
                f"{key}.{ami}",
                f"missing: pin a release, or any `up` could replace machines; https://github.com/awslabs/amazon-eks-ami/releases "
                f"lists those of {minor}",
                (key, "nodeGroups"),
            )
    for ami, release in releases.items():
        if not release.startswith(f"{minor}."):
            text = f"found {release!r}; allowed is {minor}.x-<date>, as the cluster is {minor}: change one of the two"
            yield Problem(f"{key}.{ami}", text, ("aws.cluster.kubernetesVersion",))


def _drivers(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """The driver of the GPU machines' AMI is new enough for the torch of every image that they get."""
    key, minor = f"aws.nodes.releases.{AMI_GPU}", settings.cluster.kubernetes_version
    release = settings.nodes.releases.get(AMI_GPU, "")
    if not release.startswith(f"{minor}."):
        return
    found = [driver for since, driver in DRIVERS[minor] if int(release.rpartition("-")[2]) >= since]
    for image in dict.fromkeys(
        line.image for line in stack.node_groups if any(one.gpus for one in catalog.machines(stack, line))
    ):
        trainer = stack.trainer(image)
        build = catalog.torch_build(trainer.torch, trainer.cuda)
        if build and found and found[-1] < build.driver:
            since = next(since for since, driver in DRIVERS[minor] if driver >= build.driver)
            yield Problem(
                key,
                f"found {release!r} with NVIDIA driver {found[-1]}, and torch {trainer.torch} for CUDA {trainer.cuda} "
                f"(image {image!r}) needs {build.driver}: take a release of {since} or later",
                ("trainers", "nodeGroups", "aws.cluster.kubernetesVersion"),
            )


def _efa(where: str, line: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    if not _group_settings(line).efa:
        return
    for machine in catalog.machines(stack, line):
        if isinstance(machine, AwsInstance) and not machine.efa:
            with_efa = [one.name for one in catalog.types(stack) if isinstance(one, AwsInstance) and one.efa]
            alike = [name for name in with_efa if name.split(".")[0] == machine.name.split(".")[0]]
            families = dict.fromkeys(name.split(".")[0] for name in with_efa)
            instead = f"take {' or '.join(alike[:2])}" if alike else f"larger machines of {', '.join(families)} have it"
            uses = (f"{where}.gpu", f"{where}.instanceTypes")
            yield Problem(f"{where}.aws.efa", f"{machine.name} has no EFA: {instead}, or remove efa", uses)


def _block(where: str, line: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    reservation, key = _group_settings(line).capacity_reservation_id, f"{where}.aws.capacityReservationId"
    if line.capacity != CAPACITY_BLOCK:
        if reservation:
            text = f"found {reservation!r}, but capacity is {line.capacity}: set capacity: {CAPACITY_BLOCK}, or remove it"
            yield Problem(key, text, (f"{where}.capacity",))
        return
    if not reservation:
        text = "missing: a capacity-block is a reservation, which you have bought: give its id, cr-..."
        yield Problem(key, text, (f"{where}.capacity",))
    zones = line.names(stack.zones)
    if len(zones) != 1:
        text = f"found {len(zones)} zones; a capacity-block is in one: set zones to the reservation's"
        yield Problem(f"{where}.zones", text, ("zones", f"{where}.capacity"))


def _group_settings(line: NodeGroupSettings) -> GroupSettings:
    return line.settings if isinstance(line.settings, GroupSettings) else GroupSettings()


# ------------------------------------------------------------------------------------------------------------------- file systems


def _storage(stack: Stack, settings: Settings) -> Iterator[Problem]:
    storage = settings.storage
    if storage.efs is None and storage.fsx is None:
        yield Problem(
            "aws.storage",
            "neither efs nor fsx is there: jobs need one, `efs: {}` is enough",
            ("aws.storage.efs", "aws.storage.fsx"),
        )
    for client in dict.fromkeys(storage.clients):
        if not client.startswith("sg-") and network_of(client) is None:
            yield Problem("aws.storage.clients", malformed(client))
        elif client.endswith("/0"):
            text = f"found {client!r}, everybody: name the network that researchers' machines are in"
            yield Problem("aws.storage.clients", text)
    for index, one in enumerate(storage.buckets):
        if one.teams and one.mode == "mount":
            text = "a mounted bucket is in the pods of jobs without a team: set mode: copy, or leave teams out"
            yield Problem(f"aws.storage.buckets[{index}].mode", text, (f"aws.storage.buckets[{index}].teams",))
    yield from buckets.check("aws.storage.buckets", storage.buckets, stack, taken=VOLUMES)
    if storage.fsx is not None:
        yield from _fsx(storage.fsx, settings)
        yield from _zone(storage.fsx, stack, settings)


def _fsx(fsx: Fsx, settings: Settings) -> Iterator[Problem]:
    if fsx.size_gib != STEP_GIB // 2 and fsx.size_gib % STEP_GIB:
        more = -(-fsx.size_gib // STEP_GIB) * STEP_GIB
        yield Problem(
            "aws.storage.fsx.sizeGiB", f"found {fsx.size_gib}; allowed are 1200, 2400 and multiples of 2400: take {more}"
        )
    if fsx.deployment == "SCRATCH_2" and "throughput" in fsx.model_fields_set:
        text = f"found {fsx.throughput}, but SCRATCH_2 has 200 MB/s per TiB and no choice: remove it, or take PERSISTENT_2"
        yield Problem("aws.storage.fsx.throughput", text, ("aws.storage.fsx.deployment",))
    if fsx.bucket is None and fsx.preload:
        text = "there is no bucket to load from: name it with aws.storage.fsx.bucket, or remove preload"
        yield Problem("aws.storage.fsx.preload", text, ("aws.storage.fsx.bucket",))
    if fsx.bucket is None and settings.storage.data != "delete":
        yield Problem(
            "aws.storage.fsx.bucket",
            f"missing: `pulumi destroy` deletes FSx, and with data: {settings.storage.data} nothing may be lost: name a bucket "
            "that it exports to, s3://..., or set data: delete",
            ("aws.storage.data",),
        )


def _zone(fsx: Fsx, stack: Stack, settings: Settings) -> Iterator[Problem]:
    """FSx is in one zone; reading it from another is slow and billed by the GB."""
    key = "aws.storage.fsx.zone"
    zones = sorted({zone for line in stack.node_groups for zone in line.names(stack.zones)} & set(stack.zones))
    if zones and fsx.zone not in zones:
        text = f"found {fsx.zone!r}; allowed are the zones of the node groups, {', '.join(zones)}: jobs read it from there"
        yield Problem(key, text, ("zones", "nodeGroups"))
        return
    if not zones and fsx.zone not in stack.zones:
        yield Problem(key, f"found {fsx.zone!r}; allowed are {', '.join(stack.zones)}", ("zones", "nodeGroups"))
    for index, line in enumerate(stack.node_groups if settings.storage.efs is None else ()):
        others = [zone for zone in line.names(stack.zones) if zone != fsx.zone]
        if others:
            yield Problem(
                f"nodeGroups[{index}].zones",
                f"found {', '.join(others)}, but the data is on FSx in {fsx.zone}, and reading it from another zone is slow and "
                f"billed: set zones: [{fsx.zone}], or have efs too",
                ("zones", key, "aws.storage.efs"),
            )
