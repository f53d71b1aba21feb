"""What a rank reads: the micro-batches of all ranks are the step, and pairs that belong together are never parted."""

import random
from collections import Counter

import pytest

from ebb.elastic.data.order import Stream
from ebb.elastic.runtime.loading import Loader
from ebb.elastic.runtime.plan import MicroBatchPlan

STREAM = Stream(
    dataset_size=37, epochs=2, global_batch=13, seed=4
)  # the last step has 9 samples, and steps cross the epochs' end


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("virtual_workers", [0, 4])
@pytest.mark.parametrize("largest", [1, 2, 5, 99])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 9, 20])
def test_all_ranks_read_each_sample_of_a_step_once(world_size: int, largest: int, virtual_workers: int, together: int) -> None:
    plans = [
        MicroBatchPlan(
            stream=STREAM,
            first_step=0,
            rank=rank,
            world_size=world_size,
            max_micro_batch=largest,
            virtual_workers=virtual_workers,
            together=together,
        )
        for rank in range(world_size)
    ]
    for step in range(STREAM.total_steps):
        whole = STREAM.step(step)
        found = [each for plan in plans for each in plan.micro_batches(step) if each.num_samples]
        assert [position for each in found for position in range(*each.piece)] == list(range(*whole))
        assert all((each.piece.start - whole.start) % together == 0 for each in found)
        assert all(each.num_samples <= max(largest, together) for each in found)


def test_a_loader_must_keep_something_together() -> None:
    with pytest.raises(ValueError, match="together is 0; it must be at least 1"):
        Loader([1, 2], seed=0, workers=0, together=0)


@pytest.mark.parametrize("seed", range(60))
def test_every_sample_once_per_epoch_over_random_generations(seed: int) -> None:
    rng = random.Random(seed)
    stream = Stream(dataset_size=rng.randint(1, 50), epochs=rng.randint(1, 4), global_batch=rng.randint(1, 40), seed=seed)
    used: Counter[tuple[int, int]] = Counter()
    step = 0
    while step < stream.total_steps:
        world_size = rng.randint(1, 7)
        stop = min(stream.total_steps, step + rng.randint(1, 6))
        for rank in range(world_size):
            plan = MicroBatchPlan(
                stream=stream, first_step=step, rank=rank, world_size=world_size, max_micro_batch=rng.randint(1, 20)
            )
            batches = iter(plan)
            for number in range(step, stop):
                for each in plan.micro_batches(number):
                    samples = next(batches)[: each.num_samples]  # one that weighs nothing is read where a rank has no share
                    used.update((sample.epoch, sample.number) for sample in samples)
        step = stop
    assert used == Counter((epoch, number) for epoch in range(stream.epochs) for number in range(stream.dataset_size))


def test_ranks_whose_passes_are_collectives_have_as_many() -> None:
    """Five samples for three ranks, one at a time: the last rank has one, and then a pass of none."""
    stream = Stream(dataset_size=5, epochs=1, global_batch=5, seed=0)
    for equal, counts in ((False, [2, 2, 1]), (True, [2, 2, 2])):
        plans = [
            MicroBatchPlan(stream=stream, first_step=0, rank=rank, world_size=3, max_micro_batch=1, equal_passes=equal)
            for rank in range(3)
        ]
        steps = [plan.micro_batches(0) for plan in plans]
        assert [len(each) for each in steps] == counts
        assert sum(each.num_samples for step in steps for each in step) == 5
        assert all([each.last for each in step] == [False] * (len(step) - 1) + [True] for step in steps)
        assert all(plan.samples(each) for plan, step in zip(plans, steps, strict=True) for each in step), "one sample at least"
