"""The machine usage record and the leader's loop: counting takes its time elsewhere, and what counts nothing is not noted."""

import asyncio
import threading
from typing import Any

import pytest

from ebb.controller.usage.machine_time import Meter
from ebb.kube import NODES, PODS
from tests.controller.usage.test_recorder_faults import open_for_business
from tests.fake_time import run
from tests.world import FakeCluster, started

PATIENCE = 20.0  # seconds of a busy machine


async def until(world: FakeCluster, reached: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():  # noqa: ASYNC110 - of another program, as far as this one can tell
            await asyncio.sleep(0.01)


def test_a_lost_worker_is_replaced_while_machines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In real time, as threads take that."""
    counts, may_go_on, settle = threading.Event(), threading.Event(), Meter.settle

    def slow(meter: Meter, now: float) -> None:
        counts.set()
        assert may_go_on.wait(PATIENCE), "the worker was not replaced meanwhile"
        settle(meter, now)

    async def story() -> None:
        async with started(aside=asyncio.to_thread) as world:
            cloud = open_for_business(world)
            world.api.put(NODES, cloud.boots_at_once("m1"))
            await until(world, lambda: world.pods() == ["digits-worker-0"])
            first = world.pod("digits-worker-0")["metadata"]["uid"]
            world.api.pod_runs("digits-worker-0", "m1")
            monkeypatch.setattr(Meter, "settle", slow)
            world.api.put(NODES, cloud.boots_at_once("m2"))  # news, which are written soon
            await until(world, counts.is_set)
            world.api.remove(PODS, "digits-worker-0")
            await until(world, lambda: world.pods() and world.pod("digits-worker-0")["metadata"]["uid"] != first)
            may_go_on.set()

    monkeypatch.setattr("ebb.controller.usage.recorder.GATHER_SECONDS", 0.05)
    try:
        asyncio.run(story())
    finally:
        may_go_on.set()


def test_a_machine_is_noted_when_a_worker_comes_and_goes_and_not_when_its_status_changes() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(NODES, open_for_business(world).boots_at_once("m1"))
            await world.settle(5)
            noted: list[str] = []
            world.controller.cluster.moved = noted.append
            world.api.pod_runs("digits-worker-0", "m1")

            def new_address(pod: dict[str, Any]) -> None:
                pod["status"]["podIP"] = f"10.0.0.{world.api.clock():.0f}"

            for _ in range(5):
                world.api.change(PODS, "digits-worker-0", new_address)
                await world.settle(1)
            assert noted == ["m1"]
            world.api.pod_ends("digits-worker-0", 0)
            await world.settle(1)
            assert noted == ["m1", "m1"], "a worker that has finished is charged no more"

    run(story())
