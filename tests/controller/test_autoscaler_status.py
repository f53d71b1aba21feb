"""What the autoscaler says, in the planner's words."""

from typing import Any

import pytest
import yaml

from ebb.api.clock import stamp
from ebb.controller.autoscaler_status import MOST_WORDS, Words, by_group, read_report
from ebb.controller.reconciler.capacity import GroupState, Word
from tests.builders import NOW

Object = dict[str, Any]

# As cluster-autoscaler 1.35 writes it for Auto Scaling groups (clusterstate/api/types.go), shortened.
REPORT = """\
time: 2026-11-21 07:00:00.123456789 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health: {status: Healthy}
  scaleUp: {status: InProgress, lastProbeTime: "2026-11-21T07:00:00Z"}
nodeGroups:
- name: eks-spot-t4-us-west-2a-1a2b3c4-c6c7a1b2-0000-1111-2222-333344445555
  health: {status: Healthy, cloudProviderTarget: 3, minSize: 0, maxSize: 8}
  scaleUp:
    status: Backoff
    backoffInfo:
      errorCode: placeholder-cannot-be-fulfilled
      errorMessage: AWS cannot provision any more instances for this node group
    lastProbeTime: "2026-11-21T07:00:00Z"
- name: eks-on-demand-t4-us-west-2a-5d6e7f8-d6c7a1b2-0000-1111-2222-333344445555
  scaleUp: {status: InProgress}
- name: eks-manager-9f9f9f9-e6c7a1b2-0000-1111-2222-333344445555
  scaleUp: {status: NoActivity}
"""
DRY = GroupState(backing_off=True, message="AWS cannot provision any more instances for this node group")


def event(reason: str = "NotTriggerScaleUp", *, uid: str = "pod-0", at: float = NOW, **rest: Any) -> Object:
    said = {"reason": reason, "message": "pod didn't trigger scale-up: 1 max node group size reached"}
    return {"metadata": {"name": "e"}, "involvedObject": {"uid": uid}, "lastTimestamp": stamp(at), **said, **rest}


def test_a_report_says_which_groups_back_off_in_the_clouds_words() -> None:
    states = by_group(read_report(REPORT), ["spot-t4-us-west-2a", "on-demand-t4-us-west-2a", "manager", "spot-t4-us-west-2b"])
    assert states == {"spot-t4-us-west-2a": DRY, "on-demand-t4-us-west-2a": GroupState(), "manager": GroupState()}


def test_an_error_without_a_message_is_known_by_its_code() -> None:
    report = {"nodeGroups": [{"name": "g", "scaleUp": {"status": "Backoff", "backoffInfo": {"errorCode": "QUOTA_EXCEEDED"}}}]}
    assert read_report(yaml.safe_dump(report)) == {"g": GroupState(backing_off=True, message="QUOTA_EXCEEDED")}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Initializing",
        "{",
        "nodeGroups: 3",
        "nodeGroups: [1, null]",
        "- a",
        "nodeGroups:\n- scaleUp: Backoff",
        "a: !!python/x y",
    ],
)
def test_a_report_that_cannot_be_understood_says_nothing(text: str) -> None:
    assert not any(state.backing_off for state in read_report(text).values())


@pytest.mark.parametrize(
    ("cloud_name", "ours"),
    [
        ("spot-t4-a", "spot-t4-a"),
        ("eks-spot-t4-a-c6c7a1b2-0000", "spot-t4-a"),
        ("https://compute.googleapis.com/v1/projects/p/zones/z/instanceGroups/gke-x-spot-t4-a-0f0f-grp", "spot-t4-a"),
        ("eks-spot-t4-a-large-c6c7a1b2", "spot-t4-a-large"),
        ("eks-spot-t4-ab-c6c7a1b2", None),
        ("eks-myspot-t4-a-c6c7a1b2", None),
        ("other", None),
    ],
)
def test_a_group_is_known_by_our_name_inside_the_clouds(cloud_name: str, ours: str | None) -> None:
    assert by_group({cloud_name: DRY}, ["spot-t4-a", "spot-t4-a-large"]) == ({ours: DRY} if ours else {})


def test_one_of_our_groups_that_is_several_of_the_clouds_backs_off_if_one_does() -> None:
    for first, second in ((DRY, GroupState()), (GroupState(), DRY)):
        assert by_group({"g-1": first, "g-2": second}, ["g"]) == {"g": DRY}


def test_the_newest_word_about_a_pod_counts_in_whatever_order_they_come() -> None:
    words = Words()
    assert words.hear(event(at=NOW)) == "pod-0"
    assert words.hear(event("TriggeredScaleUp", at=NOW + 9, message="pod triggered scale-up")) == "pod-0"
    assert words.hear(event(at=NOW + 5)) is None, "older"
    assert words.hear(event("TriggeredScaleUp", at=NOW + 9, message="pod triggered scale-up")) is None, "no news"
    assert words.latest == {"pod-0": Word(triggered=True, message="pod triggered scale-up", at=NOW + 9)}
    words.forget("pod-0")
    assert words.latest == {}


def test_an_event_of_the_newer_kind_has_its_time_elsewhere() -> None:
    words = Words()
    words.hear(event(lastTimestamp=None, eventTime=stamp(NOW), series={"lastObservedTime": stamp(NOW + 7)}))
    assert words.latest["pod-0"].at == NOW + 7


def test_words_are_bounded_and_only_those_about_our_pods_are_kept() -> None:
    words = Words()
    for index in range(MOST_WORDS + 10):
        words.hear(event(uid=f"pod-{index}"))
    assert len(words.latest) == MOST_WORDS
    words.keep({"pod-500"})
    assert list(words.latest) == ["pod-500"]
