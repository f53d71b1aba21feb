"""Amounts of resources: Kubernetes' quantities as whole numbers, and what a pod reserves of a machine.

    resources({"cpu": "500m", "memory": "1Gi"})      # {"cpu": 500, "memory": 1073741824}

Resources are dicts of whole numbers: cpu in thousandths, everything else in its own unit (bytes, GPUs, pods).
"""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

Object = Mapping[str, Any]
Resources = Mapping[str, int]

BINARY = {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)}
DECIMAL = {letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)}
SUFFIXES: Mapping[str, Fraction] = BINARY | DECIMAL | {"m": Fraction(1, 1000)}  # two letters come first, so Mi is not taken for i


class RecordError(ValueError):
    """An object of the API server lacks what its schema promises; the message names the object and the field."""


def pod_requests(spec: Object) -> dict[str, int]:
    """What the scheduler reserves: containers and sidecars together, or the largest start-up step, plus overhead.

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
