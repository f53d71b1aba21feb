"""What the autoscaler tells others: the status of each NodeGroup and the text of ConfigMap cluster-autoscaler-status.

    group_status(world, group)       # {"machines", "ready", "message"} for status of the NodeGroup
    status_text(world)               # YAML, with the keys of upstream's (cluster-autoscaler 1.30 and later)

Pure. Upstream's times of probes and transitions are left out: they would make a write of every tick.
"""

from collections import Counter
from typing import Any

import yaml

from devcluster.cloud.records import NodeGroup
from devcluster.cloud.scaling import BOOTING, LEAVING, READY, World, out_of_capacity

CONFIG_MAP = "cluster-autoscaler-status"
NAMESPACE = "kube-system"


def group_status(world: World, group: NodeGroup) -> dict[str, Any]:
    """Machines that exist or are booting, how many of them are ready, and what stands in the way of more."""
    states = _states(world, group)
    return {"machines": states.total(), "ready": states[READY], "message": _message(world, group)}


def status_text(world: World) -> str:
    """The ConfigMap's data.status."""
    states = Counter(machine.state for machine in world.machines)
    groups = [_group(world, group) for group in sorted(world.groups, key=lambda one: one.name)]
    whole = {
        "autoscalerStatus": "Running",
        "clusterWide": {
            "health": {"status": "Healthy", "nodeCounts": _counts(states)},
            "scaleUp": {"status": _activity(states)},
            "scaleDown": _scale_down(len(world.idle_since)),
        },
        "nodeGroups": groups,
    }
    return yaml.safe_dump(whole, sort_keys=False)


def _group(world: World, group: NodeGroup) -> dict[str, Any]:
    states = _states(world, group)
    idle = sum(machine.group == group.name and machine.name in world.idle_since for machine in world.machines)
    limits = {"cloudProviderTarget": states.total(), "minSize": group.min, "maxSize": group.max}
    message = _message(world, group)
    blocked = {"status": "Backoff", "backoffInfo": {"errorCode": "OutOfCapacity", "errorMessage": message}}
    return {
        "name": group.name,
        "health": {"status": "Healthy", "nodeCounts": _counts(states), **limits},
        "scaleUp": blocked if message else {"status": _activity(states)},
        "scaleDown": _scale_down(idle),
    }


def _counts(states: Counter[str]) -> dict[str, Any]:
    registered = states[READY] + states[LEAVING]
    return {
        "registered": {"total": registered, "ready": states[READY], "beingDeleted": states[LEAVING], "notStarted": 0},
        "unregistered": states[BOOTING],
    }


def _activity(states: Counter[str]) -> str:
    return "InProgress" if states[BOOTING] else "NoActivity"


def _scale_down(candidates: int) -> dict[str, Any]:
    return {"status": "CandidatesPresent" if candidates else "NoCandidates", "candidates": candidates}


def _states(world: World, group: NodeGroup) -> Counter[str]:
    return Counter(machine.state for machine in world.machines if machine.group == group.name)


def _message(world: World, group: NodeGroup) -> str:
    if group.zone in world.dry:
        return f"{out_of_capacity(group.zone)}: `python -m devcluster wet {group.zone}` brings it back"
    return "the last boot failed; trying again soon" if world.backoff.get(group.name, 0) > world.now else ""
