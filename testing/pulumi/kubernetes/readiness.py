"""Readiness of an object: has it become what it is meant to be, and if not, why, in the cluster's words. Pure.

    verdict = judge(live, pods)        # Verdict("waiting", "1 of 2 pods ready; etcd-0: ImagePullBackOff: not found")

Of what Kubernetes retries for ever, `stuck` names what rarely heals by itself: the caller gives that some time and then gives up.
Kinds that are not in JUDGES are ready as soon as the API server has taken them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ebb.kube import Object

State = Literal["ready", "waiting", "failed"]

STUCK_REASONS = frozenset(
    (
        *("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"),
        *("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    )
)


@dataclass(frozen=True)
class Readiness:
    """`ready` is final until somebody changes the object, `failed` is final, `waiting` may become either."""

    state: State
    message: str = ""
    stuck: bool = False


READY = Readiness("ready")


def judge(live: Object, pods: Sequence[Object] = ()) -> Readiness:
    """`pods` are those that belong to a workload; other kinds need none."""
    known = JUDGES.get((str(live["apiVersion"]).split("/", maxsplit=1)[0], live["kind"]))
    return known(live, pods) if known else READY


def pod_selector(live: Object) -> str | None:
    """The label selector of a workload's pods; None for kinds without pods."""
    group = str(live["apiVersion"]).split("/", maxsplit=1)[0]
    if (group, live["kind"]) not in JUDGES or group not in ("apps", "batch"):
        return None
    labels = ((live.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in labels.items()) or None


def trouble(pods: Sequence[Object]) -> tuple[str, bool]:
    """(what the newest troubled pod says of itself, whether that rarely heals); ("", False) if none complains."""
    newest = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True)
    for pod in newest:
        status = pod.get("status") or {}
        name = pod["metadata"]["name"]
        for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
            words, stuck = _container(container)
            if words:
                return f"pod {name}: {words}", stuck
        pending = _condition(status, "PodScheduled")
        if pending.get("reason") == "Unschedulable":
            return f"pod {name}: no machine fits: {pending.get('message', '')}", False
        if status.get("phase") == "Failed":
            return f"pod {name}: {status.get('reason', 'failed')}: {status.get('message', '')}".rstrip(": "), False
    return "", False


def _container(status: Mapping[str, Any]) -> tuple[str, bool]:
    now = status.get("state") or {}
    waiting, ended = now.get("waiting") or {}, now.get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    exit_words = f"container {status['name']} ended with exit code {ended.get('exitCode')}" if ended else ""
    if ended.get("message"):
        exit_words += f" ({str(ended['message']).strip()[-300:]})"
    if waiting.get("reason") in STUCK_REASONS:
        words = f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
        return (f"{exit_words}; {words}" if exit_words else words), True
    if ended and ended.get("exitCode") != 0:
        return exit_words, False
    return "", False


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((one for one in status.get("conditions") or [] if one.get("type") == kind), {})


def _and(what: str, pods: Sequence[Object]) -> Readiness:
    words, stuck = trouble(pods)
    return Readiness("waiting", f"{what}; {words}" if words else what, stuck)


def _observed(live: Object) -> bool:
    return int((live.get("status") or {}).get("observedGeneration", 0)) >= int(live["metadata"].get("generation", 0))


def _deployment(live: Object, pods: Sequence[Object]) -> Readiness:
    status, wanted = live.get("status") or {}, (live.get("spec") or {}).get("replicas", 1)
    progress = _condition(status, "Progressing")
    if _observed(live) and progress.get("reason") == "ProgressDeadlineExceeded":
        return Readiness("failed", f"{progress.get('message', 'no progress')}; {trouble(pods)[0]}".rstrip("; "))
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    only_new = status.get("replicas", 0) <= updated
    if _observed(live) and updated >= wanted and available >= wanted and only_new:
        return READY
    old = max(0, status.get("replicas", 0) - updated)  # a rolling update keeps old pods until new ones are available
    return _and(f"{max(0, min(updated, available - old))} of {wanted} pods available", pods)


def _stateful_set(live: Object, pods: Sequence[Object]) -> Readiness:
    status, wanted = live.get("status") or {}, (live.get("spec") or {}).get("replicas", 1)
    current = status.get("currentRevision") == status.get("updateRevision") or status.get("updatedReplicas", 0) >= wanted
    ready = status.get("readyReplicas", 0)
    if _observed(live) and current and ready >= wanted:
        return READY
    return _and(f"{ready} of {wanted} pods ready", pods)


def _daemon_set(live: Object, pods: Sequence[Object]) -> Readiness:
    status = live.get("status") or {}
    wanted = status.get("desiredNumberScheduled", 0)
    fresh = min(status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
    if _observed(live) and fresh >= wanted:
        return READY
    return _and(f"{fresh} of {wanted} pods available", pods)


def _job(live: Object, pods: Sequence[Object]) -> Readiness:
    status, spec = live.get("status") or {}, live.get("spec") or {}
    failed = _condition(status, "Failed")
    if failed.get("status") == "True":
        return Readiness("failed", f"{failed.get('reason')}: {failed.get('message')}; {trouble(pods)[0]}".rstrip("; "))
    if _condition(status, "Complete").get("status") == "True" or spec.get("suspend"):
        return READY
    attempts = f", {status['failed']} attempts failed" if status.get("failed") else ""
    return _and(f"{status.get('succeeded', 0)} of {spec.get('completions', 1)} done{attempts}", pods)


def _pod(live: Object, _: Sequence[Object]) -> Readiness:
    status = live.get("status") or {}
    if status.get("phase") == "Succeeded" or _condition(status, "Ready").get("status") == "True":
        return READY
    words, stuck = trouble([live])
    return Readiness("failed" if status.get("phase") == "Failed" else "waiting", words or "not ready yet", stuck)


def _crd(live: Object, _: Sequence[Object]) -> Readiness:
    status = live.get("status") or {}
    names = _condition(status, "NamesAccepted")
    if names.get("status") == "False":
        return Readiness("failed", f"the names are taken: {names.get('message')}")
    return READY if _condition(status, "Established").get("status") == "True" else Readiness("waiting", "not served yet")


def _claim(live: Object, _: Sequence[Object]) -> Readiness:
    phase = (live.get("status") or {}).get("phase", "Pending")
    if phase == "Bound":
        return READY
    if phase == "Lost":
        return Readiness("failed", f"its volume {(live.get('spec') or {}).get('volumeName')!r} is gone")
    return Readiness("waiting", "no volume bound yet")


def _quota(live: Object, _: Sequence[Object]) -> Readiness:
    """Until Kubernetes has counted what is there, a quota lets nothing in that it counts."""
    counted = (live.get("status") or {}).get("hard") == (live.get("spec") or {}).get("hard")
    return READY if counted else Readiness("waiting", "what is there is being counted")


def _namespace(live: Object, _: Sequence[Object]) -> Readiness:
    return READY if (live.get("status") or {}).get("phase") == "Active" else Readiness("waiting", "being deleted")


def _service(live: Object, _: Sequence[Object]) -> Readiness:
    if (live.get("spec") or {}).get("type") != "LoadBalancer" or ((live.get("status") or {}).get("loadBalancer") or {}).get(
        "ingress"
    ):
        return READY
    return Readiness("waiting", "no address from the load balancer yet")


JUDGES: Mapping[tuple[str, str], Callable[[Object, Sequence[Object]], Readiness]] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("v1", "Pod"): _pod,
    ("v1", "PersistentVolumeClaim"): _claim,
    ("v1", "Namespace"): _namespace,
    ("v1", "ResourceQuota"): _quota,
    ("v1", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _crd,
}
