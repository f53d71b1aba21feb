"""Decompress a shard onto the disk: a sample of a compressed file cannot be reached without all that comes before it."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ebb.elastic.data.sealed import DataError

SUFFIXES = {".gz": "gz", ".tgz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}


def by_suffix(url: str) -> str:
    """The compression that a file's name says, or nothing."""
    return next((name for suffix, name in SUFFIXES.items() if url.lower().endswith(suffix)), "")


def decompress(name: str, source: Path, target: Path, *, shard: str) -> None:
    """`name`: gz, bz2, xz, zstd, br or snappy; `shard`: what errors call it. Raises DataError."""
    opener = _OPENERS.get(name)
    if opener is None:
        raise DataError(f"{shard} is compressed by {name!r}; allowed: {', '.join(sorted(_OPENERS))}. Write it in one of them")
    try:
        with opener(source) as content, target.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
    except ImportError as error:
        raise DataError(f"{shard} is compressed by {name}, which needs the package {error.name}: install it") from None
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile) or error.errno is None:  # of bz2
            raise _damaged(shard, error) from None
        raise
    except Exception as error:  # each library has errors of its own
        raise _damaged(shard, error) from None


def _damaged(shard: str, error: Exception) -> DataError:
    return DataError(f"{shard} is damaged: {error}. Copy it again from where it was made")


def _zstd(source: Path) -> Any:
    try:
        import zstandard  # noqa: PLC0415  # only where shards are compressed by it
    except ImportError:
        return _whole("zstd", source)
    return zstandard.ZstdDecompressor().stream_reader(source.open("rb"), closefd=True)


def _whole(library: str, source: Path) -> IO[bytes]:
    return io.BytesIO(importlib.import_module(library).decompress(source.read_bytes()))


_OPENERS: dict[str, Callable[[Path], Any]] = {
    "gz": gzip.GzipFile,
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zstd": _zstd,
    "br": lambda path: _whole("brotli", path),
    "snappy": lambda path: _whole("snappy", path),
}
