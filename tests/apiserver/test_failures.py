"""What a failure of the program does, and what counts as one: restart policies and the budget of spec.backoffLimit."""

import time

import pytest

from ebb.api import contract as names
from tests.apiserver.place import Job, Place


async def test_a_failed_program_starts_all_workers_again_and_spends_one(place: Place) -> None:
    job = await place.submit(replicas=2, backoffLimit=2)
    await job.runs(2)
    old = {index: job.pod_uid(index) for index in (0, 1)}
    await job.ends(1, code=1, message="Traceback\nValueError: bad batch")
    for index in (0, 1):
        await job.is_replaced(index, old[index])
    await job.runs(2)
    assert (job.status["failures"], job.status["restarts"], job.status["reclaims"]) == (1, 1, 0)
    told = [names.REASON_PROGRAM_FAILED, "ValueError: bad batch"]
    await job.until("people are told", lambda: any(reason == told[0] and told[1] in words for reason, words in job.events))


async def test_each_attempt_meets_at_a_rendezvous_of_its_own(place: Place) -> None:
    """A failed program closes its rendezvous for good."""
    job = await place.submit(replicas=1)
    await job.runs(1)
    old = job.pod_uid(0)
    await job.ends(0, code=1)
    await job.is_replaced(0, old)
    assert f"--rdzv_id=digits-{job.uid[:8]}-r1" in job.pods[0]["spec"]["containers"][0]["args"]


async def test_workers_that_fail_at_once_spend_one_of_the_budget(place: Place) -> None:
    job = await place.submit(replicas=4, high=4, backoffLimit=2)
    await job.runs(4)
    old = {index: job.pod_uid(index) for index in range(4)}
    await job.ends(0, 1, 2, 3, code=1)
    for index in range(4):
        await job.is_replaced(index, old[index])
    await job.runs(4)
    assert (job.status["failures"], job.status["restarts"]) == (1, 1)


async def test_the_job_fails_when_the_budget_is_spent_and_says_why(place: Place) -> None:
    job = await place.submit(replicas=2, backoffLimit=1)
    await job.runs(2)
    old = job.pod_uid(0)
    await job.ends(0, code=1)
    await job.is_replaced(0, old)
    await job.runs(2)
    await job.ends(0, code=3)
    await job.until("it failed", lambda: job.state == names.FAILED)
    failed = job.condition(names.FAILED)
    assert (failed["status"], failed["reason"]) == ("True", names.REASON_FAILED)
    assert "exit code 3" in failed["message"]
    assert "backoffLimit 1 is spent" in failed["message"]
    assert job.condition(names.RUNNING)["status"] == "False"
    assert job.status["completionTime"]
    assert job.status["replicaStatuses"]["Worker"]["failed"] == 2
    await job.until("people are told", lambda: names.REASON_FAILED in job.reasons)


async def test_a_program_that_is_not_there_is_started_once(place: Place) -> None:
    job = await place.submit(replicas=2, backoffLimit=3)
    await job.runs(2)
    await job.ends(0, 1, code=names.EXIT_NO_PROGRAM, message="[launcher 12:00:00] no file 'train.py' in /opt/ebb")
    await job.until("it failed", lambda: job.state == names.FAILED)
    assert (
        "exit code 78: no file 'train.py' in /opt/ebb. Another try would not find it either."
        in job.condition(names.FAILED)["message"]
    )
    assert (job.status["failures"], job.status.get("restarts", 0)) == (1, 0)


async def test_a_budget_of_zero_tolerates_no_failure(place: Place) -> None:
    job = await place.submit(replicas=2, backoffLimit=0)
    await job.runs(2)
    await job.ends(1, code=1)
    await job.until("it failed", lambda: job.state == names.FAILED)
    assert job.status["restarts"] == 0


async def test_what_runs_when_a_job_fails_is_stopped_so_that_it_costs_nothing_more(place: Place) -> None:
    job = await place.submit(replicas=3, policy="Never")
    await job.runs(3)
    await job.ends(1, code=1)
    await job.until("it failed", lambda: job.state == names.FAILED)
    await job.until("the survivors are gone", lambda: set(job.pods) == {1})


async def test_never_fails_the_job_at_the_first_failure(place: Place) -> None:
    job = await place.submit(replicas=2, policy="Never", backoffLimit=3)
    await job.runs(2)
    await job.ends(0, code=1)
    await job.until("it failed", lambda: job.state == names.FAILED)
    assert "restartPolicy is Never" in job.condition(names.FAILED)["message"]


@pytest.mark.parametrize("policy", ["OnFailure", "Always", None], ids=["OnFailure", "Always", "none"])
async def test_on_failure_and_always_and_no_policy_start_again(place: Place, policy: str | None) -> None:
    job = await place.submit(replicas=1, policy=policy)
    await job.runs(1)
    old = job.pod_uid(0)
    await job.ends(0, code=2)
    await job.is_replaced(0, old)
    await job.until("one is spent", lambda: job.status["failures"] == 1)


@pytest.mark.parametrize("code", [1, 2, 126, 127, 128, 139])
async def test_exit_code_does_not_try_again_after(place: Place, code: int) -> None:
    job = await place.submit(replicas=1, policy="ExitCode", backoffLimit=3)
    await job.runs(1)
    await job.ends(0, code=code)
    await job.until("it failed", lambda: job.state == names.FAILED)
    assert f"exit code {code}" in job.condition(names.FAILED)["message"]


@pytest.mark.parametrize("code", [130, 137, 143])
async def test_exit_code_tries_again_after(place: Place, code: int) -> None:
    job = await place.submit(replicas=1, policy="ExitCode", backoffLimit=3)
    await job.runs(1)
    old = job.pod_uid(0)
    await job.ends(0, code=code)
    await job.is_replaced(0, old)
    await job.until("one is spent", lambda: job.status["failures"] == 1)


async def test_memory_that_ran_out_is_the_programs_failure(place: Place) -> None:
    job = await place.submit(replicas=2, backoffLimit=0)
    await job.runs(2)
    await job.ends(0, code=137, reason="OOMKilled")
    await job.until("it failed", lambda: job.state == names.FAILED)
    assert "OOMKilled" in job.condition(names.FAILED)["message"]
    assert job.status["reclaims"] == 0


async def test_an_eviction_for_the_pods_own_limits_is_the_programs_failure(place: Place) -> None:
    """The kubelet marks one that it needs the room of; this one used more than its own limit."""
    job = await place.submit(replicas=2, backoffLimit=0)
    await job.runs(2)
    words = "Usage of EmptyDir volume shm exceeds the limit 1Gi."
    await place.machines.fails(job.worker(0), "Evicted", words)
    await job.until("it failed", lambda: job.state == names.FAILED)
    assert "exceeds the limit 1Gi" in job.condition(names.FAILED)["message"]


async def test_a_terminal_job_never_runs_again_whatever_is_deleted(place: Place) -> None:
    job = await place.submit(replicas=2, policy="Never", cleanPodPolicy="None")
    await job.runs(2)
    await job.ends(0, code=1)
    await job.until("it failed", lambda: job.state == names.FAILED)
    await job.delete_pod(0)
    await job.delete_pod(1)
    await job.until("they are gone", lambda: not job.pods)
    await job.looked()
    assert not job.pods
    assert job.state == names.FAILED


async def test_between_attempts_the_controller_waits_longer_each_time(place: Place) -> None:
    """The tests shorten the first pause; that it doubles is theirs to see."""
    job = await place.submit(replicas=1, backoffLimit=4)
    await job.runs(1)
    waits = [await _seconds_to_replacement(job, code=1) for _ in range(4)]
    assert waits[3] > 1.3, waits  # 0.3 s times 8, less what the status cuts off: it has whole seconds


async def _seconds_to_replacement(job: Job, code: int) -> float:
    began = time.monotonic()
    old = job.pod_uid(0)
    await job.ends(0, code=code)
    await job.is_replaced(0, old)
    await job.runs(1)
    return time.monotonic() - began
