"""Machines that the cloud keeps only for so long: workers leave them one after the other, and no new one goes there."""

import pytest

from ebb.api.clock import stamp
from ebb.api.spec import Job
from ebb.controller.reconciler.capacity import claim
from ebb.controller.reconciler.records import record
from ebb.controller.reconciler.types import CreatePod, DeletePod, Object, Plan
from ebb.controller.reconciler.worker_state import aged, leave_at
from tests.builders import NOW, make_group, make_job, make_node, make_platform, make_pod
from tests.looks import again, done, look, running

DAY = 86_400
PLATFORM = make_platform(make_group("t4", max_age_seconds=DAY))
JOB = make_job(replicas=4, high=4)


def node_of(age: float, name: str = "n0", group: str = "t4") -> Object:
    """A machine of that age, in seconds."""
    node = make_node(name)
    node["metadata"] |= {"creationTimestamp": stamp(NOW - age), "labels": {"ebb.dev/node-group": group}}
    return node


def seen(age: float, *pods: Object, job: Object = JOB) -> Plan:
    return look(job, *pods, nodes=(node_of(age),), platform=PLATFORM)


def test_workers_leave_one_after_the_other_the_first_worker_last() -> None:
    times = [leave_at(node_of(0), PLATFORM, index=index, workers=4) for index in range(4)]
    shares = [round((time - NOW) / DAY, 2) for time in times if time is not None]
    assert shares == [0.95, 0.9, 0.85, 0.8]


@pytest.mark.parametrize(
    ("node", "platform"),
    [
        (node_of(0, group="other"), PLATFORM),
        (node_of(0), make_platform(make_group("t4"))),
        (node_of(0), None),
        (make_node(), PLATFORM),
    ],
    ids=["of-no-known-group", "without-a-limit", "without-a-stack", "of-unknown-age"],
)
def test_no_other_machine_is_too_old(node: Object, platform: object) -> None:
    assert leave_at(node, platform, index=0, workers=1) is None  # type: ignore[arg-type]
    assert not aged([node], platform, NOW + 10 * DAY)  # type: ignore[arg-type]


def test_a_worker_leaves_with_its_own_grace_and_the_others_stay() -> None:
    found = seen(0.82 * DAY, *running(JOB, 4))
    assert done(found) == ["-3"]
    assert [(entry.what, entry.worker, entry.cause) for entry in found.happened if entry.worker is not None] == [
        ("left", 3, "MachineAge")
    ]
    assert [(event.reason, event.warning) for event in found.events if "n0" in event.message] == [("WorkerLeaves", False)]


def test_that_is_neither_a_reclaim_nor_a_failure_whatever_is_seen_of_it_later() -> None:
    first = seen(0.82 * DAY, *running(JOB, 4))
    job = again(JOB, first)
    leaving = seen(0.82 * DAY, *running(JOB, 3), make_pod(JOB, 3, deleted=NOW), job=job)
    job = again(job, leaving)
    ended = seen(0.82 * DAY, *running(JOB, 3), make_pod(JOB, 3, deleted=NOW, phase="Failed", exit_code=138), job=job)
    job = again(job, ended)
    gone = seen(0.82 * DAY, *running(JOB, 3), job=job)
    assert [(found.status.reclaims, found.status.failures) for found in (first, leaving, ended, gone)] == [(0, 0)] * 4
    assert [sum(entry.what == "left" for entry in found.happened) for found in (first, leaving, ended, gone)] == [1, 0, 0, 0]
    assert (done(leaving), done(ended), done(gone)) == ([], [], ["+3"])
    told = record(Job.of(job), gone.status, NOW)["data"]
    assert (told["reclaims"], told["failures"]) == ("0", "0")


def test_its_zone_is_not_worse_for_other_jobs() -> None:
    job = Job.of(again(JOB, seen(0.82 * DAY, *running(JOB, 4))))
    assert claim(job, {}, NOW).reclaims == 0


def test_the_status_says_so_before_the_worker_goes() -> None:
    found = seen(0.82 * DAY, *running(JOB, 4))
    assert [action.name for action in found.once_written if isinstance(action, DeletePod)] == ["digits-worker-3"]


def test_a_controller_killed_in_between_deletes_it_although_the_job_grew_meanwhile() -> None:
    grown = make_job(replicas=8, high=8)
    job = {**grown, "status": again(JOB, seen(0.81 * DAY, *running(JOB, 4)))["status"]}
    found = seen(0.81 * DAY, *running(JOB, 4), job=job)
    assert [word for word in done(found) if word.startswith("-")] == ["-3"]
    assert (found.status.reclaims, found.status.failures) == (0, 0)


def test_one_that_finishes_before_it_is_deleted_has_finished() -> None:
    job = again(JOB, seen(0.82 * DAY, *running(JOB, 4)))
    found = seen(0.82 * DAY, *running(JOB, 3), make_pod(JOB, 3, phase="Succeeded", exit_code=0), job=job)
    assert found.status.succeeded_indices == (3,)


def test_a_machine_that_goes_before_its_time_is_reclaimed() -> None:
    node = node_of(0.82 * DAY) | {"spec": make_node(taint="cloud.google.com/impending-node-termination")["spec"]}
    found = look(JOB, *running(JOB, 4), nodes=(node,), platform=PLATFORM)
    assert found.status.reclaims == 4
    assert {entry.cause for entry in found.happened if entry.worker is not None} == {"ReclaimNotice"}


def test_the_time_without_enough_workers_is_lost_time() -> None:
    job = make_job(replicas=4, low=4, high=4)
    well = seen(0.5 * DAY, *running(job, 4), job=job)
    short = seen(0.82 * DAY, *running(job, 4), job=again(job, well))
    back = look(again(job, short), *running(job, 4), now=NOW + 40, platform=PLATFORM)
    assert (well.status.state, short.status.state, back.status.state) == ("Running", "Restarting", "Running")
    assert (back.status.seconds_lost, back.status.reclaims) == (40, 0)


def test_before_that_nothing_happens_but_it_is_looked_at_in_time() -> None:
    found = seen(0.7 * DAY, *running(JOB, 4))
    assert done(found) == []
    assert found.wake_at is not None
    assert found.wake_at == pytest.approx(NOW + 0.1 * DAY, abs=1) or found.wake_at < NOW + 0.1 * DAY


def test_no_new_worker_goes_to_a_machine_that_it_would_soon_leave() -> None:
    assert aged([node_of(0.69 * DAY, "young"), node_of(0.71 * DAY, "old")], PLATFORM, NOW) == {"old"}
    found = look(JOB, *running(JOB, 3), platform=PLATFORM, shunned=frozenset({"old"}))
    [pod] = [action.body for action in found.actions if isinstance(action, CreatePod)]
    assert "old" in str(pod["spec"]["affinity"])
