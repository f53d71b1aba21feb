"""The stack of the week: node groups of three zones, spot and on demand, as the platform, autoscaler and nodes tell of them."""

import json
from typing import Any

from devcluster.cloud.records import ON_DEMAND, SPOT, NodeGroupObject, Taint

Object = dict[str, Any]

ZONES = ("week-a", "week-b", "week-c")
WORKERS_PER_MACHINE = 2
USD_PER_HOUR = 12.0  # on demand; spot costs 30 % of it
SPOT_DISCOUNT = 0.7
LARGEST = {SPOT: 10, ON_DEMAND: 8}  # machines of a group: two jobs of 16 workers do not both fit into one zone's spot group
CPU, MEMORY_GIB = 8, 64
TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")
ALIVE = "week.ebb.dev/kubelet"
"""Label of machines whose kubelet runs."""
NOTICE_SECONDS = 10
"""The longest notice of a reclaim."""
PROVISION_SECONDS = 10
"""From a machine's being asked for until pods run on it: 5 s of boot at most, and the scheduler's and kwok's share."""


def groups() -> list[NodeGroupObject]:
    """One group of machines for each zone and way of buying."""
    return [_group(zone, capacity) for zone in ZONES for capacity in (SPOT, ON_DEMAND)]


def _group(zone: str, capacity: str) -> NodeGroupObject:
    price = USD_PER_HOUR * (1 - SPOT_DISCOUNT if capacity == SPOT else 1)
    labels = {"ebb.dev/capacity-type": capacity, "ebb.dev/gpu-type": "T4", ALIVE: "yes"}
    return NodeGroupObject(
        name=f"{capacity}-{zone}", zone=zone, instance_type="week.large", gpus=WORKERS_PER_MACHINE, cpu=CPU,
        memory_gib=MEMORY_GIB, capacity_type=capacity, labels=labels, taints=(TAINT,), max=LARGEST[capacity], usd_per_hour=price,
    )  # fmt: skip


def platform_facts(namespace: str) -> Object:
    """ConfigMap `ebb-platform` for these groups."""
    facts = [
        {
            "name": one.name, "zone": one.zone, "instanceType": one.instance_type, "gpuType": "T4", "gpusPerNode": one.gpus,
            "cpu": one.cpu, "memoryGiB": one.memory_gib, "capacityType": one.capacity_type, "min": one.min, "max": one.max,
            "taints": [{"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect}], "labels": {},
            "pricePerHourOnDemand": USD_PER_HOUR, "spotDiscount": SPOT_DISCOUNT, "noticeSeconds": NOTICE_SECONDS,
            "provisionSeconds": PROVISION_SECONDS,
        }
        for one in groups()
    ]  # fmt: skip
    whole = {
        "cloud": "week", "region": "week", "stack": "week", "trainerImage": "registry.example/trainer:1", "volumes": [],
        "jobsNamespace": namespace, "etcdEndpoint": "etcd-service:2379", "nodeGroups": facts, "dashboards": {},
    }  # fmt: skip
    return {"metadata": {"name": "ebb-platform"}, "data": {"schema": "1", "platform.json": json.dumps(whole)}}


def node_object(name: str, group: NodeGroupObject) -> Object:
    """The Node as the machine's kubelet would make it."""
    amounts = {"cpu": str(CPU), "memory": f"{MEMORY_GIB}Gi", "pods": "110", "nvidia.com/gpu": str(WORKERS_PER_MACHINE)}
    return {
        "metadata": {"name": name, "labels": {**group.node_labels, "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect}]},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kwok"}],
            "nodeInfo": {"kubeletVersion": "kwok"},
        },
    }
