"""The Workload by which Kueue knows a job: the translation both ways, by Kueue's protocol for kinds that are not its own. Pure.

    admission = admission_of(job, kueue, has_workers=True)  # how much Kueue lets the job have, and on which machines
    apply(admission, job)                                   # the job with what Kueue adds to its workers
    sync(view, draft)                                       # what is to be written into its Workload now

A job asks for all its workers and, by minCount, is content with minReplicas: Kueue may admit any number from there on (partial
admission), which is then the most that the job has. Kueue takes quota back by the condition Evicted: the job stops with a
checkpoint, and when no worker is left gives the reservation up, on which Kueue queues it again. A job that is suspended or held,
and has no workers left, has no Workload. What it scales down to for good, and workers that have finished, are given back as
reclaimablePods; these never become fewer while quota is reserved, so a job that is to grow again, or beyond what it asked for,
has to be suspended and resumed.

Not done: placement by topology (Kueue's own ungater would be needed), workload slices, and a finalizer. Whoever deletes the
Workload of a running job has it stopped and queued anew; its quota is free a grace period before its machines are.

What is said here of Kueue is from its v1beta2 types, pkg/controller/jobframework/reconciler.go, pkg/workload/workload.go and
pkg/webhooks/workload_webhook.go at v0.19.2.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.parts import ANY, CLEAN_NONE, ON_DEMAND, SINGLE, SPOT
from ebb.api.platform import Platform
from ebb.api.spec import Job
from ebb.controller.reconciler.pods import owner_reference, tolerate
from ebb.controller.reconciler.spec_changes import without_nulls
from ebb.controller.reconciler.types import (
    Admission,
    CreateWorkload,
    DeleteWorkload,
    JobView,
    Kueue,
    PlanBuilder,
    ReplaceWorkload,
    WriteWorkloadStatus,
)

Object = dict[str, Any]
Wait = tuple[str, str]

API_VERSION, KIND, PODSET = "kueue.x-k8s.io/v1beta2", "Workload", "worker"
LABEL_JOB_UID = "kueue.x-k8s.io/job-uid"
NAME_LENGTH, HASH_LENGTH = 63, 5  # of its name, which Kueue also uses as the value of a label
QUOTA_RESERVED, ADMITTED, EVICTED, REQUEUED = "QuotaReserved", "Admitted", "Evicted", "Requeued"
PODS_READY, FINISHED = "PodsReady", "Finished"
QUEUED_AGAIN = frozenset({"Preempted", "NodeFailures"})  # reasons of an eviction after which Kueue queues the Workload at once
MESSAGE_LENGTH = 1024


def admission_of(job: Job, kueue: Kueue, *, has_workers: bool) -> Admission:
    """Kueue's answer to a job that names a queue of Kueue's; for others there is nothing to say."""
    if not job.queue:
        return Admission()
    if not kueue.known:
        return Admission(unknown=True) if has_workers else Admission(wait=(names.WAITING_NO_KUEUE, _no_kueue(job)))
    workload = kueue.workload
    if workload is None or "deletionTimestamp" in workload["metadata"]:
        return Admission(wait=_queued(job, _missing_class(job, kueue)))
    if is_true(workload, EVICTED):
        evicted = condition(workload, EVICTED)
        told = f"took its quota back ({evicted.get('reason')}): {_sentence(evicted.get('message'))}"
        return Admission(wait=_queued(job, told, _deactivated(workload)))
    if not is_true(workload, ADMITTED) or not _assignment(workload):
        return Admission(wait=_queued(job, _why_not(workload), _deactivated(workload)))
    return _granted(job, kueue, workload)


def apply(admission: Admission, job: Job) -> Job:
    """The job with the labels, node selectors and tolerations that Kueue wants of its workers."""
    if not (admission.selector or admission.tolerations or admission.labels or admission.annotations):
        return job
    worker = job.spec.replica_specs.worker
    template = without_nulls(worker.template)
    metadata, spec = template.setdefault("metadata", {}), template["spec"]
    metadata["labels"] = {**(metadata.get("labels") or {}), **admission.labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **admission.annotations}
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **admission.selector}
    written = spec.get("tolerations") or []
    spec["tolerations"] = [*written, *(one for one in admission.tolerations if one not in written)]
    return replace(job, admitted_worker=replace(worker, template=template))


def sync(view: JobView, draft: PlanBuilder) -> None:
    """Have the job's Workload be as the job is now, if it is to have one. Nothing is written twice in a round: what changes the
    spec makes the status wait."""
    kueue, job = view.observed.kueue, view.job
    workload = kueue.workload
    if not kueue.known or (workload is None and not job.queue):
        return
    left = _unfinished(view)
    rests = job.spec.suspend or draft.status.hold is not None
    if workload is None:
        if not draft.status.ended and not rests and not _missing_class(job, kueue):
            draft.actions.append(CreateWorkload(workload_of(view)))
    elif "deletionTimestamp" in workload["metadata"]:
        return
    elif not job.queue or (rests and not left and not draft.status.ended):
        _delete(draft, workload)
    elif draft.status.ended:
        if not is_true(workload, FINISHED) and (not left or job.spec.clean_pod_policy == CLEAN_NONE):
            _write(draft, workload, _finished(view, draft, workload))
    elif not _keep_spec(view, draft, workload, left):
        _write(draft, workload, _current(view, draft, workload, left))


def workload_of(view: JobView) -> Object:
    """The Workload that a job asks for machines with."""
    job = view.job
    pod_set = _pod_set(job, view.observed.platform)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": workload_name(job),
            "namespace": job.namespace,
            "labels": {LABEL_JOB_UID: job.uid, names.LABEL_GROUP: names.GROUP, names.LABEL_EBB_JOB: job.name},
            "annotations": {names.ANNOTATION_SPEC: _hash(pod_set)},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {"queueName": job.queue, "podSets": [pod_set], **_priority(view)},
    }


def workload_name(job: Job) -> str:
    """As Kueue's own integrations name theirs, so that its tools find a job's Workload by the job's name."""
    told = "\n".join((names.KIND, names.GROUP, job.name, job.uid))
    digest = hashlib.sha1(told.encode(), usedforsecurity=False).hexdigest()[:HASH_LENGTH]
    prefix = f"{names.KIND.lower()}-{job.name}"[: NAME_LENGTH - HASH_LENGTH - 1]
    return f"{prefix}-{digest}"


def asked_of(job: Job) -> int:
    """Workers that the job asks Kueue for; Kueue may admit fewer, from minReplicas on."""
    return job.max_replicas if job.automatic else job.worker.replicas


def condition(workload: Object, kind: str) -> Object:
    """A condition of a Workload; empty if it has none of that kind."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return next((item for item in conditions if item["type"] == kind), {})


def is_true(workload: Object, kind: str) -> bool:
    return condition(workload, kind).get("status") == "True"


# --- What Kueue says ---


def _granted(job: Job, kueue: Kueue, workload: Object) -> Admission:
    """The admission of a Workload that is admitted: count, flavors, and what admission checks add."""
    assigned, added = _assignment(workload), _Added()
    for name in dict.fromkeys((assigned.get("flavors") or {}).values()):
        flavor = kueue.flavors.get(name)
        if flavor is None:
            told = f"admitted it on ResourceFlavor {name!r}, which is not there: it waits until it is."
            return Admission(wait=_queued(job, told))
        spec = flavor.get("spec") or {}
        added.take("nodeSelector", spec.get("nodeLabels"))
        added.tolerations += spec.get("tolerations") or []
    for check in (workload.get("status") or {}).get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            if update["name"] == PODSET:
                for kind in ("labels", "annotations", "nodeSelector"):
                    added.take(kind, update.get(kind))
                added.tolerations += update.get("tolerations") or []
    template = job.spec.replica_specs.worker.template
    written = {**(template.get("metadata") or {}), "nodeSelector": template["spec"].get("nodeSelector")}
    clash = added.clash or next((text for kind in _Added.KINDS if (text := added.against(kind, written.get(kind)))), "")
    if clash:
        return Admission(wait=_queued(job, f"admitted it with {clash}: change one of them and resume the job."))
    return Admission(
        most=_most(job, workload),
        cluster_queue=workload["status"]["admission"].get("clusterQueue", ""),
        selector=added.found["nodeSelector"],
        labels=added.found["labels"],
        annotations=added.found["annotations"],
        tolerations=tuple(added.tolerations),
    )


class _Added:
    """Additions of flavors and admission checks to a pod; nothing of it may contradict the rest, as in Kueue."""

    KINDS = ("nodeSelector", "labels", "annotations")

    def __init__(self) -> None:
        self.found: dict[str, dict[str, str]] = {kind: {} for kind in self.KINDS}
        self.tolerations: list[Object] = []
        self.clash = ""

    def take(self, kind: str, more: Mapping[str, str] | None) -> None:
        self.clash = self.clash or self.against(kind, more)
        self.found[kind] |= more or {}

    def against(self, kind: str, other: Mapping[str, str] | None) -> str:
        """The words for the first key that is said in two ways; "" if none is."""
        here = self.found[kind]
        key = next((key for key, value in (other or {}).items() if here.get(key, value) != value), None)
        return f"{kind} {key}={here[key]}, while {key}={(other or {})[key]} is asked for too" if key is not None else ""


def _assignment(workload: Object) -> Object:
    admission = (workload.get("status") or {}).get("admission") or {}
    return next((item for item in admission.get("podSetAssignments") or () if item["name"] == PODSET), {})


def _most(job: Job, workload: Object) -> int:
    """Workers that the job may have. What was given back by scaling down is gone; who finished needs no place."""
    count = _count(workload)
    finished = len(job.status.succeeded_indices)
    return min(int(_assignment(workload).get("count", count)), count - _reclaimable(workload) + finished)


def _count(workload: Object) -> int:
    return int(next((item.get("count", 1) for item in workload["spec"]["podSets"] if item["name"] == PODSET), 0))


def _reclaimable(workload: Object) -> int:
    given = (workload.get("status") or {}).get("reclaimablePods") or ()
    return int(next((item["count"] for item in given if item["name"] == PODSET), 0))


def _why_not(workload: Object) -> str:
    """The reason why it is not admitted, in Kueue's words where it has some."""
    if is_true(workload, FINISHED):
        return "holds its Workload for finished: delete that, and it is queued anew."
    if is_true(workload, QUOTA_RESERVED):
        checks = (workload.get("status") or {}).get("admissionChecks") or ()
        pending = [check["name"] for check in checks if check.get("state") != "Ready"]
        return f"has reserved its quota, and waits for {', '.join(pending) or 'the rest of the admission'}."
    said = condition(workload, QUOTA_RESERVED).get("message")
    return f"says: {_sentence(said)}" if said else "has not looked at it yet."


def _deactivated(workload: Object) -> str:
    if (workload["spec"]).get("active", True):
        return ""
    name = workload["metadata"]["name"]
    return (
        f" Its Workload {name} is deactivated, so it does not come back by itself: `ebb stop` and `ebb resume` queue it anew, or "
        "set spec.active of the Workload to true."
    )


def _missing_class(job: Job, kueue: Kueue) -> str:
    if not job.queue_priority or job.queue_priority in kueue.priorities:
        return ""
    return f"has no WorkloadPriorityClass {job.queue_priority!r}: make it, or change label {names.LABEL_QUEUE_PRIORITY}."


def _queued(job: Job, told: str, more: str = "") -> Wait:
    return names.WAITING_FOR_KUEUE, f"Queue {job.queue!r}: Kueue {told or 'is asked for its turn.'}{more}"


def _no_kueue(job: Job) -> str:
    return (
        f"the job is in queue {job.queue!r} of Kueue, and the cluster serves no {API_VERSION} {KIND}s (Kueue 0.15 or newer), or "
        f"not to the controller: have Kueue installed, or submit the job without --queue (label {names.LABEL_QUEUE})."
    )


def _sentence(text: str | None) -> str:
    return f"{(text or 'no reason is given').strip().rstrip('.')}."


# --- What Kueue is told ---


@dataclass(frozen=True)
class _Said:
    """A condition that the job has to set."""

    kind: str
    value: bool
    reason: str
    message: str


def _keep_spec(view: JobView, draft: PlanBuilder, workload: Object, left: int) -> bool:
    """Bring the spec up to date where Kueue allows it; returns whether something is to be written. While quota is reserved, its
    pod sets are fixed: what is beyond them needs another Workload, once no worker is left."""
    wanted = workload_of(view)
    pod_set, held = wanted["spec"]["podSets"][0], workload["spec"]
    marked = (workload["metadata"].get("annotations") or {}).get(names.ANNOTATION_SPEC)
    other = marked != wanted["metadata"]["annotations"][names.ANNOTATION_SPEC]
    least = next((item.get("minCount") for item in held["podSets"]), None)
    if is_true(workload, QUOTA_RESERVED):
        if not left and not is_true(workload, EVICTED) and (other or pod_set["count"] > _count(workload)):
            _delete(draft, workload)
            return True
        return False
    counts = (_count(workload), least) != (pod_set["count"], pod_set.get("minCount"))
    keys = ("queueName", "priorityClassRef", "priority")
    if not (other or counts or any(held.get(key) != wanted["spec"].get(key) for key in keys)):
        return False
    kept = {key: value for key, value in held.items() if key not in keys}
    metadata = workload["metadata"]
    annotations = {**(metadata.get("annotations") or {}), **wanted["metadata"]["annotations"]}
    body = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**kept, **wanted["spec"]},
    }
    draft.actions.append(ReplaceWorkload(body))
    return True


def _current(view: JobView, draft: PlanBuilder, workload: Object, left: int) -> Object:
    """The status with what the job has to say in it now."""
    status = dict(workload.get("status") or {})
    if is_true(workload, EVICTED) and (is_true(workload, QUOTA_RESERVED) or status.get("admission")):
        return status if left else _given_up(view, workload, status)
    finished = sum(1 for index in draft.status.succeeded_indices if index < asked_of(view.job))
    count = _count(workload)
    most = min(int(_assignment(workload).get("count", count)), count)
    needed = max(left, min(asked_of(view.job), most) - finished)
    given = max(_reclaimable(workload), count - needed if needed < most else 0)
    if given > _reclaimable(workload):
        status["reclaimablePods"] = [{"name": PODSET, "count": min(given, count)}]
    ready = is_true(workload, ADMITTED) and view.trains(draft.status)
    return _with(view, workload, status, _readiness(workload, ready=ready))


def _readiness(workload: Object, *, ready: bool) -> _Said:
    """The reasons are as Kueue's own integrations give them: by them its waitForPodsReady knows a start from a recovery."""
    before = condition(workload, PODS_READY)
    recovers = before.get("reason") in ("WaitForRecovery", "Recovered")
    if ready:
        return _Said(PODS_READY, True, "Recovered" if recovers else "Started", "At least minReplicas workers run.")
    lost = is_true(workload, ADMITTED) and (before.get("status") == "True" or recovers)
    return _Said(PODS_READY, False, "WaitForRecovery" if lost else "WaitForStart", "Fewer than minReplicas workers run.")


def _given_up(view: JobView, workload: Object, status: Object) -> Object:
    """The status of a Workload that was evicted and whose job has no workers left: without a reservation, Kueue queues it."""
    evicted = condition(workload, EVICTED)
    reason, said = evicted.get("reason", "Evicted"), evicted.get("message", "")
    status = {key: value for key, value in status.items() if key not in ("admission", "reclaimablePods")}
    return _with(
        view,
        workload,
        status,
        _Said(REQUEUED, reason in QUEUED_AGAIN, reason, said),
        _Said(QUOTA_RESERVED, False, "Pending", said),
        _Said(ADMITTED, False, "NoReservation", "The workload has no reservation"),
        _Said(PODS_READY, False, "WaitForStart", "Fewer than minReplicas workers run."),
    )


def _finished(view: JobView, draft: PlanBuilder, workload: Object) -> Object:
    succeeded = draft.status.is_true(names.SUCCEEDED)
    final = draft.status.condition(names.SUCCEEDED if succeeded else names.FAILED)
    message = final.message if final else ""
    status = dict(workload.get("status") or {})
    return _with(view, workload, status, _Said(FINISHED, True, "Succeeded" if succeeded else "Failed", message))


def _with(view: JobView, workload: Object, status: Object, *said: _Said) -> Object:
    """The status with these conditions; the time of one stays where its status does, and all of it where its reason does too."""
    items = {item["type"]: item for item in status.get("conditions") or ()}
    for one in said:
        old, word = items.get(one.kind, {}), str(one.value)
        if (old.get("status"), old.get("reason")) != (word, one.reason):
            items[one.kind] = {
                "type": one.kind,
                "status": word,
                "reason": one.reason,
                "message": one.message[:MESSAGE_LENGTH],
                "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == word else stamp(view.now),
                "observedGeneration": workload["metadata"].get("generation", 1),
            }
    return {**status, "conditions": list(items.values())}


def _write(draft: PlanBuilder, workload: Object, status: Object) -> None:
    if status != (workload.get("status") or {}):
        metadata = {key: workload["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status}
        draft.actions.append(WriteWorkloadStatus(body))


def _delete(draft: PlanBuilder, workload: Object) -> None:
    metadata = workload["metadata"]
    draft.actions.append(DeleteWorkload(name=metadata["name"], uid=metadata["uid"]))


def _unfinished(view: JobView) -> int:
    """Workers that hold a machine or may get one, those on their way out included."""
    return sum(1 for worker, _ in view.workers if not worker.finished)


def _pod_set(job: Job, platform: Platform | None) -> Object:
    worker, count = job.spec.replica_specs.worker, asked_of(job)
    template = without_nulls(worker.template)
    written, spec = template.get("metadata") or {}, template["spec"]
    spec["restartPolicy"] = "Never"
    spec["nodeSelector"] = {**_asked_machines(job, platform), **(spec.get("nodeSelector") or {})}
    if job.spec.priority_class_name:
        spec.setdefault("priorityClassName", job.spec.priority_class_name)
    tolerate(spec, tuple(dict.fromkeys(taint for group in (platform.node_groups if platform else ()) for taint in group.taints)))
    return {
        "name": PODSET,
        "count": count,
        **({"minCount": job.min_replicas} if job.min_replicas < count else {}),
        "template": {"metadata": {key: written[key] for key in ("labels", "annotations") if written.get(key)}, "spec": spec},
    }


def _asked_machines(job: Job, platform: Platform | None) -> dict[str, str]:
    """Node labels that spec.placement asks for, by which Kueue leaves out flavors that say otherwise."""
    asked = job.spec.placement
    known: Iterable[str] = [group.gpu_type for group in platform.node_groups] if platform else ()
    gpu = next((name for name in known if name.lower() == (asked.gpu_type or "").lower()), asked.gpu_type or "")
    labels = {
        names.LABEL_GPU_TYPE: gpu,
        names.LABEL_ZONE: "" if asked.zone in (SINGLE, ANY) else asked.zone,
        names.LABEL_CAPACITY: asked.capacity if asked.capacity in (SPOT, ON_DEMAND) else "",
    }
    return {label: value for label, value in labels.items() if value}


def _priority(view: JobView) -> Object:
    """Kueue's own class where the job's label names one, else that of its pods."""
    job = view.job
    if job.queue_priority:
        reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": job.queue_priority}
        return {"priorityClassRef": reference, "priority": view.observed.kueue.priorities[job.queue_priority]}
    name = job.worker.template["spec"].get("priorityClassName") or job.spec.priority_class_name or ""
    value = view.observed.priorities.get(name, 0)
    if not name or name not in view.observed.priorities:
        return {"priority": value}
    return {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}, "priority": value}


def _hash(pod_set: Object) -> str:
    """A hash of all but the counts, as the controller's copy does not keep the template."""
    text = json.dumps(pod_set["template"], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
