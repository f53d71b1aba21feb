"""Clocks that disagree by hours: what others write is not believed where the controller's own times refute it.

`ahead` is how far the controller's clock is before theirs.
"""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.schema import encode
from tests.builders import NOW, make_group, make_platform, make_pod
from tests.controller.reconciler.scenes import BACKOFF, UNSCHEDULABLE, placed_job, said, zone_of
from tests.controller.reconciler.stories import Story, stalled
from tests.controller.reconciler.test_stall_policy_starts import JOB, stuck
from tests.looks import again, look

Object = dict[str, Any]
ZONES = make_platform(*(make_group(f"t4-{zone}", zone=zone) for zone in ("local-a", "local-b", "local-c")))
APART = pytest.mark.parametrize("ahead", [7200.0, -7200.0, 0.0], ids=["ahead", "behind", "together"])


def waiting(job: Object, index: int, ahead: float, *, made: float = NOW) -> Object:
    pod = make_pod(job, index, phase="Pending", node="", conditions=(UNSCHEDULABLE,))
    pod["metadata"]["creationTimestamp"] = stamp(made - ahead)
    return pod


def scheduled(job: Object, index: int, ahead: float) -> Object:
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(NOW - ahead)}
    return make_pod(job, index, conditions=(placed,))


@APART
def test_a_zone_is_given_the_time_that_a_machine_takes(ahead: float) -> None:
    job = placed_job(low=2, since=NOW)
    pods = [waiting(job, index, ahead) for index in range(2)]
    zones = [zone_of(look(job, *pods, platform=ZONES, now=NOW + after)) for after in (359, 360)]
    assert zones == ["local-a", "local-b"]


@APART
def test_what_the_autoscaler_announced_is_waited_for_but_not_for_hours(ahead: float) -> None:
    job = placed_job(low=2, since=NOW)
    pods = [waiting(job, index, ahead) for index in range(2)]
    asked = said("pod triggered scale-up", 0, 1, triggered=True, at=NOW - ahead)
    zones = [zone_of(look(job, *pods, platform=ZONES, supply=asked, now=NOW + after)) for after in (359, 360)]
    assert zones == ["local-a", "local-b"]


@APART
def test_a_job_with_half_of_its_machines_is_not_written_at_every_look(ahead: float) -> None:
    job = placed_job(low=2, since=NOW)
    pods, writes = [scheduled(job, 0, ahead), waiting(job, 1, ahead)], 0
    for after in range(1, 29):
        decided = look(job, *pods, platform=ZONES, supply=said(BACKOFF, 1), now=NOW + after)
        writes += encode(decided.status) != job["status"]
        job = again(job, decided)
    assert writes == 1


@APART
def test_containers_that_are_being_created_have_ten_minutes(ahead: float) -> None:
    story, pods = Story(JOB), [stuck(index, placed=NOW - ahead) for index in range(2)]
    found = [stalled(story.look(after, *pods)) for after in (0, 599, 600)]
    assert found == [None, None, ("True", "CannotStart")]


@APART
def test_an_automatic_job_does_not_shrink_before_machines_can_be_there(ahead: float) -> None:
    status = {"target": 4, "targetTime": stamp(NOW)}
    job = placed_job(low=2, replicas=3, high=6, scaling="automatic", since=NOW - 9999, status=status)
    del job["status"]["waitingSince"]
    pods = [*(scheduled(job, index, ahead) for index in range(2)), *(waiting(job, index, ahead) for index in (2, 3))]
    targets = [look(job, *pods, platform=ZONES, now=NOW + after).status.target for after in (359, 360)]
    assert targets == [4, 2]
