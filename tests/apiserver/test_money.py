"""What a job costs, what it may cost, and what is left of it when it is gone."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS
from tests.apiserver.place import Job, Place
from tests.apiserver.stack import GPU, group, stack
from tests.apiserver.test_placement import gpu_job

Object = dict[str, Any]
USD_PER_SECOND = 3600.0  # an hour, on demand; spot costs 30 % of it


@asynccontextmanager
async def priced(place: Place) -> AsyncIterator[None]:
    """One node group, whose machines are easy to reckon with."""
    place.machines.extra = {names.LABEL_NODE_GROUP: "a"}
    async with stack(place.made, group("a", pricePerHourOnDemand=USD_PER_SECOND)):
        yield


async def held(job: Job, reason: str, seconds: float = 20) -> str:
    """The controller stopped it, its machines are given back, and the condition says why."""
    await job.until("it is held", lambda: job.state == names.SUSPENDED and not job.pods, seconds)
    condition = job.condition(names.SUSPENDED)
    assert (condition["status"], condition["reason"]) == ("True", reason)
    return str(condition["message"])


async def test_cost_is_told_with_what_it_would_have_been_on_demand(place: Place) -> None:
    async with priced(place):
        job = await gpu_job(place, replicas=2)
        await job.runs(2)
        await job.until("two machines are counted", lambda: job.status["cost"]["machines"] == 2)
        assert job.status["cost"]["usdPerHour"] == 2 * 0.3 * USD_PER_SECOND
        assert job.status["cost"]["usdOnDemandPerHour"] == 2 * USD_PER_SECOND
        before = job.status["cost"]
        await job.scale(1)
        await job.until("one is", lambda: job.status["cost"]["machines"] == 1)
        cost, seconds = job.status["cost"], (unix(job.status["cost"]["at"]) or 0.0) - (unix(before["at"]) or 0.0)
        assert abs(cost["machineSeconds"] - before["machineSeconds"] - 2 * seconds) < 0.1
        assert abs(cost["usdSpent"] - 0.3 * cost["machineSeconds"]) < 0.01
        assert abs(cost["usdOnDemand"] - cost["machineSeconds"]) < 0.01


async def test_a_suspended_job_costs_nothing(place: Place) -> None:
    async with priced(place):
        job = await gpu_job(place, replicas=1)
        await job.runs(1)
        await job.patch(suspend=True)
        await job.until("its machine is given back", lambda: not job.pods and job.status["cost"]["machines"] == 0)
        assert job.status["cost"]["usdPerHour"] == 0


async def test_a_job_stops_before_its_budget_is_spent_and_goes_on_with_a_larger_one(place: Place) -> None:
    place.machines.leave_seconds = 0.5
    async with priced(place):
        job = await gpu_job(place, replicas=1, low=1, budget={"maxUSD": 2.6}, pod={"terminationGracePeriodSeconds": 1})
        await job.runs(1)
        message = await held(job, names.REASON_BUDGET)
        assert "spec.budget.maxUSD" in message
        assert 0 < job.status["cost"]["usdSpent"] <= 2.6
        assert (job.status["failures"], job.status["reclaims"]) == (0, 0)
        await job.until("people are told", lambda: names.REASON_BUDGET in job.reasons)
        await job.patch(budget={"maxUSD": 100})
        await job.runs(1)


async def test_a_budget_is_kept_over_a_restart_of_the_controller(place: Place, controller: Any) -> None:
    async with priced(place):
        job = await gpu_job(place, replicas=1, low=1, budget={"maxUSD": 3.2}, pod={"terminationGracePeriodSeconds": 1})
        await job.runs(1)
        controller.kill()
        await controller.start()
        await held(job, names.REASON_BUDGET)
        assert job.status["cost"]["usdSpent"] <= 3.2


async def test_a_budget_that_no_price_lets_one_keep_is_told(place: Place) -> None:
    job = await place.submit(replicas=1, low=1, budget={"maxUSD": 4})
    await job.runs(1)
    await job.until("it is told", lambda: names.REASON_NO_PRICE in job.reasons)


async def test_at_its_deadline_a_job_is_stopped_and_a_later_one_lets_it_go_on(place: Place) -> None:
    job = await place.submit(replicas=1, deadline=stamp(time.time() + 3))
    await job.runs(1)
    message = await held(job, names.REASON_TIME_UP)
    assert "spec.deadline" in message
    assert job.status["failures"] == 0
    await job.patch(deadline=stamp(time.time() + 3600))
    await job.runs(1)


async def test_a_hold_lasts_over_a_restart_of_the_controller(place: Place, controller: Any) -> None:
    job = await place.submit(replicas=1, deadline=stamp(time.time() + 1))
    await held(job, names.REASON_TIME_UP)
    await controller.stop()
    await controller.start()
    await job.until("it is still held", lambda: job.state == names.SUSPENDED)
    assert not job.pods


# --- The record -----------------------------------------------------------------------------------------------------------------


async def record(place: Place) -> Object:
    """The only one of the test."""
    found: list[Object] = []

    async def look() -> bool:
        found[:] = await place.made.kube.list(CONFIG_MAPS, place.namespace, labels=f"{names.LABEL_RECORD}=true")
        return bool(found)

    async with asyncio.timeout(15):
        while not await look():  # noqa: ASYNC110 - records are not watched
            await asyncio.sleep(0.05)
    assert len(found) == 1
    assert "ownerReferences" not in found[0]["metadata"]
    told: Object = json.loads(found[0]["data"]["record.json"])
    return told


async def test_the_record_of_a_job_outlives_it(place: Place) -> None:
    async with priced(place):
        job = await gpu_job(place, replicas=2, ttlSecondsAfterFinished=1)
        note = {"metadata": {"labels": {names.ANNOTATION_BILLED: "ada"}, "annotations": {names.ANNOTATION_BILLED: "ada"}}}
        await place.made.kube.patch(ELASTIC_JOBS, place.namespace, "digits", note)
        await job.runs(2)
        uid = job.uid
        await job.ends(0, 1, code=0)
        await job.until("it is gone", lambda: job.value is None)
        told = await record(place)
    assert (told["job"], told["uid"], told["state"], told["submittedBy"]) == ("digits", uid, names.SUCCEEDED, "ada")
    assert told["machineSeconds"] > 0
    assert abs(told["usdSpent"] - 0.3 * told["machineSeconds"]) < 0.05
    assert abs(told["usdOnDemand"] - told["machineSeconds"]) < 0.1
    assert (told["zone"], told["capacityType"], told["gpuType"]) == ("local-a", "spot", "T4")


async def test_a_job_that_is_deleted_while_it_runs_has_a_record_too(place: Place) -> None:
    job = await place.submit(replicas=1)
    await job.runs(1)
    await job.delete()
    told = await record(place)
    assert (told["reason"], told["job"]) == ("Deleted", "digits")
    assert told["machineSeconds"] > 0


async def test_a_job_without_gpus_has_no_price_and_still_a_record(place: Place) -> None:
    job = await place.submit(replicas=1, container={key: value for key, value in GPU.items() if key != "resources"})
    await job.runs(1)
    await job.ends(0, code=0)
    told = await record(place)
    assert (told["usdSpent"], told["state"]) == (0, names.SUCCEEDED)
