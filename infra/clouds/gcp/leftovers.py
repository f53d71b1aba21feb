"""Leftovers of a stack on Google Cloud: things that GKE or somebody made, and those that destroy keeps on purpose.

Each search is one list of one service, and a thing counts by the stack's label, by GKE's label of the cluster, or by a name that
begins with ebb-<stack>.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from infra.account.leftovers import search
from infra.account.records import Left, Seen
from infra.clouds.gcp.calls import ABSENT, Account, Calls, Refused
from infra.clouds.gcp.costs import DISK_GIB_MONTH, FILESTORE_GIB_MONTH
from infra.clouds.gcp.settings import Settings
from infra.config import Stack

COMPUTE = "https://compute.googleapis.com/compute/v1/projects/{project}"
CONTAINER = "https://container.googleapis.com/v1/projects/{project}/locations/{region}/clusters"
# In one region, since 2023-04-01: https://cloud.google.com/compute/pricing-announce, a stored copy, read 2026-11-22.
SNAPSHOT_GIB_MONTH = 0.05
LOGGING = "https://logging.googleapis.com/v2/projects/{project}"
LABELS = ("ebb-stack", "goog-k8s-cluster-name")
Price = Callable[[Mapping[str, Any]], float | None]


@dataclass(frozen=True, kw_only=True)
class Search:
    """`address` lists things under `key`. `inner`: in the answer's places, the list. `remove`: a command with {name}, {place} and
    {project}; a thing's place is its zone or region."""

    what: str
    address: str
    key: str
    remove: str
    inner: str = ""
    usd_per_month: Price = lambda one: 0.0
    by_prefix: bool = True


def _disk(one: Mapping[str, Any]) -> float | None:
    return int(one.get("sizeGb", 0)) * DISK_GIB_MONTH.get(str(one.get("type", "")).rpartition("/")[2], 0.10)


def _filestore(one: Mapping[str, Any]) -> float | None:
    usd = FILESTORE_GIB_MONTH.get(str(one.get("tier")))
    shares = one.get("fileShares") or []
    return None if usd is None else usd * sum(int(share.get("capacityGb", 0)) for share in shares)


# In the order in which the commands that remove things work: what uses a thing goes before it.
SEARCHES = (
    Search(what="cluster", key="clusters", address=CONTAINER,
           remove="gcloud container clusters delete {name} --region {place} --project {project}", usd_per_month=lambda one: 73.0),
    Search(what="machine", address=COMPUTE + "/aggregated/instances", key="items", inner="instances", by_prefix=False,
           remove="gcloud compute instances delete {name} --zone {place} --project {project}", usd_per_month=lambda one: None),
    Search(what="forwarding rule", address=COMPUTE + "/aggregated/forwardingRules", key="items", inner="forwardingRules",
           usd_per_month=lambda one: 18.0,
           remove="gcloud compute forwarding-rules delete {name} --region {place} --project {project}"),
    Search(what="disk", address=COMPUTE + "/aggregated/disks", key="items", inner="disks", usd_per_month=_disk,
           remove="gcloud compute disks delete {name} --zone {place} --project {project}"),
    Search(what="snapshot", address=COMPUTE + "/global/snapshots", key="items",
           remove="gcloud compute snapshots delete {name} --project {project}",
           usd_per_month=lambda one: int(one.get("storageBytes", 0)) / 2**30 * SNAPSHOT_GIB_MONTH),
    Search(what="snapshot schedule", address=COMPUTE + "/regions/{region}/resourcePolicies", key="items",
           remove="gcloud compute resource-policies delete {name} --region {place} --project {project}"),
    Search(what="Filestore", address="https://file.googleapis.com/v1/projects/{project}/locations/-/instances", key="instances",
           remove="gcloud filestore instances delete {name} --location {place} --project {project}", usd_per_month=_filestore),
    Search(what="Lustre", address="https://lustre.googleapis.com/v1/projects/{project}/locations/-/instances", key="instances",
           remove="gcloud lustre instances delete {name} --location {place} --project {project}", usd_per_month=lambda one: None),
    Search(what="repository", address="https://artifactregistry.googleapis.com/v1/projects/{project}/locations/{region}/repositories",
           key="repositories", remove="gcloud artifacts repositories delete {name} --location {place} --project {project}"),
    Search(what="bucket", address="https://storage.googleapis.com/storage/v1/b?project={project}", key="items",
           remove="gcloud storage rm --recursive gs://{name}"),
    Search(what="log bucket", address=LOGGING + "/locations/-/buckets", key="buckets",
           remove="gcloud logging buckets delete {name} --location {place} --project {project}"),
    Search(what="log sink", address=LOGGING + "/sinks", key="sinks",
           remove="gcloud logging sinks delete {name} --project {project}"),
    Search(what="log exclusion", address=LOGGING + "/exclusions", key="exclusions",
           remove="gcloud logging sinks update _Default --remove-exclusions={name} --project {project}"),
    Search(what="service account", address="https://iam.googleapis.com/v1/projects/{project}/serviceAccounts", key="accounts",
           remove="gcloud iam service-accounts delete {name}@{project}.iam.gserviceaccount.com --project {project}"),
    Search(what="firewall rule", address=COMPUTE + "/global/firewalls", key="items",
           remove="gcloud compute firewall-rules delete {name} --project {project}"),
    Search(what="router", address=COMPUTE + "/regions/{region}/routers", key="items", usd_per_month=lambda one: 4.0,
           remove="gcloud compute routers delete {name} --region {place} --project {project}"),
    Search(what="subnet", address=COMPUTE + "/regions/{region}/subnetworks", key="items",
           remove="gcloud compute networks subnets delete {name} --region {place} --project {project}"),
    Search(what="address range", address=COMPUTE + "/global/addresses", key="items",
           remove="gcloud compute addresses delete {name} --global --project {project}"),
    Search(what="network", address=COMPUTE + "/global/networks", key="items",
           remove="gcloud compute networks delete {name} --project {project}"),
)  # fmt: skip


def seen(stack_name: str, stack: Stack, say: Callable[[str], None], calls: Calls | None = None) -> Seen:
    """Everything, with progress. Raises CannotLook."""
    calls, settings = calls or Account(), stack.settings
    say(f"searching for ebb-{stack_name} in project {settings.project}")
    searches = {one.what: partial(_find, calls, one, stack_name, settings) for one in SEARCHES}
    found = search(searches, say)
    things = tuple(mark_kept(one, found.things, settings) for one in found.things)
    return replace(found, things=things)


def _find(calls: Calls, wanted: Search, stack_name: str, settings: Settings) -> Iterator[Left]:
    where = {"project": settings.project, "region": settings.region}
    try:
        answer = calls.all(wanted.address.format(**where), wanted.key)
    except Refused as error:
        if error.code == ABSENT:
            return
        raise
    listed = [one for place in answer for one in place.get(wanted.inner, [])] if wanted.inner else answer
    for one in listed:
        if one.get("lifecycleState") == "DELETE_REQUESTED":  # a log bucket: Google deletes it in a week
            continue
        name = str(one.get("email") or one.get("name")).rpartition("/")[2].partition("@")[0]
        if _is_ours(one, name, stack_name, by_prefix=wanted.by_prefix):
            place = _place(one, settings.region)
            remove = wanted.remove.format(name=name, place=place, project=settings.project)
            yield Left(kind=wanted.what, name=name, note=place, usd_per_month=wanted.usd_per_month(one), remove=remove)


def _is_ours(one: Mapping[str, Any], name: str, stack_name: str, *, by_prefix: bool) -> bool:
    labels = {**(one.get("labels") or {}), **(one.get("resourceLabels") or {})}
    if LABELS[0] in labels:  # another stack may be called after this one
        return bool(labels[LABELS[0]] == stack_name)
    ours = f"ebb-{stack_name}"
    if labels.get(LABELS[1]) == ours:
        return True
    return by_prefix and (name == ours or name.startswith((f"{ours}-", f"gke-{ours}-")))


def _place(one: Mapping[str, Any], region: str) -> str:
    """The zone or region of a thing: in projects/p/locations/l/instances/i, or in a link .../zones/z."""
    for key in ("zone", "region", "location"):
        if one.get(key):
            return str(one[key]).rpartition("/")[2]
    parts = str(one.get("name", "")).split("/")
    return parts[parts.index("locations") + 1] if "locations" in parts else region


def mark_kept(one: Left, things: Sequence[Left], settings: Settings) -> Left:
    """Mark what destroy leaves on purpose: the data, the network that it is on, and the snapshots of a week."""
    keeps = settings.storage.data != "delete" and settings.storage.filestore.address is None
    reasons = {
        "Filestore": "gcp.storage.data says so" if keeps else "",
        "network": "the kept Filestore is on it" if keeps and any(other.kind == "Filestore" for other in things) else "",
        "snapshot": "Google deletes it after a week",
    }
    why = reasons.get(one.kind, "")
    return Left(**{**vars(one), "kept": why}) if why else one
