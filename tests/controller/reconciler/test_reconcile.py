"""The planner's rules, one line each: a job, its pods and the world at one moment -> what is done and said.

Stories over time are in test_controller.py; here is what a single look decides.
"""

import pytest

from ebb.api.clock import stamp
from ebb.api.contract import TAINT_RECLAIM
from ebb.controller.reconciler.types import CreatePod, CreateService, DeleteService, Plan
from tests.builders import NOW, make_group, make_job, make_node, make_platform, make_pod, make_service
from tests.looks import JOB, again, done, ended, look, running

NOTICE = make_node("n1", notice=f"away at {stamp(NOW + 12)}.", taint=TAINT_RECLAIM)
FINISHED = {"conditions": [{"type": "Succeeded", "status": "True"}], "completionTime": stamp(NOW - 10)}
FAILED = {"conditions": [{"type": "Failed", "status": "True"}], "completionTime": stamp(NOW - 10)}
ATTEMPT_1 = {"failures": 1, "restarts": 1, "lastFailureTime": stamp(NOW - 2)}

ALL = make_job(successPolicy="AllWorkers")
ONE_DONE = {"succeededIndices": [0], "firstSuccessTime": stamp(NOW - 5)}

ACTIONS: dict[str, tuple[Plan, list[str]]] = {
    "new-job": (look(JOB), ["+0", "+1"]),
    "all-there": (look(JOB, *running(JOB, 2)), []),
    "one-missing": (look(JOB, make_pod(JOB, 1)), ["+0"]),
    "one-too-many": (look(JOB, *running(JOB, 3)), ["-2"]),
    "too-many-on-its-way-out": (look(JOB, *running(JOB, 2), make_pod(JOB, 2, deleted=NOW)), []),
    "its-own-index-on-its-way-out": (look(JOB, make_pod(JOB, 0), make_pod(JOB, 1, deleted=NOW)), []),
    "no-more-than-max-with-those-on-their-way-out": (
        look(make_job(replicas=2, high=2), make_pod(JOB, 2, deleted=NOW), make_pod(JOB, 3, deleted=NOW)),
        [],
    ),
    "room-for-one": (look(make_job(replicas=2, high=2), make_pod(JOB, 2, deleted=NOW)), ["+0"]),
    "notice": (look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1"), nodes=(NOTICE,)), ["-1/12"]),
    "notice-longer-than-the-pods-grace": (
        look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1", grace=5), nodes=(NOTICE,)),
        ["-1/5"],
    ),
    "notice-when-time-is-up": (look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1"), nodes=(NOTICE,), now=NOW + 20), ["-1/1"]),
    "notice-but-somebody-evicted-it": (look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1", deleted=NOW), nodes=(NOTICE,)), []),
    "notice-by-a-clock-that-is-hours-away": (
        look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1"), nodes=(NOTICE,), now=NOW + 3600),
        ["-1"],
    ),
    "node-gone": (look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1"), gone=frozenset({"n1"})), ["-1!"]),
    "node-gone-and-pod-on-its-way-out": (
        look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1", deleted=NOW), gone=frozenset({"n1"})),
        ["-1!"],
    ),
    "node-silent": (look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1"), nodes=(make_node("n1", ready="Unknown"),)), ["-1!"]),
    "left-on-reclaim": (look(JOB, make_pod(JOB), ended(138, 1)), ["-1"]),
    "program-failed-is-only-noted": (look(JOB, make_pod(JOB), ended(1, 1)), []),
    "attempt-over": (look(make_job(status=ATTEMPT_1), *running(JOB, 2)), ["-0", "-1"]),
    "restart-waits": (look(make_job(status=ATTEMPT_1)), []),
    "restart-after-the-pause": (look(make_job(status=ATTEMPT_1), now=NOW + 4), ["+0", "+1"]),
    "restart-after-a-failure-that-another-clock-wrote": (look(make_job(status=ATTEMPT_1), now=NOW - 3600), ["+0", "+1"]),
    "one-finished-others-have-a-grace": (look(JOB, ended(0), make_pod(JOB, 1)), []),
    "one-finished-one-never-started": (
        look(JOB, ended(0), make_pod(JOB, 1, phase="Pending", node="")),
        ["-1"],
    ),
    "one-finished-one-lost": (look(JOB, ended(0)), []),
    "all-must-finish-and-one-has": (look(ALL, ended(0), make_pod(JOB, 1)), []),
    "all-must-finish-and-one-is-lost": (look(make_job(successPolicy="AllWorkers", status=ONE_DONE)), ["+1"]),
    "all-must-finish-and-one-fails-then": (
        look(make_job(successPolicy="AllWorkers", status=ONE_DONE | ATTEMPT_1), ended(0), make_pod(JOB, 1), now=NOW + 9),
        ["-1"],
    ),
    "ended-keeps-logs": (look(make_job(status=FINISHED), ended(0), make_pod(JOB, 1)), ["-1"]),
    "ended-all": (
        look(make_job(status=FINISHED, cleanPodPolicy="All"), ended(0), make_pod(JOB, 1)),
        ["-0", "-1"],
    ),
    "ended-none": (look(make_job(status=FAILED, cleanPodPolicy="None"), *running(JOB, 2)), []),
    "failed-stops-the-others": (look(make_job(status=FAILED), ended(1), make_pod(JOB, 1)), ["-1"]),
    "ended-on-a-dead-machine": (
        look(make_job(status=FINISHED), make_pod(JOB, 1, node="n1", deleted=NOW - 60), gone=frozenset({"n1"})),
        ["-1!"],
    ),
    "ended-and-pods-deleted": (look(make_job(status=FINISHED)), []),
    "ttl-not-over": (look(make_job(status=FINISHED, ttlSecondsAfterFinished=11)), []),
    "ttl-over": (look(make_job(status={**FINISHED, "recorded": True}, ttlSecondsAfterFinished=10)), ["-job"]),
    "ttl-after-a-failure": (look(make_job(status={**FAILED, "recorded": True}, ttlSecondsAfterFinished=0)), ["-job"]),
    "suspended": (look(make_job(suspend=True), *running(JOB, 2)), ["-0", "-1"]),
    "suspended-with-one-that-finished": (look(make_job(suspend=True), ended(0), make_pod(JOB, 1)), ["-1"]),
    "suspended-with-a-sidecar-that-runs-on": (look(make_job(suspend=True), make_pod(JOB, exit_code=0)), ["-0"]),
    "suspended-before-it-began": (look(make_job(suspend=True)), []),
    "suspended-on-a-dead-machine": (
        look(make_job(suspend=True), make_pod(JOB, node="n1", deleted=NOW), gone=frozenset({"n1"})),
        ["-0!"],
    ),
    "being-deleted": (look(make_job(deleting=True)), []),
    "managed-by-somebody-else": (look(make_job(managedBy="kueue.x-k8s.io/multikueue")), []),
    "name-taken-by-somebody-elses-pod": (look(JOB, taken=frozenset({"digits-worker-0"})), ["+1"]),
    "no-zone": (look(make_job(placement={"gpuType": "H200"}), platform=make_platform()), []),
    "platform-unreadable": (look(JOB, platform_problem="schema is 9"), []),
}


@pytest.mark.parametrize(("decided", "actions"), ACTIONS.values(), ids=ACTIONS.keys())
def test_actions(decided: Plan, actions: list[str]) -> None:
    assert done(decided) == actions


@pytest.mark.parametrize(
    ("promised", "grace", "action"),
    [
        pytest.param(105, 110, "-0/94", id="a-job-file-for-two-minutes"),
        pytest.param(15, 110, "-0/10", id="pods-get-half-of-30-seconds"),
        pytest.param(15, 5, "-0/5", id="a-shorter-one-is-the-authors"),
        pytest.param(0, 110, "-0", id="nothing-promised"),
    ],
)
def test_a_notice_that_names_no_time_leaves_what_the_cloud_promises(promised: int, grace: int, action: str) -> None:
    node, group = make_node(taint="cloud.google.com/impending-node-termination"), make_group(notice_seconds=promised)
    node["metadata"]["labels"] = {"ebb.dev/node-group": group.name}
    assert done(
        look(JOB, make_pod(JOB, grace=grace), make_pod(JOB, 1, node="n1"), nodes=(node,), platform=make_platform(group))
    ) == [action]


def test_a_promise_counts_for_its_own_machines_and_for_notices_alone() -> None:
    group = make_group(notice_seconds=15)
    noticed, labels = make_node(taint="cloud.google.com/impending-node-termination"), {"ebb.dev/node-group": group.name}
    pods = make_pod(JOB, grace=110), make_pod(JOB, 1, node="n1")
    assert done(look(JOB, *pods, nodes=(noticed,), platform=make_platform(group))) == ["-0"]
    unready = make_node(ready="False")
    unready["metadata"]["labels"] = labels
    assert done(look(JOB, *pods, nodes=(unready,), platform=make_platform(group))) == ["-0"]


COUNTS: dict[str, tuple[Plan, tuple[int, int, int, str]]] = {
    # reclaims, failures, restarts, state
    "well": (look(JOB, *running(JOB, 2)), (0, 0, 0, "Running")),
    "enough": (look(JOB, make_pod(JOB)), (0, 0, 0, "Running")),
    "too-few": (look(make_job(low=2), make_pod(JOB)), (0, 0, 0, "Waiting")),
    "notice": (look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1"), nodes=(NOTICE,)), (1, 0, 0, "Running")),
    "scaled-down": (look(JOB, *running(JOB, 2), ended(1, 2)), (0, 0, 0, "Running")),
    "two-failed-together": (look(JOB, *running(JOB, 2, phase="Failed", exit_code=1)), (0, 1, 1, "Waiting")),
    "failed-and-reclaimed": (
        look(JOB, ended(1), ended(138, 1)),
        (1, 1, 1, "Waiting"),
    ),
    "failed-in-an-earlier-attempt": (
        look(make_job(status=ATTEMPT_1), ended(1)),
        (0, 1, 1, "Waiting"),
    ),
    "finished-but-its-time-is-over": (
        look(make_job(activeDeadlineSeconds=9, status={"startTime": stamp(NOW - 9)}), ended(0), ended(0, 1)),
        (0, 0, 0, "Succeeded"),
    ),
    "failed-after-another-finished": (
        look(JOB, ended(0), ended(1, 1)),
        (0, 0, 0, "Succeeded"),
    ),
    "budget-spent": (look(make_job(backoffLimit=0), ended(1)), (0, 1, 0, "Failed")),
    "default-budget-is-three": (
        look(make_job(status={"failures": 2, "restarts": 2}), make_pod(JOB, attempt=2, phase="Failed", exit_code=1)),
        (0, 3, 3, "Waiting"),
    ),
    "default-budget-spent": (
        look(make_job(status={"failures": 3, "restarts": 3}), make_pod(JOB, attempt=3, phase="Failed", exit_code=1)),
        (0, 4, 3, "Failed"),
    ),
    "never": (look(make_job(policy="Never"), ended(1)), (0, 1, 0, "Failed")),
    "never-but-reclaimed": (look(make_job(policy="Never"), ended(138)), (1, 0, 0, "Waiting")),
    "exit-code-permanent": (look(make_job(policy="ExitCode"), ended(1)), (0, 1, 0, "Failed")),
    "exit-code-retryable": (look(make_job(policy="ExitCode"), ended(137)), (0, 1, 1, "Waiting")),
    "always": (look(make_job(policy="Always"), ended(1)), (0, 1, 1, "Waiting")),
    "no-program": (look(JOB, ended(78), make_pod(JOB, 1)), (0, 1, 0, "Failed")),
    "no-program-whatever-the-policy": (look(make_job(policy="Always"), ended(78)), (0, 1, 0, "Failed")),
    "no-program-but-its-machine-went": (look(JOB, ended(78), gone=frozenset({"n0"})), (1, 0, 0, "Waiting")),
    "suspended": (look(make_job(suspend=True), *running(JOB, 2)), (0, 0, 0, "Suspended")),
    "never-placed-then-deleted": (look(JOB, make_pod(JOB, phase="Pending", node="", deleted=NOW)), (0, 0, 0, "Waiting")),
}


@pytest.mark.parametrize(("decided", "counts"), COUNTS.values(), ids=COUNTS.keys())
def test_what_is_counted(decided: Plan, counts: tuple[int, int, int, str]) -> None:
    status = decided.status
    assert (status.reclaims, status.failures, status.restarts, status.state) == counts


def test_a_program_that_is_not_there_is_named_and_not_tried_again() -> None:
    said = "[launcher 12:00:01] no file 'train.py' in /opt/ebb, and no code came with the job"
    pod = make_pod(JOB, phase="Failed", exit_code=78, message=f"[launcher 12:00:00] waits\n{said}\n")
    decided = look(JOB, pod, make_pod(JOB, 1))
    (failed,) = [condition for condition in decided.status.conditions if condition.type == "Failed"]
    assert failed.message == (
        "The program of worker 0 failed: Error, exit code 78: no file 'train.py' in /opt/ebb, and no code came with the job. "
        "Another try would not find it either."
    )
    later = look(again(JOB, decided), pod, make_pod(JOB, 1), now=NOW + 600)
    assert (later.status.state, done(later)) == ("Failed", ["-1"])


def test_each_loss_is_counted_once_however_often_it_is_seen() -> None:
    job, pods = make_job(), (make_pod(JOB), make_pod(JOB, 1, node="n1"))
    first = look(job, *pods, nodes=(NOTICE,))
    leaving = (pods[0], make_pod(JOB, 1, node="n1", deleted=NOW))
    second = look(again(job, first), *leaving, nodes=(NOTICE,))
    third = look(again(job, second), pods[0])
    assert [decided.status.reclaims for decided in (first, second, third)] == [1, 1, 1]
    assert done(third) == ["+1"]


def test_a_failure_that_was_written_down_survives_a_controller_that_was_killed() -> None:
    failed = (ended(1), make_pod(JOB, 1))
    first = look(JOB, *failed)
    second = look(again(JOB, first), *failed)
    assert (second.status.failures, done(second)) == (1, ["-0", "-1"])
    third = look(again(JOB, second), now=NOW + 60)
    assert (third.status.failures, third.status.reclaims, done(third)) == (1, 0, ["+0", "+1"])


def test_a_pause_doubles_with_every_failure() -> None:
    def pause(failures: int) -> float | None:
        status = {"failures": failures, "restarts": failures, "lastFailureTime": stamp(NOW)}
        wake = look(make_job(status=status, backoffLimit=99)).wake_at
        return None if wake is None else wake - NOW

    assert [pause(failures) for failures in (1, 2, 3, 4, 5, 9, 5000)] == [5, 10, 20, 40, 60, 60, 60]


def test_the_zone_is_chosen_once() -> None:
    job = make_job(container={"resources": {"limits": {"nvidia.com/gpu": 1}}})
    first = look(job, platform=make_platform())
    assert first.status.placement is not None
    assert first.status.placement.zone == "local-a"
    moved = make_platform(make_group(zone="local-b"))
    second = look(again(job, first), platform=moved)
    assert second.status.placement == first.status.placement


def test_workers_of_a_placed_job_ask_for_its_zone() -> None:
    job = make_job(container={"resources": {"limits": {"nvidia.com/gpu": 1}}})
    bodies = [action.body for action in look(job, platform=make_platform()).actions if isinstance(action, CreatePod)]
    assert bodies[0]["spec"]["nodeSelector"] == {"topology.kubernetes.io/zone": "local-a", "ebb.dev/gpu-type": "T4"}
    assert bodies[0]["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"


OWN, OLD = make_service(JOB), make_service(JOB, "digits-worker-0")
SERVED: dict[str, tuple[Plan, list[str]]] = {
    "not-before-a-worker-runs": (look(JOB, *running(JOB, 2, phase="Pending")), []),
    "made-when-all-run": (look(JOB, *running(JOB, 2, started=NOW - 1)), ["+digits-workers"]),
    "not-as-long-as-others-start": (look(JOB, *running(JOB, 1, started=NOW - 4)), []),
    "nor-for-long": (look(JOB, *running(JOB, 1, started=NOW - 5)), ["+digits-workers"]),
    "at-once-by-a-clock-that-is-ahead": (look(JOB, *running(JOB, 1, started=NOW + 60)), ["+digits-workers"]),
    "one-for-all": (look(JOB, make_pod(JOB), services=(OWN,)), []),
    "made-again-if-somebody-deletes-it": (look(JOB, *running(JOB, 2)), ["+digits-workers"]),
    "not-for-a-job-that-waits": (look(JOB, platform_problem="schema is 9"), []),
    "those-of-an-earlier-controller-go": (look(JOB, *running(JOB, 2), services=(OWN, OLD)), ["-digits-worker-0"]),
    "suspended-keeps-it": (look(make_job(suspend=True), *running(JOB, 2), services=(OWN,)), []),
    "ended": (look(make_job(status=FINISHED), ended(0), services=(OWN,)), ["-digits-workers"]),
    "ended-with-workers-that-go-on": (look(make_job(status=FAILED, cleanPodPolicy="None"), services=(OWN,)), []),
}


@pytest.mark.parametrize(("decided", "services"), SERVED.values(), ids=SERVED.keys())
def test_a_job_has_one_service_as_long_as_it_has_workers(decided: Plan, services: list[str]) -> None:
    made = [f"+{action.body['metadata']['name']}" for action in decided.actions if isinstance(action, CreateService)]
    assert made + [f"-{action.name}" for action in decided.actions if isinstance(action, DeleteService)] == services


def test_a_service_that_is_not_due_is_looked_at_again_when_it_is() -> None:
    assert look(JOB, make_pod(JOB, started=NOW - 4)).wake_at == NOW + 1


def test_a_machine_that_is_not_ready_is_looked_at_again_when_its_time_is_up() -> None:
    decided = look(JOB, make_pod(JOB), make_pod(JOB, 1, node="n1"), nodes=(make_node("n1", ready="False", since=NOW - 2),))
    assert (done(decided), decided.wake_at) == ([], NOW + 3)


def test_a_job_of_which_all_must_finish_ends_with_the_last() -> None:
    one = look(ALL, ended(0), make_pod(JOB, 1))
    assert (one.status.state, one.status.succeeded_indices) == ("Running", (0,))
    assert look(make_job(successPolicy="AllWorkers", status=ONE_DONE), ended(0), ended(0, 1)).status.state == "Succeeded"
    failed = look(make_job(successPolicy="AllWorkers", status=ONE_DONE), ended(0), ended(1, 1)).status
    assert (failed.failures, failed.restarts) == (1, 1)


def test_workers_that_were_scaled_away_do_not_finish_for_the_others() -> None:
    job = make_job(replicas=3, successPolicy="AllWorkers", status={"succeededIndices": [3], "firstSuccessTime": stamp(NOW - 500)})
    decided = look(job, ended(0), ended(0, 1), make_pod(JOB, 2))
    assert (decided.status.state, done(decided)) == ("Running", [])


def test_a_job_that_finished_as_it_was_suspended_has_finished() -> None:
    suspended = look(make_job(low=2, suspend=True), ended(0), make_pod(JOB, 1))
    resumed = look(again(make_job(low=2), suspended), ended(0))
    assert (suspended.status.state, resumed.status.state, done(resumed)) == ("Suspended", "Succeeded", [])


def test_the_time_of_a_job_begins_with_its_first_worker() -> None:
    first = look(JOB)
    second = look(again(JOB, first), make_pod(JOB), now=NOW + 60)
    assert (first.status.start_time, second.status.start_time) == (None, stamp(NOW + 60))


def test_a_job_whose_end_nobody_lets_be_deleted_is_not_looked_at_without_end() -> None:
    status = {**FINISHED, "recorded": True}
    assert look(make_job(status=status, ttlSecondsAfterFinished=11)).wake_at == NOW + 1
    assert look(make_job(status=status, ttlSecondsAfterFinished=10)).wake_at is None
