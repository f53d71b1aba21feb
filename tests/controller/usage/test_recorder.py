"""The machine usage record against a cloud that keeps its own bill: random histories with reclaims and dead controllers.

A history is a seed; a failing one is run again by its id: `pytest "tests/controller/usage/test_recorder.py::test_a_history[3]"`.
"""

import asyncio
import json
import random
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.usage import NAME, MachineUsage, read
from ebb.client.costs import By, CostReport, bills, report_of, whole_days
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, Conflict, Unreachable
from tests.builders import make_job
from tests.controller.cloud import GPU, Cloud
from tests.fake_time import run
from tests.world import FakeCluster, started

Object = dict[str, Any]
HISTORIES, HOURS = 5, 2
WITHIN = 0.001  # of the machines' time


def usage_of(world: FakeCluster) -> MachineUsage:
    return read(next(item for item in world.api.all(CONFIG_MAPS) if item["metadata"]["name"] == NAME)["data"])


def costs(world: FakeCluster, usage: MachineUsage) -> CostReport:
    """What `ebb cost` would say."""
    texts = [item["data"] for item in world.api.all(CONFIG_MAPS) if names.LABEL_RECORD in item["metadata"].get("labels", {})]
    records = [json.loads(text["record.json"]) for text in texts]
    window = whole_days(usage.until, 2 * 86400)
    return report_of(bills(world.api.all(ELASTIC_JOBS), records, usage, window), usage, window, By.JOB)


class History:
    """Some hours of a platform."""

    def __init__(self, world: FakeCluster, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.cloud = Cloud(world.api, rng)
        self.cloud.open()
        self.submitted = 0

    def submit(self) -> None:
        self.submitted += 1
        size = self.rng.randint(1, 4)
        uid = f"{self.submitted:08x}-1111-4222-8333-444455556666"
        zone = self.rng.choice(["local-a", "local-b", "single"])
        job = make_job(
            f"job-{self.submitted}", replicas=size, high=4, uid=uid, container=GPU, placement={"gpuType": "T4", "zone": zone}
        )
        self.world.api.put(ELASTIC_JOBS, job)

    def jobs(self) -> list[str]:
        return [name for name in self.world.api.names(ELASTIC_JOBS) if self.world.state(name) not in ("Succeeded", "Failed")]

    def delete(self) -> None:
        self.world.api.remove(ELASTIC_JOBS, self.rng.choice(self.jobs()))

    def finish(self) -> None:
        name = self.rng.choice(self.jobs())
        for pod in [pod for pod in self.world.pods() if pod.startswith(f"{name}-worker-")]:
            if self.world.pod(pod)["status"]["phase"] == "Running":
                self.world.api.pod_ends(pod, 0)

    def scale(self) -> None:
        def edit(job: Object) -> None:
            job["metadata"]["generation"] += 1
            job["spec"]["replicaSpecs"]["Worker"]["replicas"] = self.rng.randint(1, 4)

        self.world.api.change(ELASTIC_JOBS, self.rng.choice(self.jobs()), edit)

    async def restart(self) -> None:
        await self.world.kill()
        gap = self.rng.choice([0.0, 2.0, 15.0, 60.0])
        await self.cloud.run(gap)
        self.world.start()

    def disturb(self) -> None:
        error = self.rng.choice([Unreachable("cut"), Conflict("late", status=409, reason="Conflict")])
        self.world.api.fail(self.rng.choice(["replace", "get"]), CONFIG_MAPS, error)

    async def step(self) -> None:
        await self.cloud.run(self.rng.choice([20.0, 120.0, 400.0]))
        if len(self.jobs()) < 2:
            self.submit()
        does = self.rng.choice([self.delete, self.finish, self.scale, self.disturb, self.submit, None, None, None])
        if does is not None:
            does()
        if self.rng.random() < 0.4:
            self.cloud.reclaim(notice=self.rng.random() < 0.5)
        if self.rng.random() < 0.1:
            await self.restart()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_history(seed: int) -> None:
    async def story() -> None:
        async with started() as world:
            history = History(world, random.Random(seed))
            while asyncio.get_running_loop().time() < HOURS * 3600:
                await history.step()
            await history.cloud.run(200)
            usage = usage_of(world)
            usage.extend(world.api.clock())
            usage.until = world.api.clock()
            told, truth = costs(world, usage), history.cloud.seconds(usage.begun, usage.until).total() / 3600
            assert told.machines is not None
            assert told.idle is not None
            assert told.unseen is not None
            assert told.difference_usd is not None
            # The jobs' own bills and what the usage record says of the rest make the whole, in time and in money, ...
            rest = told.idle.boot_hours + told.idle.idle_hours + told.idle.scale_down_hours
            assert told.jobs.hours + rest - told.unseen.hours == pytest.approx(told.machines.hours, rel=WITHIN)
            assert abs(told.difference_usd) < WITHIN * told.machines.usd
            # ... and that is what the machines did; where nobody looked, those that went may have lived until somebody did.
            unsure = sum(gap.vanished * (gap.ended - gap.begun) for gap in usage.gaps) / 3600
            assert truth * (1 - WITHIN) - unsure < told.machines.hours < truth * (1 + WITHIN)

    run(story())


def test_a_team_that_has_spent_its_budget_waits_until_that_is_raised() -> None:
    def budget(usd: float) -> Object:
        return {"teams": [{"name": "vision", "namespace": "elastic-job", "usdPerMonth": usd}]}

    async def story() -> None:
        async with started() as world:
            history = History(world, random.Random(1))
            history.cloud.open(**budget(0.2))
            history.submit()
            await history.cloud.run(300)
            assert world.state("job-1") == "Running"
            await history.cloud.run(3 * 3600)
            assert (world.state("job-1"), world.pods()) == ("Restarting", [])
            said = next(one for one in world.job("job-1")["status"]["conditions"] if one["type"] == "Running")
            assert said["reason"] == names.WAITING_TEAM_BUDGET
            assert said["message"].startswith("team 'vision' has spent 0.2")
            usage = usage_of(world)
            [(month, spent)] = usage.spent.items()
            assert 0.2 <= spent["elastic-job"] < 0.25, "it is stopped within two minutes"
            await world.kill()
            world.start()
            await history.cloud.run(300)
            assert world.pods() == [], "the next controller knows the sum"
            history.cloud.open(**budget(10.0))
            await history.cloud.run(300)
            assert world.state("job-1") == "Running"
            assert usage_of(world).spent[month]["elastic-job"] > spent["elastic-job"]

    run(story())
