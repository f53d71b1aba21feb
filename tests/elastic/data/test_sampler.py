"""The order for loops of one's own: each sample once per epoch over any history of world sizes, on torch's DataLoader."""

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from ebb.elastic.data import DataError, ElasticBatchSampler, InOrder, Seeded
from ebb.elastic.data.order import Piece, Sample
from ebb.elastic.data.sampler import Course, MicroBatch

Used = Counter[tuple[int, int]]


def run_generation(state: dict[str, int] | None, world_size: int, max_micro_batch: int, steps: int, shape: dict[str, int]) -> Any:
    """What all ranks used in at most so many steps, and each rank's state after them."""
    used: Used = Counter()
    states = []
    for rank in range(world_size):
        sampler = ElasticBatchSampler(
            shape["dataset_size"],
            global_batch=shape["global_batch"],
            epochs=shape["epochs"],
            seed=shape["seed"],
            max_micro_batch=max_micro_batch,
            rank=rank,
            world_size=world_size,
        )
        if state is not None:
            sampler.load_state_dict(state)
        left = steps
        while left and sampler.samples < sampler.total_samples:
            for batch in sampler:
                now = sampler.take()
                used.update((sample.epoch, sample.number) for sample in batch[: now.num_samples])
                left -= now.last
                if not left:
                    break
        states.append(sampler.state_dict())
    assert all(found == states[0] for found in states)
    return used, states[0]


@pytest.mark.parametrize("seed", range(100))
def test_every_sample_once_per_epoch_over_random_histories(seed: int) -> None:
    """Generations end after some steps; some are killed: what they did after the last saved state is done again."""
    rng = random.Random(seed)
    shape = {"dataset_size": rng.randint(1, 60), "global_batch": rng.randint(1, 40), "epochs": rng.randint(1, 4), "seed": seed}
    total = shape["dataset_size"] * shape["epochs"]
    used: Used = Counter()
    state = None
    while state is None or state["samples"] < total:
        found, after = run_generation(state, rng.randint(1, 8), rng.randint(0, 9), rng.randint(1, 5), shape)
        if rng.random() < 0.7:
            used, state = used + found, after
    assert used == Counter((epoch, number) for epoch in range(shape["epochs"]) for number in range(shape["dataset_size"]))


@pytest.mark.parametrize("world_size", range(1, 11))
def test_ranks_have_the_same_number_of_batches_and_weights_make_the_mean_of_the_step(world_size: int) -> None:
    ranks = [
        Course(23, global_batch=9, epochs=3, max_micro_batch=2, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    while ranks[0].samples < ranks[0].total_samples:
        assert len({course.batches_left() for course in ranks}) == 1
        expected = ranks[0].batches_left()
        for course in ranks:
            course.begin()
        passes = [list(course.micro_batches()) for course in ranks]
        assert {len(batches) for batches in passes} == {expected}
        for batches, course in zip(passes, ranks, strict=True):
            assert [course.take() for _ in batches] == batches
        share_of_step: dict[Piece, Fraction] = {}
        for batch in (batch for batches in passes for batch in batches):
            share_of_step[batch.step] = share_of_step.get(batch.step, Fraction(0)) + Fraction(batch.num_samples, batch.step.size)
            assert batch.weight == pytest.approx(batch.num_samples * world_size / batch.step.size)
            assert batch.num_samples <= 2
        assert set(share_of_step.values()) == {Fraction(1)}


def test_a_rank_without_samples_gets_one_that_weighs_nothing() -> None:
    batch = MicroBatch(step=Piece(8, 10), piece=Piece(10, 10), last=True, world_size=4)
    assert (batch.weight, batch.num_samples, batch.fetched) == (0.0, 0, Piece(8, 9))


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> tuple[int, float]:
        assert type(number) is int
        return number, torch.rand(()).item()


def epochs_of(loader: Any, sampler: ElasticBatchSampler, stop_at: int) -> list[tuple[list[int], list[float]]]:
    batches: list[tuple[list[int], list[float]]] = []
    while sampler.samples < stop_at:
        for numbers, draws in loader:
            sampler.take()
            batches.append((numbers.tolist(), draws.tolist()))
            if sampler.samples >= stop_at:
                break
    return batches


@pytest.mark.parametrize("workers", [0, 2])
def test_prefetched_samples_that_were_not_used_are_read_again(workers: int) -> None:
    """Two runs, the second from the first one's state in the middle of an epoch, give what one gives."""

    def make() -> tuple[Any, ElasticBatchSampler]:
        dataset = Seeded(Numbers(), seed=4)
        sampler = ElasticBatchSampler(dataset, global_batch=6, epochs=3, seed=4)
        options: dict[str, Any] = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
        return DataLoader(dataset, batch_sampler=sampler, num_workers=workers, **options), sampler

    loader, sampler = make()
    whole = epochs_of(loader, sampler, 60)
    loader, sampler = make()
    first = epochs_of(loader, sampler, 18)
    state = sampler.state_dict()
    assert state == {"seed": 4, "dataset_size": 20, "global_batch": 6, "samples": 18}
    loader, sampler = make()
    sampler.load_state_dict(state)
    assert first + epochs_of(loader, sampler, 60) == whole
    assert Counter(number for numbers, _ in whole for number in numbers) == Counter(list(range(20)) * 3)


def test_a_pass_ends_with_the_step_that_ends_the_epoch() -> None:
    sampler = ElasticBatchSampler(10, global_batch=4, epochs=2)
    sizes = []
    while sampler.epoch < 2:
        left = len(sampler)
        sizes.append([len(batch) for batch in sampler if sampler.take()])
        assert len(sizes[-1]) == left
    assert sizes == [[4, 4, 4], [4, 4]]
    assert len(sampler) == 0


def test_an_epoch_of_which_nothing_was_counted_is_refused() -> None:
    sampler = ElasticBatchSampler(4, global_batch=2, epochs=3)
    list(sampler)
    with pytest.raises(RuntimeError, match=r"none of its batches was counted.*call take\(\)"):
        list(sampler)


def test_more_takes_than_batches_are_refused() -> None:
    sampler = ElasticBatchSampler(4, global_batch=4, epochs=1)
    for _ in sampler:
        sampler.take()
    with pytest.raises(RuntimeError, match="more often than the loader has given"):
        sampler.take()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"dataset_size": 5}, "dataset_size 5 and this program 4", id="other-data"),
        pytest.param({"seed": 9}, "seed 9 and this program 0", id="other-seed"),
    ],
)
def test_a_state_of_something_else_is_refused(change: dict[str, int], words: str) -> None:
    sampler = ElasticBatchSampler(4, global_batch=2, epochs=3)
    with pytest.raises(DataError, match=words):
        sampler.load_state_dict(sampler.state_dict() | change)


def test_the_global_batch_is_that_of_the_state() -> None:
    sampler = ElasticBatchSampler(8, global_batch=2, epochs=3)
    sampler.load_state_dict({"seed": 0, "dataset_size": 8, "global_batch": 4, "samples": 4})
    assert [len(batch) for batch in sampler] == [4]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"global_batch": 0}, id="batch"),
        pytest.param({"epochs": 0}, id="epochs"),
        pytest.param({"max_micro_batch": -1}, id="micro-batch"),
        pytest.param({"rank": 1}, id="rank-alone"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ElasticBatchSampler(8, **({"global_batch": 2, "epochs": 1} | wrong))


@pytest.mark.parametrize("world_size", [1, 3, 11])
def test_validation_in_order(world_size: int) -> None:
    ranks = [InOrder(10, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert [number for rank in ranks for number in rank] == list(range(10))
    assert [len(rank) for rank in ranks] == [len(list(rank)) for rank in ranks]


def test_samples_say_their_epoch() -> None:
    sampler = ElasticBatchSampler(3, global_batch=5, epochs=2)
    batch = next(iter(sampler))
    assert all(isinstance(sample, Sample) for sample in batch)
    assert [sample.epoch for sample in batch] == [0, 0, 0, 1, 1]


def test_a_slow_loader_process_begins_where_the_pass_began() -> None:
    """It asks for its batches when the run has already gone on with those of its siblings."""
    course = Course(12, global_batch=4, epochs=1)
    slow = course.micro_batches()
    course.take()
    course.take()
    assert [batch.step.start for batch in slow] == [0, 4, 8]
