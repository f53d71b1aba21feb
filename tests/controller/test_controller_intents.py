"""What the controller stops itself is never counted as lost, wherever it is killed. Pods go as soon as they are told to, here."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ebb.controller.workqueue import REST_SECONDS
from ebb.kube import ELASTIC_JOBS, EVENTS, PODS, Denied, KubeError
from tests.builders import make_job
from tests.fake_kube import FakeKube
from tests.fake_time import run
from tests.world import FakeCluster, started

TURNS = 12  # of the loop: a look and what follows from it are over by then
LOOKS = 3
Act = Callable[[FakeCluster], None]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeKube, "_lingers", lambda *_: False)


def fail(world: FakeCluster) -> None:
    world.api.pod_ends("digits-worker-0", 1)


def shrink(world: FakeCluster) -> None:
    world.edit_spec(replicas=1)


def suspend(world: FakeCluster) -> None:
    world.edit_spec(suspend=True)


def grow(world: FakeCluster) -> None:
    world.edit_spec(replicas=3)


def resume(world: FakeCluster) -> None:
    world.edit_spec(suspend=False)


STORIES: dict[str, tuple[Act, Act | None, int]] = {
    # what happens, what happens while no controller is there, failures
    "restarted": (fail, None, 1),
    "scaled-down": (shrink, None, 0),
    "scaled-down-and-up": (shrink, grow, 0),
    "suspended-and-resumed": (suspend, resume, 0),
}


@pytest.mark.parametrize(("act", "meanwhile", "failures"), STORIES.values(), ids=STORIES.keys())
def test_what_it_stops_is_no_loss_wherever_it_is_killed(act: Act, meanwhile: Act | None, failures: int) -> None:
    async def story(look: int, turns: int) -> tuple[Any, ...]:
        async with started() as world:
            await world.start_all(make_job(replicas=3), nodes=3)
            act(world)
            await world.settle(look * REST_SECONDS)
            for _ in range(turns):
                await asyncio.sleep(0)
            await world.kill()
            if meanwhile:
                meanwhile(world)
            world.start()
            await world.settle(10)
            wanted = world.job()["spec"]["replicaSpecs"]["Worker"]["replicas"]
            return world.status().get("failures", 0), world.status().get("reclaims", 0), len(world.pods()) == wanted

    points = [(look, turns) for look in range(LOOKS) for turns in range(TURNS)]
    assert {point: told for point in points if (told := run(story(*point))) != (failures, 0, True)} == {}


def test_nothing_is_stopped_before_that_is_written() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=3), nodes=3)
            before = len(world.api.calls)
            world.api.fail("replace", ELASTIC_JOBS, KubeError("busy", status=500), times=2)
            world.edit_spec(replicas=2)
            await world.settle(5)
            assert len(world.api.failed_at) == 2
            calls = [call for call in world.api.calls[before:] if call[1] != EVENTS.plural]
            assert calls[:2] == [("status", "elasticjobs", "digits"), ("delete", "pods", "digits-worker-2")]

    run(story())


def test_a_deletion_that_is_refused_is_tried_again() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=3), nodes=3)
            world.api.fail("delete", PODS, Denied("not yours", status=403), times=3)
            world.edit_spec(replicas=2)
            await world.settle(5)
            assert len(world.api.failed_at) == 3
            assert world.pods() == ["digits-worker-0", "digits-worker-1"]

    run(story())
