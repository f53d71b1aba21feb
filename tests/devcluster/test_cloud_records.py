"""Reading Kubernetes objects: quantities, what a pod reserves, and which pods count."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from devcluster.cloud.records import NodeGroupObject, RecordError, node, node_group, pod, pod_requests, quantity, resources

QUANTITIES = {
    "2": 2,
    "500m": 0.5,
    "1.5": 1.5,
    "1e3": 1000,
    "1E3": 1000,
    "4Ki": 4096,
    "1.5Gi": 1.5 * 2**30,
    "2M": 2_000_000,
    "1k": 1000,
    "1E": 10**18,
    "1Ei": 2**60,
    "0": 0,
}


@pytest.mark.parametrize(("text", "value"), QUANTITIES.items(), ids=QUANTITIES)
def test_quantities(text: str, value: float) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "two", "1GiB", "Gi"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(RecordError, match="is not a Kubernetes quantity"):
        quantity(text)


def test_amounts_are_rounded_up() -> None:
    assert resources({"cpu": "0.1", "memory": "100m"}) == {"cpu": 100, "memory": 1}


def container(cpu: str = "", *, limit: str = "", restart: str = "") -> dict[str, Any]:
    amounts = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"cpu": limit} if limit else {}}
    return {"resources": amounts, **({"restartPolicy": restart} if restart else {})}


RESERVES: Mapping[str, tuple[dict[str, Any], dict[str, int]]] = {
    "nothing": ({"containers": [{}]}, {"pods": 1}),
    "containers add up": ({"containers": [container("1"), container("500m")]}, {"cpu": 1500, "pods": 1}),
    "a limit alone is a request": ({"containers": [container(limit="2")]}, {"cpu": 2000, "pods": 1}),
    "a request beats its limit": ({"containers": [container("1", limit="2")]}, {"cpu": 1000, "pods": 1}),
    "the largest start-up step": (
        {"containers": [container("1")], "initContainers": [container("3"), container("2")]},
        {"cpu": 3000, "pods": 1},
    ),
    "sidecars stay": (
        {"containers": [container("1")], "initContainers": [container("1", restart="Always"), container("2")]},
        {"cpu": 3000, "pods": 1},
    ),
    "overhead": ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250, "pods": 1}),
}


@pytest.mark.parametrize(("spec", "reserved"), RESERVES.values(), ids=RESERVES)
def test_what_a_pod_reserves(spec: dict[str, Any], reserved: dict[str, int]) -> None:
    assert pod_requests(spec) == reserved


def api_pod(*, meta: Any = None, spec: Any = None, status: Any = None) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n", **(meta or {})}, "spec": spec or {}, "status": status or {}}


def scheduled(status: str, reason: str) -> dict[str, Any]:
    return {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": status, "reason": reason}]}


@pytest.mark.parametrize(
    ("item", "waits"),
    [
        (api_pod(status=scheduled("False", "Unschedulable")), True),
        (api_pod(status=scheduled("False", "SchedulingGated")), False),
        (api_pod(status=scheduled("True", "")), False),
        (api_pod(), False),
        (api_pod(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}, status=scheduled("False", "Unschedulable")), False),
        (api_pod(spec={"nodeName": "x"}, status=scheduled("False", "Unschedulable")), False),
    ],
    ids=["unschedulable", "gated", "scheduled", "new", "deleted", "bound"],
)
def test_which_pods_wait_for_a_machine(item: dict[str, Any], waits: bool) -> None:
    assert pod(item).waits_for_machine == waits


@pytest.mark.parametrize(
    ("meta", "holds"),
    [
        ({}, True),
        ({"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}, True),
        ({"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}, False),
        ({"ownerReferences": [{"kind": "DaemonSet"}]}, True),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, False),
        (
            {
                "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
                "ownerReferences": [{"kind": "DaemonSet", "controller": True}],
            },
            True,
        ),
    ],
    ids=["plain", "ReplicaSet", "DaemonSet", "owner that is no controller", "static", "pinned daemon"],
)
def test_which_pods_hold_their_machine(meta: dict[str, Any], holds: bool) -> None:
    assert pod(api_pod(meta=meta, status={"phase": "Running"})).holds_machine == holds


def test_a_grace_of_zero_is_read_as_zero() -> None:
    assert (pod(api_pod(spec={"terminationGracePeriodSeconds": 0})).grace_seconds, pod(api_pod()).grace_seconds) == (0, 30)


def test_a_node_group_without_a_field_of_its_schema() -> None:
    with pytest.raises(RecordError, match=r"NodeGroup g is not what the CRD promises .*zone.*devcluster up"):
        node_group({"metadata": {"name": "g"}, "spec": {"min": 0}})


def test_machines_know_of_ebb_only_what_their_node_group_says() -> None:
    own = {
        "topology.kubernetes.io/zone": "local-a",
        "topology.kubernetes.io/region": "local",
        "node.kubernetes.io/instance-type": "ebb.t4",
        "box.ebb.dev/node-group": "g",
    }
    foreign = NodeGroupObject(name="g", zone="local-a", instance_type="ebb.t4")
    assert foreign.node_labels == own
    assert replace(foreign, labels={"ebb.dev/node-group": "g"}).node_labels == {**own, "ebb.dev/node-group": "g"}


def test_a_node() -> None:
    item = {
        "metadata": {"name": "t4-a-1", "labels": {"box.ebb.dev/node-group": "t4-a"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {"allocatable": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "Unknown"}]},
    }
    read = node(item)
    assert (read.group, read.ready, read.cordoned, read.allocatable, read.taints[0].value) == (
        "t4-a",
        False,
        True,
        {"cpu": 2000},
        "",
    )
