"""The Pod of one worker and the Service of all workers, as JSON. Pure; `--dry-run` prints the same.

    pod = worker_pod(job, index=2, attempt=0, seat=PodPlacement(selector={"topology.kubernetes.io/zone": "local-a"}))
    serve(view, draft); drop_services(view, draft)

What the job's author wrote wins: fields that are there are never overridden, other containers are left alone, and security
settings are filled in only where the template is silent. Two exceptions: restartPolicy (parts.py says why), and the priority of
workers beyond minReplicas. What goes into the training container is in containers.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ebb.api import contract as names
from ebb.api.platform import Network, Taint, Volume
from ebb.api.spec import Job
from ebb.api.template import worker_container
from ebb.controller.reconciler.containers import (
    Rendezvous,
    certify,
    connect,
    inject,
    mount,
    rendezvous,
    sidecar_annotations,
)
from ebb.controller.reconciler.spec_changes import spec_hash, without_nulls
from ebb.controller.reconciler.types import CreateService, DeleteService, JobView, PlanBuilder

Object = dict[str, Any]

DEFAULT_GRACE_SECONDS = 30  # Kubernetes' own
MARGIN_SECONDS, MARGIN_SHARE = 5.0, 0.1  # of a notice: until it is seen here and SIGTERM is sent, and until the disk is flushed
# The name that kubeadm, EKS, GKE, AKS and the devcluster give their cluster. Where it is another, bare names of workers do not
# resolve; nothing of ours needs them, as rank 0 is met by its address (PET_LOCAL_ADDR).
CLUSTER_DOMAIN = "cluster.local"
MAX_SEARCHES, MAX_SEARCH_LENGTH = 32, 2048  # the API server refuses more: domains, characters of all with blanks between
# Karpenter's word for what ANNOTATION_SAFE_TO_EVICT says to cluster-autoscaler (EKS Auto Mode, AKS node auto-provisioning).
ANNOTATION_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
# The Service is made once every worker runs, or this long after the first does: about what a worker needs until it looks for
# others, the import of torch. Kubernetes rewrites a Service's endpoints, all of them, for each of its pods that starts: with the
# Service made first, 20 jobs of 64 workers took 10.6 s to create instead of 7.4 s (2026-11-21, 2 cores). No worker waits for the
# names: the rendezvous hands out addresses, and torch's own looks a name up until it is there.
NAMED_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class PodPlacement:
    """The place of a job's workers: the node labels to ask for, the taints found there, the platform's volumes, and what a worker
    finds on its machine."""

    selector: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    memory_bytes: float = 0.0  # one worker's share of the smallest machine that may carry it; 0: not known
    grace_seconds: int = DEFAULT_GRACE_SECONDS  # see leave_seconds
    shunned: tuple[str, ...] = ()  # machines that are given up, though Kubernetes would still use them
    open_to_all: bool = False  # nothing above keeps a worker off machines that are not for jobs
    met: Rendezvous | None = None  # where the workers meet; None: as on a cluster that no stack of ours describes
    network: Network | None = None  # None: TCP
    planned: int = 0  # workers that a first start should wait for; 0: not known, and the rendezvous waits for as many as may be


def leave_seconds(notice_seconds: float) -> int:
    """Seconds that workers have to leave, of a cloud's notice; 0: it gives none, as for machines that are never reclaimed."""
    if not notice_seconds:
        return DEFAULT_GRACE_SECONDS
    return max(1, int(notice_seconds - max(MARGIN_SECONDS, MARGIN_SHARE * notice_seconds)))


def owner_of(value: Mapping[str, Any]) -> Object | None:
    """The reference to the ElasticJob that controls an object, if one does. Others may own it too, and others have kinds of that
    name."""
    ours = (names.GROUP, names.KIND)
    references = value["metadata"].get("ownerReferences") or ()
    return next((item for item in references if item.get("controller") and _kind(item) == ours), None)


def _kind(reference: Mapping[str, Any]) -> tuple[str, str]:
    return reference.get("apiVersion", "").partition("/")[0], reference.get("kind", "")


def worker_name(job: str, index: int) -> str:
    """The name of a worker's pod, and so the host name that its peers resolve."""
    return f"{job}-{names.REPLICA_TYPE}-{index}"


def service_name(job: str) -> str:
    """The name of the one Service of all workers. Shorter than every worker's name, so it fits where they do."""
    return f"{job}-{names.REPLICA_TYPE}s"


def worker_labels(job: str, index: int) -> dict[str, str]:
    """Upstream's four labels and ours."""
    return {**_labels(job), names.LABEL_INDEX: str(index), names.LABEL_EBB_JOB: job}


def selector(job: str) -> str:
    """The label selector of a job's workers."""
    return ",".join(f"{name}={value}" for name, value in _labels(job).items())


def job_service(job: Job) -> Object:
    """The headless Service by which workers' host names resolve, before the pods are ready too. One for all: for a job of 64
    workers upstream made 64."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, service_name(job.name), {**_labels(job.name), names.LABEL_EBB_JOB: job.name}),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": _labels(job.name)},
    }


def worker_pod(job: Job, *, index: int, attempt: int, pod_placement: PodPlacement, priority_class: str = "") -> Object:
    """The pod of one worker. `priority_class`: "" for that of the template, or of the job."""
    template = without_nulls(job.worker.template)
    written = template.get("metadata") or {}
    metadata = _metadata(job, worker_name(job.name, index), worker_labels(job.name, index))
    metadata["labels"] = {**(written.get("labels") or {}), **metadata["labels"]}
    metadata["annotations"] = {
        names.ANNOTATION_SAFE_TO_EVICT: "false",
        ANNOTATION_DO_NOT_DISRUPT: "true",
        **(written.get("annotations") or {}),
        names.ANNOTATION_ATTEMPT: str(attempt),
        names.ANNOTATION_SPEC: spec_hash(job),
    }
    metadata["annotations"].pop(names.ANNOTATION_OWNER, None)
    if job.owner:
        metadata["annotations"][names.ANNOTATION_OWNER] = job.owner
    spec = template["spec"]
    spec["restartPolicy"] = "Never"
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **pod_placement.selector}
    spec.setdefault("terminationGracePeriodSeconds", pod_placement.grace_seconds)
    tolerate(spec, pod_placement.taints)
    _stay_off(spec, pod_placement)
    _rank(spec, job, priority_class)
    _name_host(spec, job, metadata["name"])
    _harden(spec)
    container = worker_container(spec["containers"])
    mount(spec, container, volumes=pod_placement.volumes, share_bytes=pod_placement.memory_bytes)
    metadata["annotations"] = {**sidecar_annotations(spec, pod_placement.volumes), **metadata["annotations"]}
    if pod_placement.network:
        connect(spec, container, pod_placement.network)
    met = pod_placement.met or rendezvous(job, container, None)
    if met.certified:
        certify(spec, container)
    inject(container, job, index=index, attempt=attempt, met=met, planned=pod_placement.planned or job.max_replicas)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _labels(job: str) -> dict[str, str]:
    """Upstream's labels that all workers of a job have."""
    return {names.LABEL_GROUP: names.GROUP, names.LABEL_JOB: job, names.LABEL_REPLICA_TYPE: names.REPLICA_TYPE}


def _metadata(job: Job, name: str, labels: Mapping[str, str]) -> Object:
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner_reference(job)],
    }


def owner_reference(job: Job) -> Object:
    """The reference that makes an object the job's, and takes it away with the job."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _name_host(spec: Object, job: Job, name: str) -> None:
    """Let peers resolve the pod's bare name: Kubernetes has <hostname>.<subdomain> for it where a Service is called as the
    subdomain, and the search entry adds the rest. It comes last: names of Services resolve as fast as without."""
    service = service_name(job.name)
    spec.setdefault("hostname", name)
    spec.setdefault("subdomain", service)
    config = spec.get("dnsConfig") or {}
    searches = list(dict.fromkeys([*(config.get("searches") or []), f"{service}.{job.namespace}.svc.{CLUSTER_DOMAIN}"]))
    if len(searches) <= MAX_SEARCHES and len(" ".join(searches)) <= MAX_SEARCH_LENGTH:
        spec["dnsConfig"] = {**config, "searches": searches}


def _stay_off(spec: Object, pod_placement: PodPlacement) -> None:
    """Keep the worker off machines that are given up, as Kubernetes calls a silent one ready for 40 s more, off the platform's
    own, which has no taint, as it must be there first, and off those of the cluster that are not the stack's. Terms are
    alternatives, so each of them says it."""
    own = {"key": names.LABEL_NODE_GROUP, "operator": "NotIn", "values": [names.MANAGER_GROUP]}
    somebodys = {"key": names.LABEL_NODE_GROUP, "operator": "Exists"}
    labels = [somebodys, own] if pod_placement.open_to_all else []
    # The API server takes one name for each requirement.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in pod_placement.shunned]
    if not labels and not fields:
        return
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
    for term in required["nodeSelectorTerms"]:
        for kind, rules in (("matchExpressions", labels), ("matchFields", fields)):
            if rules:
                term[kind] = [*(term.get(kind) or []), *rules]


def _rank(spec: Object, job: Job, priority_class: str) -> None:
    """Whose place the scheduler gives to whom. A class says `priority` and `preemptionPolicy` too, and the API server refuses a
    pod whose own differ: those of the template belong to the template's class."""
    if priority_class:
        spec["priorityClassName"] = priority_class
        for key in ("priority", "preemptionPolicy"):
            spec.pop(key, None)
    elif job.spec.priority_class_name:
        spec.setdefault("priorityClassName", job.spec.priority_class_name)


def _harden(spec: Object) -> None:
    """Fill in what Pod Security `restricted` asks for, where the author said nothing; an image that must be root can say so."""
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("securityContext", {}).setdefault("seccompProfile", {"type": "RuntimeDefault"})
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        security = container.setdefault("securityContext", {})
        if not security.get("privileged"):  # the API server refuses a privileged container that must not gain privileges
            security.setdefault("allowPrivilegeEscalation", False)
            security.setdefault("capabilities", {"drop": ["ALL"]})


def tolerate(spec: Object, taints: Sequence[Taint]) -> None:
    """Let the pod onto machines that are kept for jobs; a job file need not know how a stack keeps others off."""
    written = spec.get("tolerations") or []
    missing = [taint for taint in taints if not any(_tolerates(item, taint) for item in written)]
    added = [{"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in missing]
    if added:
        spec["tolerations"] = [*written, *added]


def _tolerates(toleration: Object, taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect) or toleration.get("key") not in (None, "", taint.key):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.value


def serve(view: JobView, draft: PlanBuilder) -> None:
    """Have the job's one Service, and none of those that earlier controllers made for each worker."""
    name = service_name(view.job.name)
    drop_services(view, draft, keep=name)
    if any(service["metadata"]["name"] == name for service in view.observed.services):
        return
    workers = [worker for worker, _ in view.workers if not worker.finished]
    started = [worker.started_at for worker in workers if worker.started]
    if not started:
        return
    due = min(started) + NAMED_SECONDS
    # A time to come is of another clock.
    if len(started) == len(workers) >= view.wanted or min(started) > view.now or due <= view.now:
        draft.actions.append(CreateService(job_service(view.job)))
    else:
        draft.wakes.append(due)


def drop_services(view: JobView, draft: PlanBuilder, *, keep: str = "") -> None:
    """Delete the job's Services but the one of that name."""
    for service in view.observed.services:
        metadata = service["metadata"]
        if metadata["name"] != keep and "deletionTimestamp" not in metadata:
            draft.actions.append(DeleteService(name=metadata["name"], uid=metadata["uid"]))
