"""Machines that their cloud keeps only for so long (maxAgeSeconds of a node group): when their workers leave them by plan. Pure.

    leaves = leave_at(node, platform, index=3, workers=8)     # unix seconds; None: whenever it likes
    shunned = aged(nodes, platform, now)                      # no new worker goes there: it would soon leave again

Machines that booted together grow old together. So workers leave one after the other, the last one 5 % of the age before its
end and the first one a quarter of it: a job of n workers is at most one short, as long as a machine comes within a fifth of the
age, divided by n.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import unix
from ebb.api.platform import Platform

Object = Mapping[str, Any]

# Of a machine's age. A Node is a minute or two younger than its machine, and a worker needs its grace to leave: of 24 hours the
# last 5 % are 72 minutes.
FIRST_LEAVES, LAST_LEAVES = 0.75, 0.95
SHUNNED = 0.7


def leave_at(node: Object, platform: Platform | None, *, index: int, workers: int) -> float | None:
    """When worker `index` of so many leaves this machine, as unix seconds."""
    oldest, born = _oldest(node, platform), unix(node["metadata"].get("creationTimestamp"))
    if not oldest or born is None:
        return None
    share = LAST_LEAVES - (LAST_LEAVES - FIRST_LEAVES) * min(index, workers) / max(1, workers)
    return born + oldest * share


def aged(nodes: Iterable[Object], platform: Platform | None, now: float) -> frozenset[str]:
    """The names of those that are too old for new workers."""
    if platform is None or not any(group.max_age_seconds for group in platform.node_groups):
        return frozenset()  # no look at all nodes where nothing depends on it
    return frozenset(node["metadata"]["name"] for node in nodes if _is_old(node, platform, now))


def _is_old(node: Object, platform: Platform, now: float) -> bool:
    oldest, born = _oldest(node, platform), unix(node["metadata"].get("creationTimestamp"))
    return bool(oldest) and born is not None and now >= born + oldest * SHUNNED


def _oldest(node: Object, platform: Platform | None) -> int:
    group = (node["metadata"].get("labels") or {}).get(names.LABEL_NODE_GROUP)
    return next((one.max_age_seconds for one in platform.node_groups if one.name == group), 0) if platform else 0
