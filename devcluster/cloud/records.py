"""What the decisions read: node groups, machines, nodes and pods, taken out of the JSON of the API server.

    group = node_group(api_object)          # raises RecordError if a field that the CRD guarantees is missing
    pod = pod(api_object)

Resources are as in amounts; times are unix seconds.
Nothing here decides or does I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from devcluster.cloud.amounts import RecordError, Resources, pod_requests, resources
from devcluster.settings import REGION

Object = Mapping[str, Any]

GPU = "nvidia.com/gpu"
GROUP_LABEL = "ebb.dev/node-group"
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
TYPE_LABEL = "node.kubernetes.io/instance-type"
HOST_LABEL = "kubernetes.io/hostname"
KEEP_ANNOTATION = "cluster-autoscaler.kubernetes.io/safe-to-evict"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
SPOT, ON_DEMAND = "spot", "on-demand"
PODS_PER_MACHINE = 110  # kubelet's default maxPods
DEFAULT_GRACE_SECONDS = 30  # Kubernetes' default terminationGracePeriodSeconds
GIB = 2**30


@dataclass(frozen=True)
class Taint:
    """Keeps pods that do not tolerate it off a machine."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True)
class Toleration:
    """Lets a pod onto machines with a taint; an empty key, value or effect is Kubernetes' wildcard."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True)
class Requirement:
    """One expression of a node affinity."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Term:
    """Requirements that hold together: on labels, and on fields of the node (only metadata.name exists)."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """A NodeGroup object: one kind of machine in one zone, between `min` and `max` of them."""

    name: str
    zone: str
    instance_type: str = ""
    gpus: int = 0
    cpu: float = 2.0
    memory_gib: float = 8.0
    capacity_type: str = ON_DEMAND
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    min: int = 0
    max: int = 1
    boot_seconds: float = 0.0
    usd_per_hour: float = 0.0
    notice_seconds: float = 0.0
    max_age_seconds: float = 0.0  # the cloud takes machines that are older; 0: it does not look at their age

    @property
    def node_labels(self) -> dict[str, str]:
        """The labels of its nodes, but for the host name."""
        own = {ZONE_LABEL: self.zone, REGION_LABEL: REGION, TYPE_LABEL: self.instance_type, GROUP_LABEL: self.name}
        return {**self.labels, **own}

    @property
    def allocatable(self) -> dict[str, int]:
        """What one of its machines offers to pods, as far as the object says."""
        amounts = {"cpu": round(self.cpu * 1000), "memory": round(self.memory_gib * GIB), "pods": PODS_PER_MACHINE}
        return {**amounts, GPU: self.gpus} if self.gpus else amounts


@dataclass(frozen=True, kw_only=True)
class Node:
    """A Node object."""

    name: str
    group: str = ""
    uid: str = ""
    ready: bool = True
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Resources = field(default_factory=dict)
    created: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A Pod object. `requests` include one of the resource "pods"."""

    namespace: str = "default"
    name: str
    uid: str = ""
    node: str = ""
    phase: str = "Pending"
    requests: Resources = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[Term, ...] | None = None  # None: no required node affinity; (): none that can match
    tolerations: tuple[Toleration, ...] = ()
    unschedulable: bool = False  # the scheduler tried and found no node
    terminating: bool = False
    daemon: bool = False  # of a DaemonSet, or a static pod's mirror: it belongs to its machine
    pinned: bool = False  # safe-to-evict=false
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    created: float = 0.0

    @property
    def finished(self) -> bool:
        """It will never run again, so it needs no machine."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def holds_machine(self) -> bool:
        """A machine with this pod is not idle."""
        return not self.finished and (self.pinned or not self.daemon)

    @property
    def waits_for_machine(self) -> bool:
        """The autoscaler looks at it: only pods that the scheduler gave up on count, as upstream."""
        return self.unschedulable and not self.node and not self.terminating and not self.finished


def node_group(item: Object) -> NodeGroup:
    """Raises RecordError."""
    name, spec = item["metadata"]["name"], item.get("spec") or {}
    try:
        return NodeGroup(
            name=name,
            zone=spec["zone"],
            instance_type=spec["instanceType"],
            gpus=int(spec.get("gpus", 0)),
            cpu=float(spec["cpu"]),
            memory_gib=float(spec["memoryGiB"]),
            capacity_type=spec["capacityType"],
            labels=dict(spec.get("labels") or {}),
            taints=tuple(_taint(taint) for taint in spec.get("taints") or []),
            min=int(spec["min"]),
            max=int(spec["max"]),
            boot_seconds=float(spec.get("bootSeconds", 0)),
            usd_per_hour=float(spec.get("pricePerHour", 0)),
            notice_seconds=float(spec.get("noticeSeconds", 0)),
            max_age_seconds=float(spec.get("maxAgeSeconds", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"NodeGroup {name} is not what the CRD promises ({error!r}): run `python -m devcluster up`.") from error


def node(item: Object) -> Node:
    """A Node; one without conditions is not ready."""
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    labels = meta.get("labels") or {}
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or [])
    return Node(
        name=meta["name"],
        group=labels.get(GROUP_LABEL, ""),
        uid=meta.get("uid", ""),
        ready=ready,
        cordoned=bool(spec.get("unschedulable")),
        labels=labels,
        annotations=meta.get("annotations") or {},
        taints=tuple(_taint(taint) for taint in spec.get("taints") or []),
        allocatable=resources(status.get("allocatable") or {}),
        created=unix_time(meta.get("creationTimestamp")),
    )


def pod(item: Object) -> Pod:
    """A Pod."""
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    annotations = meta.get("annotations") or {}
    owners = [owner.get("kind") for owner in meta.get("ownerReferences") or [] if owner.get("controller")]
    conditions = [(one["type"], one["status"], one.get("reason")) for one in status.get("conditions") or []]
    grace = spec.get("terminationGracePeriodSeconds")
    return Pod(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta.get("uid", ""),
        node=spec.get("nodeName") or "",
        phase=status.get("phase", "Pending"),
        requests=pod_requests(spec),
        node_selector=spec.get("nodeSelector") or {},
        affinity=_affinity(spec),
        tolerations=tuple(_toleration(one) for one in spec.get("tolerations") or []),
        unschedulable=("PodScheduled", "False", "Unschedulable") in conditions,
        terminating="deletionTimestamp" in meta,
        daemon="DaemonSet" in owners or MIRROR_ANNOTATION in annotations,
        pinned=annotations.get(KEEP_ANNOTATION) == "false",
        grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else int(grace),
        created=unix_time(meta.get("creationTimestamp")),
    )


def unix_time(stamp: str | None) -> float:
    """Seconds of an RFC 3339 time; 0 for none."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def _affinity(spec: Object) -> tuple[Term, ...] | None:
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    return tuple(
        Term(
            tuple(_requirement(one) for one in term.get("matchExpressions") or []),
            tuple(_requirement(one) for one in term.get("matchFields") or []),
        )
        for term in required.get("nodeSelectorTerms") or []
    )


def _requirement(item: Object) -> Requirement:
    return Requirement(item["key"], item["operator"], tuple(item.get("values") or ()))


def _taint(item: Object) -> Taint:
    return Taint(item["key"], item.get("value") or "", item["effect"])


def _toleration(item: Object) -> Toleration:
    operator = item.get("operator") or "Equal"
    return Toleration(item.get("key") or "", operator, item.get("value") or "", item.get("effect") or "")
