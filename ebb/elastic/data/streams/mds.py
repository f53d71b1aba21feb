"""MosaicML's MDS shards: index.json says how many samples each has, and each says where they begin.

    train = elastic.mds("s3://bucket/c4/train", transform=lambda sample: sample["tokens"])

The package mosaicml-streaming is not needed, and its own StreamingDataset is not used: that one can only be read in an order that
it makes, with a state and shared memory of its own for a fixed number of ranks; and the package asks for a numpy below 2.2, a
transformers below 5 and four clouds' SDKs, beside which much of what people train with cannot be installed. The format is small;
tests write it with the package.
"""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from ebb.compat import zip
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.streams.cache import Cache
from ebb.elastic.data.streams.remote import is_remote, read
from ebb.elastic.data.streams.sharded import ReadSample, Sharded, Transform, mapped, open_file

_VERSION = 2
_NUMBERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
# of an array: the first byte of one whose type is not in the column's name
_TYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
          64: "uint64", 65: "int64", 66: "float64"}  # fmt: skip
_DIMENSIONS = ("uint8", "uint16", "uint32", "uint64")


def mds(
    folder: str | os.PathLike[str],
    *,
    transform: Transform = None,
    allow_pickle: bool = False,
    cache: str | os.PathLike[str] | None = None,
    cache_gib: float | None = None,
    storage: dict[str, Any] | None = None,
) -> Sharded:
    """The samples of a folder with an index.json, each a dict by the columns' names.

    `transform`: a function of that. `allow_pickle`: columns of pickles are read, which run code of whoever wrote them. `cache`: a
    folder of this machine for copies of shards that lie in a store or are compressed, of `cache_gib` at most. `storage`: options
    of fsspec. Raises DataError.
    """
    root = os.fspath(folder).rstrip("/").removeprefix("file://")
    shards = _index(f"{root}/index.json", storage or {})
    for each in shards:
        _check(each, f"{root}/index.json", allow_pickle)
    return _Mds(root, shards, Cache.of(cache, cache_gib), storage or {}, transform)


def _index(url: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        facts = json.loads(read(url, options))
        version, shards = facts["version"], list(facts["shards"])
    except OSError as error:
        raise DataError(f"cannot read {url}: {error.strerror}. It lies beside the shards, where MDSWriter has put it") from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{url} is damaged: {error!r}. Copy it again from where it was made") from None
    if version != _VERSION:
        raise DataError(f"{url} is of version {version!r}; allowed: {_VERSION}. Write the shards again with mosaicml-streaming")
    return shards


def _check(shard: dict[str, Any], url: str, allow_pickle: bool) -> None:
    if shard["format"] != "mds":
        raise DataError(f"{url} lists shards of the format {shard['format']!r}; allowed: mds. Write them with MDSWriter")
    for name, encoding in zip(shard["column_names"], shard["column_encodings"], strict=True):
        kind = encoding.partition(":")[0]
        if kind == "pkl" and not allow_pickle:
            raise DataError(
                f"the column {name} of {url} holds pickles, which run code of whoever wrote them: if you trust them, say "
                "allow_pickle=True"
            )
        if kind not in _DECODERS:
            raise DataError(
                f"the column {name} of {url} is of the encoding {encoding!r}; allowed: {', '.join(sorted(_DECODERS))}. Write it "
                "as bytes, and decode it in transform="
            )


class _Mds(Sharded):
    def __init__(
        self, root: str, shards: list[dict[str, Any]], cache: Cache, options: dict[str, Any], transform: Transform
    ) -> None:
        names = [f"{root}/{each['raw_data']['basename']}" for each in shards]
        super().__init__(names, [int(each["samples"]) for each in shards], kind="mds", transform=transform)
        self._root, self._shards, self._cache, self._options = root, shards, cache, options

    def open_shard(self, shard: int) -> ReadSample:
        facts = self._shards[shard]
        raw, packed = facts["raw_data"], facts.get("zip_data")
        url, compression = f"{self._root}/{raw['basename']}", ""
        if packed and (is_remote(self._root) or not Path(url).exists()):
            url, compression = f"{self._root}/{packed['basename']}", facts["compression"].partition(":")[0]
        with open_file(url, self._cache, self._options, compression=compression) as file:
            content = mapped(file, url)
        samples = int(facts["samples"])
        if len(content) != int(raw["bytes"]):
            raise DataError(f"{url} has {len(content)} bytes, and the index says {raw['bytes']}: it is damaged. Copy it again")
        count, *starts = struct.unpack_from(f"<{samples + 2}I", content)
        if count != samples:
            raise DataError(f"{url} holds {count} samples, and the index says {samples}: they are of two writings")
        columns = list(zip(facts["column_names"], facts["column_encodings"], facts["column_sizes"], strict=True))
        return lambda place: _decoded(content[starts[place] : starts[place + 1]], columns)


def _decoded(content: bytes, columns: list[tuple[str, str, int | None]]) -> dict[str, Any]:
    """The columns' sizes, of those that differ between samples; then their values."""
    differ = [number for number, (_, _, size) in enumerate(columns) if not size]
    sizes = [size or 0 for _, _, size in columns]
    for number, size in zip(differ, struct.unpack_from(f"<{len(differ)}I", content), strict=True):
        sizes[number] = size
    at, sample = 4 * len(differ), {}
    for (name, encoding, _), size in zip(columns, sizes, strict=True):
        kind, _, more = encoding.partition(":")
        sample[name] = _DECODERS[kind](content[at : at + size], more)
        at += size
    return sample


def _array(content: bytes, more: str) -> Any:
    """`more`: the type, or the type and the shape, where they are those of all samples."""
    kind, _, text = more.partition(":")
    at = 0
    if not kind:
        kind, at = _TYPES[content[0]], 1
    if text:
        shape = [int(each) for each in text.split(",")]
    else:
        dimensions, width = content[at] >> 2, content[at] % 4
        shape = numpy.frombuffer(content, _DIMENSIONS[width], dimensions, at + 1).tolist()
        at += 1 + dimensions * 2**width
    return numpy.frombuffer(content, kind, offset=at).reshape(shape).copy()  # one's own: torch wants memory that may change


def _image(content: bytes, _: str = "") -> Any:
    from PIL import Image  # noqa: PLC0415  # only where images are

    image = Image.open(io.BytesIO(content))
    image.load()
    return image


def _raw_image(content: bytes, _: str) -> Any:
    from PIL import Image  # noqa: PLC0415

    width, height, length = struct.unpack_from("<3I", content)
    mode = content[12 : 12 + length].decode()
    return Image.frombytes(mode, (width, height), content[12 + length :])


def _unpickled(content: bytes, _: str) -> Any:
    import pickle  # noqa: PLC0415

    return pickle.loads(content)  # noqa: S301 - where allow_pickle was said


def _number(kind: str) -> Callable[[bytes, str], Any]:
    return lambda content, _: numpy.frombuffer(content, kind)[0]


_DECODERS: dict[str, Callable[[bytes, str], Any]] = {
    "bytes": lambda content, _: content,
    "str": lambda content, _: content.decode(),
    "int": lambda content, _: int.from_bytes(content, "little", signed=True),
    "str_int": lambda content, _: int(content),
    "str_float": lambda content, _: float(content),
    "json": lambda content, _: json.loads(content),
    "ndarray": _array,
    "jpeg": _image,
    "png": _image,
    "pil": _raw_image,
    "pkl": _unpickled,
    **{kind: _number(kind) for kind in _NUMBERS},
}
