"""Use by owners decides whose job is next, also after the controller was killed; and the line is written down for people."""

import random
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api import queue
from ebb.api.clock import stamp
from ebb.api.usage import NAME, read
from ebb.controller.reconciler.capacity import OVERDUE_SECONDS
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, PODS
from tests.builders import make_job
from tests.controller.cloud import GPU, Cloud
from tests.fake_time import run
from tests.world import FakeCluster, started


def job_of(user: str, name: str, size: int = 8) -> dict[str, Any]:
    """A job for so many of the eight machines in local-a."""
    job = make_job(
        name, low=size, replicas=size, high=size, uid=f"{name}-0000-1111", container=GPU,
        placement={"gpuType": "T4", "zone": "local-a"},
    )  # fmt: skip
    job["metadata"]["annotations"] = {names.ANNOTATION_BILLED: user}
    return job


def record(world: FakeCluster) -> dict[str, str]:
    found = next(item for item in world.api.all(CONFIG_MAPS) if item["metadata"]["name"] == NAME)
    return dict(found["data"])


def end(world: FakeCluster, name: str) -> None:
    for pod in world.pods():
        if pod.startswith(f"{name}-worker-"):
            world.api.pod_ends(pod, 0)


def test_after_a_restart_the_job_of_who_used_less_is_next() -> None:
    async def story() -> None:
        async with started() as world:
            cloud = Cloud(world.api, random.Random(1))
            cloud.open()
            world.api.put(ELASTIC_JOBS, job_of("ada", "first"))
            await cloud.run(1000)
            assert world.state("first") == "Running"
            for user, name in (("ada", "second"), ("bob", "third")):
                world.api.put(ELASTIC_JOBS, job_of(user, name))
                await cloud.run(5)
            await cloud.run(100)
            line = queue.read(record(world))
            assert line is not None
            assert [(one.job, one.user, one.gpus, one.share, one.older) for one in line.jobs] == [
                ("third", "bob", 8, 0, 0),
                ("second", "ada", 8, 1, 0),
            ]
            await world.kill()
            await cloud.run(30)
            world.start()
            await cloud.run(70)
            used = read(record(world)).owners
            assert used[("elastic-job", "ada")] == pytest.approx(8 * 1100, rel=0.15)
            end(world, "first")
            await cloud.run(300)
            assert (world.state("third"), world.state("second")) == ("Running", "Waiting")

    run(story())


def test_machines_that_are_kept_for_a_large_job_are_lent_until_it_can_start() -> None:
    async def story() -> None:
        async with started() as world:
            cloud = Cloud(world.api, random.Random(2))
            cloud.open()
            world.api.put(ELASTIC_JOBS, job_of("ada", "first", 5))
            await cloud.run(200)
            world.api.put(ELASTIC_JOBS, job_of("bob", "large", 8))
            await cloud.run(40)
            world.api.put(ELASTIC_JOBS, job_of("eve", "small", 3))
            await cloud.run(200)
            states = {name: world.state(name) for name in ("first", "large", "small")}
            assert states == {"first": "Running", "large": "Waiting", "small": "Running"}
            begun = world.api.clock()
            end(world, "first")
            while world.state("large") != "Running":
                await cloud.run(1)
                assert world.api.clock() < begun + 240
            assert world.state("small") in ("Waiting", "Restarting")
            assert "MachinesReleased" in world.events()
            end(world, "large")
            await cloud.run(240)
            assert world.state("small") == "Running"

    run(story())


def test_the_line_is_written_also_where_there_is_no_machine() -> None:
    async def story() -> None:
        async with started() as world:
            cloud = Cloud(world.api, random.Random(3))
            cloud.open()
            world.api.put(ELASTIC_JOBS, job_of("ada", "huge", 9))
            await cloud.run(90)
            line = queue.read(record(world))
            assert line is not None
            assert [(one.job, one.why) for one in line.jobs] == [("huge", queue.NOWHERE)]
            world.api.remove(ELASTIC_JOBS, "huge")
            await cloud.run(90)
            line = queue.read(record(world))
            assert line is not None
            assert line.jobs == ()

    run(story())


def test_gpus_that_teams_lend_are_written_down_and_go_back_to_their_owner() -> None:
    async def story() -> None:
        async with started() as world:
            cloud = Cloud(world.api, random.Random(4))
            teams = [{"name": "vision", "namespace": "elastic-job", "gpus": 4, "borrow": 4}]
            cloud.open(teams=[*teams, {"name": "speech", "namespace": "ebb-team-speech", "gpus": 4}])
            for name in ("first", "later"):
                world.api.put(ELASTIC_JOBS, job_of("ada", name, 4))
                await cloud.run(5)
            await cloud.run(200)
            assert (world.state("first"), world.state("later")) == ("Running", "Running")
            line = queue.read(record(world))
            assert line is not None
            assert [(one.job, one.gpus, one.lenders) for one in line.loans] == [("later", 4, ("speech",))]
            owner = job_of("sue", "owner", 4)
            owner["metadata"]["namespace"] = "ebb-team-speech"
            world.api.put(ELASTIC_JOBS, owner)
            begun = world.api.clock()
            while world.state("later") == "Running":
                await cloud.run(1)
                assert world.api.clock() < begun + 10, "within a look"
            await cloud.run(200)
            placed = [pod for pod in world.api.all(PODS) if pod["spec"].get("nodeName")]
            assert sorted({pod["metadata"]["name"].partition("-worker")[0] for pod in placed}) == ["first", "owner"]
            line = queue.read(record(world))
            assert line is not None
            assert [(one.job, one.why, one.borrows) for one in line.jobs] == [("later", queue.MACHINES, 4)]
            assert line.loans == ()

    run(story())


def test_the_turn_of_a_job_larger_than_its_quota_is_written_down() -> None:
    async def story() -> None:
        async with started() as world:
            cloud = Cloud(world.api, random.Random(5))
            teams = [{"name": "vision", "namespace": "elastic-job", "gpus": 3, "borrow": 4}]
            cloud.open(teams=[*teams, {"name": "speech", "namespace": "ebb-team-speech", "gpus": 4}])
            own = job_of("sue", "own", 4)
            own["metadata"]["namespace"] = "ebb-team-speech"
            world.api.put(ELASTIC_JOBS, own)
            await cloud.run(100)
            large = job_of("ada", "large", 4)
            large["metadata"]["creationTimestamp"] = stamp(world.api.clock() - OVERDUE_SECONDS)
            world.api.put(ELASTIC_JOBS, large)
            await cloud.run(300)
            line = queue.read(record(world))
            assert line is not None
            assert [(one.job, one.borrows, one.has_turn) for one in line.jobs] == [("large", 1, True)]

    run(story())
