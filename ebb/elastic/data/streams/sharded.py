"""A map-style dataset over shards: a sample is reached by its number, and shards are opened when they are first needed.

run.loader sees its `shard_sizes` and reads shard after shard (data/sections.py). It is a dataset and not an iterator with a state
because everything exact about a run rests on numbers: the ledger, recovery in memory, virtual workers, a step that is repeated
with smaller micro-batches. An iterator's state would have to travel with all of them, for each loader process of each rank, and
be cut anew at every change of the world size. A number needs an index, which each of these formats has or which is counted once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Optional

from torch.utils.data import Dataset

from ebb.compat import dataclass, zip
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.streams.cache import Cache
from ebb.elastic.data.streams.compression import decompress
from ebb.elastic.data.streams.remote import fetch, is_remote

Transform = Optional[Callable[[Any], Any]]
ReadSample = Callable[[int], Any]  # by its place in the shard

_OPEN = 256  # shards of a process; run.loader's sections are fewer
_SCHEMA = 1
_THREADS = 32  # counting waits for the storage
_SAID_SECONDS = 10.0


class Sharded(Dataset[Any]):
    """`fingerprint`: equal where the same number is the same sample, wherever the shards lie."""

    def __init__(self, names: Sequence[str], sizes: Sequence[int], *, kind: str, transform: Transform = None) -> None:
        if not sum(sizes):
            raise DataError(f"{names[0] if names else kind} and its like hold no sample: {len(names)} shards, all empty")
        self.shard_sizes = list(sizes)
        self.fingerprint = _fingerprint(kind, names, sizes)
        self._first = list(accumulate(sizes, initial=0))
        self._transform = transform
        self._readers: OrderedDict[int, ReadSample] = OrderedDict()

    def open_shard(self, shard: int) -> ReadSample:
        """Raises DataError."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._first[-1]

    def __getitem__(self, number: int) -> Any:
        if not 0 <= number < len(self):
            raise IndexError(f"there is no sample {int(number)}: the numbers are 0 to {len(self) - 1}")
        shard = bisect_right(self._first, number) - 1
        sample = self._reader(shard)(int(number) - self._first[shard])
        return sample if self._transform is None else self._transform(sample)

    def _reader(self, shard: int) -> ReadSample:
        found = self._readers.get(shard)
        if found is None:
            found = self._readers[shard] = self.open_shard(shard)
            if len(self._readers) > _OPEN:
                self._readers.popitem(last=False)
        self._readers.move_to_end(shard)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_readers": OrderedDict()}  # open files stay with their process


def _fingerprint(kind: str, names: Sequence[str], sizes: Sequence[int]) -> str:
    """Of the names below the folder that all have in common."""
    common = os.path.commonpath(list(names)) if len(names) > 1 else os.path.dirname(names[0])  # noqa: PTH120 - an address too
    parts = [[name[len(common) :].lstrip("/"), size] for name, size in zip(names, sizes, strict=True)]
    return hashlib.sha256(json.dumps([kind, parts]).encode()).hexdigest()


def open_file(url: str, cache: Cache, options: dict[str, Any], *, compression: str = "") -> Any:
    """The shard, uncompressed: where it lies, or a copy of it on this machine. Raises DataError."""
    if is_remote(url):
        stamp = ""
    else:
        try:
            if not compression:
                return Path(url).open("rb")
            stamp = str(Path(url).stat().st_mtime_ns)
        except OSError as error:
            raise DataError(f"cannot read the shard {url}: {error.strerror}") from None

    def make(path: Path) -> None:
        if not compression:
            return fetch(url, path, options)
        if not is_remote(url):
            return decompress(compression, Path(url), path, shard=url)
        packed = path.with_name(f"{path.name}-packed")
        try:
            fetch(url, packed, options)
            return decompress(compression, packed, path, shard=url)
        finally:
            packed.unlink(missing_ok=True)

    return cache.open(f"{url} {compression} {stamp}", make)


def mapped(file: IO[bytes], url: str) -> mmap.mmap:
    """Its content; all processes share what they have read of it. Raises DataError."""
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise DataError(f"{url} is empty: copy it again from where it was made") from None


@dataclass(frozen=True, kw_only=True)
class Counting:
    """The numbers of samples in files whose format does not say them in one place: counted once, and kept in a file.

    `count` gives those of one file: several where it has parts that are read apart. The file is `kept_in`, or beside the data
    in .ebb-index, or with the cache where that is not a folder that can be written to. One process of a machine counts, the
    others wait; one that is killed has kept what it had counted.
    """

    kind: str
    count: Callable[[str], list[int]]
    cache: Cache
    kept_in: Path | None = None
    say: Callable[[str], None] = print

    def of(self, urls: list[str]) -> list[list[int]]:
        """Raises DataError."""
        path = self._path(urls)
        with _alone(path):
            known = self._load(path)
            stamps = dict(zip(urls, self._stamps(urls), strict=True))
            missing = [url for url in urls if known.get(url, [None])[0] != stamps[url]]
            if missing:
                self._count(path, known, missing, stamps)
        return [known[url][1] for url in urls]

    def _path(self, urls: list[str]) -> Path:
        if self.kept_in is not None:
            self.kept_in.parent.mkdir(parents=True, exist_ok=True)
            return self.kept_in
        name = f"{self.kind}-{hashlib.sha256(json.dumps(urls).encode()).hexdigest()[:16]}.json"
        if not is_remote(urls[0]):
            folder = Path(urls[0]).parent / ".ebb-index"
            with contextlib.suppress(OSError):
                folder.mkdir(exist_ok=True)
                if os.access(folder, os.W_OK):
                    return folder / name
        folder = self.cache.folder / ".ebb-index"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            return dict(facts["shards"]) if (facts["kind"], facts["schema"]) == (self.kind, _SCHEMA) else {}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}

    def _stamps(self, urls: list[str]) -> list[Any]:
        """By which a file is known to be the one that was counted. One in a store is taken for what it was: asking costs a
        request for each, at every start of every rank."""

        if is_remote(urls[0]):
            return [[]] * len(urls)

        def stamp(url: str) -> Any:
            try:
                found = Path(url).stat()
            except OSError as error:
                raise DataError(f"cannot read the shard {url}: {error.strerror}") from None
            return [found.st_size, found.st_mtime_ns]

        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(stamp, urls))

    def _count(self, path: Path, known: dict[str, Any], missing: list[str], stamps: dict[str, Any]) -> None:
        began = said = time.monotonic()
        threads = ThreadPoolExecutor(_THREADS)
        try:
            under_way = {threads.submit(self.count, url): url for url in missing}
            for number, each in enumerate(as_completed(under_way), start=1):
                known[under_way[each]] = [stamps[under_way[each]], each.result()]
                if time.monotonic() - said > _SAID_SECONDS:
                    said = time.monotonic()
                    self.say(f"counting samples: {number} of {len(missing)} shards after {said - began:.0f} s, kept in {path}")
                    self._keep(path, known)
        finally:
            threads.shutdown(cancel_futures=True)
        self._keep(path, known)

    def _keep(self, path: Path, known: dict[str, Any]) -> None:
        temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
        temporary.write_text(json.dumps({"kind": self.kind, "schema": _SCHEMA, "shards": known}), encoding="utf-8")
        temporary.rename(path)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.with_name(f".lock-{path.name}").open("w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks: then all count, and keep the same
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
