"""Images that were decoded once: a folder of shards that are read by mmap, each image a run of bytes.

    source = Shards(folder)
    image, label = source.read(number)

Decoding a JPEG costs more than everything else that the input path does. A shard holds the images [first, first + n) of the
image folder it was made from, so numbers, labels and order are those of that folder. An image is kept whole, pixel by pixel, its
shorter side `size` pixels at most: what is cropped from it at random is cropped when it is read. convert.py makes the shards;
`shards.json` is written last and says that all are there.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch

from ebb.elastic.data.index import first_of_each, label_of
from ebb.elastic.data.node_cache import CachedShard, NodeCache
from ebb.elastic.data.sealed import DataError, seal, unseal

MANIFEST = "shards.json"
_KIND, _SCHEMA = "image shard", 1
_ENTRY = struct.Struct("<QII")  # start, height, width


class Layout(NamedTuple):
    """The distribution of one folder's images over shards."""

    fingerprint: str  # of the image folder
    size: int
    samples: int

    @property
    def per_shard(self) -> int:
        """About a GiB of photographs, 3 bytes a pixel and sides as 4 to 3; and at least 16 shards, to be made side by side."""
        return max(1, min(2**30 // (4 * self.size**2), -(-self.samples // 16)))

    @property
    def shards(self) -> int:
        return -(-self.samples // self.per_shard)

    def numbers(self, shard: int) -> range:
        return range(shard * self.per_shard, min((shard + 1) * self.per_shard, self.samples))


def shard_name(shard: int) -> str:
    return f"{shard:06}.shard"


def write_shard(path: Path, layout: Layout, shard: int, images: Iterable[torch.Tensor]) -> None:
    """Write it under a temporary name, see it on the disk, then give it its own. `images` are uint8 (3, height, width)."""
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        with temporary.open("wb") as file:
            table, digest = _write_images(file, images)
            seal(file, _facts(layout, shard) | {"table": table, "sha256": digest})
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_images(file: IO[bytes], images: Iterable[torch.Tensor]) -> tuple[int, str]:
    """Returns where the table of images is, and the checksum of all."""
    digest, table, at = hashlib.sha256(), bytearray(), 0
    for image in images:
        content = image.permute(1, 2, 0).contiguous().numpy().data.cast("B")
        digest.update(content)
        file.write(content)
        table += _ENTRY.pack(at, *image.shape[1:])
        at += len(content)
    digest.update(table)
    file.write(table)
    return at, digest.hexdigest()


def shard_facts(path: Path, layout: Layout, shard: int) -> dict[str, Any]:
    """Read a shard's description of itself. Raises DataError when it is of other images, DamagedError, FileNotFoundError."""
    facts, _ = unseal(path, kind=_KIND, schema=_SCHEMA)
    if facts | _facts(layout, shard) != facts:
        raise DataError(
            f"{path} was made from other images, or for another --size ({facts['size']}): name another folder, or remove that one"
        )
    return facts


def _facts(layout: Layout, shard: int) -> dict[str, Any]:
    numbers = layout.numbers(shard)
    whole = {"fingerprint": layout.fingerprint, "size": layout.size, "of": layout.samples}
    return {"kind": _KIND, "schema": _SCHEMA, **whole, "first": numbers.start, "samples": len(numbers)}


def checksum(path: Path) -> bool:
    """True if a shard's bytes are those that were written. Reads all of it."""
    facts, content = unseal(path, kind=_KIND, schema=_SCHEMA)
    end = facts["table"] + _ENTRY.size * facts["samples"]
    digest = hashlib.sha256()
    for start in range(0, end, 2**24):
        digest.update(content[start : min(start + 2**24, end)])
    return bool(digest.hexdigest() == facts["sha256"])


def write_manifest(folder: Path, layout: Layout, classes: list[tuple[str, int]]) -> None:
    """Say that all shards are there. `classes`: names, each with its number of images."""
    shards = [shard_facts(folder / shard_name(shard), layout, shard)["sha256"] for shard in range(layout.shards)]
    facts = {"schema": _SCHEMA, **layout._asdict(), "classes": classes, "sha256": shards}
    temporary = folder / f".tmp-{MANIFEST}"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps(facts, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / MANIFEST)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Raises DataError for one that cannot be used, FileNotFoundError for none."""
    path = folder / MANIFEST
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = facts["schema"] == _SCHEMA
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise DataError(f"{path} is damaged, or of another version of this program: remove it and convert the images again")
    return facts


class Shards:
    """A Source of decoded images. Loader processes, forked or not, may share one. `cache`: for volumes that are slower than the
    machine's own disk."""

    def __init__(self, folder: Path, cache: NodeCache | None = None) -> None:
        facts = read_manifest(folder)
        self.folder, self.cache = folder, cache
        self.classes: list[str] = [name for name, _ in facts["classes"]]
        self.layout = Layout(facts["fingerprint"], facts["size"], facts["samples"])
        self.fingerprint = self.layout.fingerprint
        self._first = first_of_each(count for _, count in facts["classes"])
        self._open: dict[int, tuple[mmap.mmap, int, CachedShard | None]] = {}  # content, start of its table, copy

    @staticmethod
    def are_in(folder: Path) -> bool:
        return (folder / MANIFEST).exists()

    def __reduce__(self) -> tuple[Any, ...]:
        return Shards, (self.folder, self.cache)

    def __len__(self) -> int:
        return self.layout.samples

    def read(self, number: int) -> tuple[torch.Tensor, int]:
        """Raises DataError when its shard is not what it should be."""
        label = label_of(number, self._first)
        shard, place = divmod(number, self.layout.per_shard)
        content, table, copy = self._open.get(shard) or self._opened(shard)
        start, height, width = _ENTRY.unpack_from(content, table + _ENTRY.size * place)
        length = 3 * height * width
        found = copy.get(place, start, length) if copy else None
        if found is None:
            _read_ahead(content, start, length)
            if copy:
                found = copy.put(place, start, content[start : start + length])
        pixels = (
            torch.frombuffer(content, dtype=torch.uint8, count=length, offset=start)
            if found is None
            else torch.frombuffer(found, dtype=torch.uint8)
        )
        return pixels.view(height, width, 3).permute(2, 0, 1), label

    def _opened(self, shard: int) -> tuple[mmap.mmap, int, CachedShard | None]:
        path = self.folder / shard_name(shard)
        shard_facts(path, self.layout, shard)
        # a private mapping: torch wants memory that may be written to
        facts, content = unseal(path, kind=_KIND, schema=_SCHEMA, access=mmap.ACCESS_COPY)
        copy = self.cache.open(facts["sha256"], facts["table"], facts["samples"]) if self.cache else None
        self._open[shard] = content, facts["table"], copy
        return self._open[shard]


def _read_ahead(content: mmap.mmap, start: int, length: int) -> None:
    """One request for the whole image: page by page it would be many."""
    aligned = start - start % mmap.PAGESIZE
    content.madvise(mmap.MADV_WILLNEED, aligned, start + length - aligned)
