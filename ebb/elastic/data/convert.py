"""Decode the images of a folder once and for all, into shards: `python -m ebb.elastic.data convert FOLDER OUT --size 256`.

A shard appears under its name when it is whole and on the disk, and shards.json when all are: a run that was killed is taken up
again where it was, with at most one shard per thread done twice. Threads, not processes: decoding, resizing, hashing and writing
all leave the interpreter to others.
"""

import contextlib
import fcntl
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from ebb.compat import zip
from ebb.elastic.data.augment import crop, resized
from ebb.elastic.data.images import Files
from ebb.elastic.data.listing import Say, current
from ebb.elastic.data.sealed import DamagedError, DataError
from ebb.elastic.data.shards import (
    Layout,
    Shards,
    checksum,
    read_manifest,
    shard_facts,
    shard_name,
    write_manifest,
    write_shard,
)

_PROGRESS_SECONDS = 5.0
_SHOWN_ERRORS = 20
_MOST_ASPECT = 2  # a panorama is cut to twice its height: random crops are nearly square


def convert(folder: Path, out: Path, *, size: int, workers: int, say: Say) -> bool:
    """Make the shards of the image folder `folder` in `out`; False when they were all there. Safe to repeat and to kill.

    Raises DataError for what cannot be converted, OSError when the disk fails.
    """
    out.mkdir(parents=True, exist_ok=True)
    with alone(out):
        files = Files(current(folder, out, say=say))
        layout = Layout(files.fingerprint, size, len(files))
        if Shards.are_in(out) and _finished(out, layout):
            return False
        for leftover in out.glob(".tmp-*.shard"):
            leftover.unlink()
        Conversion(files, out, layout, say).run(workers)
        write_manifest(out, layout, list(zip(files.classes, files.index.images_per_class, strict=True)))
    return True


def verify(out: Path, *, workers: int, say: Say) -> list[Path]:
    """The shards whose bytes have changed, or that are missing. Raises DataError, FileNotFoundError without a manifest."""
    facts = read_manifest(out)
    layout = Layout(facts["fingerprint"], facts["size"], facts["samples"])
    bad: list[Path] = []
    said = time.monotonic()
    with ThreadPoolExecutor(workers) as threads:
        for shard, good in enumerate(threads.map(lambda shard: _whole(out, layout, shard), range(layout.shards))):
            if not good:
                bad.append(out / shard_name(shard))
            if time.monotonic() - said > _PROGRESS_SECONDS:
                said = time.monotonic()
                say(f"{out}: looked at {shard + 1} of {layout.shards} shards, {len(bad)} are damaged")
    return bad


def _whole(out: Path, layout: Layout, shard: int) -> bool:
    try:
        shard_facts(out / shard_name(shard), layout, shard)
        return checksum(out / shard_name(shard))
    except (DataError, OSError):
        return False


def _finished(out: Path, layout: Layout) -> bool:
    facts = read_manifest(out)
    if Layout(facts["fingerprint"], facts["size"], facts["samples"]) != layout:
        raise DataError(
            f"{out} holds {facts['samples']} images of --size {facts['size']} that were made from other images than those of "
            "now, or for another size: name another folder, or remove that one"
        )
    return all((out / shard_name(shard)).exists() for shard in range(layout.shards))


@contextlib.contextmanager
def alone(out: Path) -> Iterator[None]:
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"another conversion into {out} is at work: wait for it") from None
        yield


class Conversion:
    """One run. Threads add to the counts under `_lock`; the first error of the disk stops all of them."""

    def __init__(self, files: Files, out: Path, layout: Layout, say: Say) -> None:
        self._files, self._out, self._layout, self._say = files, out, layout, say
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._began = self._said = time.monotonic()
        self._kept = self._images = self._bytes = 0  # images of earlier runs; images and bytes of this one
        self._broken: list[str] = []

    def run(self, workers: int) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # one image at a time in each of ours
        try:
            missing = [shard for shard in range(self._layout.shards) if not self._there(shard)]
            with ThreadPoolExecutor(workers) as pool:
                try:
                    for _ in pool.map(self._make, missing):
                        pass
                finally:
                    self._stop.set()
                    pool.shutdown(cancel_futures=True)
        finally:
            torch.set_num_threads(threads)
        if self._broken:
            more = f"\n... and {len(self._broken) - _SHOWN_ERRORS} more" if len(self._broken) > _SHOWN_ERRORS else ""
            raise DataError(
                f"{len(self._broken)} images cannot be converted:\n" + "\n".join(self._broken[:_SHOWN_ERRORS]) + more + "\n"
                "Replace them under the same names and run this again: the rest is kept. Where they are removed instead, the "
                "images have other numbers and the conversion starts afresh, in another folder"
            )

    def _there(self, shard: int) -> bool:
        try:
            self._kept += shard_facts(self._out / shard_name(shard), self._layout, shard)["samples"]
        except (FileNotFoundError, DamagedError):
            return False
        return True

    def _make(self, shard: int) -> None:
        with contextlib.suppress(_NotWholeError):
            write_shard(self._out / shard_name(shard), self._layout, shard, self._pixels(shard))

    def _pixels(self, shard: int) -> Iterator[torch.Tensor]:
        whole = True
        for number in self._layout.numbers(shard):
            if self._stop.is_set():
                raise _NotWholeError
            try:
                image = shrunk(self._files.read(number)[0], self._layout.size)
            except DataError as error:
                whole = False
                with self._lock:
                    self._broken.append(str(error).partition(". Remove")[0])
                continue
            self._count(image.numel())
            yield image
        if not whole:
            raise _NotWholeError

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self._images += 1
            self._bytes += num_bytes
            if time.monotonic() - self._said < _PROGRESS_SECONDS:
                return
            self._said = time.monotonic()
            rate = self._images / (self._said - self._began)
            done = self._kept + self._images
            left = self._layout.samples - done
            needed, free = self._bytes / self._images * left, shutil.disk_usage(self._out).free
        self._say(
            f"{self._out}: {done} of {self._layout.samples} images, {rate:.0f} a second, {left / rate / 60:.0f} minutes and "
            f"{needed / 1e9:.1f} GB to go"
        )
        if needed > free:
            self._stop.set()
            raise DataError(
                f"{self._out} has {free / 1e9:.1f} GB free, and about {needed / 1e9:.1f} GB are needed yet: make room and run "
                "this again (what is done is kept), or choose a smaller --size in another folder"
            )


class _NotWholeError(Exception):
    """A shard that is given up: it keeps no name."""


def shrunk(image: torch.Tensor, size: int) -> torch.Tensor:
    """The image with a shorter side of `size` at most; one that is smaller stays as it is."""
    height, width = image.shape[-2:]
    shorter = min(height, width)
    longest = _MOST_ASPECT * shorter
    image = crop(image, max(0, height - longest) // 2, max(0, width - longest) // 2, min(height, longest), min(width, longest))
    if shorter <= size:
        return image
    return resized(image, round(image.shape[-2] * size / shorter), round(image.shape[-1] * size / shorter))
