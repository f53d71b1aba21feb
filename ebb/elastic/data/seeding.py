"""Random transforms that depend on the sample alone, whichever process runs them.

    dataset = Seeded(torchvision.datasets.ImageFolder(root, transform), seed=0)

Before each sample the random numbers of Python, NumPy and torch are seeded from (seed, epoch, sample number), so transforms of
torchvision and others give the same image on any rank, in any loader process, before and after a restart. The epoch comes with
the number that the sampler gives (order.Sample).
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch.utils.data import Dataset, get_worker_info

from ebb.elastic.data.order import Sample, mix


class Seeded(Dataset[Any]):
    """A map-style dataset whose samples are made with their own random numbers. Has all attributes of the one inside."""

    def __init__(self, dataset: Any, *, seed: int) -> None:
        self.dataset = dataset
        self.seed = seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, sample: int) -> Any:
        number = int(sample)
        epoch = sample.epoch if isinstance(sample, Sample) else 0
        with seeded(self.seed, epoch, number):
            return self.dataset[number]

    def __getattr__(self, name: str) -> Any:
        if name in ("dataset", "__getitems__"):  # not yet there while it is unpickled; and one by one, or they would share a seed
            raise AttributeError(name)
        return getattr(self.dataset, name)


@contextmanager
def seeded(*parts: int) -> Iterator[None]:
    """Random numbers that depend on `parts`. In the process of the training itself those of before come back: dropout must not
    repeat itself with the samples. In a loader process nobody else draws any."""
    if get_worker_info() is not None:
        _seed(mix(*parts))
        yield
        return
    kept = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    try:
        _seed(mix(*parts))
        yield
    finally:
        random.setstate(kept[0])
        numpy.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


def _seed(seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed % 2**32)  # what transforms of others draw from
    torch.default_generator.manual_seed(seed)  # the CPU's alone: torch.manual_seed would touch the GPU
