"""Objects for the tests of the controller, complete enough to be real, each with the few fields that a test is about."""

from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.platform import NodeGroup, Platform, Taint, Team, Volume
from ebb.api.spec import Job
from ebb.controller.reconciler.pods import PodPlacement, job_service, worker_pod

Object = dict[str, Any]

NOW = 1_800_000_000.0
UID = "0b8e7a52-1111-4222-8333-444455556666"


def make_job(
    name: str = "digits",
    *,
    replicas: int = 2,
    low: int | None = 1,
    high: int | None = 4,
    uid: str = UID,
    status: Object | None = None,
    policy: str | None = None,
    container: Object | None = None,
    pod: Object | None = None,
    deleting: bool = False,
    **spec: Any,
) -> Object:
    """An ElasticJob as the API server returns it; further keywords are keys of its spec."""
    worker: Object = {
        "replicas": replicas,
        "template": {
            "spec": {
                "containers": [{"name": "elasticjob-worker", "image": "trainer", "args": ["-m", "trainer"], **(container or {})}],
                **(pod or {}),
            }
        },
    }
    if policy:
        worker["restartPolicy"] = policy
    bounds = {key: value for key, value in (("minReplicas", low), ("maxReplicas", high)) if value is not None}
    metadata: Object = {
        "name": name,
        "namespace": "elastic-job",
        "uid": uid,
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": stamp(NOW - 60),
    }
    if deleting:
        metadata["deletionTimestamp"] = stamp(NOW)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata,
        "spec": {"rdzvEndpoint": "etcd-service:2379", **bounds, "replicaSpecs": {"Worker": worker}, **spec},
        **({"status": status} if status else {}),
    }


def make_pod(
    job: Object,
    index: int = 0,
    *,
    phase: str = "Running",
    node: str = "n0",
    attempt: int = 0,
    started: float = NOW - 40,
    exit_code: int | None = None,
    finished: float = NOW - 1,
    deleted: float | None = None,
    grace: int = 30,
    conditions: tuple[Object, ...] = (),
    reason: str = "",
    message: str = "",
    exit_reason: str = "",
    said: str = "",
    uid: str = "",
    marked: bool = False,
) -> Object:
    """A worker's pod. `marked`: it says which spec it was started with; one of an older controller does not. `deleted`: when its
    deletion was asked for; `exit_code`: its training container has ended, with that `exit_reason` and `message`; `reason` and
    `said` are the kubelet's, of the pod as a whole."""
    pod = worker_pod(Job.of(job), index=index, attempt=attempt, pod_placement=PodPlacement())
    if not marked:
        del pod["metadata"]["annotations"][names.ANNOTATION_SPEC]
    pod["metadata"] |= {"uid": uid or f"pod-{index}-{attempt}", "resourceVersion": "1", "creationTimestamp": stamp(NOW - 50)}
    if deleted is not None:
        pod["metadata"] |= {"deletionTimestamp": stamp(deleted + grace), "deletionGracePeriodSeconds": grace}
    pod["spec"] |= {"terminationGracePeriodSeconds": grace, **({"nodeName": node} if node else {})}
    state: Object = (
        {"running": {"startedAt": stamp(started)}} if phase == "Running" else {"waiting": {"reason": "ContainerCreating"}}
    )
    if exit_code is not None:
        why = exit_reason or ("Completed" if exit_code == 0 else "Error")
        ended = {"exitCode": exit_code, "reason": why, "startedAt": stamp(started), "finishedAt": stamp(finished)}
        state = {"terminated": {**ended, **({"message": message} if message else {})}}
    pod["status"] = {
        "phase": phase,
        "conditions": list(conditions),
        "podIP": f"10.0.0.{index}",
        "containerStatuses": [{"name": "elasticjob-worker", "state": state}] if phase != "Pending" or node else [],
        **({"reason": reason} if reason else {}),
        **({"message": said} if said else {}),
    }
    return pod


def make_service(job: Object, name: str = "") -> Object:
    """The Service of the job's workers, or another one that the job owns."""
    service = job_service(Job.of(job))
    name = name or service["metadata"]["name"]
    service["metadata"] |= {"name": name, "uid": f"service-{name}", "resourceVersion": "1"}
    return service


def make_node(
    name: str = "n0", *, ready: str = "True", since: float = NOW - 100, notice: str | None = None, taint: str | None = None
) -> Object:
    """A Node; `notice` is the message of its ReclaimNotice condition."""
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": stamp(since)}]
    if notice is not None:
        conditions.append({"type": names.CONDITION_RECLAIM, "status": "True", "message": notice})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "resourceVersion": "1"},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {},
        "status": {"conditions": conditions},
    }


def make_lease(node: str, renewed: float = NOW) -> Object:
    """The Lease that a kubelet renews."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease", "uid": f"lease-{node}", "resourceVersion": "1"},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": stamp(renewed, digits=6)},
    }


def make_group(name: str = "spot-t4-local-a", **changes: Any) -> NodeGroup:
    """A spot group of 4 T4 machines in local-a."""
    values: Object = {
        "name": name,
        "zone": "local-a",
        "instance_type": "box.t4",
        "gpu_type": "T4",
        "gpus_per_node": 1,
        "cpu": 4.0,
        "memory_gib": 8.0,
        "capacity_type": "spot",
        "min": 0,
        "max": 4,
        "taints": (Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule"),),
        "labels": {},
        "on_demand_usd_per_hour": 1.0,
        "spot_discount": 0.7,
        "notice_seconds": 30,
    }
    return NodeGroup(**{**values, **changes})


def make_platform(*groups: NodeGroup, volumes: tuple[Volume, ...] = (), teams: tuple[Team, ...] = ()) -> Platform:
    """A stack with these node groups; one in each of three zones if none is given."""
    zones = ("local-a", "local-b", "local-c")
    return Platform(
        cloud="local",
        region="local",
        stack="local",
        trainer_image="trainer",
        jobs_namespace="elastic-job",
        etcd_endpoint="etcd-service:2379",
        volumes=volumes,
        node_groups=groups or tuple(make_group(f"spot-t4-{zone}", zone=zone) for zone in zones),
        teams=teams,
    )
