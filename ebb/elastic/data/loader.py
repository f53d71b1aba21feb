"""Batches, made ahead by loader processes.

loader = ElasticLoader(dataset, global_batch=512, epochs=90, num_workers=8, pin_memory=True)   # for a loop of one's own
for batch in on_device(batches(dataset, plan, workers=4, pin_memory=True), device):            # images of the trainer itself
    batch.images, batch.labels, batch.ids
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, default_collate

from ebb.elastic.cores import cores_of_this_rank
from ebb.elastic.data.images import Images
from ebb.elastic.data.order import Sample
from ebb.elastic.data.sampler import Course, ElasticBatchSampler, MicroBatch
from ebb.elastic.data.seeding import Seeded
from ebb.elastic.data.sequence import ShardSequence

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


def _with_processes(options: dict[str, Any]) -> dict[str, Any]:
    if not options.get("num_workers"):
        return options
    return {"multiprocessing_context": FORK, "worker_init_fn": start_worker, "persistent_workers": True} | options


def start_worker(_number: int) -> None:
    os.setpgid(0, 0)  # a SIGTERM or Ctrl-C for the whole group is for its parent: it needs the batches until it leaves
    torch.set_num_threads(1)


class ElasticLoader:
    """In the place of torch's DataLoader, its sampler and its set_epoch: same arguments, but for the global batch and epochs.

    loader = ElasticLoader(dataset, global_batch=512, epochs=90, seed=0, num_workers=8, pin_memory=True)
    if resumed: loader.load_state_dict(checkpoint["data"])
    for epoch in range(loader.epoch, 90):
        for images, labels in loader:
            (criterion(network(images), labels) * loader.now.weight).backward()
            if loader.now.last:
                optimizer.step(); optimizer.zero_grad()           # from here on loader.state_dict() counts this step

    A pass goes on from where the run stands to the end of its epoch. `dataset` is map-style, with random transforms of its own
    (they are seeded per sample), or a ShardSequence, which knows its batches itself. num_workers=-1 measures for some seconds how
    many loader processes are best (tuning.py), once per kind of machine where `tuned_in` names a folder of the job.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        global_batch: int = 0,
        epochs: int = 0,
        seed: int = 0,
        max_micro_batch: int = 0,
        tuned_in: Path | None = None,
        **options: Any,  # of torch's DataLoader: num_workers, pin_memory, collate_fn, ...
    ) -> None:
        measured = options.get("num_workers", 0) < 0
        taken = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"} & set(options)
        if taken:
            raise ValueError(f"{', '.join(sorted(taken))}: the order is this loader's own; give global_batch, epochs and seed")
        self.dataset = dataset
        if isinstance(dataset, ShardSequence):
            if global_batch or epochs or seed or max_micro_batch:
                raise ValueError("global_batch, epochs, seed and max_micro_batch are set at the ShardSequence")
            if measured:
                raise ValueError("num_workers is -1; a ShardSequence only reads bytes, which is not worth measuring: 2 are usual")
            self.course: Course = dataset
            self._loader: DataLoader[Any] = DataLoader(dataset, batch_size=None, **_with_processes(options))
            return
        sampler = ElasticBatchSampler(
            dataset, global_batch=global_batch, epochs=epochs, seed=seed, max_micro_batch=max_micro_batch
        )
        self.course = sampler
        if measured:
            options["num_workers"] = self._measured(sampler, tuned_in, options)
        self._loader = DataLoader(Seeded(dataset, seed=seed), batch_sampler=sampler, **_with_processes(options))

    def _measured(self, sampler: ElasticBatchSampler, tuned_in: Path | None, options: dict[str, Any]) -> int:
        """On a GPU. On the CPU the loader and the network share the cores, so what is best for the loader alone is not."""
        from ebb.elastic.data.tuning import measured_workers, workers_beside_cpu_training  # noqa: PLC0415  # it measures loaders of this module

        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        cores = cores_of_this_rank(os.environ, ranks)
        if not torch.cuda.is_available():
            return workers_beside_cpu_training(cores)

        def start(workers: int, plan: Iterable[list[Sample]]) -> Iterator[Any]:
            chosen = _with_processes(options | {"num_workers": workers, "persistent_workers": False})
            return iter(DataLoader(Seeded(self.dataset, seed=sampler.seed), batch_sampler=plan, **chosen))

        micro_batch = sampler.largest_micro_batch()
        return measured_workers(self.dataset, start, micro_batch=micro_batch, cores=cores, ranks=ranks, kept_in=tuned_in)

    @property
    def now(self) -> MicroBatch:
        """What the batch that was given last is: its weight in the loss, and whether the optimizer's step follows."""
        assert self.course.now is not None, "no batch was given yet"
        return self.course.now

    @property
    def epoch(self) -> int:
        return self.course.epoch

    def __len__(self) -> int:
        """Batches left in this epoch."""
        return self.course.batches_left()

    def __iter__(self) -> Iterator[Any]:
        self.course.begin()
        for batch in self._loader:
            self.course.take()
            yield batch

    def state_dict(self) -> dict[str, int]:
        return self.course.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Raises DataError when the state is of another dataset or order."""
        self.course.load_state_dict(state)
