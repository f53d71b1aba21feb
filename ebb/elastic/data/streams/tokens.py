"""Text as rows of tokens: shards of our own, which `python -m ebb.elastic.data tokenise` makes (data/tokenise.py).

    train = elastic.tokens("/mnt/data/c4-2048")            # {"input_ids": int64 (2048,), "labels": the same}

A row holds `length` tokens of texts that follow each other, each with the end token after it. Only the last row of a shard may be
padded, with end tokens whose labels are -100, which torch's cross_entropy leaves out. tokens.json is written last and says that
all shards are there. A shard's rows come one after the other, two or four bytes a token: any row is reached by its number.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy
import torch

from ebb.compat import dataclass
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.streams.cache import Cache
from ebb.elastic.data.streams.remote import read
from ebb.elastic.data.streams.sharded import ReadSample, Sharded, Transform, mapped, open_file

MANIFEST = "tokens.json"
SCHEMA = 1
IGNORED = -100  # the label of padding: cross_entropy's default


def tokens(
    folder: str | os.PathLike[str],
    *,
    transform: Transform = None,
    cache: str | os.PathLike[str] | None = None,
    cache_gib: float | None = None,
    storage: dict[str, Any] | None = None,
) -> Sharded:
    """The rows of a folder that `tokenise` has made, here or in a store.

    `transform`: a function of {"input_ids", "labels"}. `cache`: a folder of this machine for copies of shards in a store, of
    `cache_gib` at most. `storage`: options of fsspec. Raises DataError.
    """
    root = os.fspath(folder).rstrip("/").removeprefix("file://")
    return _Tokens(root, read_manifest(root, storage), Cache.of(cache, cache_gib), storage or {}, transform)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """`shards`: of each the rows, the padding tokens of the last one, the bytes of the file and the sha256 of its rows."""

    fingerprint: str  # of the texts, the tokenizer and the length
    length: int
    token_bytes: int  # two or four
    vocabulary: int
    end: int  # the token that ends a text
    shards: list[tuple[int, int, int, str]]

    @property
    def tokens(self) -> int:
        """Without padding."""
        return sum(rows * self.length - padding for rows, padding, _, _ in self.shards)


def shard_name(number: int) -> str:
    return f"{number:06}.tokens"


def read_manifest(root: str, options: dict[str, Any] | None = None) -> Manifest:
    """Raises DataError."""
    url = f"{root}/{MANIFEST}"
    try:
        facts = json.loads(read(url, options))
        if facts.pop("schema") != SCHEMA:
            raise ValueError("another version")
        return Manifest(**{**facts, "shards": [tuple(each) for each in facts["shards"]]})
    except OSError as error:
        raise DataError(
            f"cannot read {url}: {error.strerror}. `python -m ebb.elastic.data tokenise {root} TEXTS --tokenizer FILE` makes it; "
            "one that was killed is taken up again"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{url} is damaged, or of another version of this program: remove it and run tokenise again") from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    temporary = folder / f".tmp-{MANIFEST}"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"schema": SCHEMA, **vars(manifest)}, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / MANIFEST)


class _Tokens(Sharded):
    def __init__(self, root: str, manifest: Manifest, cache: Cache, options: dict[str, Any], transform: Transform) -> None:
        self.manifest = manifest
        self._urls = [f"{root}/{shard_name(number)}" for number in range(len(manifest.shards))]
        super().__init__(self._urls, [rows for rows, *_ in manifest.shards], kind="tokens", transform=transform)
        self.fingerprint = manifest.fingerprint
        self._cache, self._options = cache, options

    def open_shard(self, shard: int) -> ReadSample:
        url, (rows, padding, size, _) = self._urls[shard], self.manifest.shards[shard]
        with open_file(url, self._cache, self._options) as file:
            content = mapped(file, url)
        if len(content) != size:
            raise DataError(f"{url} has {len(content)} bytes, and {MANIFEST} says {size}: remove it and run tokenise again")
        length, kind = self.manifest.length, f"<u{self.manifest.token_bytes}"

        def read_row(row: int) -> dict[str, torch.Tensor]:
            found = numpy.frombuffer(content, kind, length, row * length * self.manifest.token_bytes)
            input_ids = torch.from_numpy(found.astype(numpy.int64))
            labels = input_ids.clone()
            if padding and row == rows - 1:
                labels[length - padding :] = IGNORED
            return {"input_ids": input_ids, "labels": labels}

        return read_row
