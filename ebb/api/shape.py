"""Checks that a worker's template has the shape of a pod template, as far as pods are made of it here. Pure.

    problem = misshapen(template, "spec.replicaSpecs.Worker.template")      # "" if it has; else one sentence with field and value

The CRD takes any object for a template, as Kubernetes' own types are too large for it. A field of another type must not be met in
the middle of a decision: one job of that kind would stop the controller for all. What is not read here is left to the API server.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Shape = Any
"""A type; {key: shape} for an object, of which "key!" is required and ANY_KEY are all; [shape] for a list."""

ANY_KEY = "*"
NAMES: Shape = {ANY_KEY: str}
AMOUNTS: Shape = {ANY_KEY: (str, int, float)}
CONTAINER: Shape = {
    "name": str,
    "command": [str],
    "args": [str],
    "env": [{"name!": str, "value": str}],
    "volumeMounts": [{"name": str, "mountPath!": str}],
    "resources": {"limits": AMOUNTS, "requests": AMOUNTS},
    "securityContext": {},
}
TERMS: Shape = [{"matchExpressions": [{}]}]
TEMPLATE: Shape = {
    "metadata": {"labels": NAMES, "annotations": NAMES},
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "volumes": [{"name!": str, "persistentVolumeClaim": {"claimName": str}}],
        "nodeSelector": NAMES,
        "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms!": TERMS}}},
        "dnsConfig": {"searches": [str]},
        "securityContext": {},
        "terminationGracePeriodSeconds": int,
        "priorityClassName": str,
    },
}
WORDS = {str: "text", int: "a whole number", (str, int, float): "text or a number"}


def misshapen(value: Any, path: str, shape: Shape = TEMPLATE) -> str:
    """The first thing that is wrong; fields that are absent or null are silent."""
    if isinstance(shape, dict):
        return _object(value, path, shape)
    if isinstance(shape, list):
        if isinstance(value, str) or not isinstance(value, Sequence):
            return _wrong(path, "a list", value)
        return next((said for at, item in enumerate(value) if (said := misshapen(item, f"{path}[{at}]", shape[0]))), "")
    right = isinstance(value, shape) and not isinstance(value, bool)
    return "" if right else _wrong(path, WORDS[shape], value)


def _object(value: Any, path: str, shape: Shape) -> str:
    if not isinstance(value, Mapping):
        return _wrong(path, "an object", value)
    missing = [key.rstrip("!") for key in shape if key.endswith("!") and value.get(key.rstrip("!")) is None]
    if missing:
        return f"{path}.{missing[0]} is missing: write it as Kubernetes' pods have it."
    for key, item in value.items():
        inner = shape.get(key, shape.get(f"{key}!", shape.get(ANY_KEY)))
        said = misshapen(item, f"{path}.{key}", inner) if inner is not None and item is not None else ""
        if said:
            return said
    return ""


def _wrong(path: str, wanted: str, found: Any) -> str:
    return f"{path} must be {wanted}, found {found!r:.80}: write it as Kubernetes' pods have it."
