"""WebDataset's tars: a sample is what follows each other under one name, `0001.jpg 0001.cls`.

    train = elastic.webdataset("data/{000..099}.tar", decode="rgb8", transform=lambda sample: (sample["jpg"], sample["cls"]))

Tars have no index. How many samples each holds is counted once (sharded.Counting); where they begin in it is looked up when a
machine first opens it, and kept in its cache. A tar on a disk is read in place; one in a store, or compressed, is copied to the
cache as a whole. Grouping is webdataset's own (its tariterators), and so is decoding, by the package webdataset, where it is
asked for.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.streams.cache import Cache
from ebb.elastic.data.streams.compression import by_suffix
from ebb.elastic.data.streams.remote import Urls, expand, is_remote
from ebb.elastic.data.streams.sharded import Counting, ReadSample, Sharded, Transform, mapped, open_file

_NAME = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")  # as webdataset parts a sample's name from that of a field
_ABOUT_THE_TAR = re.compile(r"__[^/]*__($|/)")
_FORGOTTEN = 1000  # members that tarfile remembers


def webdataset(
    urls: Urls,
    *,
    decode: str | Callable[[dict[str, Any]], Any] | None = None,
    transform: Transform = None,
    cache: str | os.PathLike[str] | None = None,
    cache_gib: float | None = None,
    index: str | os.PathLike[str] | None = None,
    storage: dict[str, Any] | None = None,
) -> Sharded:
    """The samples of tars, each a dict of bytes by the fields' names, with __key__ and __url__.

    `decode`: an image handler's name of webdataset (rgb8, torchrgb, pil, ...), which also decodes its other known fields; or a
    function of the dict. `transform`: a function of what that gives. `cache`: a folder of this machine for copies of tars in
    stores, of `cache_gib` at most. `index`: the file that keeps how many samples each tar has; for tars in a store, which have to
    be fetched to be counted, name one that all machines see. `storage`: options of fsspec. Raises DataError.
    """
    options = storage or {}
    shards = expand(urls, options)
    copies = Cache.of(cache, cache_gib)

    def count(url: str) -> list[int]:
        with open_file(url, copies, options, compression=by_suffix(url)) as file:
            return [len(starts_of(file, url)) - 1]

    kept_in = None if index is None else Path(index)
    sizes = [sum(counts) for counts in Counting(kind="webdataset", count=count, cache=copies, kept_in=kept_in).of(shards)]
    return _Tars(shards, sizes, copies, options, decode=_decoder(decode), transform=transform)


class _Tars(Sharded):
    def __init__(
        self,
        shards: list[str],
        sizes: list[int],
        cache: Cache,
        options: dict[str, Any],
        *,
        decode: Callable[[dict[str, Any]], Any] | None,
        transform: Transform,
    ) -> None:
        super().__init__(shards, sizes, kind="webdataset", transform=transform)
        self._shards, self._cache, self._options, self._decode = shards, cache, options, decode

    def open_shard(self, shard: int) -> ReadSample:
        url = self._shards[shard]
        with open_file(url, self._cache, self._options, compression=by_suffix(url)) as file:
            starts = self._starts(url, file)
            content = mapped(file, url)
        if len(starts) - 1 != self.shard_sizes[shard]:
            raise DataError(
                f"{url} holds {len(starts) - 1} samples, and {self.shard_sizes[shard]} were counted: it has changed. Put the old "
                "file back, or begin a new job, with another index= if one was named"
            )

        def read(place: int) -> Any:
            sample = _parsed(content[starts[place] : starts[place + 1]], url)
            return sample if self._decode is None else self._decode(sample)

        return read

    def _starts(self, url: str, file: IO[bytes]) -> array[int]:
        facts = os.fstat(file.fileno())
        known = "" if is_remote(url) else f":{facts.st_mtime_ns}"
        key = f"starts:{url}:{facts.st_size}{known}"
        found = array("Q")
        with self._cache.open(key, lambda path: _write(path, starts_of(file, url))) as kept:
            found.frombytes(kept.read())
        return found


def _write(path: Path, numbers: array[int]) -> None:
    path.write_bytes(numbers.tobytes())


def starts_of(file: IO[bytes], url: str) -> array[int]:
    """The places at which samples begin in the tar, and the end of the last one. Raises DataError."""
    starts = array("Q")
    current, end = None, 0
    for member, key, _ in _fields(file, url):
        if key != current:
            starts.append(member.offset)
            current = key
        end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    starts.append(end)
    return starts


def _fields(file: IO[bytes], url: str) -> Iterator[tuple[tarfile.TarInfo, str, str]]:
    """The files of a tar that belong to samples: with the sample's name and the field's."""
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for number, member in enumerate(tar):
                if number % _FORGOTTEN == 0:
                    tar.members = []  # type: ignore[attr-defined]  # millions would stay in memory, as webdataset knows too
                match = _NAME.match(member.name)
                if member.isreg() and match and not _ABOUT_THE_TAR.match(member.name):
                    yield member, match.group(1), match.group(2).lower()
    except tarfile.TarError as error:
        raise DataError(f"{url} is damaged, or no tar: {error}. Copy it again from where it was made") from None


def _parsed(content: bytes, url: str) -> dict[str, Any]:
    sample: dict[str, Any] = {}
    for member, key, field in _fields(io.BytesIO(content), url):
        if field in sample:
            raise DataError(f"{url} has two files {member.name}: name the fields of a sample differently")
        sample["__key__"], sample["__url__"] = key, url
        sample[field] = content[member.offset_data : member.offset_data + member.size]
    return sample


def _decoder(decode: str | Callable[[dict[str, Any]], Any] | None) -> Callable[[dict[str, Any]], Any] | None:
    if not isinstance(decode, str):
        return decode
    try:
        from webdataset import autodecode  # noqa: PLC0415  # only where it is asked for
    except ImportError:
        raise DataError(
            f"decode={decode!r} needs the package webdataset: pip install webdataset; or give a function, or nothing for bytes"
        ) from None
    try:
        handler = autodecode.ImageHandler(decode)
    except ValueError:
        allowed = ", ".join(sorted(autodecode.imagespecs))
        raise DataError(f"decode is {decode!r}; allowed: a function of the sample, or {allowed}") from None
    decoder: Callable[[dict[str, Any]], Any] = autodecode.Decoder([handler])
    return decoder
