"""What Karpenter says, in the planner's words: its objects and events as sigs.k8s.io/karpenter v1.14.0 writes them."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.controller.autoscaler_status import Words
from ebb.controller.karpenter import FULL_SECONDS, STOCKOUT_SECONDS, Karpenter
from ebb.controller.reconciler.capacity import GroupState
from ebb.controller.reconciler.stockouts import Kind, kind_of
from tests.builders import NOW

Object = dict[str, Any]
POOL = "spot-t4-us-west-2a"
# InsufficientCapacityErrorEvent() of nodeclaim/lifecycle/events.go with the error of combineFleetErrors() in
# karpenter-provider-aws v1.14.1, pkg/providers/instance/instance.go, around EC2's own sentence.
NONE_LEFT = (
    "creating instance, insufficient capacity, with fleet error(s), InsufficientInstanceCapacity: We currently do not have "
    "sufficient g4dn.xlarge capacity in the Availability Zone you requested (us-west-2a)."
)
OVER_QUOTA = "insufficient capacity, with fleet error(s), MaxSpotInstanceCountExceeded: Max spot instance count exceeded"
# PodFailedToScheduleEvent() with the errors of addToNewNodeClaim() in scheduling/scheduler.go: one for each NodePool.
NOT_THIS_ZONE = (
    "incompatible requirements, key topology.kubernetes.io/zone, topology.kubernetes.io/zone In [us-west-2a] not in [us-west-2b]"
)
EXHAUSTED = f"Failed to schedule pod, node limits have been exhausted for nodepool (NodePool={POOL}); {NOT_THIS_ZONE}"
AT_LIMIT = f"max node group size reached: NodePool {POOL} has all the Nodes that its limits allow"


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def stockout(message: str = NONE_LEFT, *, pool: str = POOL, at: float = NOW) -> Object:
    about = {"kind": "NodeClaim", "name": f"{pool}-x7k2p", "uid": "claim"}
    said = {"reason": "InsufficientCapacityError", "message": f"NodeClaim {pool}-x7k2p event: {message}"}
    return {"involvedObject": about, "lastTimestamp": stamp(at), **said}


def of_pod(reason: str, message: str, at: float = NOW) -> Object:
    return {"involvedObject": {"kind": "Pod", "uid": "pod-0"}, "reason": reason, "message": message, "lastTimestamp": stamp(at)}


def claim(status: str, reason: str, message: str = "", *, at: float = NOW, name: str = "x7k2p") -> Object:
    condition = {"type": "Launched", "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp(at)}
    metadata = {"name": f"{POOL}-{name}", "labels": {"karpenter.sh/nodepool": POOL}}
    return {"metadata": metadata, "status": {"conditions": [condition]}}


def out(message: str) -> dict[str, GroupState]:
    return {POOL: GroupState(backing_off=True, message=message)}


@pytest.mark.parametrize(("message", "kind"), [(NONE_LEFT, Kind.DRY), (OVER_QUOTA, Kind.QUOTA)])
def test_a_machine_that_ec2_does_not_give_puts_its_group_out_until_karpenter_tries_again(message: str, kind: Kind) -> None:
    clock = Clock()
    supply = Karpenter(clock)
    supply.hear(stockout(message))
    assert supply.states() == out(message)
    assert kind_of(message) is kind
    assert supply.changes_at == NOW + STOCKOUT_SECONDS
    clock.now += STOCKOUT_SECONDS
    assert supply.states() == {}
    assert supply.changes_at is None


def test_a_second_one_prolongs_it_and_an_old_one_says_nothing() -> None:
    clock = Clock()
    supply = Karpenter(clock)
    supply.hear(stockout(at=NOW - STOCKOUT_SECONDS))
    assert supply.states() == {}
    supply.hear(stockout(at=NOW))
    supply.hear(stockout(OVER_QUOTA, at=NOW - 60))
    assert supply.states() == out(NONE_LEFT)
    supply.hear(stockout(OVER_QUOTA, at=NOW + 1))
    assert supply.states() == out(OVER_QUOTA)
    assert supply.changes_at == NOW + 1 + STOCKOUT_SECONDS


def test_a_machine_that_is_launched_since_proves_the_contrary() -> None:
    supply = Karpenter(Clock())
    supply.hear(stockout(at=NOW))
    supply.claim(None, claim("True", "Launched", at=NOW - 5))
    assert supply.states() == out(NONE_LEFT), "one of before"
    supply.claim(None, claim("True", "Launched", at=NOW + 5, name="aaaaa"))
    assert supply.states() == {}


def test_what_karpenter_cannot_launch_at_all_is_told_while_it_tries() -> None:
    """ToReasonMessage() of karpenter-provider-aws, pkg/errors: neither a stockout nor a quota, but no machine comes."""
    message = "Error creating fleet request: User is not authorized to perform this operation"
    supply, waits = Karpenter(Clock()), claim("Unknown", "AwaitingReconciliation", "object is awaiting reconciliation")
    supply.claim(None, waits)
    assert supply.states() == {}
    supply.claim(waits, failing := claim("Unknown", "Unauthorized", message))
    assert supply.states() == out(message)
    supply.claim(failing, None)
    assert supply.states() == {}


def test_a_node_pool_at_its_limit_is_full_and_the_others_of_that_sentence_are_not() -> None:
    clock = Clock()
    supply = Karpenter(clock)
    supply.hear(of_pod("FailedScheduling", EXHAUSTED))
    assert supply.states() == out(AT_LIMIT)
    assert kind_of(AT_LIMIT) is Kind.FULL
    clock.now += FULL_SECONDS
    assert supply.states() == {}


def test_a_node_pool_at_its_limit_has_room_when_a_machine_of_it_is_gone() -> None:
    supply, machine = Karpenter(Clock()), claim("True", "Launched", at=NOW - 60)
    supply.claim(None, machine)
    supply.hear(of_pod("FailedScheduling", EXHAUSTED))
    supply.claim(machine, {**machine, "metadata": {**machine["metadata"], "deletionTimestamp": stamp(NOW)}})
    assert supply.states() == out(AT_LIMIT), "it counts until it is gone"
    supply.claim(machine, None)
    assert supply.states() == {}


def test_a_stockout_is_not_over_because_a_machine_is_gone() -> None:
    supply, machine = Karpenter(Clock()), claim("True", "Launched", at=NOW - 60)
    supply.claim(None, machine)
    supply.hear(stockout())
    supply.claim(machine, None)
    assert supply.states() == out(NONE_LEFT)


@pytest.mark.parametrize(
    "event",
    [
        of_pod("Nominated", f"Pod should schedule on: nodeclaim/{POOL}-x7k2p"),
        of_pod("FailedScheduling", f"Failed to schedule pod, {NOT_THIS_ZONE}"),
        {"involvedObject": {"kind": "NodeClaim", "name": f"{POOL}-x7k2p"}, "reason": "DisruptionBlocked", "message": "a pod"},
        {"reason": "InsufficientCapacityError"},
    ],
)
def test_of_other_events_no_group_is_out(event: Object) -> None:
    supply = Karpenter(Clock())
    supply.hear(event)
    assert supply.states() == {}


def test_a_pod_that_is_nominated_has_a_machine_on_its_way_and_one_that_failed_has_none() -> None:
    words = Words()
    words.hear(of_pod("FailedScheduling", EXHAUSTED))
    assert not words.latest["pod-0"].triggered
    words.hear(of_pod("Nominated", f"Pod should schedule on: nodeclaim/{POOL}-x7k2p", at=NOW + 1))
    assert words.latest["pod-0"].triggered
    assert kind_of(EXHAUSTED) is None, "the sentence names NodePools that the pod has nothing to do with"
