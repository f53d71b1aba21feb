"""How often a status is written: figures alone now and then, and a job in which nothing happens not at all."""

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.schema import encode
from ebb.api.status import Progress
from tests.builders import NOW, make_group, make_job, make_node, make_platform, make_pod
from tests.looks import again, look

Object = dict[str, Any]

SPOT = make_group()  # 1.00 USD on demand, 0.30 as spot; one GPU, 4 CPUs, 8 GiB
BIG = make_group("on-demand-t4x4-local-a", gpus_per_node=4, capacity_type="on-demand", on_demand_usd_per_hour=4.0, cpu=16.0)
STACK = make_platform(SPOT, BIG)
ONE_GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
JOB = make_job(container=ONE_GPU)


def machine(name: str = "n0", group: str = SPOT.name, **labels: str) -> Object:
    node = make_node(name)
    node["metadata"]["labels"] = {names.LABEL_NODE_GROUP: group, **labels}
    return node


ON_TWO = (make_pod(JOB, node="n0"), make_pod(JOB, 1, node="n1"))
TWO = (machine("n0"), machine("n1"))


def writes(job: Object, times: list[float], steps: list[int], *, platform: Any = STACK) -> list[float]:
    """When the status was written, with these steps seen at these times."""
    written = []
    for now, step in zip(times, steps, strict=True):
        progress = Progress(step=step, generation=1, at=stamp(now))
        decided = look(job, *ON_TWO, now=now, nodes=TWO, platform=platform, progress=progress)
        if encode(decided.status) != job.get("status"):
            written.append(now)
            job = again(job, decided)
    return written


@pytest.mark.parametrize("seed", range(6))
def test_progress_and_money_cost_at_most_one_write_in_30_seconds(seed: int) -> None:
    rng = random.Random(seed)
    times, steps = [NOW], [0]
    for _ in range(150):
        times.append(times[-1] + rng.random() * rng.choice([1, 3, 20]))
        steps.append(steps[-1] + rng.choice([0, 1, 1, 7]))
    written = writes(JOB, times, steps)
    gaps = [later - earlier for earlier, later in pairwise(written)]
    assert len(written) > 5
    assert min(gaps) >= 29.999  # times are written to the millisecond


def test_a_training_that_stands_still_is_not_written() -> None:
    times = [NOW + 100 * number for number in range(50)]
    assert writes(JOB, times, [7] * 50) == [NOW]


def test_the_first_progress_is_written_at_once() -> None:
    first = look(JOB, *ON_TWO, nodes=TWO, platform=STACK)
    assert writes(again(JOB, first), [NOW + 1], [10]) == [NOW + 1]


def test_a_held_back_step_is_written_when_its_time_comes() -> None:
    job = JOB
    for now, step in ((NOW, 1), (NOW + 10, 2)):
        decided = look(
            job, *ON_TWO, now=now, nodes=TWO, platform=STACK, progress=Progress(step=step, generation=1, at=stamp(now))
        )
        job = again(job, decided)
    assert decided.wake_at == NOW + 30
    assert decided.status.progress is not None
    assert decided.status.progress.step == 1


def test_a_new_price_is_written_at_once() -> None:
    first = look(JOB, *ON_TWO, nodes=TWO, platform=STACK)
    dearer = make_platform(replace(SPOT, spot_discount=0.5))
    second = look(again(JOB, first), *ON_TWO, now=NOW + 1, nodes=TWO, platform=dearer)
    assert second.status.cost is not None
    assert (second.status.cost.usd_per_hour, unix(second.status.cost.at)) == (1.0, NOW + 1)


def test_a_clock_that_goes_back_does_not_stop_the_writing() -> None:
    assert writes(JOB, [NOW, NOW - 5000, NOW - 4999], [1, 2, 3]) == [NOW, NOW - 5000]
