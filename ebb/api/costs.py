"""Sums about money that controller and client share: a cost's sums until now, the node group of a machine, how dollars
look. Pure."""

from dataclasses import replace
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.platform import NodeGroup, Platform
from ebb.api.status import Cost

Object = dict[str, Any]


HOUR = 3600.0


LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def sums(cost: Cost, now: float) -> Cost:
    """The same cost with its sums until now. They never shrink: a clock that went back adds nothing."""
    at = stamp(now, digits=3)
    # Both ends as they are written: what is cut off one interval belongs to the next.
    seconds = max(0.0, (unix(at) or now) - (unix(cost.at) or now))
    return replace(
        cost,
        usd_spent=round(cost.usd_spent + cost.usd_per_hour * seconds / HOUR, 8),
        usd_on_demand=round(cost.usd_on_demand + cost.usd_on_demand_per_hour * seconds / HOUR, 8),
        machine_seconds=round(cost.machine_seconds + cost.machines * seconds, 3),
        at=at,
    )


def group_of(node: Object | None, platform: Platform | None) -> NodeGroup | None:
    """The node group that a machine came from: by its label, else the first that has such machines in its zone."""
    if node is None or platform is None:
        return None
    labels = node["metadata"].get("labels") or {}
    like = tuple(labels.get(key) for key in (LABEL_INSTANCE_TYPE, names.LABEL_ZONE, names.LABEL_CAPACITY))
    named = [group for group in platform.node_groups if group.name == labels.get(names.LABEL_NODE_GROUP)]
    alike = [group for group in platform.node_groups if (group.instance_type, group.zone, group.capacity_type) == like]
    return next(iter([*named, *alike]), None)


def dollars(amount: float) -> str:
    """Two digits after the point, or two that say something."""
    return f"{amount:.2f}" if amount >= 0.1 or not amount else f"{amount:.2g}"
