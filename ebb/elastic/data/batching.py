"""Batches of images, made ahead by loader processes.

for batch in batches(dataset, plan, workers=4):
    batch.images, batch.labels, batch.ids
"""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader, default_collate

from ebb.compat import zip
from ebb.elastic.data.images import Images
from ebb.elastic.data.order import Sample

PREFETCH = 2  # batches that a loader process is ahead; torch's default


# A process of the launcher's fork server would start its loader processes through another one, with all its imports
FORK = "fork"


class Batch(NamedTuple):
    """images: uint8 (N, 3, side, side); labels: int64 (N,); ids: the sample numbers, N of them, as they were read."""

    images: torch.Tensor
    labels: torch.Tensor
    ids: list[int]


def batches(dataset: Images, plan: Iterable[list[Sample]], *, workers: int, pin_memory: bool = False) -> Iterator[Batch]:
    """One Batch per list of samples in `plan`, in its order, decoded ahead by `workers` processes."""
    loader = DataLoader(
        dataset,
        batch_sampler=plan,
        num_workers=workers,
        collate_fn=_stack,
        worker_init_fn=start_worker if workers else None,
        prefetch_factor=PREFETCH if workers else None,
        pin_memory=pin_memory,
        multiprocessing_context=FORK if workers else None,
    )
    return iter(loader)


def _stack(samples: list[tuple[torch.Tensor, int, int]]) -> Batch:
    images, labels, ids = zip(*samples, strict=True)
    return Batch(
        default_collate(list(images)), torch.tensor(labels), list(ids)
    )  # straight into shared memory in a loader process


def start_worker(_number: int) -> None:
    os.setpgid(0, 0)  # a SIGTERM or Ctrl-C for the whole group is for its parent: it needs the batches until it leaves
    torch.set_num_threads(1)
