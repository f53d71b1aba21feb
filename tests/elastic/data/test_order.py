"""The order of samples: exactly once at any split of world sizes, over any history of generations."""

import itertools
import pickle

import pytest

from ebb.elastic.data.order import Piece, Sample, Stream, by_epoch, in_order, permutation, share, split


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 64, 100])
def test_the_samples_of_a_step_do_not_depend_on_the_world_size(world_size: int) -> None:
    stream = Stream(dataset_size=100, epochs=3, global_batch=64, seed=5)
    for step in range(stream.total_steps):
        whole = stream.samples(stream.step(step))
        parts = [stream.samples(share(stream.step(step), rank, world_size)) for rank in range(world_size)]
        assert [sample for part in parts for sample in part] == whole


def test_a_step_may_hold_the_end_of_one_epoch_and_the_start_of_the_next() -> None:
    stream = Stream(dataset_size=10, epochs=2, global_batch=8, seed=0)
    assert [stream.step(number) for number in range(stream.total_steps)] == [Piece(0, 8), Piece(8, 16), Piece(16, 20)]
    assert [sample.epoch for sample in stream.samples(stream.step(1))] == [0, 0, 1, 1, 1, 1, 1, 1]


def test_the_order_is_pinned() -> None:
    """A job that is resumed by a newer image must go on in the same order."""
    assert permutation(0, 0, 8).tolist() == [2, 3, 7, 5, 6, 1, 4, 0]


@pytest.mark.parametrize(
    ("size", "world_size", "expected"),
    [
        pytest.param(64, 1, [64], id="alone"),
        pytest.param(64, 3, [22, 21, 21], id="uneven"),
        pytest.param(2, 4, [1, 1, 0, 0], id="more-ranks-than-samples"),
        pytest.param(0, 2, [0, 0], id="nothing"),
    ],
)
def test_shares(size: int, world_size: int, expected: list[int]) -> None:
    assert [share(Piece(7, 7 + size), rank, world_size).size for rank in range(world_size)] == expected


@pytest.mark.parametrize(
    ("size", "largest", "expected"),
    [
        pytest.param(64, 64, [64], id="fits"),
        pytest.param(33, 32, [17, 16], id="balanced-not-32-and-1"),
        pytest.param(100, 30, [25, 25, 25, 25], id="four"),
        pytest.param(0, 8, [], id="nothing"),
    ],
)
def test_micro_batches(size: int, largest: int, expected: list[int]) -> None:
    pieces = split(Piece(5, 5 + size), largest)
    assert [piece.size for piece in pieces] == expected
    assert [position for piece in pieces for position in range(*piece)] == list(range(5, 5 + size))


@pytest.mark.parametrize("size", [0, 1, 7, 12])
@pytest.mark.parametrize("together", [2, 3])
def test_neighbours_that_belong_together_are_never_parted(size: int, together: int) -> None:
    whole = Piece(5, 5 + size)
    for world_size, largest in itertools.product((1, 2, 3, 5, 9), (1, 2, 4, 99)):
        shares = [share(whole, rank, world_size, together) for rank in range(world_size)]
        pieces = [piece for each in shares for piece in split(each, largest, together)]
        assert [position for piece in pieces for position in range(*piece)] == list(range(*whole))
        assert all((piece.start - whole.start) % together == 0 for piece in pieces)
        assert all(1 <= piece.size <= max(largest, together) for piece in pieces)


def test_seeds_and_epochs_give_other_orders() -> None:
    assert len({tuple(permutation(seed, epoch, 50).tolist()) for seed in range(3) for epoch in range(3)}) == 9


def test_a_sample_is_a_number_that_knows_its_epoch() -> None:
    sample = pickle.loads(pickle.dumps(Sample(3, 7)))
    assert (["a"] * 7 + ["b"])[sample] == "b"
    assert (sample, sample.epoch, sample.number, type(sample.number)) == (7, 3, 7, int)


def test_a_piece_is_cut_where_epochs_end() -> None:
    assert list(by_epoch(Piece(8, 25), 10)) == [(0, Piece(8, 10)), (1, Piece(0, 10)), (2, Piece(0, 5))]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 40])
def test_validation_sees_every_sample_once_and_pads_nothing(world_size: int) -> None:
    ranks = [in_order(29, rank, world_size, 4) for rank in range(world_size)]
    assert [sample.number for batches in ranks for batch in batches for sample in batch] == list(range(29))
    assert all(1 <= len(batch) <= 4 for batches in ranks for batch in batches)
