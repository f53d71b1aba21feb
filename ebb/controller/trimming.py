"""Trims of the controller's copies to what the planner reads. Pure.

    Reflector(api, PODS, habits=Habits(trim=trim_pod))

Of a pod that is a tenth of its bytes. It saves more than memory: a heartbeat that changes nothing of the rest is no news. A stage
of the planner that wants to read another field has to add it here; tests/controller/test_trimming.py holds the lists.
"""

import json
from sys import intern
from typing import Any

from ebb.api import contract as names
from ebb.kube.reflector import without_managers

Object = dict[str, Any]

METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "ownerReferences",
)
POD_SPEC = ("nodeName", "nodeSelector", "priorityClassName", "terminationGracePeriodSeconds")
POD_STATUS = ("phase", "reason", "message", "podIP", "startTime")
CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
CONTAINER = ("name", "resources", "restartPolicy")
ANNOTATIONS = (names.ANNOTATION_ATTEMPT, names.ANNOTATION_SPEC, names.ANNOTATION_SAFE_TO_EVICT)
NODE_CONDITIONS = ("Ready", names.CONDITION_RECLAIM)
EVENT = ("involvedObject", "reason", "message", "lastTimestamp", "firstTimestamp", "eventTime", "series")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # the spec once more, as text
MOST_SHARED = 4096


def trim_job(value: Object) -> Object:
    """Nearly all: the template is what pods are made of."""
    (without_managers(value)["metadata"].get("annotations") or {}).pop(LAST_APPLIED, None)
    return value


def trim_pod(value: Object) -> Object:
    """Of the spec where it is and what it asks for, of the status how it is."""
    spec, status = value["spec"], value.get("status") or {}
    kept = _some(spec, POD_SPEC)
    kept["nodeSelector"] = _shared(kept.get("nodeSelector") or {})
    kept["containers"] = _shared([_some(item, CONTAINER) for item in spec["containers"]])
    if spec.get("initContainers"):
        kept["initContainers"] = _shared([_some(item, CONTAINER) for item in spec["initContainers"]])
    states = _some(status, POD_STATUS)
    states["conditions"] = [_some(item, CONDITION) for item in status.get("conditions") or ()]
    for key in ("initContainerStatuses", "containerStatuses"):
        if status.get(key):
            states[key] = [_some(item, ("name", "state")) for item in status[key]]
    metadata = _metadata(value)
    metadata["annotations"] = _some(value["metadata"].get("annotations") or {}, ANNOTATIONS)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": kept, "status": states}


def trim_service(value: Object) -> Object:
    """Keep its name alone."""
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(value)}


def trim_node(value: Object) -> Object:
    """Keep the machine's identity and its troubles, without its heartbeats."""
    conditions = (value.get("status") or {}).get("conditions") or ()
    judged = [_some(item, CONDITION) for item in conditions if item.get("type") in NODE_CONDITIONS]
    taints = (value.get("spec") or {}).get("taints")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(value),
        "spec": {"taints": taints} if taints else {},
        "status": {"conditions": judged},
    }


def trim_workload(value: Object) -> Object:
    """All that may be written back, and of the pods only how many: what they look like is made anew where it is written."""
    spec = value["spec"]
    counts = [_some(item, ("name", "count", "minCount")) for item in spec.get("podSets") or ()]
    return {**without_managers(value), "spec": {**spec, "podSets": counts}}


def trim_lease(value: Object) -> Object:
    """Keep the time of renewal and the interval."""
    spec = value.get("spec") or {}
    kept = {"renewTime": spec.get("renewTime"), "leaseDurationSeconds": spec.get("leaseDurationSeconds")}
    return {"metadata": _some(value["metadata"], ("name", "namespace", "uid", "resourceVersion")), "spec": kept}


def trim_event(value: Object) -> Object:
    """Keep source, subject, message and time."""
    return {"metadata": _some(value["metadata"], ("name", "namespace", "uid", "resourceVersion")), **_some(value, EVENT)}


def _metadata(value: Object) -> Object:
    metadata = _some(value["metadata"], METADATA)
    labels = metadata.get("labels")
    if labels:
        metadata["labels"] = {intern(key): intern(word) for key, word in labels.items()}
    if "ownerReferences" in metadata:
        metadata["ownerReferences"] = _shared(metadata["ownerReferences"])
    return metadata


def _some(value: Object, keys: tuple[str, ...]) -> Object:
    return {key: value[key] for key in keys if key in value}


_pool: dict[str, Any] = {}


def _shared(value: Any) -> Any:
    """An equal value that is in memory once: what the workers of a job have in common. Nobody may change one."""
    text = json.dumps(value)
    if len(_pool) >= MOST_SHARED:
        _pool.clear()  # those in use live on, and are shared anew
    return _pool.setdefault(text, value)
