"""Batches made ahead by loader processes, and their way to the device.

for batch in on_device(batches(dataset, plan, workers=4, pin_memory=True), device):
    batch.images, batch.labels, batch.ids
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, default_collate

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


def on_device(host: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """The same batches on the device. On a GPU the next one is copied while the current one is computed: its pinned bytes go
    over a stream of their own, and the host waits for nothing."""
    if device.type != "cuda":
        yield from host
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    current = _copied(next(host, None), device, stream)
    while current is not None:
        torch.cuda.current_stream(device).wait_stream(stream)
        for tensor in current[:2]:
            tensor.record_stream(torch.cuda.current_stream(device))  # not reused before the computation is through
        following = _copied(next(host, None), device, stream)
        yield current
        current = following


def _copied(batch: Batch | None, device: torch.device, stream: torch.cuda.Stream) -> Batch | None:
    if batch is None:
        return None
    with torch.cuda.stream(stream):
        images, labels = (tensor.to(device, non_blocking=True) for tensor in batch[:2])
    return Batch(images, labels, batch.ids)


def _stack(samples: list[tuple[torch.Tensor, int, int]]) -> Batch:
    images, labels, ids = zip(*samples, strict=True)
    return Batch(
        default_collate(list(images)), torch.tensor(labels), list(ids)
    )  # straight into shared memory in a loader process


def with_processes(options: dict[str, Any]) -> dict[str, Any]:
    if not options.get("num_workers"):
        return options
    return {"multiprocessing_context": FORK, "worker_init_fn": start_worker, "persistent_workers": True} | options


def start_worker(_number: int) -> None:
    os.setpgid(0, 0)  # a SIGTERM or Ctrl-C for the whole group is for its parent: it needs the batches until it leaves
    torch.set_num_threads(1)
