"""Many jobs: who goes first, what each may hold, and how a job grows and makes room."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from ebb.api import contract as names
from ebb.kube import PRIORITY_CLASSES, Resource
from tests.apiserver.place import Job, Place
from tests.apiserver.proxy import Line
from tests.apiserver.stack import GPU, group, stack
from tests.apiserver.test_placement import waits_for

Object = dict[str, Any]
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


async def gpu_job(place: Place, name: str, replicas: int, low: int | None = None, **changes: Any) -> Job:
    return await place.submit(name, replicas=replicas, low=low or replicas, high=max(4, replicas), container=GPU, **changes)


# --- The first workers, and the rest --------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session")
async def without_classes(place: Place) -> AsyncIterator[None]:
    """A cluster where nobody applied manifests/priorities.yaml."""
    kube = place.made.kube
    kept = await kube.get(PRIORITY_CLASSES, None, "ebb-elastic")
    await kube.delete(PRIORITY_CLASSES, None, "ebb-elastic")
    yield
    await kube.create(PRIORITY_CLASSES, None, {**kept, "metadata": {"name": "ebb-elastic"}})


async def test_workers_beyond_min_replicas_make_room_for_the_first_of_other_jobs(place: Place) -> None:
    async with stack(place.made, group("a", max=8)):
        job = await gpu_job(place, "digits", 3, low=1)
        await job.runs(3)
        first, *rest = (job.pods[index]["spec"]["priority"] for index in range(3))
        assert max(rest) < first
        assert job.pods[2]["spec"]["priorityClassName"] == "ebb-elastic"


async def test_without_priorities_the_first_min_replicas_workers_come_before_the_rest(
    place: Place, without_classes: None
) -> None:
    async with stack(place.made, group("a", max=8)):
        place.machines.boots = False
        job = await gpu_job(place, "digits", 4, low=2)
        await job.until("the first are made", lambda: set(job.pods) == {0, 1})
        await job.looked()
        assert set(job.pods) == {0, 1}
        place.machines.boots = True
        place.machines.again()
        await job.runs(4)


async def test_two_jobs_that_each_hold_half_do_not_wait_for_each_other_for_ever(place: Place) -> None:
    """The cloud has four machines, each job needs three: the one behind lets go."""
    async with stack(place.made, group("a", max=8)):
        place.machines.zones["local-a"] = 2
        first = await gpu_job(place, "first", 3)
        await first.until("it has two", lambda: sum("nodeName" in pod["spec"] for pod in first.pods.values()) == 2)
        place.machines.served.update(first.worker(index) for index in range(3))
        place.machines.boots = False
        second = await gpu_job(place, "second", 3)
        await second.until("its workers are made", lambda: len(second.pods) == 3, 20)
        for index in (0, 1):
            machine = await place.machines.add(**second.pods[index]["spec"]["nodeSelector"])
            await place.machines.bind(second.pods[index], machine)
        place.machines.zones["local-a"], place.machines.boots = 4, True
        place.machines.again()
        await first.runs(3, 30)
        await second.until("people are told", lambda: names.REASON_RELEASED in second.reasons)
        await first.ends(0, 1, 2, code=0)
        await second.runs(3, 30)
        assert (second.status["failures"], second.status["reclaims"]) == (0, 0)


# --- The order ------------------------------------------------------------------------------------------------------------------


async def test_a_job_for_which_there_is_no_room_waits_and_says_behind_whom(place: Place) -> None:
    async with stack(place.made, group("a", max=2)):
        first = await gpu_job(place, "first", 2)
        await first.runs(2)
        second = await gpu_job(place, "second", 2)
        await waits_for(second, names.WAITING_BEHIND, f"{place.namespace}/first")
        assert not second.pods
        await first.ends(0, 1, code=0)
        await second.runs(2)


@pytest_asyncio.fixture(loop_scope="session")
async def urgent(place: Place) -> str:
    """A PriorityClass above that of other jobs."""
    body: Object = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 5000,
    }
    await place.made.kube.apply(PRIORITY_CLASSES, None, body, manager="tests")
    return "urgent"


async def test_a_job_of_higher_priority_stops_one_that_runs_which_goes_on_after_it(place: Place, urgent: str) -> None:
    async with stack(place.made, group("a", max=2)):
        running = await gpu_job(place, "running", 2)
        await running.runs(2)
        pressing = await gpu_job(place, "pressing", 2, priorityClassName=urgent)
        await pressing.runs(2)
        await running.until("people are told", lambda: names.REASON_PREEMPTED in running.reasons)
        await waits_for(running, names.WAITING_BEHIND, f"{place.namespace}/pressing")
        await pressing.ends(0, 1, code=0)
        await running.runs(2)
        assert (running.status["reclaims"], running.status["failures"]) == (0, 0)


async def test_among_waiting_jobs_a_higher_priority_goes_first_then_the_older(place: Place, urgent: str) -> None:
    async with stack(place.made, group("a", max=2)):
        running = await gpu_job(place, "running", 2, priorityClassName=urgent)
        await running.runs(2)
        older = await gpu_job(place, "older", 2)
        younger = await gpu_job(place, "younger", 2)
        pressing = await gpu_job(place, "pressing", 2, priorityClassName=urgent)
        for job in (older, younger, pressing):
            await waits_for(job, names.WAITING_BEHIND)
        order = []
        for _ in range(3):
            await running.ends(0, 1, code=0)
            await running.until("it is done", lambda: running.state == names.SUCCEEDED)  # noqa: B023
            running = await place.made.seen.until("the next one runs", lambda: _running(older, younger, pressing), 20)
            order.append(running.name)
        assert order == ["pressing", "older", "younger"]


def _running(*jobs: Job) -> Job | None:
    return next((job for job in jobs if job.state == names.RUNNING and job.status["ready"] == "2/2"), None)


async def test_of_a_sweep_only_so_many_run_at_once(place: Place) -> None:
    sweep = {"name": "learning-rate", "maxParallel": 1}
    first = await place.submit("first", replicas=1, group=sweep)
    await first.runs(1)
    second = await place.submit("second", replicas=1, group=sweep)
    await waits_for(second, names.WAITING_FOR_GROUP, "learning-rate")
    other = await place.submit("other", replicas=1)
    await other.runs(1)
    assert not second.pods
    await first.ends(0, code=0)
    await second.runs(1)


async def test_a_quota_of_the_namespace_is_a_reason_to_wait_in_the_servers_words(place: Place, line: Line) -> None:
    """It is tried again after pauses that double, and the job goes on when there is room."""
    await _limit_pods(place, 2)
    other = await place.submit("other", replicas=1)
    await other.runs(1)
    job = await place.submit(replicas=2, low=2)
    await waits_for(job, names.WAITING_FOR_QUOTA, "exceeded quota: few")

    def rounds() -> list[float]:
        """When it was refused, to the tenth of a second: all pods of a round are asked for at once."""
        posts = [one for one in line.asked if one.method == "POST" and one.path.endswith(f"/{place.namespace}/pods")]
        at = [one.at for one in posts if one.status == 403]
        return [later for earlier, later in itertools.pairwise([0.0, *at]) if later - earlier > 0.1]

    tried = await job.until("it was tried three times", lambda: found if len(found := rounds()) == 3 else None)
    first, second = (later - earlier for earlier, later in itertools.pairwise(tried))
    assert (first > 0.4, second > 0.9) == (True, True), tried
    assert job.status["failures"] == 0
    await place.made.kube.delete(QUOTAS, place.namespace, "few")
    await job.runs(2)


async def test_of_two_jobs_with_half_of_what_a_quota_allows_one_starts_and_the_other_holds_nothing(place: Place) -> None:
    await _limit_pods(place, 6)
    jobs = [await place.submit(name, replicas=4, low=4) for name in ("one", "two")]
    large = await place.submit("large", replicas=7, low=7, high=7)
    await waits_for(large, names.WAITING_QUOTA_TOO_SMALL, "allows 6 of pods in all, and minReplicas 7 needs 7 x 1 of pods")
    await large.until("it holds nothing", lambda: not large.pods)
    runs = await jobs[0].until("one of them runs", lambda: next((job for job in jobs if job.state == names.RUNNING), None))
    waits = next(job for job in jobs if job is not runs)
    await waits.until("the other holds nothing", lambda: not waits.pods)
    await waits_for(waits, names.WAITING_FOR_QUOTA, "ResourceQuota 'few'")
    await runs.ends(0, 1, 2, 3, code=0)
    await waits.runs(4)


async def _limit_pods(place: Place, most: int) -> None:
    hard: Object = {"pods": str(most)}
    quota: Object = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
    await place.made.kube.create(QUOTAS, place.namespace, quota)
    await _enforced(place)


async def _enforced(place: Place) -> None:
    async def known() -> bool:
        return bool((await place.made.kube.get(QUOTAS, place.namespace, "few")).get("status", {}).get("hard"))

    async with asyncio.timeout(15):
        while not await known():  # noqa: ASYNC110 - quotas are not watched
            await asyncio.sleep(0.05)


# --- As many as there is room for -----------------------------------------------------------------------------------------------


async def test_an_automatic_job_grows_as_far_as_there_is_room(place: Place) -> None:
    async with stack(place.made, group("a", max=3)):
        job = await gpu_job(place, "digits", 1, low=1, scaling="automatic")
        await job.runs(3)
        assert job.status["target"] == 3
        await job.looked()
        assert len(job.pods) == 3
        grown = [words for reason, words in job.events if reason == names.REASON_SCALED]
        assert [words.partition(":")[0] for words in grown] == ["The job grows from 1 to 3 workers"], "in one batch"


async def test_an_automatic_job_takes_the_machines_that_another_lets_go_of(place: Place) -> None:
    async with stack(place.made, group("a", max=4)):
        other = await gpu_job(place, "other", 3, low=1)
        await other.runs(3)
        job = await gpu_job(place, "digits", 1, low=1, scaling="automatic")
        await job.runs(1)
        await other.scale(1)
        await job.runs(3)


async def test_an_automatic_job_never_grows_beyond_max_replicas(place: Place) -> None:
    async with stack(place.made, group("a", max=9)):
        job = await gpu_job(place, "digits", 1, low=1, scaling="automatic")
        await job.runs(4)
        await job.looked()
        assert len(job.pods) == 4


async def test_an_automatic_job_shrinks_to_the_machines_that_came(place: Place) -> None:
    async with stack(place.made, group("a", max=4)):
        place.machines.zones["local-a"] = 2
        job = await gpu_job(place, "digits", 4, low=1, scaling="automatic")
        await job.until("it is content with two", lambda: job.status.get("target") == 2 and len(job.pods) == 2, 20)
        await job.runs(2)
        assert job.status["reclaims"] == 0


async def test_an_automatic_job_makes_room_for_one_that_goes_first(place: Place) -> None:
    async with stack(place.made, group("a", max=4)):
        place.machines.zones["local-a"] = 4
        elastic = await gpu_job(place, "elastic", 1, low=1, scaling="automatic")
        await elastic.runs(4)
        other = await gpu_job(place, "other", 2)
        await other.runs(2, 30)
        await elastic.until("it has made room", lambda: len(elastic.running()) == 2)
        assert (elastic.status["failures"], elastic.status["reclaims"]) == (0, 0)
