"""The checks of `python -m infra.account.preflight` for a stack on Google Cloud: who asks, what the project may, whether names
are free.

Everything is read only, by plain requests to Google's services (calls.py).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from infra.account import preflight
from infra.account.costs import groups_of
from infra.account.preflight import Check, Finding, check, fail, ok, programs, warn
from infra.clouds.gcp import pools
from infra.clouds.gcp.calls import ABSENT, Account, Calls, Refused
from infra.clouds.gcp.checks import version_of
from infra.config import Stack
from workloads.cluster import FLEX_START, SPOT

WHAT_IS_MY_ADDRESS = "https://checkip.amazonaws.com"
LABEL = "ebb-stack"
COMPUTE, CONTAINER = "https://compute.googleapis.com/compute/v1", "https://container.googleapis.com/v1"
PROJECTS, SERVICES = "https://cloudresourcemanager.googleapis.com/v3", "https://serviceusage.googleapis.com/v1"
REGISTRY = "https://artifactregistry.googleapis.com/v1"
TOOLS = {
    "pulumi": "it runs the stack",
    "gcloud": "it signs in",
    "gke-gcloud-auth-plugin": "kubeconfigs get tokens by it: gcloud components install gke-gcloud-auth-plugin",
}
APIS = ("compute", "container", "iam", "cloudresourcemanager", "file")
# Metrics of a region's quotas in Compute Engine's API, which counts GPUs by type. Those of newer GPUs, H100 among them, are not
# in its answer but in Cloud Quotas (seen so in github.com/dstackai/dstack, pull request 3100): then this check says so.
GPU_QUOTA = {
    "T4": "NVIDIA_T4_GPUS", "P100": "NVIDIA_P100_GPUS", "V100": "NVIDIA_V100_GPUS", "L4": "NVIDIA_L4_GPUS",
    "A100": "NVIDIA_A100_GPUS", "A100-80GB": "NVIDIA_A100_80GB_GPUS", "H100": "NVIDIA_H100_GPUS", "H200": "NVIDIA_H200_GPUS",
}  # fmt: skip
QUOTAS_PAGE = "https://console.cloud.google.com/iam-admin/quotas?project={}"


@dataclass(frozen=True, kw_only=True)
class Look(preflight.Look):
    """A stack and its project."""

    calls: Calls

    def compute(self, place: str) -> dict[str, Any]:
        return self.calls.get(f"{COMPUTE}/projects/{self.settings.project}/{place}")

    def find(self, address: str) -> dict[str, Any] | None:
        """None where there is no such thing."""
        try:
            return self.calls.get(address)
        except Refused as error:
            if error.code == ABSENT:
                return None
            raise


def checks(stack_name: str, stack: Stack) -> list[Check]:
    """All checks, those first without which the others cannot be made."""
    return listed(
        Look(
            stack_name=stack_name,
            stack=stack,
            groups=groups_of(stack),
            calls=Account(),
            address=partial(preflight.public_address, WHAT_IS_MY_ADDRESS),
        )
    )


def listed(look: Look) -> list[Check]:
    functions: dict[str, Callable[[Look], Iterable[Finding]]] = {
        "project": project,
        "programs on this machine": tools,
        "APIs": apis,
        "zones and machines": offers,
        "quotas": quotas,
        "Kubernetes": kubernetes,
        "names": names,
        "network": network,
        "the way to the cluster": reach,
    }
    return [check(what, function, look) for what, function in functions.items()]


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
    settings = look.settings
    wanted = [*APIS, *(["lustre", "servicenetworking"] if settings.storage.lustre else [])]
    wanted += ["artifactregistry", "containerfilesystem"] if settings.images.build != "none" else []
    wanted += ["cloudbuild", "storage"] if settings.images.build == "cloudbuild" else []
    listed_ones = look.calls.all(
        f"{SERVICES}/projects/{settings.project}/services", "services", filter="state:ENABLED", pageSize="200"
    )
    enabled = {str(one["config"]["name"]).partition(".")[0] for one in listed_ones}
    missing = [f"{one}.googleapis.com" for one in wanted if one not in enabled]
    if missing:
        fix = f"gcloud services enable {' '.join(missing)} --project {settings.project}"
        yield fail(f"not enabled: {', '.join(missing)}", fix)
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
            bad.append(warn(text, "correct infra/clouds/gcp/catalog.py"))
        if machine.gpus and look.find(f"{address}/acceleratorTypes/{machine.accelerator}") is None:
            text = f"{group.name}: {group.zone} has no {machine.accelerator}"
            bad.append(fail(text, f"gcloud compute accelerator-types list --filter name={machine.accelerator}"))
    yield from bad or [ok(f"{len(look.groups)} node groups: their zones have the machines and GPUs")]


def _zones(look: Look) -> Iterator[Finding]:
    for zone in look.stack.zones:
        found = look.find(f"{COMPUTE}/projects/{look.settings.project}/zones/{zone}")
        if found is None or found.get("status") != "UP":
            yield fail(f"zone {zone} is not there, or not up", "change ebb:zones")


def quotas(look: Look) -> Iterator[Finding]:
    """GPUs at full scale. A new project has 0 of most, and of all GPUs together."""
    region = {one["metric"]: one for one in look.compute(f"regions/{look.settings.region}").get("quotas", [])}
    everywhere = {one["metric"]: one for one in look.calls.get(f"{COMPUTE}/projects/{look.settings.project}").get("quotas", [])}
    wanted: dict[str, int] = defaultdict(int)
    smallest: dict[str, int] = {}
    for group in look.groups:
        if group.instance.gpus:
            known = GPU_QUOTA.get(group.instance.gpu_type, f"GPUs of type {group.instance.gpu_type}")
            metric = f"{'PREEMPTIBLE_' if group.capacity_type in (SPOT, FLEX_START) else ''}{known}"
            wanted[metric] += group.max * group.instance.gpus
            smallest[metric] = min(smallest.get(metric, group.instance.gpus), group.instance.gpus)
    for metric, count in wanted.items():
        yield _quota(look, region.get(metric), metric, count, smallest[metric])
    if wanted:
        yield _quota(look, everywhere.get("GPUS_ALL_REGIONS"), "GPUS_ALL_REGIONS", sum(wanted.values()), min(smallest.values()))


def _quota(look: Look, found: dict[str, Any] | None, metric: str, count: int, least: int) -> Finding:
    page = QUOTAS_PAGE.format(look.settings.project)
    if found is None:
        return warn(
            f"{metric}: not among Compute Engine's quotas of {look.settings.region}; the stack has up to {count}", f"see {page}"
        )
    limit = int(found["limit"])
    if limit < least:
        return fail(f"{metric}: {limit}, the smallest machine has {least}", f"ask for {count}: {page}")
    if limit < count:
        return warn(
            f"{metric}: {limit}, the node groups have up to {count}: jobs would wait for machines", f"ask for {count}: {page}"
        )
    return ok(f"{metric}: {limit}, up to {count} used")


def kubernetes(look: Look) -> Iterator[Finding]:
    """The channel has the version, or a newer one."""
    cluster, place = look.settings.cluster, f"projects/{look.settings.project}/locations/{look.settings.region}"
    answer = look.calls.get(f"{CONTAINER}/{place}/serverConfig")
    versions = [
        str(version)
        for one in answer.get("channels", [])
        if one["channel"] == cluster.channel
        for version in one["validVersions"]
    ]
    fitting = [one for one in versions if version_of(one) >= version_of(cluster.min_version)]
    if fitting:
        yield ok(f"channel {cluster.channel} has {min(fitting, key=version_of)} and newer ones")
    else:
        newest = max(versions, key=version_of, default="none")
        text = f"channel {cluster.channel} has nothing from {cluster.min_version} on (newest: {newest})"
        yield fail(text, "take channel RAPID, or a lower minVersion with nodes.shutdownGraceSeconds: 30")


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
    yield from clashes or [ok(f"{' and '.join(fixed)} {look.name}: the names are free, or the stack's own")]


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
