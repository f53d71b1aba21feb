"""What other jobs leave of a site: counted in machines, for jobs whose workers are of different sizes."""

import random
from typing import Any

import pytest

from ebb.api.needs import Wish
from ebb.api.platform import Platform
from ebb.api.spec import Job
from ebb.controller.reconciler.candidates import sites
from ebb.controller.reconciler.capacity import Claim
from ebb.controller.reconciler.capacity import claim as claim_of
from ebb.controller.reconciler.queue import queue
from tests.builders import NOW, make_group, make_platform
from tests.controller.reconciler.scenes import claim, cluster_capacity, gpu_job
from tests.looks import look

BIG = make_group("big", gpus_per_node=8, cpu=96.0, memory_gib=1000.0, max=2)


def sized(gpus: int, **changes: Any) -> Any:
    return gpu_job(container={"resources": {"limits": {"nvidia.com/gpu": gpus}}}, **{"low": 1, "replicas": 1, **changes})


def room(platform: Platform, *others: Claim, gpus: int = 1, capacity: str | None = None) -> int:
    job = Job.of(sized(gpus))
    (site,) = sites(Wish.of(job), platform, capacity)
    return queue(claim_of(job, {}, NOW), cluster_capacity(*others), platform).free.room(site)


def test_workers_of_different_sizes_share_machines() -> None:
    halves = claim("x", "local-a", least=1, job=sized(4))
    assert room(make_platform(BIG)) == 16
    assert room(make_platform(BIG), halves) == 12
    assert room(make_platform(BIG), halves, gpus=8) == 1
    assert room(make_platform(BIG), halves, claim("y", "local-a", least=3, job=sized(4))) == 0
    assert room(make_platform(BIG), halves, claim("y", "local-a", least=9, job=sized(4))) == 0


def test_who_may_have_either_takes_the_cheaper_machines() -> None:
    both = make_platform(make_group("spot"), make_group("od", capacity_type="on-demand", spot_discount=0.0))
    either = claim("x", "local-a", least=3, capacity_type="spot, on-demand")
    assert (room(both, either, capacity="spot"), room(both, either, capacity="on-demand"), room(both, either)) == (1, 4, 5)


def test_a_job_that_may_be_in_any_zone_counts_in_the_cheapest() -> None:
    two = make_platform(make_group("a"), make_group("b", zone="local-b", on_demand_usd_per_hour=0.5))
    job = Job.of(sized(1))
    line = queue(claim_of(job, {}, NOW), cluster_capacity(claim("x", "any", least=5)), two)
    assert {site.zone: line.free.room(site) for site in sites(Wish.of(job), two, None)} == {"local-a": 3, "local-b": 0}


def test_a_job_whose_group_is_gone_from_the_stack_takes_nothing() -> None:
    assert room(make_platform(BIG), claim("x", "local-z", least=9)) == 16


@pytest.mark.parametrize("seed", range(100))
def test_in_one_zone_a_job_starts_when_those_there_and_those_before_it_leave_it_room(seed: int) -> None:
    """Against a sum: who fits nowhere keeps all that is left, so nobody behind starts, but on loan."""
    rng = random.Random(seed)
    most = rng.randint(1, 12)
    others = [
        claim(
            f"job-{number}", rng.choice(["", "local-a"]), least=rng.randint(1, most),
            created=NOW - 60 + rng.choice([-1, 1]), priority=rng.choice([0, 0, 1, -1]),
        )
        for number in range(rng.randint(0, 6))
    ]  # fmt: skip
    me = claim_of(Job.of(sized(1, low=rng.randint(1, most), replicas=most, high=most)), {}, NOW)
    before = [one for one in others if one.zone or (-one.priority, one.created) < (0, NOW - 60)]
    starts = sum(one.least for one in before) + me.least <= most
    job = sized(1, low=me.least, replicas=most, high=most)
    decided = look(job, platform=make_platform(make_group(max=most)), cluster_capacity=cluster_capacity(*others))
    placed = decided.status.placement
    assert (placed is not None and not placed.on_loan) == starts
    if placed is not None and placed.on_loan:
        assert sum(one.least for one in others if one.zone) + me.least <= most, "more is lent than there is"
