"""What the planner says: conditions, reasons, columns, events. What it does is in test_reconcile.py."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.controller.reconciler.capacity import Supply
from ebb.controller.reconciler.reconcile import refused
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_group, make_job, make_platform, make_pod, make_service
from tests.controller.reconciler.scenes import AT_MAX, backing_off, pending, placed_job, said
from tests.looks import JOB, again, look, running

PLACED = placed_job(low=2)
PINNED = placed_job(low=2, placement={"zone": "local-a"})
ONE = make_platform(make_group("t4"))

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
        "0 of at least 1 workers run: pod digits-worker-0 is not this job's: it must be gone before its name is free.",
    ),
    "no-zone": (
        look(make_job(low=9, replicas=9, high=9), platform=make_platform(make_group())),
        "NoZoneFits",
        "no zone has room for minReplicas 9: the most is 4 in local-a; lower minReplicas, or raise max of a node group in the "
        "stack and run `pulumi up`",
    ),
    "platform": (look(JOB, platform_problem="schema is 9"), "PlatformUnreadable", "schema is 9"),
    "machines-boot": (
        look(PLACED, *pending(PLACED, 0, 1), platform=ONE, supply=said("pod triggered scale-up", 0, 1, triggered=True)),
        "MachinesBooting",
        f"0 of at least 2 workers run: 2 machines are booting in local-a (asked for at {stamp(NOW - 10)}).",
    ),
    "one-machine-for-two-boots": (
        look(PLACED, *pending(PLACED, 0, 1), platform=make_platform(make_group(gpus_per_node=2)),
             supply=said("pod triggered scale-up", 0, 1, triggered=True)),
        "MachinesBooting",
        f"0 of at least 2 workers run: 1 machine is booting in local-a (asked for at {stamp(NOW - 10)}).",
    ),
    "no-room-yet": (
        look(PLACED, *pending(PLACED, 0, 1), platform=ONE),
        "WaitingForMachines",
        "0 of at least 2 workers run: 2 workers wait for a machine in local-a (0/1 nodes are available).",
    ),
    "dry": (
        look(PLACED, *pending(PLACED, 0, 1), platform=ONE, supply=backing_off("t4", message="InsufficientInstanceCapacity.")),
        "ZoneDry",
        f"0 of at least 2 workers run: there are no machines to be had in local-a (spot T4) (since {stamp(NOW)}): "
        "InsufficientInstanceCapacity.",
    ),
    "quota": (
        look(PLACED, *pending(PLACED, 0, 1), platform=ONE, supply=backing_off("t4", message="VcpuLimitExceeded: 8 is the limit")),
        "CloudQuota",
        f"0 of at least 2 workers run: the account may not have more machines in local-a (spot T4) (since {stamp(NOW)}): "
        "VcpuLimitExceeded: 8 is the limit.",
    ),
    "full": (
        look(PLACED, *pending(PLACED, 0, 1), platform=ONE, supply=said(AT_MAX, 0)),
        "WaitingForMachines",
        "0 of at least 2 workers run: the node groups in local-a (spot T4) have all the machines that they may "
        f"(since {stamp(NOW)}): {AT_MAX}.",
    ),
    "dry-where-the-author-wants-it": (
        look(PINNED, *pending(PINNED, 0, 1), platform=make_platform(make_group("t4"), make_group("x", zone="local-b")),
             supply=backing_off("t4", message="InsufficientInstanceCapacity")),
        "ZoneDry",
        f"0 of at least 2 workers run: there are no machines to be had in local-a (spot T4) (since {stamp(NOW)}): "
        "InsufficientInstanceCapacity. The job waits there, as placement.zone names local-a.",
    ),
    "late": (
        look(PLACED, *pending(PLACED, 0, 1), platform=make_platform(make_group("t4", provision_seconds=0)), now=NOW + 10),
        "ZoneDry",
        f"0 of at least 2 workers run: there are no machines to be had in local-a (spot T4) (since {stamp(NOW + 10)}): "
        "no machine came for 60 s.",
    ),
}  # fmt: skip


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
    assert [event.reason for event in down.events] == ["WorkerReclaimed", "ElasticJobRestarting"]
    assert not back.status.is_true("Restarting")


def test_a_look_that_finds_nothing_new_changes_nothing() -> None:
    job, pods = make_job(), running(JOB, 2)
    first = look(job, *pods)
    second = look(again(job, first), *pods, now=NOW + 1000, services=(make_service(job),))
    assert (second.status, second.actions, second.events) == (first.status, (), ())


def test_a_refused_pod_is_told_in_the_servers_words_but_does_not_stop_what_runs() -> None:
    waiting = refused(Job.of(JOB), look(JOB), ["exceeded quota: pods"], NOW)
    denied = refused(Job.of(JOB), look(JOB), ["pods is forbidden: no such class"], NOW)
    runs = refused(Job.of(JOB), look(JOB, make_pod(JOB)), ["exceeded quota: pods"], NOW)
    found = [decided.status.condition("Running") for decided in (waiting, denied, runs)]
    assert [(item.status, item.reason, item.message) for item in found if item] == [
        ("False", "QuotaExceeded", "exceeded quota: pods"),
        ("False", "FailedCreate", "pods is forbidden: no such class"),
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


def test_the_time_that_a_job_was_kept_from_training_is_added_up() -> None:
    job = make_job(low=2)
    first = look(job)
    assert (first.status.waiting_since, first.status.seconds_lost) == (stamp(NOW, digits=3), 0)
    up = look(again(job, first), *running(job, 2), now=NOW + 40)
    assert (up.status.waiting_since, up.status.seconds_lost) == (None, 0)
    down = look(again(job, up), make_pod(job), now=NOW + 100.25)
    still = look(again(job, down), make_pod(job), now=NOW + 120)
    assert {one.status.waiting_since for one in (down, still)} == {stamp(NOW + 100.25, digits=3)}
    back = look(again(job, still), *running(job, 2), now=NOW + 130.75)
    assert (back.status.waiting_since, back.status.seconds_lost) == (None, 30.5)


def test_time_is_lost_until_a_suspension_not_after_it() -> None:
    job = make_job(low=2)
    up = look(job, *running(job, 2))
    down = look(again(job, up), make_pod(job), now=NOW + 10)
    held = look(again(make_job(low=2, suspend=True), down), make_pod(job), now=NOW + 15)
    assert (held.status.waiting_since, held.status.seconds_lost) == (None, 5.0)
    resumed = look(again(job, held), now=NOW + 500)
    up = look(again(job, resumed), *running(job, 2), now=NOW + 600)
    assert (resumed.status.waiting_since, up.status.seconds_lost) == (stamp(NOW + 500, digits=3), 5.0)


@pytest.mark.parametrize(
    "supply", [said("pod triggered scale-up", 0, 1, triggered=True), said(AT_MAX, 0)], ids=["booting", "full"]
)
def test_a_job_that_waits_and_hears_nothing_new_is_not_written(supply: Supply) -> None:
    seen: dict[str, Any] = {"platform": ONE, "supply": supply, "services": (make_service(PLACED),)}
    first = look(PLACED, *pending(PLACED, 0, 1), **seen)
    second = look(again(PLACED, first), *pending(PLACED, 0, 1), **seen, now=NOW + 29)
    assert (second.status, second.actions, second.events) == (first.status, (), ())
