"""A sweep's jobs under the real controller: what is promised of a sweep whose laptop is closed."""

import json
from typing import cast

from ebb.api.platform import parse as parse_platform
from ebb.client import Ebb, Request
from ebb.client.sweep import SweepPlan, parse, points_of, prepared
from ebb.kube import ELASTIC_JOBS, NODES, Kube, Object
from tests.builders import make_node
from tests.cli.world import NS, platform_json
from tests.fake_time import run
from tests.world import started


def test_no_more_runs_train_at_once_than_the_jobs_say() -> None:
    """Each waits for its turn, and takes it as soon as another has ended."""

    async def story() -> None:
        async with started() as world:
            world.api.put(NODES, make_node("n0"))
            for body in bodies():
                await world.api.create(ELASTIC_JOBS, NS, body)
            await world.settle()
            training = [pod.removesuffix("-worker-0") for pod in world.pods()]
            (last,) = {body["metadata"]["name"] for body in bodies()} - set(training)
            assert len(training) == 2
            assert _waits(world.status(last)) == "GroupFull"
            for name in training:
                world.api.pod_runs(f"{name}-worker-0", "n0")
            await world.settle(60)
            assert len(world.pods()) == 2
            world.api.pod_ends(f"{training[0]}-worker-0", 0)
            await world.settle(60)
            assert world.state(training[0]) == "Succeeded"
            assert f"{last}-worker-0" in world.pods()

    run(story())


def bodies() -> list[Object]:
    """What `ebb sweep --max-parallel 2 lr=1,2,3` sends."""
    platform = parse_platform({"schema": "1", "platform.json": json.dumps(platform_json())})
    points = points_of(parse(["lr=1,2,3"]), None, 0)
    plan = SweepPlan(name="scan", request=Request(name="scan", arguments=("train.py",)), points=points, max_parallel=2)
    nobody = cast(Kube, None)  # it is made without asking anybody
    return [item.body for item in prepared(Ebb(kube=nobody, platform=platform, namespace=NS), plan)]


def _waits(status: Object) -> str:
    found = next(item for item in status["conditions"] if item["type"] == "Running")
    return str(found["reason"])
