"""Checks of a stack on Google Cloud. Each check yields Problems; none raises, none asks Google (preflight does)."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from ipaddress import IPv4Network

from infra import catalog
from infra.clouds.gcp.catalog import NOT_ON_DEMAND, GcpInstance
from infra.clouds.gcp.settings import GroupSettings, Settings
from infra.config import NodeGroupSettings, Problem, Stack, buckets, checks, choice
from infra.config.cidrs import is_private, malformed, network_of, not_public
from workloads.cluster import FLEX_START, ON_DEMAND, SPOT

OURS = ("ebb-stack", "ebb-project")
POOL_NAME = 32  # GKE allows 40 (https://docs.cloud.google.com/kubernetes-engine/docs/how-to/node-pools), Pulumi adds 8
# Stored copies of pages under https://docs.cloud.google.com, all read 2026-11-22.
OLDEST_FLEX, OLDEST_PREEMPTIBLE = 7 * 24, 24  # hours; kubernetes-engine/docs/concepts/dws and .../how-to/preemptible-vms
LONG_GRACE = (1, 35, 0, 1171000)  # the first version that can: kubernetes-engine/docs/concepts/spot-vms
# GKE hands out interfaces from 1.34.1-gke.1829001 on (.../how-to/allocate-network-resources-dra); any patch of 1.35 does.
DRANET = (1, 35)
# Any patch of it has Cloud Storage FUSE as a native sidecar, from 1.29.3-gke.1093000 on, and takes `bucket:name` as a handle
# (github.com/GoogleCloudPlatform/gcs-fuse-csi-driver, docs/releases.md and pull request 559 of April 2025, read 2026-11-26).
FUSE = (1, 34)
TCPX = "a3-highgpu-8g"
LONGEST_WITHOUT_UPGRADES = 30  # days, of scope all: .../concepts/maintenance-windows-and-exclusions
RANGES = 100  # authorized networks where machines are private: an older copy of kubernetes-engine/docs/how-to/authorized-networks
# Least GiB and step of a Filestore tier: filestore/docs/service-tiers.
TIERS = {"BASIC_HDD": (1024, 1), "BASIC_SSD": (2560, 1), "ZONAL": (1024, 256), "REGIONAL": (1024, 256)}
LARGE, LARGE_STEP = 10240, 2560  # of the latter two, from there on
# Least GiB of Managed Lustre, by MB/s per TiB: managed-lustre/docs/quotas. That steps are as large was not read.
LUSTRE_STEPS = {125: 72000, 250: 36000, 500: 18000, 1000: 9000}
NODE_ADDRESSES = 256  # of the pods' range, for 110 pods a machine: .../how-to/flexible-pod-cidr
EXISTING = {"subnet": "subnet", "pods_range": "podsRange", "services_range": "servicesRange"}
OWN = {"cidr": "cidr", "pods_cidr": "podsCidr", "services_cidr": "servicesCidr"}


VOLUMES = ("data", "output", "efs", "lustre", "etcd", "environment")  # names that are taken


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """Everything that disagrees, in the order of the file."""
    for zone in dict.fromkeys(stack.zones):
        if not re.fullmatch(rf"{settings.region}-[a-z]", zone):
            text = f"found {zone!r}; allowed are {settings.region}-a, {settings.region}-b and so on: change it, or gcp.region"
            yield Problem("zones", text, ("gcp.region",))
    for key in settings.labels:
        if key in OURS:
            yield Problem(f"gcp.labels.{key}", "Ebb sets this label itself: remove it")
    yield from _existing(settings) if settings.network.name else _own(stack, settings)
    yield from _endpoint(settings)
    yield from _exclusions(settings)
    yield from _people(settings)
    for index, line in enumerate(stack.node_groups):
        yield from _group(f"nodeGroups[{index}]", line, stack)
    yield from _grace(stack, settings)
    yield from _storage(stack, settings)
    yield from buckets.check("gcp.storage.buckets", settings.storage.buckets, stack, taken=VOLUMES)
    yield from _sidecars(settings)
    yield from checks.images("gcp.images", settings.images, stack)


def _sidecars(settings: Settings) -> Iterator[Problem]:
    version = settings.cluster.min_version
    found = buckets.mounted(settings.storage.buckets)
    if found and version_of(version) < FUSE:
        text = (
            f"found {version!r}; gcp.storage.buckets has {found[0].name}, which is mounted, and that needs '1.34' or higher: "
            "raise it, or set mode: copy"
        )
        yield Problem("gcp.cluster.minVersion", text, ("gcp.storage.buckets",))


def version_of(text: str) -> tuple[int, ...]:
    """1.35.0-gke.1171000 -> (1, 35, 0, 1171000); 1.35 -> (1, 35)"""
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _existing(settings: Settings) -> Iterator[Problem]:
    network = settings.network
    for name, key in OWN.items():
        if name in network.model_fields_set:
            yield Problem(f"gcp.network.{key}", "for an own network, and name is an existing one: remove one of the two")
    for name, key in EXISTING.items():
        if getattr(network, name) is None:
            text = f"missing: an existing network needs {', '.join(EXISTING.values())}"
            yield Problem(
                f"gcp.network.{key}", f"{text}; `gcloud compute networks subnets list --network {network.name}` shows them"
            )


def _own(stack: Stack, settings: Settings) -> Iterator[Problem]:
    network = settings.network
    for name, key in EXISTING.items():
        if getattr(network, name) is not None:
            yield Problem(
                f"gcp.network.{key}", "belongs to an existing network: set name too, or remove it", ("gcp.network.name",)
            )
    ranges: dict[str, IPv4Network] = {}
    for name, key in OWN.items():
        cidr, where = getattr(network, name), f"gcp.network.{key}"
        found = network_of(cidr)
        if found is None:
            yield Problem(where, malformed(cidr))
            continue
        if not is_private(found):
            yield Problem(where, f"found {cidr!r}; allowed are private ranges, such as those within 10.0.0.0/8")
        for other, taken in ranges.items():
            if found.overlaps(taken):
                yield Problem(where, f"found {cidr!r}, which overlaps with {other} ({taken}): move one of the two")
        ranges[key] = found
    most = stack.manager.count + sum(line.max * len(line.names(stack.zones)) for line in stack.node_groups)
    for key, each, what in (("cidr", 1, "machines"), ("podsCidr", NODE_ADDRESSES, "machines with 256 addresses for pods")):
        if key in ranges and ranges[key].num_addresses // each < most + (4 if each == 1 else 0):
            text = (
                f"found {ranges[key]}, which has room for {ranges[key].num_addresses // each} {what}; the stack has up to {most}"
            )
            yield Problem(f"gcp.network.{key}", f"{text}: take a larger range, or lower max", ("nodeGroups", "zones"))


def _endpoint(settings: Settings) -> Iterator[Problem]:
    cluster, key = settings.cluster, "gcp.cluster.authorizedCidrs"
    public = cluster.endpoint == "public"
    if not public and not cluster.up_reaches_network:
        yield Problem(
            "gcp.cluster.upReachesNetwork",
            "a private endpoint is reached from inside the network only, and `pulumi up` makes Kubernetes objects: run it there "
            "(VPN, bastion) and set upReachesNetwork: true, or set endpoint: public",
            ("gcp.cluster.endpoint",),
        )
    if public and not cluster.authorized_cidrs:
        text = "missing: a public endpoint needs the ranges that may reach it, such as the office's 198.51.100.0/24"
        yield Problem(key, text, ("gcp.cluster.endpoint",))
    if len(cluster.authorized_cidrs) > RANGES:
        yield Problem(key, f"found {len(cluster.authorized_cidrs)} ranges; GKE allows {RANGES}: join some")
    for cidr in dict.fromkeys(cluster.authorized_cidrs):
        if text := not_public(cidr) if public else malformed(cidr):
            yield Problem(key, text, ("gcp.cluster.endpoint",))


def _exclusions(settings: Settings) -> Iterator[Problem]:
    for index, one in enumerate(settings.cluster.maintenance_exclusions):
        where = f"gcp.cluster.maintenanceExclusions[{index}].end"
        start, end = datetime.fromisoformat(one.start), one.end and datetime.fromisoformat(one.end)
        if end and end <= start:
            yield Problem(where, f"found {one.end!r}, which is not after its start {one.start!r}")
        elif one.scope == "all" and (not end or end - start > timedelta(days=LONGEST_WITHOUT_UPGRADES)):
            text = f"found {one.end!r}; allowed with scope all are {LONGEST_WITHOUT_UPGRADES} days from its start"
            yield Problem(where, f"{text}: set an earlier end, or scope: nodes")


def _people(settings: Settings) -> Iterator[Problem]:
    cluster = settings.cluster
    for key, people in {"administrators": cluster.administrators, "researchers": cluster.researchers}.items():
        for one, count in Counter(people).items():
            if count > 1:
                yield Problem(f"gcp.cluster.{key}", f"{one!r} is there twice: remove one")
    groups = [one for one in cluster.researchers if one.startswith("group:")]
    if groups and cluster.security_group is None:
        text = (
            f"missing: {groups[0]!r} is a group, and GKE sees only groups that are members of gke-security-groups@<your domain>"
        )
        yield Problem("gcp.cluster.securityGroup", f"{text}: make that group, and name it here", ("gcp.cluster.researchers",))


def _group(where: str, line: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    own = line.settings if isinstance(line.settings, GroupSettings) else GroupSettings()
    for name in line.names(stack.zones).values():
        if len(name) > POOL_NAME:
            text = f"{name!r} has {len(name)} characters; on 'gcp' allowed are {POOL_NAME}: set a shorter `name`"
            yield Problem(f"{where}.name", text, ("zones", f"{where}.gpu", f"{where}.instanceTypes", f"{where}.zones"))
            break
    if len(line.instance_types) > 1:
        text = f"found {len(line.instance_types)} types; a node group of GKE has one: make a line of each"
        yield Problem(f"{where}.instanceTypes", text)
    yield from _age(where, line, own)
    for machine in catalog.machines(stack, line):
        if own.compact_placement and isinstance(machine, GcpInstance) and not machine.compact:
            text = f"{machine.name} cannot be placed close to others: take A100, L4, H100 or H200, or remove it"
            yield Problem(f"{where}.gcp.compactPlacement", text, (f"{where}.gpu", f"{where}.instanceTypes"))
        if own.gpu_direct and isinstance(machine, GcpInstance):
            yield from _gpu_direct(f"{where}.gcp.gpuDirect", where, machine, stack)
        if line.capacity == ON_DEMAND and machine.name in NOT_ON_DEMAND:
            text = f"{machine.name} is not sold on-demand: set capacity spot or flex-start, or instanceTypes: [a3-highgpu-8g]"
            yield Problem(f"{where}.capacity", text, (f"{where}.gpu", f"{where}.instanceTypes"))


def _gpu_direct(key: str, where: str, machine: GcpInstance, stack: Stack) -> Iterator[Problem]:
    if not machine.rdma:
        with_rdma = [one.name for one in catalog.types(stack) if isinstance(one, GcpInstance) and one.rdma]
        why = "has TCPX alone, whose helper the jobs' namespace does not let in" if machine.name == TCPX else "has no RDMA"
        text = f"{machine.name} {why}: take {' or '.join(with_rdma)}, or remove gpuDirect"
        yield Problem(key, text, (f"{where}.gpu", f"{where}.instanceTypes"))
    version = stack.settings.cluster.min_version
    if version_of(version) < DRANET:
        text = f"found true, and gcp.cluster.minVersion is {version!r}: set that to '1.35' or higher, or remove gpuDirect"
        yield Problem(key, text, ("gcp.cluster.minVersion",))


def _age(where: str, line: NodeGroupSettings, own: GroupSettings) -> Iterator[Problem]:
    """Require maxAgeHours where Google ends machines by itself, so that jobs leave before."""
    if own.preemptible and line.capacity != SPOT:
        text = f"found true, but capacity is {line.capacity}: set capacity: spot, or remove it"
        yield Problem(f"{where}.gcp.preemptible", text, (f"{where}.capacity",))
    limits = {"gcp.preemptible": OLDEST_PREEMPTIBLE if own.preemptible else 0,
              f"capacity {FLEX_START}": OLDEST_FLEX if line.capacity == FLEX_START else 0}  # fmt: skip
    for why, hours in limits.items():
        if hours and not (line.max_age_hours and line.max_age_hours <= hours):
            text = (
                f"found {line.max_age_hours!r}; with {why} it is needed, and allowed are up to {hours}: Google ends machines then"
            )
            yield Problem(f"{where}.maxAgeHours", text, (f"{where}.capacity", f"{where}.gcp.preemptible"))
    if line.capacity == FLEX_START and line.min:
        text = f"found {line.min}; allowed is 0 with capacity {FLEX_START}, whose machines come when they are asked for"
        yield Problem(f"{where}.min", text, (f"{where}.capacity",))


def _grace(stack: Stack, settings: Settings) -> Iterator[Problem]:
    asked, version = settings.nodes.shutdown_grace_seconds, version_of(settings.cluster.min_version)
    if asked > 30 and version < LONG_GRACE[:2] and any(line.capacity == SPOT for line in stack.node_groups):
        yield Problem(
            "gcp.nodes.shutdownGraceSeconds",
            f"found {asked}; with minVersion {settings.cluster.min_version!r} allowed is 30: a longer one needs 1.35",
            ("gcp.cluster.minVersion", "nodeGroups"),
        )


def _storage(stack: Stack, settings: Settings) -> Iterator[Problem]:
    storage, key = settings.storage, "gcp.storage.filestore"
    file, wanted = storage.filestore, stack.storage.data_gib + stack.storage.output_gib
    least, step = TIERS[file.tier]
    step = LARGE_STEP if step > 1 and file.size_gib >= LARGE else step
    if file.address is None:
        if file.size_gib < least or file.size_gib % step:
            allowed = f"{least} or more" + (f", in steps of {step}" if step > 1 else "")
            yield Problem(
                f"{key}.sizeGiB", f"found {file.size_gib}; allowed with tier {file.tier} is {allowed}", (f"{key}.tier",)
            )
        if file.size_gib < wanted:
            text = f"found {file.size_gib}; ebb:storage has {wanted} GiB of data and output: enlarge one, or lower the other"
            yield Problem(f"{key}.sizeGiB", text, ("storage",))
    elif named := sorted(file.model_fields_set & {"tier", "size_gib", "zone"}):
        text = f"address is of an instance that exists: remove {', '.join(named)}, which are for a new one"
        yield Problem(f"{key}.address", text)
    if file.address is not None and settings.network.name is None:
        text = "missing: storage.filestore.address is of an instance on a network of its own, which no new network reaches"
        yield Problem("gcp.network.name", f"{text}; `gcloud filestore instances describe` names it", (f"{key}.address",))
    if file.zone is not None and file.zone not in stack.zones:
        yield Problem(f"{key}.zone", choice(file.zone, stack.zones), ("zones",))
    for cidr in dict.fromkeys(storage.clients):
        found = network_of(cidr)
        if found is None or not is_private(found):
            text = malformed(cidr) or f"found {cidr!r}; allowed are private ranges, as the data is not mounted over the internet"
            yield Problem("gcp.storage.clients", text)
    if storage.lustre is not None:
        yield from _lustre(stack, settings)


def _lustre(stack: Stack, settings: Settings) -> Iterator[Problem]:
    lustre, key = settings.storage.lustre, "gcp.storage.lustre"
    assert lustre is not None
    with_gpus = {
        zone
        for line in stack.node_groups
        if any(one.gpus for one in catalog.machines(stack, line))
        for zone in line.names(stack.zones)
    }
    if lustre.zone not in with_gpus:
        text = choice(lustre.zone, sorted(with_gpus)) if with_gpus else f"found {lustre.zone!r}; no node group has GPUs"
        yield Problem(f"{key}.zone", f"{text}: machines elsewhere would read it from afar", ("zones", "nodeGroups"))
    step = LUSTRE_STEPS[lustre.throughput]
    if lustre.size_gib % step:
        text = f"found {lustre.size_gib}; allowed with {lustre.throughput} MB/s per TiB are multiples of {step}"
        yield Problem(f"{key}.sizeGiB", text, (f"{key}.throughput",))
