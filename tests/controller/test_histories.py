"""Random histories: whatever happens to a job, in whatever order, and wherever the controller is killed, some things hold.

A history is a seed. A failing one is run again by its id:
`pytest "tests/controller/test_histories.py::test_a_history[17]"`.
"""

import asyncio
import random
from typing import Any

import pytest

from ebb.kube import ELASTIC_JOBS, NODES, PODS, SERVICES, Conflict, KubeError, Unreachable
from tests.builders import make_job, make_node
from tests.fake_time import run
from tests.world import FakeCluster, started

HISTORIES = 60
STEPS = 40
MOST = 4
BUDGETS = 4  # histories have backoffLimit 0, 1, 2 or 3
Object = dict[str, Any]


class Life:
    """A job's life, and what must be so whatever happened: a small model beside the controller."""

    def __init__(self, world: FakeCluster, rng: random.Random, budget: int) -> None:
        self.world, self.rng, self.budget = world, rng, budget
        self.failures = 0  # moments at which programs failed
        self.finished = False
        self.nodes = 0
        self.final = ""

    def pods(self, *, running: bool | None = None, leaving: bool | None = None) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self.world.api.all(PODS)
            if (running is None or (pod["status"]["phase"] == "Running") == running)
            and (leaving is None or ("deletionTimestamp" in pod["metadata"]) == leaving)
        ]

    def boot(self) -> None:
        for name in self.pods(running=False, leaving=False):
            if self.world.pod(name)["status"]["phase"] == "Pending":
                self.nodes += 1
                self.world.api.put(NODES, make_node(f"n{self.nodes}"))
                self.world.api.pod_runs(name, f"n{self.nodes}")

    def leave(self) -> None:
        for name in self.pods(leaving=True):
            self.world.api.pod_ends(name, self.rng.choice([0, 1, 138, 143]))

    def reclaim(self) -> None:
        for name in self.pods(running=True)[: self.rng.randint(1, MOST)]:
            self.world.api.lose_node(self.world.pod(name)["spec"]["nodeName"])

    def notice(self) -> None:
        for name in self.pods(running=True)[:1]:
            self.world.api.put(NODES, make_node(self.world.pod(name)["spec"]["nodeName"], notice="soon"))

    def vanish(self) -> None:
        for name in self.pods(running=True, leaving=False)[:1]:
            self.world.api.remove(PODS, name)

    def fail(self) -> None:
        victims = self.pods(running=True, leaving=False)[: self.rng.randint(1, MOST)]
        self.failures += bool(victims)
        for name in victims:
            self.world.api.pod_ends(name, 1)

    def finish(self) -> None:
        for name in self.pods(running=True, leaving=False)[:1]:
            if self.rng.random() < 0.1:
                self.finished = True
                self.world.api.pod_ends(name, 0)

    def scale(self) -> None:
        self.world.edit_spec(replicas=self.rng.randint(1, MOST))

    def suspend(self) -> None:
        self.world.edit_spec(suspend=self.rng.random() < 0.5)

    def disturb(self) -> None:
        errors: list[KubeError] = [
            Unreachable("cut"),
            KubeError("busy", status=429),
            Conflict("late", status=409, reason="Conflict"),
        ]
        verb, resource = self.rng.choice(
            [("create", PODS), ("create", SERVICES), ("delete", PODS), ("replace", ELASTIC_JOBS), ("watch", PODS), ("get", NODES)]
        )
        self.world.api.fail(
            verb, resource, self.rng.choice(errors[: 2 if verb in ("watch", "get") else 3]), self.rng.randint(1, 3)
        )

    async def restart(self) -> None:
        await self.world.kill()
        await asyncio.sleep(self.rng.choice([0, 1, 30]))
        self.world.start()

    async def step(self) -> None:
        often = [self.boot, self.boot, self.boot, self.leave, self.leave]
        act = self.rng.choice([*often, self.reclaim, self.notice, self.vanish, self.fail, self.finish, self.scale, self.suspend])
        act()
        if self.rng.random() < 0.2:
            self.disturb()
        # Kill it in the middle of its reaction: a few turns of the loop are a few calls.
        for _ in range(self.rng.randint(0, 12)):
            await asyncio.sleep(0)
        if self.rng.random() < 0.15:
            await self.restart()
        await self.world.settle(self.rng.choice([0.0, 0.1, 1.0, 20.0]))
        self.check()

    def check(self) -> None:
        status = self.world.status()
        state = status.get("state", "Waiting")
        assert self.world.api.max_pods <= MOST, "more pods than maxReplicas"
        assert status.get("failures", 0) <= self.failures, "a reclaim, a scale or a suspension spent the budget"
        assert state != "Failed" or status["failures"] > self.budget, "failed with budget left"
        assert state != "Succeeded" or self.finished, "succeeded without a worker that did"
        assert len(status.get("history", [])) <= 20
        assert not self.final or state == self.final, "an ended job came back"
        self.final = state if state in ("Succeeded", "Failed") else ""

    async def rest(self) -> None:
        """Let the world be kind for a while: everything boots, what leaves is gone."""
        self.world.edit_spec(suspend=False)
        for _ in range(20):
            await self.world.settle(30)
            self.leave()
            self.boot()
            self.check()
        await self.world.settle(130)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_history(seed: int) -> None:
    async def story() -> None:
        async with started() as world:
            life = Life(world, random.Random(seed), seed % BUDGETS)
            world.api.put(ELASTIC_JOBS, make_job(high=MOST, backoffLimit=seed % BUDGETS))
            for _ in range(STEPS):
                await life.step()
            await life.rest()
            wanted = world.job()["spec"]["replicaSpecs"]["Worker"]["replicas"]
            if not life.final:
                assert (world.state(), world.status()["ready"]) == ("Running", f"{wanted}/{wanted}")
            else:
                assert life.pods(running=True, leaving=False) == [], "an ended job holds machines"

    run(story())
