"""Workers that are lost to their machine or to somebody outside: replaced, and nothing of the budget is spent."""

import time
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.kube import PODS
from tests.apiserver.place import Job, Place
from tests.apiserver.test_placement import waits_for

BUDGET: dict[str, Any] = {"backoffLimit": 0}  # the first failure of a program would end the job


async def training(place: Place, replicas: int = 2, **changes: Any) -> Job:
    job = await place.submit(replicas=replicas, low=1, high=4, **{**BUDGET, **changes})
    await job.runs(replicas)
    return job


async def is_reclaim(job: Job, *causes: str, index: int, old: str, count: int = 1) -> None:
    """It is replaced, counted as a reclaim for that cause (or one of those), and nothing is spent."""
    await job.is_replaced(index, old)
    await job.until("it is counted", lambda: job.status["reclaims"] == count)
    entries = [entry for entry in job.status["history"] if entry["what"] == "reclaimed"]
    assert len(entries) == count
    assert {(entry["worker"], entry["cause"]) for entry in entries} <= {(index, cause) for cause in causes}
    assert (job.status["failures"], job.status["restarts"]) == (0, 0)
    assert job.machines.doubles == []


async def test_a_machine_that_is_deleted_is_a_reclaim_and_replaced_within_two_seconds(place: Place) -> None:
    job = await training(place)
    old, began = job.pod_uid(1), time.monotonic()
    await place.machines.vanish(job.machine(1))
    await job.until("another is made", lambda: job.pod_uid(1) not in ("", old))
    assert time.monotonic() - began < 2
    await is_reclaim(job, names.CAUSE_NODE_GONE, index=1, old=old)


async def test_the_other_workers_of_a_reclaimed_one_are_left_alone(place: Place) -> None:
    job = await training(place, 3)
    kept, old = (job.pod_uid(0), job.pod_uid(2)), job.pod_uid(1)
    await place.machines.vanish(job.machine(1))
    await job.is_replaced(1, old)
    await job.runs(3)
    assert (job.pod_uid(0), job.pod_uid(2)) == kept


async def test_a_machine_that_says_it_is_not_ready_is_a_reclaim(place: Place) -> None:
    job = await training(place)
    old = job.pod_uid(1)
    await place.machines.unready(job.machine(1))
    await is_reclaim(job, names.CAUSE_NODE_NOT_READY, index=1, old=old)


async def test_a_kubelet_that_restarts_costs_nothing(place: Place) -> None:
    job = await training(place)
    old = job.pod_uid(1)
    await place.machines.unready(job.machine(1))
    await job.looked()
    await place.machines.condition(job.machine(1), "Ready", "True")
    await job.looked()
    assert job.pod_uid(1) == old
    assert job.status["reclaims"] == 0


async def test_a_machine_that_kubernetes_calls_unknown_is_a_reclaim_and_its_pod_is_forced_out(place: Place) -> None:
    job = await training(place, 4)
    old, machine = job.pod_uid(1), job.machine(1)
    place.machines.lose(machine)
    await place.machines.unready(machine, "Unknown", "Kubelet stopped posting node status.")
    await is_reclaim(job, names.CAUSE_NODE_SILENT, index=1, old=old)


async def test_on_a_notice_the_worker_is_told_at_once_with_the_time_that_is_left(place: Place) -> None:
    """SIGTERM reaches the launcher within about a second, whatever the template's own grace is."""
    place.machines.leave_seconds = 0.5
    job = await training(place, pod={"terminationGracePeriodSeconds": 600})
    old, began = job.pod_uid(1), time.time()
    await place.machines.notice(job.machine(1), seconds=60)
    at, grace = await job.until("it is told to leave", lambda: place.machines.told.get(old))
    assert at - began < 1.5
    assert 55 <= grace <= 60
    await is_reclaim(job, names.CAUSE_NOTICE, index=1, old=old)


async def test_a_notice_longer_than_the_templates_grace_leaves_it_that_grace(place: Place) -> None:
    job = await training(place, pod={"terminationGracePeriodSeconds": 20})
    old = job.pod_uid(1)
    await place.machines.notice(job.machine(1), seconds=120)
    assert (await job.until("it is told to leave", lambda: place.machines.told.get(old)))[1] == 20


async def test_a_notice_that_is_over_still_leaves_a_second(place: Place) -> None:
    """Without grace the name would be free while the program runs."""
    job = await training(place)
    old = job.pod_uid(1)
    await place.machines.notice(job.machine(1), seconds=-10)
    assert (await job.until("it is told to leave", lambda: place.machines.told.get(old)))[1] == 1
    await is_reclaim(job, names.CAUSE_NOTICE, index=1, old=old)


async def test_a_reclaim_taint_is_a_notice(place: Place) -> None:
    job = await training(place)
    old = job.pod_uid(1)
    await place.machines.taint(job.machine(1), names.TAINT_RECLAIM)
    await is_reclaim(job, names.CAUSE_NOTICE, index=1, old=old)


async def test_a_launcher_that_left_on_sigterm_is_a_reclaim(place: Place) -> None:
    job = await training(place)
    old = job.pod_uid(1)
    await job.ends(1, code=names.EXIT_RECLAIMED)
    await is_reclaim(job, names.CAUSE_LEFT, index=1, old=old)


async def test_a_launcher_that_leaves_as_soon_as_it_starts_pauses_and_the_server_keeps_the_count(place: Place) -> None:
    job = await training(place, replicas=1)
    old = job.pod_uid(0)
    await job.ends(0, code=names.EXIT_RECLAIMED, lived=1.0)
    await job.is_replaced(0, old)
    await job.runs(1)
    await job.ends(0, code=names.EXIT_RECLAIMED, lived=1.0)
    await waits_for(job, names.REASON_REPEATEDLY_LOST, "worker 0 was lost 2 times in a row before it had run for 60 s")
    (entry,) = job.status["shortLived"]
    assert (entry["index"], entry["times"]) == (0, 2)
    await job.runs(1)
    assert (job.status["failures"], job.status["reclaims"]) == (0, 2)


@pytest.mark.parametrize("code", [1, 137, 138, 143, 0])
async def test_whatever_code_a_worker_ends_with_after_a_notice_it_is_a_reclaim(place: Place, code: int) -> None:
    """A launcher that is stopped by SIGTERM exits with 1 or our code; one that exits with 0 has not finished its training."""
    place.machines.exit_code = code
    job = await training(place)
    old = job.pod_uid(1)
    await place.machines.notice(job.machine(1), seconds=60)
    await is_reclaim(job, names.CAUSE_NOTICE, index=1, old=old)
    assert job.status.get("succeededIndices", []) == []


@pytest.mark.parametrize("code", [1, 138, 143, 0])
async def test_a_pod_that_somebody_deletes_is_replaced_whatever_code_it_ends_with(place: Place, code: int) -> None:
    place.machines.exit_code, place.machines.leave_seconds = code, 0.3
    job = await training(place)
    old = job.pod_uid(1)
    await job.delete_pod(1)
    await is_reclaim(job, names.CAUSE_DELETED, index=1, old=old)


async def test_a_pod_that_is_gone_without_a_trace_is_replaced(place: Place) -> None:
    job = await training(place)
    old = job.pod_uid(1)
    await place.made.kube.delete(PODS, place.namespace, job.worker(1), grace_seconds=0)
    # The API server tells of the deletion and of the end one right after the other; who is slow sees the end alone.
    await is_reclaim(job, names.CAUSE_VANISHED, names.CAUSE_DELETED, index=1, old=old)


@pytest.mark.parametrize(
    ("by", "cause"),
    [
        ("EvictionByEvictionAPI", names.CAUSE_DISRUPTED),
        ("PreemptionByScheduler", names.CAUSE_PREEMPTED),
        ("DeletionByTaintManager", names.CAUSE_DISRUPTED),
        ("TerminationByKubelet", names.CAUSE_DISRUPTED),
    ],
)
async def test_a_disruption_that_kubernetes_announces_is_a_reclaim(place: Place, by: str, cause: str) -> None:
    job = await training(place)
    old = job.pod_uid(1)
    condition = {"type": names.CONDITION_DISRUPTION, "status": "True", "reason": by, "message": f"told by {by}"}
    await place.machines.fails(job.worker(1), "Evicted", "The node was low on resource: memory.", condition)
    await is_reclaim(job, cause, index=1, old=old)


async def test_a_drain_is_a_reclaim(place: Place) -> None:
    job = await training(place)
    old = job.pod_uid(1)
    await place.made.kube.evict(place.namespace, job.worker(1))
    await job.is_replaced(1, old)
    await job.until("it is counted", lambda: job.status["reclaims"] == 1)
    assert job.status["failures"] == 0


@pytest.mark.parametrize(
    "reason", ["NodeShutdown", "Terminated", "Preempting", "NodeAffinity", "UnexpectedAdmissionError", "OutOfcpu"]
)
async def test_a_kubelet_that_refuses_or_ends_the_pod_for_its_own_reasons_is_a_reclaim(place: Place, reason: str) -> None:
    job = await training(place)
    old = job.pod_uid(1)
    await place.machines.fails(job.worker(1), reason, "Pod was terminated in response to imminent node shutdown.")
    await is_reclaim(job, names.CAUSE_DISRUPTED, index=1, old=old)


async def test_a_pod_stuck_terminating_on_a_machine_that_is_gone_is_forced_out(place: Place) -> None:
    place.machines.leaves = False
    job = await training(place)
    old = job.pod_uid(1)
    await job.delete_pod(1)
    await job.until("it is told to leave", lambda: old in place.machines.told)
    await place.machines.vanish(job.machine(1))
    await job.is_replaced(1, old)
    assert (job.status["failures"], len(place.machines.doubles)) == (0, 0)


async def test_a_pod_that_takes_its_time_to_leave_is_not_forced_out(place: Place) -> None:
    place.machines.leave_seconds = 2.5
    job = await training(place)
    old = job.pod_uid(1)
    await place.machines.notice(job.machine(1), seconds=30)
    await job.until("it is told to leave", lambda: old in place.machines.told)
    await job.looked()
    assert job.pod_uid(1) == old
    assert place.machines.alive(job.worker(1))
    await is_reclaim(job, names.CAUSE_NOTICE, index=1, old=old)


async def test_all_losses_of_a_burst_are_replaced_at_once(place: Place) -> None:
    job = await place.submit(replicas=20, low=1, high=20, **BUDGET)
    await job.runs(20)
    old, began = {index: job.pod_uid(index) for index in range(15)}, time.monotonic()
    for index in old:
        await place.machines.vanish(job.machine(index))
    await job.until("all are made anew", lambda: all(job.pod_uid(index) not in ("", uid) for index, uid in old.items()))
    assert time.monotonic() - began < 5
    await job.runs(20)
    assert (job.status["reclaims"], job.status["failures"], job.status["restarts"]) == (15, 0, 0)


async def test_a_reclaim_is_told_with_the_machine_and_the_cause(place: Place) -> None:
    job = await training(place)
    old, machine = job.pod_uid(1), job.machine(1)
    await place.machines.vanish(machine)
    await job.is_replaced(1, old)
    message = await job.until(
        "it is told", lambda: next((words for reason, words in job.events if reason == names.REASON_RECLAIMED), "")
    )
    assert f"Worker 1 on {machine.name}" in message
    entry = next(one for one in job.status["history"] if one["what"] == "reclaimed")
    assert (entry["node"], entry["worker"]) == (machine.name, 1)


async def test_a_failure_beside_a_reclaim_is_still_a_failure(place: Place) -> None:
    job = await training(place, 3, backoffLimit=2)
    await place.machines.vanish(job.machine(2))
    await job.ends(0, code=1)
    await job.until("both are counted", lambda: (job.status["failures"], job.status["reclaims"]) == (1, 1))
    await job.runs(3)
    assert job.status["restarts"] == 1


async def test_losses_after_a_worker_finished_are_not_counted(place: Place) -> None:
    job = await training(place, 3)
    await job.ends(0, code=0)
    await job.until("it is seen", lambda: job.status.get("succeededIndices") == [0])
    await place.machines.vanish(job.machine(1))
    await job.ends(2, code=1)
    await job.until("it succeeded", lambda: job.state == names.SUCCEEDED)
    assert (job.status["reclaims"], job.status["failures"]) == (0, 0)
