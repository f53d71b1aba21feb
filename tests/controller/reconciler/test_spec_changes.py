"""Workers that were started with another spec than the job has now: they never train beside those of the present one."""

from typing import Any

import pytest

from ebb.api.spec import Job
from ebb.controller.reconciler.spec_changes import spec_hash
from ebb.controller.reconciler.types import CreatePod, Plan
from tests.builders import NOW, make_job, make_pod
from tests.looks import again, done, look

Object = dict[str, Any]
OLD = make_job(replicas=3)
NEW = make_job(replicas=3, high=8)
TEMPLATE: Object = {"container": {"image": "trainer:2"}}

CHANGES: dict[str, tuple[Object, bool]] = {
    "nothing": (make_job(replicas=3), False),
    "another-image": (make_job(replicas=3, **TEMPLATE), True),
    "another-etcd": (make_job(replicas=3, rdzvEndpoint="etcd-2:2379"), True),
    "another-rendezvous": (make_job(replicas=3, rdzvBackend="etcd"), True),
    "more-processes": (make_job(replicas=3, nprocPerNode=4), True),
    "other-bounds": (NEW, True),
    "more-workers": (make_job(replicas=4), False),
    "a-budget": (make_job(replicas=3, budget={"maxUSD": 3}), False),
    "another-priority": (make_job(replicas=3, priorityClassName="urgent"), False),
    "a-null": (make_job(replicas=3, container={"securityContext": None}), False),
}


def workers(count: int = 3, job: Object = OLD, **changes: Any) -> list[Object]:
    return [make_pod(job, index, **{"marked": True, **changes}) for index in range(count)]


def told(decided: Plan) -> list[str]:
    return [event.reason for event in decided.events if event.reason == "SpecChanged"]


@pytest.mark.parametrize(("job", "differs"), CHANGES.values(), ids=CHANGES.keys())
def test_what_workers_are_started_with(job: Object, differs: bool) -> None:
    assert (spec_hash(Job.of(job)) != spec_hash(Job.of(OLD))) == differs
    decided = look(job, *workers())
    assert (told(decided), decided.status.restarts) == ((["SpecChanged"], 1) if differs else ([], 0))


def test_all_are_stopped_and_gone_before_the_first_new_one_is_made() -> None:
    first = look(NEW, *workers())
    assert (done(first), [member.settled for member in first.status.members]) == ([], ["Stopped"] * 3)
    second = look(again(NEW, first), *workers())
    assert (done(second), told(second)) == (["-0", "-1", "-2"], [])
    third = look(again(NEW, second), *workers(1, deleted=NOW))
    assert (done(third), told(third)) == ([], [])
    running = third.status.condition("Running")
    assert running is not None
    assert (running.reason, running.message) == (
        "SpecChanged",
        "0 of at least 1 workers run: they start with the changed spec when 1 worker has left.",
    )
    last = look(again(NEW, third))
    bodies = [action.body for action in last.actions if isinstance(action, CreatePod)]
    assert [body["metadata"]["annotations"]["ebb.dev/attempt"] for body in bodies] == ["1"] * 3
    assert "--nnodes=1:8" in bodies[0]["spec"]["containers"][0]["args"]
    assert (last.status.failures, last.status.reclaims) == (0, 0)


def test_what_becomes_of_those_that_are_stopped_spends_nothing() -> None:
    job = again(NEW, look(NEW, *workers()))
    decided = look(job, *workers(phase="Failed", exit_code=1))
    assert (decided.status.failures, decided.status.reclaims, decided.status.restarts) == (0, 0, 1)


def test_one_old_worker_among_new_ones_is_enough() -> None:
    job = {**NEW, "status": {"restarts": 2}}
    decided = look(job, *workers(2, NEW, attempt=2), make_pod(OLD, 2, attempt=2, marked=True))
    assert (told(decided), decided.status.restarts) == (["SpecChanged"], 3)


def test_a_lost_worker_is_not_replaced_beside_those_of_another_spec() -> None:
    """The controller that decided so was killed, and its successor finds a gap."""
    job = {**NEW, "status": {"restarts": 1}}
    decided = look(job, *workers(2))
    assert (done(decided), told(decided)) == (["-0", "-1"], [])


def test_workers_of_an_older_controller_are_left_as_they_are() -> None:
    decided = look(NEW, *workers(marked=False))
    assert (done(decided), told(decided), decided.status.restarts) == ([], [], 0)


def test_workers_that_another_version_marked_are_left_as_they_are() -> None:
    pods = workers()
    for pod in pods:
        pod["metadata"]["annotations"]["ebb.dev/spec"] = "0.0123456789abcdef"
    assert told(look(NEW, *pods)) == []


def test_one_that_has_finished_starts_nothing_again() -> None:
    job = make_job(replicas=2, high=8, successPolicy="AllWorkers")
    old = make_job(replicas=2, successPolicy="AllWorkers")
    pods = [make_pod(old, 0, phase="Succeeded", exit_code=0, marked=True), make_pod(job, 1, marked=True)]
    decided = look(job, *pods)
    assert (told(decided), decided.status.succeeded_indices) == ([], (0,))


def test_a_failure_in_the_same_moment_starts_them_again_once() -> None:
    decided = look(NEW, *workers(2), make_pod(OLD, 2, phase="Failed", exit_code=1, marked=True))
    assert (told(decided), decided.status.restarts, decided.status.failures) == ([], 1, 1)
