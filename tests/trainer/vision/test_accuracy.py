"""Counts are those of sorting the scores by hand, on shares of any size, and add up over ranks."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch

from trainer.data.loader import Batch
from trainer.data.order import Piece, share, split
from trainer.vision.accuracy import Counter, Counts, places
from trainer.vision.evaluation import evaluate

CPU = torch.device("cpu")


def scores(count: int, classes: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers, so that many are equal."""
    generator = torch.Generator().manual_seed(count)
    rows = torch.randint(0, 6, (count, classes), generator=generator).float()
    return rows, torch.randint(0, classes, (count,), generator=generator)


def by_hand(rows: torch.Tensor, labels: torch.Tensor) -> list[int]:
    found = []
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda number: (-row[number], number))
        found.append(order.index(label))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_are_those_of_a_sort(dtype: torch.dtype) -> None:
    rows, labels = scores(200)
    assert places(rows.to(dtype), labels).tolist() == by_hand(rows, labels)
    assert ((places(rows, labels) == 0) == (rows.argmax(1) == labels)).all()


def test_a_network_that_has_diverged_is_never_right() -> None:
    rows = torch.zeros(3, 9)
    rows[0] = torch.nan
    rows[1, 4] = torch.nan
    counter = Counter(CPU)
    counter.add(rows, torch.zeros(3, dtype=torch.int64), torch.zeros(3))
    assert counter.counts()[:3] == (3, 1, 2)  # one broken score comes before all others, and after none


def test_with_fewer_than_five_classes_all_are_among_the_five() -> None:
    counter = Counter(CPU)
    counter.add(*scores(7, classes=3), torch.zeros(7))
    assert counter.counts().top5_accuracy == 1


def test_counts_are_exact_beyond_what_32_bits_hold() -> None:
    counter = Counter(CPU)
    counter._sums[:3] = 2.0**40
    counter.add(torch.eye(3), torch.arange(3), torch.ones(3))
    assert counter.take()[:3] == (2**40 + 3,) * 3
    assert counter.counts() == Counts(0, 0, 0, 0)
    assert counter.counts().top1_accuracy == counter.counts().mean_loss == 0


class Tracker(torch.overrides.TorchFunctionMode):
    """Fails where a number is fetched from the device."""

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        assert getattr(function, "__name__", "") not in ("item", "tolist", "__bool__", "__int__", "__float__", "cpu", "numpy"), (
            function
        )
        return function(*args, **(kwargs or {}))


def test_adding_waits_for_nothing() -> None:
    counter = Counter(CPU)
    rows, labels = scores(8)
    zeros = torch.zeros(8)
    with Tracker():
        counter.add(rows, labels, zeros)
        with pytest.raises(AssertionError):
            counter.counts()


@dataclass
class OneRank:
    """What a rank says; the others' sums are added by the test."""

    device: torch.device = CPU
    said: list[list[float]] = field(default_factory=list)

    def sum(self, numbers: list[float]) -> list[float]:
        self.said.append(numbers)
        return numbers


@pytest.mark.parametrize("world_size", [1, 2, 3, 30])
@pytest.mark.parametrize("largest", [1, 4, 99])
def test_every_sample_is_evaluated_once_at_any_number_of_ranks(world_size: int, largest: int) -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(12), torch.nn.Dropout(0.5), torch.nn.Linear(12, 9))
    images = torch.randint(0, 256, (23, 3, 2, 2), dtype=torch.uint8)
    labels = torch.arange(23) % 9

    def batches(rank: int) -> Iterator[Batch]:
        for piece in split(share(Piece(0, 23), rank, world_size), largest):
            yield Batch(images[slice(*piece)], labels[slice(*piece)], list(range(*piece)))

    network.train()
    ranks = [OneRank() for _ in range(world_size)]
    for rank, group in enumerate(ranks):
        evaluate(network, batches(rank), group=group, forward=lambda some: network(some.float() / 255))
    assert network.training  # as it was
    total = Counts.of([sum(column) for column in zip(*[group.said[0] for group in ranks], strict=True)])
    network.eval()
    expected = by_hand(network(images.float() / 255).detach(), labels)
    assert (total.samples, total.top1, total.top5) == (23, expected.count(0), sum(place < 5 for place in expected))
    assert total.mean_loss == pytest.approx(torch.nn.functional.cross_entropy(network(images.float() / 255), labels).item())
    assert network[1].num_batches_tracked == 0  # nothing was learnt from the validation data
