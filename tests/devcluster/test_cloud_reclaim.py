"""How machines leave: wishes, plans, and the marks on the node."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from devcluster.cloud.reclaim import (
    LEAVE_ANNOTATION,
    WISH_ANNOTATION,
    WITH_NOTICE,
    WITHOUT_NOTICE,
    Leave,
    LeavePlan,
    WishError,
    condition,
    marks,
    plan_leave,
    read_leave,
    read_wish,
    removal,
    start,
    unmarks,
)
from devcluster.cloud.records import ON_DEMAND, SPOT, Node, NodeGroupObject, Pod
from devcluster.cloud.scaling import GROUP_DELETED, IDLE
from ebb.api.contract import TAINT_RECLAIM

NOW = 1000.0
SPOT_GROUP = NodeGroupObject(name="t4-a", zone="local-a", capacity_type=SPOT)
NOTICE = Leave(WITH_NOTICE, NOW + 30)


def node(wish: object = None, **annotations: str) -> Node:
    """A node; `wish` as the verb writes it."""
    written = {} if wish is None else {WISH_ANNOTATION: json.dumps(wish)}
    return Node(name="t4-a-1", group="t4-a", annotations=written | annotations)


def pod(name: str = "p", **changes: Any) -> Pod:
    return replace(Pod(name=name, node="t4-a-1", phase="Running", grace_seconds=30), **changes)


WISHES: Mapping[str, tuple[Node, float | None]] = {
    "none": (node(), None),
    "notice": (node({"noticeSeconds": 30}), 30),
    "no notice": (node({"noticeSeconds": 0}), 0),
    "a fraction": (node({"noticeSeconds": 0.5}), 0.5),
}


@pytest.mark.parametrize(("on", "seconds"), WISHES.values(), ids=WISHES)
def test_wishes(on: Node, seconds: float | None) -> None:
    assert read_wish(on, SPOT_GROUP) == seconds


BAD_WISHES: Mapping[str, tuple[Node, NodeGroupObject, str]] = {
    "on-demand": (node({"noticeSeconds": 30}), replace(SPOT_GROUP, capacity_type=ON_DEMAND), "clouds reclaim only spot machines"),
    "not JSON": (Node(name="n", annotations={WISH_ANNOTATION: "now"}), SPOT_GROUP, "must look like"),
    "a list": (node([30]), SPOT_GROUP, "must look like"),
    "no number": (node({"noticeSeconds": "soon"}), SPOT_GROUP, "must look like"),
    "other key": (node({"notice": 30}), SPOT_GROUP, "must look like"),
    "negative": (node({"noticeSeconds": -1}), SPOT_GROUP, "say 0 to 3600"),
    "infinite": (Node(name="n", annotations={WISH_ANNOTATION: '{"noticeSeconds": Infinity}'}), SPOT_GROUP, "say 0 to 3600"),
    "not a number": (Node(name="n", annotations={WISH_ANNOTATION: '{"noticeSeconds": NaN}'}), SPOT_GROUP, "say 0 to 3600"),
}


@pytest.mark.parametrize(("on", "group", "says"), BAD_WISHES.values(), ids=BAD_WISHES)
def test_wishes_that_are_refused(on: Node, group: NodeGroupObject, says: str) -> None:
    with pytest.raises(WishError, match=says):
        read_wish(on, group)


STARTS: Mapping[str, tuple[float, Leave | None, Leave]] = {
    "notice": (30, None, Leave(WITH_NOTICE, NOW + 30)),
    "no notice": (0, None, Leave(WITHOUT_NOTICE, NOW)),
    "sooner than before": (5, NOTICE, Leave(WITH_NOTICE, NOW + 5)),
    "later than before": (60, NOTICE, NOTICE),
    "at once after a notice": (0, NOTICE, Leave(WITHOUT_NOTICE, NOW)),
    "instead of an idle removal": (30, Leave(IDLE, NOW + 1), NOTICE),
}


@pytest.mark.parametrize(("seconds", "already", "leave"), STARTS.values(), ids=STARTS)
def test_starts(seconds: float, already: Leave | None, leave: Leave) -> None:
    assert start(seconds, NOW, already) == leave


PLANS: Mapping[str, tuple[Leave, list[Pod], LeavePlan]] = {
    "pods are evicted with their own grace": (
        NOTICE,
        [pod(grace_seconds=10)],
        LeavePlan(evict=((pod(grace_seconds=10), 10),), next_wake_seconds=1),
    ),
    "but no more than the time left": (
        Leave(WITH_NOTICE, NOW + 7.9),
        [pod()],
        LeavePlan(evict=((pod(), 7),), next_wake_seconds=1),
    ),
    "a grace of 0 becomes 1": (
        NOTICE,
        [pod(grace_seconds=0)],
        LeavePlan(evict=((pod(grace_seconds=0), 1),), next_wake_seconds=1),
    ),
    "the last half second": (
        Leave(WITH_NOTICE, NOW + 0.5),
        [pod()],
        LeavePlan(evict=((pod(), 1),), next_wake_seconds=0.5),
    ),
    "stopping pods are waited for": (NOTICE, [pod(terminating=True)], LeavePlan(next_wake_seconds=30)),
    "also when their processes are done": (NOTICE, [pod(terminating=True, phase="Failed")], LeavePlan(next_wake_seconds=30)),
    "daemons are not": (NOTICE, [pod(daemon=True)], LeavePlan(kill=True)),
    "finished pods are not": (NOTICE, [pod(phase="Succeeded")], LeavePlan(kill=True)),
    "nobody left": (NOTICE, [], LeavePlan(kill=True)),
    "the deadline": (Leave(WITH_NOTICE, NOW), [pod()], LeavePlan(kill=True)),
    "safe-to-evict=false does not stop a reclaim": (
        NOTICE,
        [pod(pinned=True)],
        LeavePlan(evict=((pod(pinned=True), 30),), next_wake_seconds=1),
    ),
    "a deleted group is drained": (removal(GROUP_DELETED, NOW), [pod()], LeavePlan(evict=((pod(), 30),), next_wake_seconds=1)),
    "idle: late pods are waited for": (removal(IDLE, NOW), [], LeavePlan(next_wake_seconds=1)),
    "idle: a late pod keeps it": (removal(IDLE, NOW), [pod()], LeavePlan(stay=True, next_wake_seconds=1)),
    "idle: nobody came": (Leave(IDLE, NOW), [pod(daemon=True)], LeavePlan(kill=True)),
}


@pytest.mark.parametrize(("leave", "pods", "plan"), PLANS.values(), ids=PLANS)
def test_plans(leave: Leave, pods: list[Pod], plan: LeavePlan) -> None:
    assert plan_leave(leave, pods, NOW) == plan


def api_node(*taints: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": list(taints)} if taints else {}}


OTHER = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
MARK = {"key": TAINT_RECLAIM, "value": "notice", "effect": "NoSchedule"}


@pytest.mark.parametrize("before", [api_node(OTHER), api_node(OTHER, MARK)], ids=["first", "again"])
def test_marks_keep_other_taints_and_take_the_wish_off(before: dict[str, Any]) -> None:
    assert marks(NOTICE, before) == {
        "metadata": {
            "annotations": {WISH_ANNOTATION: None, LEAVE_ANNOTATION: '{"why": "reclaim-notice", "deadline": 1030.0}'},
            "resourceVersion": "7",
        },
        "spec": {"taints": [OTHER, MARK]},
    }


def test_marks_can_be_read_and_undone() -> None:
    patch = marks(NOTICE, api_node())
    assert (
        read_leave(Node(name="n", annotations={LEAVE_ANNOTATION: patch["metadata"]["annotations"][LEAVE_ANNOTATION]})) == NOTICE
    )
    undone = unmarks(api_node(OTHER, MARK))
    assert undone["spec"]["taints"] == [OTHER]
    assert set(undone["metadata"]["annotations"].values()) == {None}


def test_an_idle_machine_is_not_marked_as_reclaimed() -> None:
    assert [taint["key"] for taint in marks(removal(IDLE, NOW), api_node())["spec"]["taints"]] == [
        "ToBeDeletedByClusterAutoscaler"
    ]


def test_a_garbled_leave_is_due() -> None:
    assert read_leave(node(**{LEAVE_ANNOTATION: "{"})) == Leave(WITHOUT_NOTICE, 0.0)


def test_the_condition_says_until_when() -> None:
    (said,) = condition(NOTICE, NOW)["status"]["conditions"]
    assert (said["type"], said["status"], said["reason"]) == ("ReclaimNotice", "True", "SpotReclaim")
    assert "1970-01-01T00:17:10Z" in said["message"]
