"""API calls for lost workers: a replacement for each, and little beside it."""

import asyncio
import random
from collections import Counter
from typing import Any

from ebb.kube import EVENTS, NODES, PODS
from tests.builders import make_job, make_node
from tests.fake_time import run
from tests.world import FakeCluster, started

Object = dict[str, Any]
BOOT_SECONDS = 0.2  # from a pod's creation until it runs


async def run_new_pods(world: FakeCluster) -> None:
    """A scheduler and its kubelets. Never returns."""
    turn = 0
    while True:
        await asyncio.sleep(BOOT_SECONDS)
        nodes = world.api.names(NODES)
        for pod in world.api.all(PODS):
            if pod["status"]["phase"] == "Pending":
                world.api.pod_runs(pod["metadata"]["name"], nodes[turn % len(nodes)])
                turn += 1


async def all_running(world: FakeCluster, jobs: int, workers: int, nodes: int) -> "asyncio.Task[None]":
    """Jobs that may lose half of their workers, as those of `make bench-controller`."""
    for index in range(nodes):
        world.api.put(NODES, make_node(f"n{index}"))
    for index in range(jobs):
        job = make_job(f"job-{index}", replicas=workers, low=workers // 2, high=workers, uid=f"uid-{index}")
        world.submit(job)
    kubelets = asyncio.create_task(run_new_pods(world))
    await world.settle(10)
    assert all(world.status(f"job-{index}")["ready"] == f"{workers}/{workers}" for index in range(jobs))
    return kubelets


def calls_since(world: FakeCluster, begun: int) -> Counter[str]:
    return Counter(f"{verb} {plural}" for verb, plural, _ in world.api.calls[begun:])


def told(world: FakeCluster, reason: str) -> list[str]:
    return [event["message"] for event in world.api.all(EVENTS) if event["reason"] == reason]


def test_thirty_workers_of_four_jobs_that_vanish_cost_less_than_kubeflows_1_9_calls_each() -> None:
    async def story() -> None:
        async with started() as world:
            kubelets = await all_running(world, jobs=4, workers=32, nodes=40)
            begun, lost = len(world.api.calls), random.Random(1).sample(world.pods(), 30)
            for name in lost:
                world.api.remove(PODS, name)
                await world.settle(0.01)
            await world.settle(10)
            calls = calls_since(world, begun)
            assert calls["create pods"] == 30
            assert calls.total() <= 1.6 * 30, calls
            assert sum(world.status(f"job-{index}")["reclaims"] for index in range(4)) == 30, "each is counted once"
            assert "ebb_replacement_seconds_count 30" in world.controller.metrics.text()
            kubelets.cancel()

    run(story())


def test_one_worker_that_vanishes_costs_four_calls() -> None:
    async def story() -> None:
        async with started() as world:
            kubelets = await all_running(world, jobs=1, workers=4, nodes=4)
            begun = len(world.api.calls)
            world.api.remove(PODS, "job-0-worker-3")
            await world.settle(10)
            assert calls_since(world, begun) == {"create pods": 1, "status elasticjobs": 2, "create events": 1}
            assert [message.partition(" on ")[0] for message in told(world, "WorkerReclaimed")] == ["Worker 3"]
            kubelets.cancel()

    run(story())


def test_of_a_machine_with_eight_workers_people_are_told_once() -> None:
    async def story() -> None:
        async with started() as world:
            kubelets = await all_running(world, jobs=1, workers=16, nodes=2)
            begun = len(world.api.calls)
            world.api.lose_node("n1")
            world.api.put(NODES, make_node("n2"))
            await world.settle(10)
            calls = calls_since(world, begun)
            assert (calls["create pods"], calls["delete pods"], calls["create events"]) == (8, 8, 1)
            assert calls.total() <= 8 + 8 + 1 + 3
            assert told(world, "WorkerReclaimed") == [
                "Workers 1, 3, 5, 7, 9, 11, 13, 15 on n1 are lost: each one's machine is gone. They will be replaced."
            ]
            kubelets.cancel()

    run(story())


def test_a_loss_that_is_not_written_yet_when_the_controller_is_killed_is_counted_by_the_next() -> None:
    async def story() -> None:
        async with started() as world:
            kubelets = await all_running(world, jobs=1, workers=4, nodes=4)
            for index in (2, 3):  # the first is written at once, the second within a second
                world.api.remove(PODS, f"job-0-worker-{index}")
                await world.settle(0.1)
            assert (len(world.pods()), world.status("job-0")["reclaims"]) == (4, 1)
            await world.kill()
            world.start()
            await world.settle(2)
            assert (world.status("job-0")["reclaims"], len(told(world, "WorkerReclaimed"))) == (2, 2)
            kubelets.cancel()

    run(story())
