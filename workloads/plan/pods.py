"""Job -> the Pod and the Service of one worker, as JSON: pure, and what `--dry-run` prints.

    pod = worker_pod(job, index=2, attempt=0, seat=Seat(selector={"topology.kubernetes.io/zone": "local-a"}))

What the job's author wrote wins: arguments and variables that are there are never overridden, other containers are left alone,
and security settings are filled in only where the template is silent. Its restartPolicy alone is overwritten (spec.py says why).
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from workloads import contract as names
from workloads.job.spec import Job
from workloads.platform import Taint, Volume

Object = dict[str, Any]

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point in the pod; containers get 64 MiB otherwise
BACKEND = "etcd"  # torch's legacy etcd backend, which upstream's images speak


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a job's workers sit: the node labels to ask for, the taints found there, and the platform's volumes."""

    selector: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    volumes: tuple[Volume, ...] = ()


def worker_name(job: str, index: int) -> str:
    """The name of a worker's pod and Service, and so the host name that its peers resolve."""
    return f"{job}-{names.REPLICA_TYPE}-{index}"


def worker_labels(job: str, index: int) -> dict[str, str]:
    """Upstream's four labels and ours."""
    return {
        names.LABEL_GROUP: names.GROUP,
        names.LABEL_JOB: job,
        names.LABEL_REPLICA_TYPE: names.REPLICA_TYPE,
        names.LABEL_INDEX: str(index),
        names.LABEL_EBB_JOB: job,
    }


def selector(job: str) -> str:
    """The label selector of a job's workers."""
    return f"{names.LABEL_GROUP}={names.GROUP},{names.LABEL_JOB}={job},{names.LABEL_REPLICA_TYPE}={names.REPLICA_TYPE}"


def rendezvous_id(job: Job, attempt: int) -> str:
    """Where the workers of one attempt meet. A failed program closes its rendezvous for good, so each attempt has its own."""
    return f"{job.name}-{job.short_uid}" + (f"-r{attempt}" if attempt else "")


def output_dir(job: Job) -> str:
    """The job's own folder on the shared output volume; all attempts share it, as it holds the checkpoints."""
    return f"{names.OUTPUT_ROOT}/{job.namespace}/{job.name}-{job.short_uid}"


def worker_service(job: Job, index: int) -> Object:
    """The headless Service that makes a worker's bare host name resolve, before the pod is ready too."""
    own = {names.LABEL_JOB: job.name, names.LABEL_REPLICA_TYPE: names.REPLICA_TYPE, names.LABEL_INDEX: str(index)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, index),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {names.LABEL_GROUP: names.GROUP, **own}},
    }


def worker_pod(job: Job, *, index: int, attempt: int, seat: Seat) -> Object:
    """The pod of one worker."""
    template = deepcopy(job.worker.template)
    written = template.get("metadata") or {}
    metadata = _metadata(job, index)
    metadata["labels"] = {**(written.get("labels") or {}), **metadata["labels"]}
    metadata["annotations"] = {
        names.ANNOTATION_SAFE_TO_EVICT: "false",
        **(written.get("annotations") or {}),
        names.ANNOTATION_ATTEMPT: str(attempt),
    }
    spec = template["spec"]
    spec["restartPolicy"] = "Never"
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **seat.selector}
    _tolerate(spec, seat.taints)
    if job.spec.priority_class_name:
        spec.setdefault("priorityClassName", job.spec.priority_class_name)
    _harden(spec)
    container = worker_container(spec["containers"])
    _mount(spec, container, seat.volumes)
    _inject(container, job, index, attempt)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def worker_container(containers: Sequence[Object]) -> Object:
    """The container that trains: the one of the contract's name, else the first."""
    return next((container for container in containers if container.get("name") == names.WORKER_CONTAINER), containers[0])


def container_gpus(container: Object) -> int:
    """GPUs that a container may use."""
    return int((container.get("resources") or {}).get("limits", {}).get(names.GPU_RESOURCE, 0))


def _metadata(job: Job, index: int) -> Object:
    return {
        "name": worker_name(job.name, index),
        "namespace": job.namespace,
        "labels": worker_labels(job.name, index),
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": job.name,
                "uid": job.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _harden(spec: Object) -> None:
    """What Pod Security `restricted` asks for, where the author said nothing; an image that must be root can say so."""
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("securityContext", {}).setdefault("seccompProfile", {"type": "RuntimeDefault"})
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        security = container.setdefault("securityContext", {})
        if not security.get("privileged"):  # the API server refuses a privileged container that must not gain privileges
            security.setdefault("allowPrivilegeEscalation", False)
            security.setdefault("capabilities", {"drop": ["ALL"]})


def _tolerate(spec: Object, taints: Sequence[Taint]) -> None:
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


def _mount(spec: Object, container: Object, volumes: Sequence[Volume]) -> None:
    """Give the training container shared memory for its loader workers, and the platform's volumes where upstream's job files
    expect data and output, unless something is mounted there."""
    mounts, names_taken = list(container.get("volumeMounts") or []), {item["name"] for item in spec.get("volumes") or []}
    paths = {mount["mountPath"].rstrip("/") for mount in mounts}
    sources: list[Object] = []
    wanted: list[tuple[str, str, Object, bool]] = [("shm", SHARED_MEMORY, {"emptyDir": {"medium": "Memory"}}, False)]
    for volume in volumes:
        claim = {"claimName": volume.claim, **({"readOnly": True} if volume.read_only else {})}
        wanted.append((volume.name, volume.mount_path, {"persistentVolumeClaim": claim}, volume.read_only))
    for name, path, source, read_only in wanted:
        if path.rstrip("/") in paths:
            continue
        free = name if name not in names_taken else f"ebb-{name}"
        sources.append({"name": free, **source})
        mounts.append({"name": free, "mountPath": path, **({"readOnly": True} if read_only else {})})
    if sources:
        spec["volumes"] = [*(spec.get("volumes") or []), *sources]
        container["volumeMounts"] = mounts


def _inject(container: Object, job: Job, index: int, attempt: int) -> None:
    """Tell the launcher where to meet: by arguments as upstream does, and by variables for programs that read those."""
    container["args"] = [*_arguments(container, job, attempt), *(container.get("args") or [])]
    # A program's last words end up in the pod's status, and so in the job's: by then its log is often gone with the pod.
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    env = container.get("env") or []
    taken = {variable["name"] for variable in env}
    container["env"] = [variable for variable in _variables(job, index, attempt) if variable["name"] not in taken] + env


def _arguments(container: Object, job: Job, attempt: int) -> list[str]:
    processes = job.spec.nproc_per_node or container_gpus(container)
    wanted = {
        "rdzv_backend": BACKEND,
        "rdzv_endpoint": job.spec.rdzv_endpoint,
        "rdzv_id": rendezvous_id(job, attempt),
        "nnodes": f"{job.min_replicas}:{job.max_replicas}",
        **({"nproc_per_node": str(processes)} if processes else {}),
    }
    written = [*(container.get("command") or []), *(container.get("args") or [])]
    given = {word.split("=")[0].removeprefix("--").replace("-", "_") for word in written if word.startswith("--")}
    return [f"--{flag}={value}" for flag, value in wanted.items() if flag not in given]


def _variables(job: Job, index: int, attempt: int) -> list[Object]:
    values = {
        names.ENV_RDZV_BACKEND: BACKEND,
        names.ENV_RDZV_ENDPOINT: job.spec.rdzv_endpoint,
        names.ENV_RDZV_ID: rendezvous_id(job, attempt),
        names.ENV_NNODES: f"{job.min_replicas}:{job.max_replicas}",
        names.ENV_JOB: job.name,
        names.ENV_JOB_UID: job.uid,
        names.ENV_NAMESPACE: job.namespace,
        names.ENV_WORKER_INDEX: str(index),
        names.ENV_OUTPUT_DIR: output_dir(job),
        names.ENV_METRICS_PORT: str(names.METRICS_PORT),
    }
    address = {"name": names.ENV_LOCAL_ADDR, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return [*({"name": name, "value": value} for name, value in values.items()), address]
