"""The number of loader processes of a rank: as many as were asked for, or as a short measurement says; and a word when it waits.

    workers = loader_workers(config.workers, site, loading_rate(dataset, 64), kept_in=output)
    loader = Watched(batches(dataset, plan, workers=workers), say=print, advice=advice(workers, site))
    measured_workers(any_dataset, start, micro_batch=64, cores=8)           # run.loader(dataset, workers=-1)

The right number depends on cores, image size, storage and GPU, and no default fits: too few starve the GPU, too many take the
cores from each other. Measured is the loader alone, with 1, 2, 4 ... processes and never more than cores, until another doubling
gains little. The result is kept with the job and used again by later generations on machines of that kind.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from ebb.compat import dataclass
from ebb.elastic.data.batching import PREFETCH, batches
from ebb.elastic.data.images import Images
from ebb.elastic.data.order import Piece, Sample, samples, split

_MEASURED_SECONDS = 1.5  # of a steady loader; with starting it, about 2 s for each number of processes
_GAIN = 1.1  # a doubling that brings less than 10 % is the last one
_GOOD_ENOUGH = 0.95  # of the best rate, with fewer processes
_MOST_BESIDE_CPU_TRAINING = 8
_SHM = Path("/dev/shm")  # noqa: S108 - where batches of loader processes lie, whatever the platform calls its folder
_SHM_SHARE = 0.8

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Site:
    """The facts that the number depends on. Two sites that are equal have the same best number."""

    cores: int  # of this rank
    decoding: bool  # image files, not shards
    image_size: int
    micro_batch: int
    augment: str

    @property
    def batch_bytes(self) -> int:
        return 3 * self.image_size**2 * self.micro_batch


@dataclass(frozen=True, kw_only=True)
class OwnSite:
    """The same for a dataset of which nothing else is known."""

    cores: int
    dataset: str  # what it is called
    samples: int
    micro_batch: int
    batch_bytes: int


def workers_beside_cpu_training(cores: int) -> int:
    """One worker less than cores, and 8 at most: here the loader shares the cores with the network."""
    return min(_MOST_BESIDE_CPU_TRAINING, cores - 1)


def loader_workers(
    asked: int,
    site: Site | OwnSite,
    rate: Callable[[int], float],
    *,
    kept_in: Path | None,
    ranks: int = 1,
    say: Callable[[str], None] = print,
) -> int:
    """`asked`, or for -1 what is measured by `rate` (images a second with so many processes) or was measured before. Never more
    than the cores of the rank, or than the shared memory has room for. `ranks`: of this machine, which share that memory."""
    room = int(_SHM_SHARE * _free_shm() / ranks / (PREFETCH * max(1, site.batch_bytes)))
    most = min(site.cores, room)
    if most < (site.cores if asked < 0 else min(asked, site.cores)):
        say(
            f"{_SHM} has room for the batches of {most} loader processes: give the container more shared memory (docker run "
            "--shm-size, an emptyDir of medium Memory in a pod)"
        )
    if asked > site.cores:
        say(f"--workers is {asked}, but this rank has {site.cores} cores: it uses {most}")
    if asked >= 0 or most <= 1:
        return min(asked, most) if asked >= 0 else most
    found = _load_workers(kept_in, site) if kept_in else None
    if found is None:
        rates = measure(rate, most)
        found = best(rates)
        if kept_in:
            _keep(kept_in, site, found)
        told = ", ".join(f"{workers}: {images:.0f}" for workers, images in rates.items())
        say(f"{found} loader processes per rank (images a second by their number, {told})")
    return min(found, most)


def measure(rate: Callable[[int], float], most: int) -> dict[int, float]:
    """Rates of 1, 2, 4 ... processes, `most` at last, as far as more bring more."""
    rates: dict[int, float] = {}
    workers = 1
    while True:
        rates[workers] = rate(workers)
        before = max((found for number, found in rates.items() if number < workers), default=0.0)
        if workers == most or rates[workers] < _GAIN * before:
            return rates
        workers = min(2 * workers, most)


def best(rates: dict[int, float]) -> int:
    """The smallest number that is nearly as good as the best."""
    return min(workers for workers, images in rates.items() if images >= _GOOD_ENOUGH * max(rates.values()))


def loading_rate(dataset: Images, micro_batch: int, *, seconds: float = _MEASURED_SECONDS) -> Callable[[int], float]:
    """Images a second that so many loader processes make. Never the same sample twice as long as there are others: what was
    read once lies in the memory of the machine."""
    plan = random_batches(len(dataset), micro_batch)

    def start(workers: int) -> Iterator[Any]:
        return batches(dataset, plan, workers=workers)

    return rate_of(start, samples_in_a_batch(len(dataset), micro_batch), seconds=seconds)


def rate_of(
    start: Callable[[int], Iterator[Any]], samples_per_batch: float, *, seconds: float = _MEASURED_SECONDS
) -> Callable[[int], float]:
    """The same for any loader: `start` begins one with so many processes, which must not end by itself."""

    def rate(workers: int) -> float:
        loader = start(workers)
        for _ in islice(loader, 2 * workers):
            pass  # those that were fetched while the processes started
        began = time.monotonic()
        for number, _ in enumerate(loader, start=1):
            took = time.monotonic() - began
            if took >= seconds:
                return number * samples_per_batch / took
        raise AssertionError("the plan of a measurement has no end")

    return rate


def measured_workers(
    dataset: Any,
    start: Callable[[int, Iterable[list[Sample]]], Iterator[Any]],
    *,
    micro_batch: int,
    cores: int,
    ranks: int = 1,
    kept_in: Path | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """The number for any map-style dataset: `start` begins a loader of it with so many processes that reads the given batches."""
    site = OwnSite(
        cores=cores,
        dataset=type(dataset).__name__,
        samples=len(dataset),
        micro_batch=min(micro_batch, len(dataset)),
        batch_bytes=_bytes_of(dataset[Sample(0, 0)]) * min(micro_batch, len(dataset)),
    )
    shards = getattr(dataset, "shard_sizes", None) is not None  # at random places each sample would fetch one
    plan = (batches_in_order if shards else random_batches)(len(dataset), micro_batch)
    rate = rate_of(lambda workers: start(workers, plan), samples_in_a_batch(len(dataset), micro_batch))
    return loader_workers(-1, site, rate, kept_in=kept_in, ranks=ranks, say=say)


def _bytes_of(sample: Any) -> int:
    """Of its tensors: those lie in shared memory."""
    if isinstance(sample, torch.Tensor):
        return sample.nbytes
    if isinstance(sample, Mapping):
        return sum(map(_bytes_of, sample.values()))
    return sum(map(_bytes_of, sample)) if isinstance(sample, (list, tuple)) else 0


def samples_in_a_batch(dataset_size: int, micro_batch: int) -> float:
    """On average: batches of a whole epoch are as equal as can be."""
    return dataset_size / -(-dataset_size // micro_batch)


def random_batches(dataset_size: int, micro_batch: int) -> Iterator[list[Sample]]:
    """Of a measurement: without an end, and in an order of its own."""
    size = min(micro_batch, dataset_size)
    for epoch in count():
        for piece in split(Piece(epoch * dataset_size, (epoch + 1) * dataset_size), size):
            yield samples(-1, dataset_size, piece)


def batches_in_order(dataset_size: int, micro_batch: int) -> Iterator[list[Sample]]:
    """Of a measurement: without an end, one sample after the other."""
    while True:
        for piece in split(Piece(0, dataset_size), min(micro_batch, dataset_size)):
            yield [Sample(0, number) for number in range(*piece)]


def _free_shm() -> int:
    return shutil.disk_usage(_SHM).free if _SHM.is_dir() else 2**62


def _load_workers(folder: Path, site: Site | OwnSite) -> int | None:
    try:
        facts = json.loads((folder / "loader.json").read_text(encoding="utf-8"))
        return int(facts["workers"]) if facts["site"] == asdict(site) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is measured again


def _keep(folder: Path, site: Site | OwnSite, workers: int) -> None:
    temporary = folder / f".tmp-loader-{socket.gethostname()}-{os.getpid()}"
    temporary.write_text(json.dumps({"site": asdict(site), "workers": workers}) + "\n", encoding="utf-8")
    temporary.rename(folder / "loader.json")


class Watched(Generic[_T]):
    """Gives what `source` gives and measures the wait for it. A minute with more than 10 % of waiting is said, with what to do,
    at most every five minutes. The first batch is not counted: loader processes start then."""

    def __init__(
        self,
        source: Iterator[_T],
        *,
        say: Callable[[str], None],
        advice: str,
        clock: Callable[[], float] = time.monotonic,
        window_seconds: float = 60.0,
        pause_seconds: float = 300.0,
        share: float = 0.1,
    ) -> None:
        self._source, self._say, self._advice, self._clock = source, say, advice, clock
        self._window_seconds, self._pause_seconds, self._share = window_seconds, pause_seconds, share
        self.waited_seconds = 0.0
        self._window: tuple[float, float] | None = None  # when it began, and waited_seconds then
        self._said_at: float | None = None

    def __iter__(self) -> Iterator[_T]:
        return self

    def __next__(self) -> _T:
        began = self._clock()
        item = next(self._source)
        now = self._clock()
        if self._window is None:
            self._window = now, 0.0
            return item
        self.waited_seconds += now - began
        if now - self._window[0] >= self._window_seconds:
            self._judge(now)
            self._window = now, self.waited_seconds
        return item

    def _judge(self, now: float) -> None:
        assert self._window is not None
        began, waited_before = self._window
        share = (self.waited_seconds - waited_before) / (now - began)
        if share <= self._share or (self._said_at is not None and now - self._said_at < self._pause_seconds):
            return
        self._said_at = now
        self._say(f"{share:.0%} of the last {now - began:.0f} s went by waiting for data: {self._advice}")


def advice(workers: int, site: Site) -> str:
    """The knob to turn when data comes too late."""
    if workers < site.cores:
        more = min(site.cores, max(1, 2 * workers))
        return (
            f"give the loader more processes, --workers {more} (now {workers}; this rank has {site.cores} cores), or -1: measured"
        )
    if site.decoding:
        return (
            f"all {site.cores} cores of this rank decode images: do that once, `python -m ebb.elastic.data "
            f"convert DATA OUT`, and "
            "train on OUT; or take machines with more cores per GPU"
        )
    return "the storage gives no more: put the data on faster storage nearby, or convert it again with a smaller --size"
