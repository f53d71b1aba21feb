"""Random transforms depend on (seed, epoch, sample) alone."""

import pickle
import random
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import ColorJitter, Compose, RandomHorizontalFlip, RandomResizedCrop  # type: ignore[attr-defined]

from ebb.elastic.data import Seeded
from ebb.elastic.data.order import Sample


class Drawing(Dataset[Any]):
    """Draws from all three generators, and through a transform of torchvision."""

    classes = ("a", "b")

    def __init__(self) -> None:
        self.transform = Compose([RandomResizedCrop(8), RandomHorizontalFlip(), ColorJitter(0.4)])

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> tuple[int, float, float, float]:
        image = torch.arange(3 * 16 * 16).remainder(256).to(torch.uint8).view(3, 16, 16)
        seen = self.transform(image).float().mean().item()
        return number, random.random(), float(numpy.random.rand()), seen


SAMPLES = [[Sample(epoch, number) for number in (4, 1, 3)] for epoch in (0, 1)]


def read(dataset: Any, workers: int) -> list[list[float]]:
    context = "fork" if workers else None
    loader = DataLoader(dataset, batch_sampler=SAMPLES, num_workers=workers, multiprocessing_context=context)
    return [[float(value) for column in batch for value in column] for batch in loader]


def test_other_processes_give_the_same() -> None:
    dataset = Seeded(Drawing(), seed=1)
    here = read(dataset, 0)
    assert read(dataset, 2) == here
    assert read(dataset, 1) == here
    assert here[0] != here[1]  # another epoch, other draws


def test_the_seed_matters() -> None:
    assert Seeded(Drawing(), seed=1)[Sample(0, 2)] != Seeded(Drawing(), seed=2)[Sample(0, 2)]
    assert Seeded(Drawing(), seed=1)[2] == Seeded(Drawing(), seed=1)[Sample(0, 2)]


def test_the_numbers_of_the_training_itself_go_on_as_if_nothing_was_read() -> None:
    def draws() -> list[float]:
        return [random.random(), float(numpy.random.rand()), torch.rand(()).item()]

    random.seed(3)
    numpy.random.seed(3)
    torch.manual_seed(3)
    expected = draws() + draws()
    random.seed(3)
    numpy.random.seed(3)
    torch.manual_seed(3)
    found = draws()
    Seeded(Drawing(), seed=1)[Sample(0, 2)]
    assert found + draws() == expected


def test_it_has_the_attributes_of_the_dataset_inside() -> None:
    dataset = pickle.loads(pickle.dumps(Seeded(Drawing(), seed=1)))
    assert (dataset.classes, len(dataset)) == (("a", "b"), 6)
    with pytest.raises(AttributeError):
        _ = dataset.nothing
