"""Batches of any map-style dataset on the device, made ahead by loader processes, with the numbers of their samples.

    loader = Loader(dataset, seed=0, workers=4, collate_fn=None)
    for numbers, batch in loader.start(plan, device, say=print): ...

A dataset with `shard_sizes` (the samples of each shard; numbers count through them) is read shard after shard, data/sections.py.

`batch` is what the dataset's samples collate to: tensors, tuples, lists and dicts of them, nested in any way. On a GPU the next
batch is copied while the current one is computed; the host waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from ebb.elastic.data.batching import FORK, PREFETCH, start_worker
from ebb.elastic.data.order import Sample
from ebb.elastic.data.sections import Sections
from ebb.elastic.data.seeding import Seeded
from ebb.elastic.data.tuning import Watched, measured_workers, workers_beside_cpu_training
from ebb.elastic.runtime.config import RunConfig

_CPU = torch.device("cpu")
_ADVICE = "give the loader more processes, run.loader(..., workers=N)"


class Fetched(NamedTuple):
    """`numbers` are those of the samples, as they came out of the loader."""

    numbers: list[int]
    batch: Any


class Loader:
    """The way in which a dataset is read; made by Run.loader and given to Run.steps."""

    def __init__(
        self,
        dataset: Any,
        *,
        seed: int,
        workers: int,
        seeded: bool = True,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        advice: str = _ADVICE,
        together: int = 1,
        sections: int = 16,
        **options: Any,
    ) -> None:
        """`options` are those of torch's DataLoader, but for what decides about the order. `together`: so many neighbours of a
        step, counted from its start, come in one batch on any number of ranks: what blends samples with each other needs it.
        `sections`: so many shards are read side by side, and mixed, where the dataset has any."""
        if together < 1:
            raise ValueError(f"together is {together!r}; it must be at least 1")
        taken = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "num_workers"} & set(options)
        if taken:
            raise ValueError(f"{', '.join(sorted(taken))}: the order is the run's own; give workers= for loader processes")
        _check_has_places(dataset)
        self.dataset = dataset
        self.workers = workers
        self.together = together
        sizes = getattr(dataset, "shard_sizes", None)
        self.sections = None if sizes is None else Sections(sizes, at_once=sections)
        # by which ranks and generations know the data and its order
        self.facts: dict[str, Any] = {"dataset_size": len(dataset), "fingerprint": ""}
        if self.sections is not None:
            self.facts["sections"] = sections
        self._advice = advice
        self._inner = _Numbered(Seeded(dataset, seed=seed) if seeded else dataset)
        own = {"multiprocessing_context": FORK, "worker_init_fn": start_worker, "prefetch_factor": PREFETCH} if workers else {}
        self._options = {**own, **options, "num_workers": workers, "collate_fn": _Collate(collate_fn or default_collate)}

    def __len__(self) -> int:
        """Samples, not batches: how many batches there are depends on the number of ranks."""
        return len(self.dataset)

    def start(self, plan: Iterable[list[Sample]], device: torch.device, *, say: Callable[[str], None]) -> Watched[Fetched]:
        """One Fetched for each list of samples in `plan`. A sustained wait for them is said."""
        options = {"pin_memory": device.type == "cuda", **self._options}
        loader = DataLoader(self._inner, batch_sampler=plan, **options)
        return Watched(on_device(iter(loader), device), say=say, advice=self._advice)


def loader_processes(
    asked: int,
    dataset: Any,
    config: RunConfig,
    device: torch.device,
    world_size: int,
    *,
    options: dict[str, Any],
    say: Callable[[str], None],
) -> int:
    """On a GPU -1 is measured, once per kind of machine; on the CPU the loader and the network share the cores."""
    place = config.place
    if asked >= 0:
        return min(place.cores, asked)
    if device.type == "cpu":
        return workers_beside_cpu_training(place.cores)
    return measured_workers(
        dataset,
        lambda workers, plan: Loader(dataset, seed=-1, workers=workers, **options).start(plan, _CPU, say=say),
        micro_batch=min(config.max_micro_batch, -(-config.global_batch // world_size)),
        cores=place.cores,
        ranks=place.local_world_size,
        kept_in=config.output,
        say=say,
    )


def _check_has_places(dataset: Any) -> None:
    """Raises TypeError for what can only be iterated."""
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset):
        return
    kind = f"{type(dataset).__module__.partition('.')[0]}.{type(dataset).__name__}"
    raise TypeError(
        f"run.loader(dataset) is {kind}, which can only be iterated: it has an order of its own, of which a change of machines "
        "would lose or repeat samples. Allowed is what has len() and [number]. For tars use elastic.webdataset(urls), for "
        "MosaicML's shards elastic.mds(folder), for parquet, also of Hugging Face's hub, elastic.parquet(urls)"
    )


class _Numbered(Dataset[tuple[int, Any]]):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getitem__(self, sample: Sample) -> tuple[int, Any]:
        return int(sample), self._inner[sample]


class _Collate:
    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self._collate_fn = collate_fn

    def __call__(self, samples: list[tuple[int, Any]]) -> Fetched:
        return Fetched([number for number, _ in samples], self._collate_fn([item for _, item in samples]))


def on_device(host: Iterator[Fetched], device: torch.device) -> Iterator[Fetched]:
    """The same batches on the device; on a GPU over a stream of their own, one ahead."""
    if device.type != "cuda":
        yield from host
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copied() -> Fetched | None:
        fetched = next(host, None)
        if fetched is None:
            return None
        with torch.cuda.stream(stream):
            return Fetched(fetched.numbers, moved(fetched.batch, device))

    current = copied()
    while current is not None:
        computing = torch.cuda.current_stream(device)
        computing.wait_stream(stream)
        for tensor in tensors(current.batch):
            tensor.record_stream(computing)  # not reused before the computation is through
        following = copied()
        yield current
        current = following


def moved(batch: Any, device: torch.device) -> Any:
    """The same tree with its tensors on the device; what is not a tensor stays as it is."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: moved(each, device) for name, each in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(each, device) for each in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(moved(each, device) for each in batch)
    return batch.to(device) if hasattr(batch, "to") else batch


def tensors(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for each in batch.values():
            yield from tensors(each)
    elif isinstance(batch, (list, tuple)):
        for each in batch:
            yield from tensors(each)
