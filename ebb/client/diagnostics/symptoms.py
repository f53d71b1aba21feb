"""Judges what `ebb check` read in the cluster: objects -> findings. Pure code.

Where one may not look at a thing itself (who has less than the role `researcher`), what it would do to jobs and pods
is looked at instead: a controller that sleeps takes no job on, a claim that is not bound keeps pods from machines.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebb.api import contract as names
from ebb.api.crd import crd
from ebb.api.platform import Platform, Volume
from ebb.api.quantities import quantity
from ebb.client.jobs.view import condition, view
from ebb.client.timeline.timeline import unix

Object = Mapping[str, Any]
OK, WARNING, PROBLEM, UNSEEN = "ok", "warning", "problem", "unseen"
LEASE_SECONDS = 30.0  # the controller renews every few seconds, and another takes over after 15
TAKEN_ON_SECONDS = 60.0  # after which a job without a status has nobody who looks after it
ALARM_SECONDS = 3600.0  # Kubernetes forgets events after an hour
NEARLY = 0.9  # of a quota
GROUP_FIX = "run `pulumi up` on the stack, or ask the platform's owner to"
LOOK = "kubectl -n ebb-system get pods, or ask the platform's owner"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of `ebb check`."""

    name: str
    level: str  # ok, warning, problem, unseen
    text: str
    fix: str  # what to do; "" where there is nothing


def ok(name: str, text: str) -> Finding:
    return Finding(name=name, level=OK, text=text, fix="")


def unseen(name: str, text: str) -> Finding:
    return Finding(name=name, level=UNSEEN, text=text, fix="")


def warning(name: str, text: str, fix: str) -> Finding:
    return Finding(name=name, level=WARNING, text=text, fix=fix)


def problem(name: str, text: str, fix: str) -> Finding:
    return Finding(name=name, level=PROBLEM, text=text, fix=fix)


def version_skew(described: Object) -> Finding:
    """Fields of the spec that this `ebb` knows and the cluster does not, or the other way round. `described`: its OpenAPI."""
    schemas = ((described.get("components") or {}).get("schemas") or {}).values()
    served = next((item for item in schemas if _is_job(item)), None)
    if served is None:
        return ok("elasticjobs", f"{names.API_VERSION} is served")
    ours = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    theirs = ((served.get("properties") or {}).get("spec") or {}).get("properties") or {}
    lacking, more = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
    if lacking:
        text = f"the stack is older than this `ebb`: its jobs have no {', '.join(lacking)}"
        return warning("elasticjobs", text, "Update the stack (`pulumi up`), or install the `ebb` that it was made with.")
    if more:
        text = f"the stack is newer than this `ebb`: its jobs also have {', '.join(more)}"
        return warning("elasticjobs", text, "Update this `ebb`; until then it cannot set them.")
    return ok("elasticjobs", f"{names.API_VERSION} is served, with the fields that this `ebb` knows")


def controller(lease: Object | None, jobs: Sequence[Object], now: float, *, why: str = "") -> Finding:
    """By its Lease, else by what it does."""
    orphan = next((job for job in jobs if _ignored(job, now)), None)
    if orphan is not None:
        text = f"no controller takes on {orphan['metadata']['name']}, submitted {round(now - _created(orphan))} s ago"
        return problem("controller", text, f"Is the controller running? {LOOK}.")
    if why == "denied":
        done = "no job waits to be taken on" if jobs else "no job is there to tell by"
        return unseen("controller", f"your rights do not show whether one leads; {done}")
    if lease is None:
        return problem("controller", "none has ever led: its Lease is not there", f"Is it running? {LOOK}.")
    spec = lease.get("spec") or {}
    silent = now - unix(spec.get("renewTime") or "")
    if not spec.get("holderIdentity") or silent > LEASE_SECONDS:
        return problem("controller", f"none leads; the last one was heard {round(silent)} s ago", f"Is it running? {LOOK}.")
    return ok("controller", f"{spec['holderIdentity']} leads")


def volumes(wanted: Sequence[Volume], claims: Sequence[Object] | None, pods: Iterable[Object]) -> Finding:
    """By the claims, else by what the scheduler says about them."""
    stuck = next((text for pod in pods if "persistentvolumeclaim" in (text := _unschedulable(pod)).lower()), "")
    if stuck:
        return problem("volumes", f"workers wait for a volume: {stuck}", f"To get it: {GROUP_FIX}.")
    told = ", ".join(f"{volume.name} ({volume.claim})" for volume in wanted)
    if claims is None:
        return unseen("volumes", f"{told}: your rights do not show whether they are bound; no worker waits for one")
    phases = {claim["metadata"]["name"]: (claim.get("status") or {}).get("phase") or "Pending" for claim in claims}
    bad = [
        f"{volume.claim} is {phases.get(volume.claim, 'not there')}" for volume in wanted if phases.get(volume.claim) != "Bound"
    ]
    if bad:
        return problem("volumes", ", ".join(bad), f"To get them: {GROUP_FIX}.")
    return ok("volumes", f"{told}: bound")


def etcd(endpoint: str, events: Iterable[Object], now: float) -> Finding:
    """Find an alarm by the events that the controller gives jobs at its beginning and its end."""
    reasons = (names.REASON_ETCD_ALARM, names.REASON_ETCD_CURED)
    told = [event for event in events if event.get("reason") in reasons and now - _last(event) <= ALARM_SECONDS]
    newest = max(told, key=_last, default=None)
    if newest is not None and newest["reason"] == names.REASON_ETCD_ALARM:
        what, _, fix = str(newest.get("message") or "").partition("Fix: ")
        return problem("etcd", f"{endpoint}: {what.strip()}", f"Fix: {fix}" if fix else f"{LOOK}.")
    if not endpoint:
        return problem("etcd", "the platform names none: jobs cannot meet", f"To get one: {GROUP_FIX}.")
    return ok("etcd", f"{endpoint}, no alarm in the last hour")


def machines(platform: Platform, pods: Iterable[Object], events: Iterable[Object], now: float) -> Finding:
    """Return whether pods that have no machine get one, in the time that machines take."""
    groups = platform.gpu_groups() or platform.node_groups
    patience = max((group.provision_seconds for group in groups if group.max), default=300)
    waiting = {pod["metadata"]["name"]: now - _since(pod) for pod in pods if _unschedulable(pod)}
    if not waiting:
        return ok("autoscaler", "no worker waits for a machine")
    longest = max(waiting.values())
    waits = "waits" if len(waiting) == 1 else "wait"
    text = f"{plural(len(waiting), 'worker')} {waits} for a machine, the longest for {round(longest)} s"
    refusals = [e for e in events if e.get("reason") == "NotTriggerScaleUp" and _about(e) in waiting]
    said = str(max(refusals, key=_last).get("message") or "").partition(": ")[2] if refusals else ""
    if longest <= patience:
        return ok("autoscaler", f"{text}; one takes up to {patience} s")
    because = f" ({said})" if said else ""
    fix = "`ebb gpus` shows where there may be more; lower --gpus, or let the job take another --zone or --on-demand."
    return warning("autoscaler", f"{text}{because}; one takes up to {patience} s", fix)


def quotas(found: Sequence[Object] | None, jobs: Iterable[Object]) -> Finding:
    """Kubernetes' quotas of the namespace, and the cloud's as jobs met them."""
    waiting = (names.WAITING_FOR_QUOTA, names.WAITING_QUOTA_TOO_SMALL, names.WAITING_CLOUD_QUOTA)
    hit = [job for job in jobs if _reason(job) in waiting]
    if hit:
        job = hit[0]
        if _reason(job) == names.WAITING_QUOTA_TOO_SMALL:
            text = f"{job['metadata']['name']} can never start: {view(dict(job)).detail}"
            return problem("quotas", text, "Submit it with fewer GPUs, or ask the platform's owner for more.")
        which = "the cloud account's" if _reason(job) == names.WAITING_CLOUD_QUOTA else "the namespace's"
        text = f"{job['metadata']['name']} waits: {which} quota is used up. {view(dict(job)).detail}"
        return problem("quotas", text.rstrip(), "Stop or delete jobs, or ask the platform's owner for more.")
    if found is None:
        return unseen("quotas", "your rights do not show them; no job has met one")
    full = [entry for quota in found for entry in _nearly_full(quota)]
    if full:
        return warning("quotas", ", ".join(full), "Delete jobs that are over, or ask the platform's owner for more.")
    return ok("quotas", f"{plural(len(found), 'quota')}, none of them nearly used up" if found else "none")


def gateway(pods: Sequence[Object] | None) -> Finding:
    """The pod behind `ebb data`, `outputs` and large --code."""
    if pods is None:
        return unseen("gateway", "pods may not be looked at")
    if not pods:
        return problem(
            "gateway", "it is not there: `ebb data`, `outputs`, `report` and large --code need it", f"To get it: {GROUP_FIX}."
        )
    if not any(_is_ready(pod) for pod in pods):
        return problem("gateway", "it is not ready", "Try again in a minute; then ask the platform's owner.")
    return ok("gateway", "ready")


def plural(count: int, word: str) -> str:
    """1 worker, 2 workers."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def _is_job(schema: Object) -> bool:
    kinds = schema.get("x-kubernetes-group-version-kind") or []
    return any(kind.get("kind") == names.KIND for kind in kinds) and "spec" in (schema.get("properties") or {})


def _ignored(job: Object, now: float) -> bool:
    """Return whether a job that is ours to look after has no status for longer than a controller that works takes."""
    ours = (job["spec"].get("managedBy") or names.MANAGER) == names.MANAGER and not job["metadata"].get("deletionTimestamp")
    return ours and not (job.get("status") or {}).get("conditions") and now - _created(job) > TAKEN_ON_SECONDS


def _created(item: Object) -> float:
    return unix(item["metadata"].get("creationTimestamp") or "")


def _unschedulable(pod: Object) -> str:
    """The scheduler's words about a pod that it cannot place; "" for any other."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    found: Object = next((item for item in conditions if item["type"] == "PodScheduled"), {})
    return str(found.get("message") or "unschedulable") if found.get("reason") == "Unschedulable" else ""


def _since(pod: Object) -> float:
    found = next(item for item in pod["status"]["conditions"] if item["type"] == "PodScheduled")
    return unix(found.get("lastTransitionTime") or pod["metadata"].get("creationTimestamp") or "")


def _last(event: Object) -> float:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return unix(next(filter(None, times), ""))


def _about(event: Object) -> str:
    return str((event.get("involvedObject") or {}).get("name") or "")


def _reason(job: Object) -> str:
    """Why a job has not enough workers."""
    if condition(dict(job), names.RUNNING):
        return ""
    conditions = (job.get("status") or {}).get("conditions") or []
    found: Object = next((item for item in conditions if item["type"] == names.RUNNING), {})
    return str(found.get("reason") or "")


def _nearly_full(quota: Object) -> list[str]:
    """services.loadbalancers 0 of 0 is a prohibition, and not full."""
    status = quota.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    full = [key for key in hard if quantity(hard[key]) > 0 and quantity(used.get(key, "0")) >= NEARLY * quantity(hard[key])]
    return [f"{key}: {used[key]} of {hard[key]}" for key in full]


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
