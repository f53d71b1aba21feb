"""What the controller stops for its own reasons is no loss, wherever it was killed between deciding so and writing it.

A pod that is gone tells nobody why: that it was to be stopped is written first, and it is deleted afterwards.
"""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_job, make_node, make_pod
from tests.looks import JOB, again, done, ended, look, running

Object = dict[str, Any]
LATER = NOW + 60
NOTICE = make_node("n1", notice=f"away at {stamp(NOW + 12)}.")
STALLED = {"startTime": stamp(NOW - 900), "stall": {"stepAt": stamp(NOW - 605)}}


def known(job: Object, *pods: Object) -> Object:
    """The job after its workers were written down."""
    return again(job, look(job, *pods))


def edited(job: Object, replicas: int | None = None, **spec: Any) -> Object:
    worker = job["spec"]["replicaSpecs"]["Worker"]
    worker = worker if replicas is None else {**worker, "replicas": replicas}
    metadata = {**job["metadata"], "generation": job["metadata"]["generation"] + 1}
    return {**job, "metadata": metadata, "spec": {**job["spec"], **spec, "replicaSpecs": {"Worker": worker}}}


def counted(decided: Plan) -> tuple[int, int]:
    return decided.status.failures, decided.status.reclaims


def uids(actions: tuple[Any, ...]) -> list[str]:
    return [action.uid for action in actions if hasattr(action, "uid")]


def test_of_those_that_start_again_after_a_failure_none_is_a_loss() -> None:
    """Killed when the others were deleted and gone, before the round in which that was done was written."""
    pods = running(JOB, 3)
    job = known(make_job(replicas=3), *pods)
    failed = look(job, ended(1), *pods[1:])
    assert (done(failed), counted(failed)) == ([], (1, 0))
    gone = look(again(job, failed), now=LATER)
    assert (done(gone), counted(gone)) == (["+0", "+1", "+2"], (1, 0))


def test_of_those_that_start_again_after_a_stall_none_is_a_loss() -> None:
    job = make_job(progress={"stallTimeoutSeconds": 600})
    job = known(job, *running(JOB, 2))
    job["status"] |= STALLED
    stalled = look(job, *running(JOB, 2))
    assert (stalled.status.restarts, done(stalled)) == (1, [])
    gone = look(again(job, stalled), now=LATER)
    assert (done(gone), counted(gone)) == (["+0", "+1"], (0, 0))


STOPS: dict[str, Plan] = {
    "scaled-down": look(JOB, *running(JOB, 3)),
    "suspended": look(make_job(suspend=True), make_pod(JOB, 2)),
    "earlier-attempt": look(make_job(replicas=3, status={"restarts": 1}), make_pod(JOB, 2)),
    "never-started-when-one-finished": look(make_job(replicas=3), ended(0), make_pod(JOB, 2, phase="Pending", node="")),
}


@pytest.mark.parametrize("decided", STOPS.values(), ids=STOPS.keys())
def test_what_is_stopped_is_written_first(decided: Plan) -> None:
    assert uids(decided.once_written) == ["pod-2-0"]
    assert uids(decided.at_once) == []
    assert [member.settled for member in decided.status.members if member.uid == "pod-2-0"] == ["Stopped"]


def test_what_was_scaled_away_is_no_loss_when_the_job_grows_again() -> None:
    job = known(make_job(replicas=3), *running(JOB, 3))
    smaller = edited(job, replicas=2)
    stopped = again(smaller, look(smaller, *running(JOB, 3)))
    grown = look(edited(stopped, replicas=3), *running(JOB, 2))
    assert (done(grown), counted(grown)) == (["+2"], (0, 0))


def test_what_was_suspended_is_no_loss_when_the_job_goes_on() -> None:
    job = edited(known(JOB, *running(JOB, 2)), suspend=True)
    stopped = again(job, look(job, *running(JOB, 2)))
    resumed = look(edited(stopped, suspend=False))
    assert (done(resumed), counted(resumed)) == (["+0", "+1"], (0, 0))


WANTED_AGAIN: dict[str, tuple[Object, Object, list[str]]] = {
    "scaled": ({"replicas": 1}, {"replicas": 2}, ["-1"]),
    "suspended": ({"suspend": True}, {"suspend": False}, ["-0", "-1"]),
}


@pytest.mark.parametrize(("change", "back", "stopped"), WANTED_AGAIN.values(), ids=WANTED_AGAIN.keys())
def test_what_is_written_down_as_stopped_is_stopped_although_it_is_wanted_again(
    change: Object, back: Object, stopped: list[str]
) -> None:
    """Killed between the write and the deletion: else a worker would live of which nothing is counted any more."""
    pods = running(JOB, 2)
    job = edited(known(JOB, *pods), **change)
    job = edited(again(job, look(job, *pods)), **back)
    assert done(look(job, *pods)) == stopped
    failed = look(job, pods[0], ended(1, 1))
    assert (done(failed), counted(failed)) == (stopped, (0, 0))


def test_one_that_finished_before_anybody_asked_for_its_deletion_has_finished() -> None:
    job = make_job(replicas=2, status={"members": [{"index": 1, "uid": "pod-1-0", "node": "n0", "settled": "Stopped"}]})
    assert look(job, ended(0, 1)).status.succeeded_indices == (1,)
    asked = make_pod(JOB, 1, phase="Succeeded", exit_code=0, finished=NOW - 2, deleted=NOW - 1)
    assert look(job, asked).status.succeeded_indices == ()


def test_a_loss_is_acted_upon_at_once_where_the_status_knows_the_worker() -> None:
    pods = (make_pod(JOB), make_pod(JOB, 1, node="n1"))
    new, old = look(JOB, *pods, nodes=(NOTICE,)), look(known(JOB, *pods), *pods, nodes=(NOTICE,))
    assert (uids(new.at_once), uids(new.once_written)) == ([], ["pod-1-0"])
    assert (uids(old.at_once), uids(old.once_written)) == (["pod-1-0"], [])


def test_a_loss_that_was_acted_upon_and_not_written_is_counted_once() -> None:
    pods = (make_pod(JOB), make_pod(JOB, 1, node="n1"))
    job = known(JOB, *pods)
    assert done(look(job, *pods, nodes=(NOTICE,))) == ["-1/12"]
    gone = look(job, pods[0], nodes=(NOTICE,))
    later = look(again(job, gone), pods[0], nodes=(NOTICE,))
    assert (counted(gone), counted(later)) == ((0, 1), (0, 1))
