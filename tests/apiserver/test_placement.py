"""Where workers go: one zone for all, chosen before pods exist, left as a whole when it has no machines."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from ebb.api import contract as names
from tests.apiserver.place import Job, Place
from tests.apiserver.stack import GPU, Stack, group, stack
from tests.apiserver.training import training

Object = dict[str, Any]
ZONE = names.LABEL_ZONE


@pytest_asyncio.fixture(loop_scope="session")
async def two_zones(place: Place) -> AsyncIterator[Stack]:
    """Up to four spot T4 in local-a, and as many at twice the price in local-b."""
    async with stack(place.made) as one:
        yield one


async def gpu_job(place: Place, name: str = "digits", **changes: Any) -> Job:
    return await place.submit(name, container=GPU, **changes)


def selectors(job: Job) -> list[Object]:
    return [pod["spec"].get("nodeSelector") or {} for pod in job.pods.values()]


def zones(job: Job) -> set[str]:
    return {selector.get(ZONE, "") for selector in selectors(job)}


async def waits_for(job: Job, reason: str, *words: str, seconds: float = 15) -> None:
    """Its condition says that it waits for this, in a sentence with these words."""

    def told() -> bool:
        condition = job.condition(names.RUNNING)
        return condition.get("reason") == reason and all(word in condition["message"] for word in words)

    await job.until(f"it waits: {reason} {words}", told, seconds)


# --- The choice -----------------------------------------------------------------------------------------------------------------


async def test_all_workers_are_held_to_one_zone_which_is_told(place: Place, two_zones: Stack) -> None:
    job = await gpu_job(place, replicas=3)
    await job.runs(3)
    assert zones(job) == {"local-a"}
    placed = job.status["placement"]
    assert (placed["zone"], placed["gpuType"], placed["capacityType"]) == ("local-a", "T4", "spot")
    told = names.REASON_PLACED, "Workers go to zone local-a (spot T4)."
    await job.until("people are told", lambda: told in job.events)


async def test_the_cheapest_zone_is_taken(place: Place) -> None:
    cheap, dear = group("b", zone="local-b", pricePerHourOnDemand=1), group("a", zone="local-a", pricePerHourOnDemand=2)
    async with stack(place.made, dear, cheap):
        job = await gpu_job(place, replicas=1)
        await job.runs(1)
        assert zones(job) == {"local-b"}


async def test_a_zone_that_holds_all_workers_goes_before_a_cheaper_one_that_does_not(place: Place) -> None:
    small, large = group("a", zone="local-a", max=2), group("b", zone="local-b", pricePerHourOnDemand=5)
    async with stack(place.made, small, large):
        job = await gpu_job(place, replicas=4)
        await job.runs(4)
        assert zones(job) == {"local-b"}


async def test_a_zone_where_machines_were_reclaimed_lately_is_avoided(place: Place, two_zones: Stack) -> None:
    first = await gpu_job(place, "first", replicas=2)
    await first.runs(2)
    old = first.pod_uid(0)
    await place.machines.vanish(first.machine(0))
    await first.is_replaced(0, old)
    second = await gpu_job(place, "second", replicas=1)
    await second.runs(1)
    assert (zones(first), zones(second)) == ({"local-a"}, {"local-b"})


async def test_a_zone_that_the_author_names_is_taken(place: Place, two_zones: Stack) -> None:
    job = await gpu_job(place, replicas=1, placement={"zone": "local-b"})
    await job.runs(1)
    assert zones(job) == {"local-b"}


async def test_a_zone_that_is_not_there_is_told_with_those_that_are(place: Place, two_zones: Stack) -> None:
    job = await gpu_job(place, replicas=1, placement={"zone": "mars"})
    await waits_for(job, names.WAITING_FOR_ZONE, "'mars'", "local-a, local-b")
    assert not job.pods


async def test_any_zone_means_that_workers_may_be_spread(place: Place, two_zones: Stack) -> None:
    job = await gpu_job(place, replicas=2, placement={"zone": "any"})
    await job.runs(2)
    assert zones(job) == {""}


async def test_the_zone_of_a_volume_is_the_jobs_zone(place: Place) -> None:
    """A file system of one zone: elsewhere its data would be slow and cost money."""
    volume = {"name": "fsx", "claim": "ebb-fsx", "mountPath": "/mnt/data", "zone": "local-b"}
    groups = group("a", zone="local-a"), group("b", zone="local-b", pricePerHourOnDemand=9)
    async with stack(place.made, *groups, volumes=[volume], jobsNamespace=place.namespace):
        job = await gpu_job(place, replicas=1)
        await job.until("its worker is made", lambda: 0 in job.pods)
        assert zones(job) == {"local-b"}


async def test_the_platforms_volumes_are_mounted_where_job_files_expect_them(place: Place) -> None:
    volume = {"name": "data", "claim": "ebb-data", "mountPath": "/mnt/data", "readOnly": True}
    async with stack(place.made, group("a"), volumes=[volume], jobsNamespace=place.namespace):
        job = await gpu_job(place, replicas=1)
        await job.until("its worker is made", lambda: 0 in job.pods)
        spec = job.pods[0]["spec"]
        mount = next(one for one in spec["containers"][0]["volumeMounts"] if one["mountPath"] == "/mnt/data")
        source = next(one for one in spec["volumes"] if one["name"] == mount["name"])
        assert source["persistentVolumeClaim"] == {"claimName": "ebb-data", "readOnly": True}


async def test_the_machines_are_asked_for_by_labels_and_their_taints_are_tolerated(place: Place) -> None:
    taint = {"key": "ebb.dev/capacity-type", "value": "spot", "effect": "NoSchedule"}
    async with stack(place.made, group("a", taints=[taint])):
        job = await gpu_job(place, replicas=1, placement={"gpuType": "T4", "capacity": "spot"})
        await job.runs(1)
        pod = job.pods[0]["spec"]
        assert pod["nodeSelector"] == {ZONE: "local-a", names.LABEL_GPU_TYPE: "T4", names.LABEL_CAPACITY: "spot"}
        assert {"key": taint["key"], "operator": "Equal", "value": "spot", "effect": "NoSchedule"} in pod["tolerations"]


async def test_a_gpu_that_is_not_there_is_told_with_those_that_are(place: Place, two_zones: Stack) -> None:
    job = await gpu_job(place, replicas=1, placement={"gpuType": "H100"})
    await waits_for(job, names.WAITING_FOR_ZONE, "'H100'", "T4")


async def test_more_than_any_zone_holds_is_told_with_the_most_there_is(place: Place, two_zones: Stack) -> None:
    job = await gpu_job(place, replicas=5, low=5, high=5)
    await waits_for(job, names.WAITING_FOR_ZONE, "minReplicas 5", "the most is 4")
    assert not job.pods


async def test_a_description_of_another_version_is_a_reason_to_wait(place: Place, two_zones: Stack) -> None:
    await two_zones.spoil()
    job = await gpu_job(place, replicas=1)
    await waits_for(job, names.WAITING_FOR_PLATFORM, "'99'")
    await two_zones.describe(group("a"))
    await job.runs(1)


async def test_a_stack_that_grows_lets_a_waiting_job_in(place: Place, two_zones: Stack) -> None:
    job = await gpu_job(place, replicas=6, low=6, high=6)
    await waits_for(job, names.WAITING_FOR_ZONE)
    await two_zones.describe(group("a", max=8))
    await job.runs(6)


# --- A zone without machines ----------------------------------------------------------------------------------------------------


async def moved(job: Job, zone: str, count: int) -> None:
    await job.runs(count)
    assert zones(job) == {zone}
    assert job.status["placement"]["zone"] == zone
    assert (job.status["reclaims"], job.status["failures"]) == (0, 0)


async def test_a_job_leaves_a_zone_for_which_the_autoscaler_makes_no_machines(place: Place, two_zones: Stack) -> None:
    place.machines.zones["local-a"] = 0
    job = await gpu_job(place, replicas=2, low=2)
    await job.until("its workers are made", lambda: len(job.pods) == 2)
    for pod in job.pods.values():
        await two_zones.refuses(pod, "pod didn't trigger scale-up: 1 in backoff after failed scale-up")
    await moved(job, "local-b", 2)
    await job.until("people are told", lambda: names.REASON_MOVED in job.reasons)


async def test_a_job_leaves_a_zone_whose_groups_back_off_and_tells_the_clouds_own_words(place: Place, two_zones: Stack) -> None:
    place.machines.zones["local-a"] = 0
    await two_zones.backs_off("spot-a", "InsufficientInstanceCapacity: no box.t4 in local-a")
    job = await gpu_job(place, replicas=2, low=2)
    await moved(job, "local-b", 2)


async def test_a_job_leaves_a_zone_whose_machines_do_not_come_in_time(place: Place, two_zones: Stack) -> None:
    place.machines.zones["local-a"] = 0
    job = await gpu_job(place, replicas=2, low=2)
    await moved(job, "local-b", 2)
    told = "no machine came for 2 s"
    await job.until("people are told", lambda: any(told in words for reason, words in job.events if reason == names.REASON_MOVED))


async def test_it_moves_as_a_whole_and_is_never_in_two_zones(place: Place, two_zones: Stack) -> None:
    """Two of three workers got machines; the third did not, and the job cannot train with two."""
    place.machines.zones["local-a"] = 2
    seen: list[set[str]] = []
    job = await gpu_job(place, replicas=3, low=3)

    def watch() -> bool:
        alive = [pod for pod in job.pods.values() if place.machines.alive(pod["metadata"]["name"])]
        seen.append({pod["spec"]["nodeSelector"][ZONE] for pod in alive})
        return job.state == names.RUNNING

    await job.until("it runs", watch, 30)
    await moved(job, "local-b", 3)
    assert max(len(found) for found in seen) == 1
    assert place.machines.doubles == []


async def test_a_job_that_has_min_replicas_stays_where_it_is(place: Place, two_zones: Stack) -> None:
    place.machines.zones["local-a"] = 2
    job = await gpu_job(place, replicas=4, low=2)
    await job.until("it runs with two", lambda: job.state == names.RUNNING and job.status["ready"] == "2/4")
    kept = {index: job.pod_uid(index) for index in (0, 1)}
    await job.until("the others are made", lambda: len(job.pods) == 4)
    for index in (2, 3):
        await two_zones.refuses(job.pods[index], "pod didn't trigger scale-up: 1 in backoff after failed scale-up")
    await job.looked()
    assert {index: job.pod_uid(index) for index in (0, 1)} == kept
    assert job.status["placement"]["zone"] == "local-a"


async def test_a_job_whose_author_names_the_zone_waits_there_and_says_so(place: Place, two_zones: Stack) -> None:
    place.machines.zones["local-a"] = 0
    await two_zones.backs_off("spot-a", "InsufficientInstanceCapacity: no box.t4 in local-a")
    job = await gpu_job(place, replicas=1, placement={"zone": "local-a"})
    words = "InsufficientInstanceCapacity: no box.t4 in local-a", "placement.zone names local-a"
    await waits_for(job, names.WAITING_DRY, *words)
    await two_zones.recovers()
    place.machines.zones.clear()
    await job.runs(1)
    assert zones(job) == {"local-a"}


async def test_a_dry_zone_is_remembered_by_the_jobs_that_come_after(place: Place, two_zones: Stack) -> None:
    place.machines.zones["local-a"] = 0
    first = await gpu_job(place, "first", replicas=1)
    await moved(first, "local-b", 1)
    assert [entry["zone"] for entry in first.status["dry"]] == ["local-a"]
    second = await gpu_job(place, "second", replicas=1)
    await second.runs(1)
    assert [entry["zone"] for entry in second.status.get("dry", [])] == []
    assert zones(second) == {"local-b"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("MaxSpotInstanceCountExceeded: Max spot instance count exceeded", names.WAITING_CLOUD_QUOTA),
        ("VcpuLimitExceeded: You have requested more vCPU capacity than your current limit", names.WAITING_CLOUD_QUOTA),
        ("InsufficientInstanceCapacity: try another zone", names.WAITING_DRY),
    ],
    ids=["spot quota", "quota", "no capacity"],
)
async def test_a_waiting_job_says_what_the_cloud_said(place: Place, words: str, reason: str) -> None:
    place.machines.most = 0
    async with stack(place.made, group("spot-a")) as it:
        await it.backs_off("spot-a", words)
        job = await gpu_job(place, replicas=1)
        await waits_for(job, reason, words)


async def test_a_waiting_job_says_that_machines_are_booting(place: Place, two_zones: Stack) -> None:
    place.machines.boots = False
    job = await gpu_job(place, replicas=2)
    await job.until("its workers are made", lambda: bool(job.pods))
    for pod in job.pods.values():
        await two_zones.asks_for_machines(pod)
    await waits_for(job, names.WAITING_BOOTING, "booting in local-a")


# --- Spot and on-demand ---------------------------------------------------------------------------------------------------------


async def test_spot_then_on_demand_falls_back_in_time_and_returns_at_a_checkpoint(place: Place) -> None:
    spot, dear = group("spot-a"), group("on-demand-a", capacityType="on-demand", spotDiscount=0.0)
    placement = {"capacity": "spot-then-on-demand", "fallbackAfterSeconds": 1}
    async with stack(place.made, spot, dear):
        place.machines.kinds["spot"] = 0
        job = await gpu_job(place, replicas=1, low=1, placement=placement)
        await job.until("it is on on-demand", lambda: job.status.get("placement", {}).get("capacityType") == "on-demand", 20)
        await job.runs(1)
        assert selectors(job)[0][names.LABEL_CAPACITY] == "on-demand"
        assert job.status["placement"]["fallbacks"] == 1
        place.machines.kinds.clear()
        async with training(job.pods[0]["status"]["podIP"]) as worker:
            worker.checkpoint = 10
            await job.until("progress is told", lambda: job.status.get("progress", {}).get("checkpointStep") == 10)
            worker.checkpoint = 20
            await job.until("it is back on spot", lambda: job.status.get("placement", {}).get("capacityType") == "spot", 30)
        await job.until("its workers are", lambda: [one[names.LABEL_CAPACITY] for one in selectors(job)] == ["spot"])
        await job.runs(1)
        assert (job.status["failures"], job.status["reclaims"]) == (0, 0)
