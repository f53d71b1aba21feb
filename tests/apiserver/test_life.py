"""How a job ends and is cleaned up, and what its status says of its life."""

import time
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import unix
from tests.apiserver.controller import Process
from tests.apiserver.place import Job, Place


async def done(place: Place, **changes: Any) -> Job:
    """A job of two whose training has finished: both exited with 0."""
    job = await place.submit(replicas=2, **changes)
    await job.runs(2)
    await job.ends(0, 1, code=0)
    await job.until("it succeeded", lambda: job.state == names.SUCCEEDED)
    return job


# --- Success --------------------------------------------------------------------------------------------------------------------


async def test_a_job_succeeds_when_its_workers_exit_with_zero(place: Place) -> None:
    job = await done(place)
    succeeded = job.condition(names.SUCCEEDED)
    assert (succeeded["status"], succeeded["reason"]) == ("True", names.REASON_SUCCEEDED)
    assert job.condition(names.RUNNING)["status"] == "False"
    assert job.status["succeededIndices"] == [0, 1]
    assert job.status["replicaStatuses"]["Worker"]["succeeded"] == 2
    assert job.status["completionTime"]
    await job.until("people are told", lambda: names.REASON_SUCCEEDED in job.reasons)


async def test_the_first_success_ends_the_training_and_the_others_get_a_grace(place: Place) -> None:
    job = await place.submit(replicas=3)
    await job.runs(3)
    await job.ends(1, code=0)
    await job.until("it is seen", lambda: job.status.get("succeededIndices") == [1])
    await job.looked()
    assert job.running() == {0, 2}
    assert job.state == names.RUNNING
    await job.ends(0, 2, code=0)
    await job.until("it succeeded", lambda: job.state == names.SUCCEEDED)
    assert job.status["succeededIndices"] == [0, 1, 2]


async def test_with_success_policy_all_workers_every_worker_must_finish(place: Place) -> None:
    """As upstream; one that fails meanwhile is started again."""
    job = await place.submit(replicas=2, successPolicy="AllWorkers", cleanPodPolicy="All")
    await job.runs(2)
    await job.ends(0, code=0)
    await job.until("it is seen", lambda: job.status.get("succeededIndices") == [0])
    await job.looked()
    assert job.state == names.RUNNING
    old = job.pod_uid(1)
    await job.ends(1, code=1)
    await job.is_replaced(1, old)
    assert (job.status["failures"], job.status["succeededIndices"], 0 in job.running()) == (1, [0], False)
    await job.ends(1, code=0)
    await job.until("it succeeded", lambda: job.state == names.SUCCEEDED)
    assert job.status["succeededIndices"] == [0, 1]
    await job.until("all pods are gone", lambda: not job.pods)


async def test_with_success_policy_all_workers_a_failure_that_is_not_tolerated_fails_the_job(place: Place) -> None:
    job = await place.submit(replicas=3, successPolicy="AllWorkers", backoffLimit=0)
    await job.runs(3)
    await job.ends(0, code=0)
    await job.until("it is seen", lambda: job.status.get("succeededIndices") == [0])
    await job.ends(1, code=1)
    await job.until("it failed", lambda: job.state == names.FAILED)
    await job.until("what ran is gone, and the logs are not", lambda: set(job.pods) == {0, 1})


async def test_an_index_that_succeeded_is_never_started_again(place: Place) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    await job.ends(0, code=0)
    await job.until("it is seen", lambda: job.status.get("succeededIndices") == [0])
    await job.delete_pod(0)
    await job.until("its pod is gone", lambda: 0 not in job.pods)
    await job.looked()
    assert 0 not in job.pods
    assert job.status["succeededIndices"] == [0]


async def test_a_failure_after_the_first_success_does_not_fail_the_job(place: Place) -> None:
    job = await place.submit(replicas=2, backoffLimit=0)
    await job.runs(2)
    await job.ends(0, code=0)
    await job.until("it is seen", lambda: job.status.get("succeededIndices") == [0])
    await job.ends(1, code=1)
    await job.until("it succeeded", lambda: job.state == names.SUCCEEDED)


# --- Cleaning up ----------------------------------------------------------------------------------------------------------------


async def test_clean_pod_policy_running_keeps_the_logs_and_stops_what_runs(place: Place) -> None:
    """It is the default: a job that ended holds no machine."""
    job = await place.submit(replicas=3, policy="Never")
    await job.runs(3)
    await job.ends(1, code=1)
    await job.until("what ran is gone", lambda: set(job.pods) == {1})
    await job.looked()
    assert set(job.pods) == {1}
    await job.until("the services are gone", lambda: not job.services)


async def test_clean_pod_policy_all_removes_all_pods(place: Place) -> None:
    job = await done(place, cleanPodPolicy="All")
    await job.until("all are gone", lambda: not job.pods and not job.services)


async def test_clean_pod_policy_none_leaves_even_running_pods(place: Place) -> None:
    job = await place.submit(replicas=2, policy="Never", cleanPodPolicy="None")
    await job.runs(2)
    await job.ends(1, code=1)
    await job.until("it failed", lambda: job.state == names.FAILED)
    await job.looked()
    assert job.running() == {0}


async def test_a_default_is_not_written_into_the_users_spec(place: Place) -> None:
    job = await done(place)
    assert job.value is not None
    assert set(job.value["spec"]) == {"rdzvEndpoint", "minReplicas", "maxReplicas", "replicaSpecs"}


async def test_a_job_is_deleted_when_its_ttl_is_over(place: Place) -> None:
    job = await done(place, ttlSecondsAfterFinished=2)
    ended = unix(job.status["completionTime"]) or 0.0
    await job.until("it is gone", lambda: job.value is None and not job.pods)
    assert 2 <= time.time() - ended < 5


async def test_a_failed_job_is_deleted_when_its_ttl_is_over_too(place: Place) -> None:
    job = await place.submit(replicas=1, policy="Never", ttlSecondsAfterFinished=1)
    await job.runs(1)
    await job.ends(0, code=1)
    await job.until("it is gone", lambda: job.value is None and not job.pods)


async def test_the_ttl_holds_when_the_controller_was_restarted_meanwhile(place: Place, controller: Process) -> None:
    job = await done(place, ttlSecondsAfterFinished=3)
    await controller.stop()
    await controller.start()
    await job.until("it is gone", lambda: job.value is None)


async def test_a_ttl_that_ran_out_while_no_controller_was_there_is_made_up_for(place: Place, controller: Process) -> None:
    job = await done(place, ttlSecondsAfterFinished=1)
    ended = unix(job.status["completionTime"]) or 0.0
    await controller.stop()
    await job.until("its time is over", lambda: time.time() > ended + 1)
    assert job.value is not None
    await controller.start()
    await job.until("it is gone", lambda: job.value is None)


# --- The deadline of the run policy ---------------------------------------------------------------------------------------------


async def test_active_deadline_seconds_ends_the_job(place: Place) -> None:
    job = await place.submit(replicas=2, activeDeadlineSeconds=2)
    await job.runs(2)
    started = unix(job.status["startTime"]) or 0.0
    await job.until("it failed", lambda: job.state == names.FAILED)
    assert 2 <= time.time() - started < 5
    assert job.condition(names.FAILED)["reason"] == names.REASON_DEADLINE
    assert "activeDeadlineSeconds 2" in job.condition(names.FAILED)["message"]
    await job.until("nothing runs", lambda: not job.running())


async def test_active_deadline_seconds_holds_over_a_restart_of_the_controller(place: Place, controller: Process) -> None:
    job = await place.submit(replicas=1, activeDeadlineSeconds=3)
    await job.runs(1)
    await controller.stop()
    await controller.start()
    await job.until("it failed", lambda: job.state == names.FAILED)
    assert job.condition(names.FAILED)["reason"] == names.REASON_DEADLINE


async def test_resuming_starts_the_deadline_anew(place: Place) -> None:
    job = await place.submit(replicas=1, activeDeadlineSeconds=5)
    await job.runs(1)
    first = job.status["startTime"]
    await job.patch(suspend=True)
    await job.until("it is suspended", lambda: job.state == names.SUSPENDED and not job.pods)
    await job.until("a second is over", lambda: time.time() > (unix(first) or 0) + 2)
    await job.patch(suspend=False)
    await job.runs(1)
    assert job.status["startTime"] > first


# --- Whose job it is ------------------------------------------------------------------------------------------------------------


async def test_a_job_that_others_manage_is_not_touched_at_all(place: Place) -> None:
    other = await place.submit("theirs", replicas=2, managedBy="kueue.x-k8s.io/multikueue")
    ours = await place.submit("ours", replicas=1)
    await ours.runs(1)
    await other.patch(suspend=True)
    await ours.looked()
    assert other.value is not None
    assert "status" not in other.value
    assert not other.pods
    assert not other.services
    assert other.events == []


async def test_observed_generation_says_which_spec_the_status_is_about(place: Place) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    assert job.status["observedGeneration"] == 1
    await job.scale(3)
    await job.until("it is observed", lambda: job.status["observedGeneration"] == 2)


async def test_a_job_says_how_long_it_was_kept_from_training(place: Place) -> None:
    job = await place.submit(replicas=1, low=1)
    await job.runs(1)
    assert job.status["secondsLost"] == 0
    place.machines.boots, began = False, time.time()
    await place.machines.vanish(job.machine(0))
    await job.until("it restarts", lambda: job.state == names.RESTARTING)
    await job.until("a second is over", lambda: time.time() > began + 1)
    place.machines.boots = True
    place.machines.again()
    await job.runs(1)
    assert 0.9 <= job.status["secondsLost"] <= time.time() - began + 0.1


async def test_a_job_says_when_it_was_taken_on_and_when_it_started(place: Place) -> None:
    job = await place.submit(replicas=1)
    await job.runs(1)
    assert job.condition(names.CREATED)["status"] == "True"
    assert abs((unix(job.status["startTime"]) or 0) - time.time()) < 10
    told = {names.REASON_CREATED, names.REASON_POD_CREATED, names.REASON_RUNNING}
    await job.until("people are told", lambda: job.reasons >= told)
