"""Small models of what decides whether a group that has no machine yet is grown for a pod.

    node = template_node(asg_tags, described, "g4dn.xlarge", "us-west-2a")
    misfits(pod, node)           # [] if the scheduler, and so the autoscaler, would put the pod there

`template_node` follows buildNodeFromTemplate of cluster-autoscaler-1.35.2 (cloudprovider/aws/aws_manager.go) with its quirks:
tags of the Auto Scaling group first, then labels, taints and `resources/` tags that DescribeNodegroup returns.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.clouds.aws.catalog import TYPES

Object = dict[str, Any]
_PREFIX = "k8s.io/cluster-autoscaler/node-template"
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


@dataclass(frozen=True, kw_only=True)
class Node:
    labels: Mapping[str, str]
    taints: frozenset[tuple[str, str, str]]
    allocatable: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Described:
    """What DescribeNodegroup says."""

    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    tags: Mapping[str, str]


def quantity(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    assert found, text
    return float(found[1]) * _UNITS[found[2]]


def template_node(tags: Mapping[str, str], described: Described, instance_type: str, zone: str) -> Node:
    machine = next(one for one in TYPES if one.name == instance_type)
    allocatable = {
        "pods": 110.0,
        "cpu": float(machine.cpu),
        "memory": machine.memory_gib * 2.0**30,
        "nvidia.com/gpu": float(machine.gpus),
    }
    allocatable |= _resources(tags) | _resources(described.tags)
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/region": zone[:-1],
        "topology.kubernetes.io/zone": zone,
        **_under("label", tags),
        **described.labels,
    }
    taints = {(key, *_taint(value)) for key, value in _under("taint", tags).items()}
    taints |= {(one["key"], one["value"], _EFFECTS[one["effect"]]) for one in described.taints}
    return Node(labels=labels, taints=frozenset(taints), allocatable=allocatable)


def _under(part: str, tags: Mapping[str, str]) -> dict[str, str]:
    return {key.split(f"{_PREFIX}/{part}/")[1]: value for key, value in tags.items() if key.startswith(f"{_PREFIX}/{part}/")}


def _resources(tags: Mapping[str, str]) -> dict[str, float]:
    return {name: quantity(amount) for name, amount in _under("resources", tags).items()}


def _taint(value: str) -> tuple[str, str]:
    found = re.fullmatch("(.*):(NoSchedule|NoExecute|PreferNoSchedule)", value)
    assert found, f"the autoscaler skips a taint tag of the value {value!r}"
    return found[1], found[2]


def misfits(pod: Object, node: Node) -> list[str]:
    """Why the pod cannot run on the node."""
    return [*_labels(pod["spec"], node), *_taints(pod["spec"], node), *_amounts(pod["spec"], node)]


def _labels(spec: Object, node: Node) -> Iterator[str]:
    for key, value in (spec.get("nodeSelector") or {}).items():
        if node.labels.get(key) != value:
            yield f"label {key}: {node.labels.get(key)!r}, wanted {value!r}"


def _taints(spec: Object, node: Node) -> Iterator[str]:
    for key, value, effect in sorted(node.taints):
        if not any(_tolerates(one, key, value, effect) for one in spec.get("tolerations") or []):
            yield f"taint {key}={value}:{effect}"


def _tolerates(toleration: Object, key: str, value: str, effect: str) -> bool:
    if toleration.get("key") not in (None, "", key) or toleration.get("effect") not in (None, "", effect):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == value


def _amounts(spec: Object, node: Node) -> Iterator[str]:
    wanted: dict[str, float] = {}
    for container in spec["containers"]:
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            wanted[name] = wanted.get(name, 0.0) + quantity(str(amount))
    for name, amount in wanted.items():
        if amount > node.allocatable.get(name, 0.0):
            yield f"{name}: {amount}, there is {node.allocatable.get(name, 0.0)}"
