"""What the planner says: conditions, reasons, columns, events. What it does is in test_reconcile.py."""

import pytest

from tests.workloads.builders import NOW, make_group, make_job, make_platform, make_pod
from tests.workloads.looks import JOB, again, look, running
from workloads.clock import stamp
from workloads.job.schema import encode
from workloads.plan.reconcile import refused
from workloads.plan.values import Plan

WAITS: dict[str, tuple[Plan, str, str]] = {
    "no-machine": (
        look(
            JOB,
            *running(
                JOB, 2, phase="Pending", node="", conditions=({"type": "PodScheduled", "message": "0/1 nodes are available."},)
            ),
        ),
        "WaitingForMachines",
        "0 of at least 1 workers run: 2 workers wait for a machine (0/1 nodes are available).",
    ),
    "starting": (
        look(JOB, *running(JOB, 2, phase="Pending")),
        "WaitingForStart",
        "0 of at least 1 workers run: 2 workers wait for containers to start.",
    ),
    "too-few": (
        look(make_job(low=2), make_pod(JOB)),
        "WaitingForWorkers",
        "1 of at least 2 workers run: the others are being created.",
    ),
    "names-taken": (
        look(JOB, taken=frozenset({"digits-worker-0"})),
        "NamesTaken",
        "0 of at least 1 workers run: pod digits-worker-0 belongs to somebody else: it must be gone before its name is free.",
    ),
    "no-zone": (
        look(make_job(low=9, replicas=9, high=9), platform=make_platform(make_group())),
        "NoZoneFits",
        "no zone has room for minReplicas 9: the most is 4 in local-a; lower minReplicas, or raise max of a node group in the "
        "stack and run `pulumi up`",
    ),
    "platform": (look(JOB, platform_problem="schema is 9"), "PlatformUnreadable", "schema is 9"),
}


@pytest.mark.parametrize(("decided", "reason", "message"), WAITS.values(), ids=WAITS.keys())
def test_a_waiting_job_says_why(decided: Plan, reason: str, message: str) -> None:
    condition = decided.status.condition("Running")
    assert condition is not None
    assert (decided.status.state, condition.status, condition.reason, condition.message) == ("Waiting", "False", reason, message)


def test_an_image_that_cannot_be_pulled_is_said() -> None:
    pod = make_pod(JOB, phase="Pending")
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod["status"]["containerStatuses"] = [{"name": "elasticjob-worker", "state": {"waiting": waiting}}]
    condition = look(JOB, pod).status.condition("Running")
    assert condition is not None
    assert "digits-worker-0: ImagePullBackOff: no such image" in condition.message


def test_below_min_after_having_run_is_restarting_until_enough_run_again() -> None:
    job = make_job(low=2)
    up = look(job, *running(job, 2))
    down = look(again(job, up), make_pod(job))
    back = look(again(job, down), *running(job, 2))
    assert [decided.status.state for decided in (up, down, back)] == ["Running", "Restarting", "Running"]
    assert [event.reason for event in down.events] == ["WorkerReclaimed", "SuccessfulCreatePod", "ElasticJobRestarting"]
    assert not back.status.is_true("Restarting")


def test_a_look_that_finds_nothing_new_changes_nothing() -> None:
    job, pods = make_job(), running(JOB, 2)
    first = look(job, *pods)
    second = look(again(job, first), *pods, now=NOW + 1000)
    assert (second.status, second.actions, second.events) == (first.status, (), ())


def test_a_refused_pod_is_told_in_the_servers_words_but_does_not_stop_what_runs() -> None:
    waiting = refused(look(JOB), ["exceeded quota: pods"], NOW)
    runs = refused(look(JOB, make_pod(JOB)), ["exceeded quota: pods"], NOW)
    found = [decided.status.condition("Running") for decided in (waiting, runs)]
    assert [(item.status, item.reason, item.message) for item in found if item] == [
        ("False", "FailedCreate", "exceeded quota: pods"),
        ("True", "ElasticJobRunning", "exceeded quota: pods"),
    ]


def test_the_columns_of_kubectl_get() -> None:
    status = encode(look(JOB, *running(JOB, 2)).status)
    assert (status["state"], status["ready"], status["reclaims"], status["replicas"]) == ("Running", "2/2", 0, 2)
    assert status["selector"] == "group-name=elastic.pytorch.org,job-name=digits,replica-type=worker"
    assert status["replicaStatuses"] == {"Worker": {"active": 2, "succeeded": 0, "failed": 0}}


def test_history_is_bounded() -> None:
    entries = [{"at": stamp(NOW), "what": "reclaimed", "worker": 0, "node": f"n{number}"} for number in range(20)]
    job = make_job(status={"history": entries, "reclaims": 20})
    decided = look(job, make_pod(JOB), make_pod(JOB, 1, node="gone"), gone=frozenset({"gone"}))
    assert len(decided.status.history) == 20
    assert decided.status.history[-1].node == "gone"
    assert decided.status.reclaims == 21


def test_an_event_names_ranges_of_workers() -> None:
    job = make_job(replicas=6, high=8)
    decided = look(job, make_pod(job, 3))
    assert [event.message for event in decided.events if event.reason == "SuccessfulCreatePod"] == ["Created workers 0-2, 4-5."]
