"""The checks of `python -m infra.account.preflight` for a stack on Google Cloud: who asks, what the project may, whether names
are free.

Everything is read only, by plain requests to Google's services (calls.py).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.account import preflight
from infra.account.preflight import programs
from infra.account.records import Check, Finding, fail, ok, warn
from infra.clouds.gcp import pools
from infra.clouds.gcp.apis import FIRST, needed
from infra.clouds.gcp.calls import ABSENT, Account, Calls, Disabled, Refused
from infra.clouds.gcp.checks import LARGE, LONG_GRACE, version_of
from infra.config import Stack
from workloads.cluster import FLEX_START, MANAGER, SPOT, NodeGroup

LABEL = "ebb-stack"
COMPUTE, CONTAINER = "https://compute.googleapis.com/compute/v1", "https://container.googleapis.com/v1"
QUOTAS = "https://cloudquotas.googleapis.com/v1"
PROJECTS, SERVICES = "https://cloudresourcemanager.googleapis.com/v3", "https://serviceusage.googleapis.com/v1"
REGISTRY, LOGGING = "https://artifactregistry.googleapis.com/v1", "https://logging.googleapis.com/v2"
TOOLS = {
    "pulumi": "it runs the stack",
    "gcloud": "it signs in",
    "gke-gcloud-auth-plugin": "kubeconfigs get tokens by it: gcloud components install gke-gcloud-auth-plugin",
}
# Metrics of a region's quotas in Compute Engine's API, which counts GPUs by type. Those of newer GPUs, H100 among them, are not
# in its answer but in Cloud Quotas (seen so in github.com/dstackai/dstack, pull request 3100): then this check says so.
GPU_QUOTA = {
    "T4": "NVIDIA_T4_GPUS", "P100": "NVIDIA_P100_GPUS", "V100": "NVIDIA_V100_GPUS", "L4": "NVIDIA_L4_GPUS",
    "A100": "NVIDIA_A100_GPUS", "A100-80GB": "NVIDIA_A100_80GB_GPUS", "H100": "NVIDIA_H100_GPUS", "H200": "NVIDIA_H200_GPUS",
}  # fmt: skip
# Families of machines whose vCPUs Compute Engine's API counts; of the others (G2, G4, A3, N4) only Cloud Quotas does
# (https://docs.cloud.google.com/compute/resource-usage#cpu_quota, as remembered).
CPU_QUOTA = {"e2": "CPUS", "n1": "CPUS", "n2": "N2_CPUS", "n2d": "N2D_CPUS", "a2": "A2_CPUS"}
SPOT_CPUS = "PREEMPTIBLE_CPUS"  # 0 until asked for, and spot machines count as others then
DISK_QUOTA = {"pd-balanced": "SSD_TOTAL_GB", "pd-ssd": "SSD_TOTAL_GB", "hyperdisk-balanced": "HDB_TOTAL_GB"}
# In Cloud Quotas, by tools/cloud-build/find_available_zone.sh of https://github.com/GoogleCloudPlatform/cluster-toolkit (read
# 2026-11-23). That ZONAL counts as the older tiers of its two ranges did is how others reckon.
FILESTORE_QUOTA = {
    "BASIC_HDD": "StandardStorageGbPerRegion", "BASIC_SSD": "PremiumStorageGbPerRegion",
    "ZONAL": "EnterpriseStorageGibPerRegion", "REGIONAL": "EnterpriseStorageGibPerRegion",
}  # fmt: skip
UNLIMITED = 2**63 - 1  # Cloud Quotas says -1
LARGE_ZONAL_QUOTA = "HighScaleSSDStorageGibPerRegion"
QUOTAS_PAGE = "https://console.cloud.google.com/iam-admin/quotas?project={}"


@dataclass(frozen=True, kw_only=True)
class Look(preflight.Look):
    """A stack and its project."""

    calls: Calls
    address: Callable[[], str] = lambda: preflight.public_address("https://checkip.amazonaws.com")

    def compute(self, place: str) -> dict[str, Any]:
        return self.calls.get(f"{COMPUTE}/projects/{self.settings.project}/{place}")

    def find(self, address: str) -> dict[str, Any] | None:
        """None where there is no such thing."""
        try:
            return self.calls.get(address)
        except Disabled:
            raise
        except Refused as error:
            if error.code == ABSENT:
                return None
            raise


def project(look: Look) -> Iterator[Finding]:
    wanted = look.settings.project
    found = look.find(f"{PROJECTS}/projects/{wanted}")
    if found is None or found.get("state") != "ACTIVE":
        yield fail(
            f"project {wanted} is not there, or not active", "gcp.project takes the id, as `gcloud projects list` prints it"
        )
    else:
        yield ok(f"project {wanted} ({found.get('displayName', '')})")


def tools(look: Look) -> Iterator[Finding]:
    yield from programs(look, TOOLS)


def apis(look: Look) -> Iterator[Finding]:
    settings, place = look.settings, f"{SERVICES}/projects/{look.settings.project}/services"
    try:
        listed_ones = look.calls.all(place, "services", filter="state:ENABLED", pageSize="200")
    except Disabled:
        listed_ones = []  # the list itself is a service's
    wanted, enabled = needed(settings, logs=look.stack.logs.ship), {str(one["config"]["name"]) for one in listed_ones}
    missing = [one for one in wanted if one not in enabled]
    fix = f"gcloud services enable {' '.join(missing)} --project {settings.project}"
    if any(one.partition(".")[0] in FIRST for one in missing):
        yield fail(f"not enabled: {', '.join(missing)}; `up` enables the others by means of {' and '.join(FIRST)}", fix)
    elif missing:
        yield warn(f"not enabled: {', '.join(missing)}; `up` enables them, but what they know was not looked at here", fix)
    else:
        yield ok(f"all {len(wanted)} that the stack needs are enabled")


def offers(look: Look) -> Iterator[Finding]:
    """Zones have the machines of their groups, and these are what the catalog says."""
    bad = [*_zones(look)]
    for group in look.groups:
        machine = pools.instance(group)
        address = f"{COMPUTE}/projects/{look.settings.project}/zones/{group.zone}"
        found = look.find(f"{address}/machineTypes/{machine.machine_type}")
        if found is None:
            bad.append(fail(f"{group.name}: {group.zone} has no {machine.machine_type}", "take another zone, or another type"))
        elif int(found["guestCpus"]) != machine.cpu:
            text = f"{machine.machine_type} has {found['guestCpus']} vCPU, the catalog says {machine.cpu}"
            bad.append(warn(text, "correct infra/clouds/gcp/machines.yaml"))
        if machine.gpus and look.find(f"{address}/acceleratorTypes/{machine.accelerator}") is None:
            text = f"{group.name}: {group.zone} has no {machine.accelerator}"
            bad.append(fail(text, f"gcloud compute accelerator-types list --filter name={machine.accelerator}"))
    yield from bad or [ok(f"{len(look.groups)} node groups: their zones have the machines and GPUs")]


def _zones(look: Look) -> Iterator[Finding]:
    for zone in look.stack.zones:
        found = look.find(f"{COMPUTE}/projects/{look.settings.project}/zones/{zone}")
        if found is None or found.get("status") != "UP":
            yield fail(f"zone {zone} is not there, or not up", "change ebb:zones")


@dataclass(frozen=True, kw_only=True)
class Need:
    """The stack's part of a quota: `least` with one machine for jobs beside the manager, `most` at full scale."""

    metric: str
    least: int
    most: int


def quotas(look: Look) -> Iterator[Finding]:
    """GPUs, vCPUs and disks. A new project has 0 of most GPUs, and little of the rest."""
    found = [look.compute(f"regions/{look.settings.region}"), look.calls.get(f"{COMPUTE}/projects/{look.settings.project}")]
    limits = {one["metric"]: int(one["limit"]) for answer in found for one in answer.get("quotas", [])}
    for need in needs(look, limits):
        yield _quota(look, limits.get(need.metric), need)


def needs(look: Look, limits: Mapping[str, int]) -> Iterator[Need]:
    """Everything that Compute Engine counts, by metric. `limits`: those of the project, by metric."""
    uses: dict[str, list[tuple[int, NodeGroup]]] = defaultdict(list)
    for group in look.groups:
        spot, gpus = group.capacity_type in (SPOT, FLEX_START), group.instance.gpus
        if gpus:
            known = GPU_QUOTA.get(group.instance.gpu_type, f"GPUs of type {group.instance.gpu_type}")
            uses[f"{'PREEMPTIBLE_' if spot else ''}{known}"].append((gpus, group))
            uses["GPUS_ALL_REGIONS"].append((gpus, group))
        if family := CPU_QUOTA.get(pools.instance(group).family):
            uses[SPOT_CPUS if spot and limits.get(SPOT_CPUS) else family].append((group.instance.cpu, group))
        uses["CPUS_ALL_REGIONS"].append((group.instance.cpu, group))
        gib, kind = pools.disk(group, look.settings)
        uses[DISK_QUOTA[kind]].append((gib, group))
        if group.name == MANAGER:  # the one in its zone
            uses[DISK_QUOTA[pools.etcd_disk_type(group)]].append((look.settings.storage.etcd_gib, group))
    for metric, all_of_it in uses.items():
        always = sum(amount for amount, group in all_of_it if group.is_manager)
        jobs = [(amount, group.max) for amount, group in all_of_it if not group.is_manager]
        least = always + min((amount for amount, _ in jobs), default=0)
        yield Need(metric=metric, least=least, most=always + sum(amount * count for amount, count in jobs))


def filestore_quota(look: Look) -> Iterator[Finding]:
    """GiB of the tier in the region, which Cloud Quotas alone knows."""
    wanted, settings = look.settings.storage.filestore, look.settings
    if wanted.address is not None:
        yield ok("an existing instance is mounted")
        return
    large = wanted.tier == "ZONAL" and wanted.size_gib >= LARGE
    metric = LARGE_ZONAL_QUOTA if large else FILESTORE_QUOTA[wanted.tier]
    place = f"{QUOTAS}/projects/{settings.project}/locations/global/services/file.googleapis.com/quotaInfos"
    infos = [info for one in look.calls.all(place, "quotaInfos") if one["quotaId"] == metric for info in one["dimensionsInfos"]]
    own = [one for one in infos if one.get("dimensions", {}).get("region") == settings.region]
    usual = [one for one in infos if settings.region in one.get("applicableLocations", [])]
    limits = [int(one["details"]["value"]) for one in own or usual]
    limit = None if not limits else UNLIMITED if limits[0] < 0 else limits[0]
    yield _quota(look, limit, Need(metric=metric, least=wanted.size_gib, most=wanted.size_gib))


def _quota(look: Look, limit: int | None, need: Need) -> Finding:
    page = QUOTAS_PAGE.format(look.settings.project)
    if limit is None:
        return warn(
            f"{need.metric}: not among the quotas of {look.settings.region}; the stack has up to {need.most}", f"see {page}"
        )
    if limit < need.least:
        return fail(f"{need.metric}: {limit}, the stack needs at least {need.least}", f"ask for {need.most}: {page}")
    if limit < need.most:
        text = f"{need.metric}: {limit}, the node groups have up to {need.most}: jobs would wait for machines"
        return warn(text, f"ask for {need.most}: {page}")
    return ok(f"{need.metric}: {limit}, up to {need.most} used")


def kubernetes(look: Look) -> Iterator[Finding]:
    """The channel has the minor version, and its newest patch is new enough for the grace of spot machines."""
    cluster, place = look.settings.cluster, f"projects/{look.settings.project}/locations/{look.settings.region}"
    answer = look.calls.get(f"{CONTAINER}/{place}/serverConfig")
    versions = [
        str(version)
        for one in answer.get("channels", [])
        if one["channel"] == cluster.channel
        for version in one["validVersions"]
    ]
    newest = max(
        (one for one in versions if version_of(one)[:2] == version_of(cluster.min_version)), key=version_of, default=None
    )
    held_up = any(pools.is_held_up(group, look.settings) for group in look.groups)
    if newest is None:
        has = ", ".join(sorted({".".join(one.split(".")[:2]) for one in versions}, key=version_of)) or "none"
        text = f"channel {cluster.channel} has no {cluster.min_version} here; it has {has}"
        yield fail(text, "set gcp.cluster.minVersion to one of these, or take another channel")
    elif held_up and version_of(newest) < LONG_GRACE:
        text = f"channel {cluster.channel} has {newest}, and nodes.shutdownGraceSeconds: 120 needs 1.35.0-gke.1171000"
        yield fail(text, "take channel RAPID, or set gcp.nodes.shutdownGraceSeconds: 30")
    else:
        yield ok(f"channel {cluster.channel} has {newest}")


def names(look: Look) -> Iterator[Finding]:
    """Things that the stack would make under a fixed name, and somebody has made already."""
    place = f"projects/{look.settings.project}/locations/{look.settings.region}"
    fixed = {
        "cluster": (f"{CONTAINER}/{place}/clusters/{look.name}", "resourceLabels"),
        "repository": (f"{REGISTRY}/{place}/repositories/{look.name}", "labels"),
    }
    clashes = []
    for what, (address, labels) in fixed.items():
        found = look.find(address)
        if found is not None and (found.get(labels) or {}).get(LABEL) != look.stack_name:
            text = f"there is a {what} {look.name} that this stack has not made"
            clashes.append(fail(text, "choose another name: pulumi stack init NAME"))
    clashes += _log_bucket(look) if look.stack.logs.ship else []
    yield from clashes or [ok(f"{' and '.join(fixed)} {look.name}: the names are free, or the stack's own")]


def _log_bucket(look: Look) -> Iterator[Finding]:
    """A deleted one keeps its name for a week, and what is in it. The provider would take it for one that is there, and change
    it (resource_logging_project_bucket_config.go of terraform-provider-google, read 2026-11-28), which Google refuses."""
    project, region = look.settings.project, look.settings.region
    found = look.find(f"{LOGGING}/projects/{project}/locations/{region}/buckets/{look.name}")
    if found is not None and found.get("lifecycleState") == "DELETE_REQUESTED":
        fix = f"gcloud logging buckets undelete {look.name} --location {region} --project {project}; `up` then takes it over"
        yield fail(f"the log bucket {look.name} of an earlier stack is being deleted, which takes a week", fix)


def network(look: Look) -> Iterator[Finding]:
    """An existing network has what machines need."""
    given = look.settings.network
    if given.name is None:
        yield ok("an own network is made")
        return
    found = look.find(f"{COMPUTE}/projects/{look.settings.project}/regions/{look.settings.region}/subnetworks/{given.subnet}")
    if found is None or not str(found["network"]).endswith(f"/{given.name}"):
        yield fail(f"network {given.name} has no subnet {given.subnet} in {look.settings.region}", "correct gcp.network")
        return
    there = {one["rangeName"] for one in found.get("secondaryIpRanges", [])}
    missing = [one for one in (given.pods_range, given.services_range) if one not in there]
    if missing:
        yield fail(
            f"subnet {given.subnet} has no range {', '.join(map(str, missing))}; it has {', '.join(sorted(there)) or 'none'}"
        )
    if not found.get("privateIpGoogleAccess"):
        update = f"gcloud compute networks subnets update {given.subnet} --region {look.settings.region}"
        fix = f"{update} --enable-private-ip-google-access"
        yield fail(f"subnet {given.subnet}: machines without public addresses cannot reach Google's registry", fix)
    routers = look.compute(f"regions/{look.settings.region}/routers").get("items", [])
    if not any(one.get("nats") and str(one["network"]).endswith(f"/{given.name}") for one in routers):
        yield warn(f"network {given.name} has no Cloud NAT in {look.settings.region}: data sets and public images come over it")
    if not missing and found.get("privateIpGoogleAccess"):
        yield ok(f"subnet {given.subnet} has the ranges")


def reach(look: Look) -> Iterator[Finding]:
    cluster = look.settings.cluster
    if cluster.endpoint == "private":
        yield warn("the endpoint is private and upReachesNetwork says that this machine is in the network: not checked")
    else:
        yield from preflight.reach(look, "gcp.cluster.authorizedCidrs", cluster.authorized_cidrs)


# Those first without which the others cannot be made.
CHECKS: dict[str, Callable[[Look], Iterable[Finding]]] = {
    "project": project,
    "programs on this machine": tools,
    "APIs": apis,
    "zones and machines": offers,
    "quotas": quotas,
    "Filestore's quota": filestore_quota,
    "Kubernetes": kubernetes,
    "names": names,
    "network": network,
    "the way to the cluster": reach,
}


def checks(stack_name: str, stack: Stack) -> list[Check]:
    """All checks."""
    return preflight.checks(CHECKS, Look(stack_name=stack_name, stack=stack, calls=Account()))
