"""The samples of each step, dealt to ranks that make as many passes as each other."""

import pickle
from collections import Counter
from itertools import chain
from typing import Any

import pytest

from ebb.elastic.adapters.batches import EpochPlan, Idle, load

SHAPES = [(50, 8, 3), (50, 16, 16), (7, 64, 2), (24, 8, 1), (10, 3, 2)]


def plans(world_size: int, shape: tuple[int, int, int]) -> list[EpochPlan]:
    size, batch, micro_batch = shape
    facts: dict[str, Any] = {"dataset_size": size, "global_batch": batch, "micro_batch": micro_batch, "seed": 3}
    return [EpochPlan(rank=rank, world_size=world_size, **facts) for rank in range(world_size)]


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("shape", SHAPES)
def test_each_sample_comes_once_an_epoch_and_all_ranks_make_as_many_passes(world_size: int, shape: tuple[int, int, int]) -> None:
    ranks = plans(world_size, shape)
    steps = ranks[0].steps_per_epoch
    for epoch in range(2):
        found: Counter[int] = Counter()
        for step in range(epoch * steps, (epoch + 1) * steps):
            dealt = [plan.micro_batches(step) for plan in ranks]
            assert {len(each) for each in dealt} == {ranks[0].passes}
            assert all(len(samples) <= shape[2] for each in dealt for samples in each)
            counted = [int(one) for each in dealt for samples in each for one in samples if not isinstance(one, Idle)]
            assert len(counted) == ranks[0].whole(step).size
            found.update(counted)
        assert found == Counter(range(shape[0]))


def test_the_samples_of_a_step_are_the_same_on_any_number_of_ranks() -> None:
    def step_of(world_size: int) -> list[int]:
        each = [samples for plan in plans(world_size, (50, 8, 3)) for samples in plan.micro_batches(9)]
        return [int(one) for samples in each for one in samples if not isinstance(one, Idle)]

    assert step_of(1) == step_of(3) == step_of(7)


@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_the_weights_make_the_mean_of_the_ranks_that_of_the_whole_batch(world_size: int) -> None:
    ranks = plans(world_size, (50, 16, 3))
    step = ranks[0].steps_per_epoch - 1  # two samples, for up to eight ranks
    whole, numbers = 0.0, []
    for plan in ranks:
        for samples in plan.micro_batches(step):
            counted = [int(one) for one in samples if not isinstance(one, Idle)]
            mean = sum(map(int, samples)) / len(samples)
            whole += mean * plan.factor(step, len(counted)) / world_size
            numbers += counted
    assert whole == pytest.approx(sum(numbers) / len(numbers))


def test_a_loader_goes_on_in_the_middle_of_an_epoch() -> None:
    (plan,) = plans(1, (10, 3, 2))
    now = 5  # of 4 steps an epoch

    def numbers(**options: Any) -> list[list[int]]:
        return [each.numbers for each in load(plan, list(range(10)), lambda: now, **options)]

    rest = [
        int(one) for step in range(5, 8) for samples in plan.micro_batches(step) for one in samples if not isinstance(one, Idle)
    ]
    assert list(chain.from_iterable(numbers())) == rest
    whole = numbers(skips=False)  # for a library that skips by itself
    assert len(whole) == 4 * plan.passes
    assert list(chain.from_iterable(whole[plan.passes :])) == rest


def test_idle_samples_stay_idle_on_their_way_to_a_loader_process() -> None:
    found = pickle.loads(pickle.dumps(Idle(2, 7)))
    assert (type(found), found.epoch, int(found)) == (Idle, 2, 7)
