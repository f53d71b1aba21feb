"""Node groups, machines, nodes and pods as the decisions read them, taken out of the JSON of the API server.

    group = node_group(api_object)          # raises RecordError if a field that the CRD guarantees is missing
    pod = pod(api_object)
    resources({"cpu": "500m", "memory": "1Gi"})      # Kubernetes' quantities as whole numbers: {"cpu": 500, "memory": 1073741824}

Times are unix seconds.
Nothing here decides or does I/O.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any

from devcluster.settings import REGION

Object = Mapping[str, Any]
Resources = Mapping[str, int]
"""Whole numbers: cpu in thousandths, everything else in its own unit (bytes, GPUs, pods)."""

GPU = "nvidia.com/gpu"
# The devcluster's own, as clouds have theirs (eks.amazonaws.com/nodegroup): what Ebb puts on nodes is in a NodeGroup's labels.
GROUP_LABEL = "box.ebb.dev/node-group"
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
BINARY = {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)}
DECIMAL = {letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)}
SUFFIXES: Mapping[str, Fraction] = BINARY | DECIMAL | {"m": Fraction(1, 1000)}  # two letters come first, so Mi is not taken for i


class RecordError(ValueError):
    """An object of the API server lacks what its schema promises; the message names the object and the field."""


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
class NodeGroupObject:
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
        """Resources that one of its machines offers to pods, as far as the object says."""
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


def node_group(item: Object) -> NodeGroupObject:
    """Raises RecordError."""
    name, spec = item["metadata"]["name"], item.get("spec") or {}
    try:
        return NodeGroupObject(
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


def pod_requests(spec: Object) -> dict[str, int]:
    """Amounts that the scheduler reserves: containers and sidecars together, or the largest start-up step, plus overhead.

    Source: Kubernetes' resource helpers (KEP-753): a sidecar is an init container that restarts always and stays.
    """
    running = _sum(_container_requests(one) for one in spec.get("containers") or [])
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for step in spec.get("initContainers") or []:
        asked = _container_requests(step)
        if step.get("restartPolicy") == "Always":
            sidecars = _sum([sidecars, asked])
            peak = _largest(peak, sidecars)
        else:
            peak = _largest(peak, _sum([sidecars, asked]))
    total = _largest(_sum([running, sidecars]), peak)
    return _sum([total, resources(spec.get("overhead") or {}), {"pods": 1}])


def resources(amounts: Mapping[str, Any]) -> dict[str, int]:
    """Quantities as whole numbers, rounded up; cpu in thousandths."""
    return {name: math.ceil(quantity(value) * (1000 if name == "cpu" else 1)) for name, value in amounts.items()}


def quantity(text: object) -> Fraction:
    """A Kubernetes quantity: "500m", "1.5Gi", "2", "1e3". Raises RecordError."""
    written = str(text).strip()
    suffix = next((one for one in SUFFIXES if written.endswith(one)), "")
    try:
        return Fraction(written.removesuffix(suffix)) * SUFFIXES.get(suffix, 1)
    except ValueError as error:
        raise RecordError(f"{text!r} is not a Kubernetes quantity such as 500m, 2 or 1.5Gi") from error


def _container_requests(container: Object) -> dict[str, int]:
    asked = container.get("resources") or {}
    return resources({**(asked.get("limits") or {}), **(asked.get("requests") or {})})


def _sum(many: Iterable[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in many:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


def _largest(one: Resources, other: Resources) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in [*one, *other]}
