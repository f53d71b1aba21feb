"""Parquet files, of Hugging Face's hub or any other: the shards are their row groups.

    train = elastic.parquet("hf://datasets/HuggingFaceFW/fineweb/sample/10BT/*.parquet", columns=["text"])

A row group is what parquet compresses as one, so no row is reached without it. It is read once per machine (of a file in a store
by ranges, and only the columns that are asked for), and laid down in the cache as an Arrow file, in which all processes find a
row without reading it as a whole. Footers say how many rows there are; they are read once (sharded.Counting).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ebb.compat import zip
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.streams.cache import Cache
from ebb.elastic.data.streams.remote import Urls, expand, is_remote, with_file
from ebb.elastic.data.streams.sharded import Counting, ReadSample, Sharded, Transform


def parquet(
    urls: Urls,
    *,
    columns: Sequence[str] | None = None,
    transform: Transform = None,
    cache: str | os.PathLike[str] | None = None,
    cache_gib: float | None = None,
    index: str | os.PathLike[str] | None = None,
    storage: dict[str, Any] | None = None,
) -> Sharded:
    """The rows of parquet files, each a dict by the columns' names; lists of numbers are numpy arrays.

    `columns`: those that are read, all by default. `transform`: a function of the dict. `cache`: a folder of this machine for the
    row groups that are under way, of `cache_gib` at most. `index`: the file that keeps how many rows there are, where it is not
    to lie beside the data. `storage`: options of fsspec. Raises DataError.
    """
    arrow()
    options = storage or {}
    files = expand(urls, options)
    copies = Cache.of(cache, cache_gib)
    kept_in = None if index is None else Path(index)
    rows = Counting(kind="parquet", count=lambda url: _rows(url, options), cache=copies, kept_in=kept_in).of(files)
    named = None if columns is None else list(columns)
    return _Parquet(files, rows, copies, options, columns=named, transform=transform)


def arrow() -> tuple[Any, Any]:
    """pyarrow and its parquet. Raises DataError."""
    try:
        import pyarrow  # noqa: PLC0415  # only where there is parquet
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise DataError("parquet files need the package pyarrow: pip install pyarrow (datasets brings it)") from None
    return pyarrow, pyarrow.parquet


def _rows(url: str, options: dict[str, Any]) -> list[int]:
    """Of each row group."""
    pyarrow, parquet = arrow()
    try:
        facts = with_file(url, parquet.read_metadata, options)
    except pyarrow.ArrowException as error:
        raise DataError(f"{url} is damaged, or not parquet: {error}. Copy it again from where it was made") from None
    return [facts.row_group(number).num_rows for number in range(facts.num_row_groups)]


class _Parquet(Sharded):
    def __init__(
        self,
        files: list[str],
        rows: list[list[int]],
        cache: Cache,
        options: dict[str, Any],
        *,
        columns: list[str] | None,
        transform: Transform,
    ) -> None:
        self._groups = [(url, number) for url, counts in zip(files, rows, strict=True) for number in range(len(counts))]
        names = [f"{url}/{number}" for url, number in self._groups]
        super().__init__(names, list(chain(*rows)), kind="parquet", transform=transform)
        self._cache, self._options, self._columns = cache, options, columns

    def open_shard(self, shard: int) -> ReadSample:
        url, group = self._groups[shard]
        pyarrow, _ = arrow()
        stamp = "" if is_remote(url) else Path(url).stat().st_mtime_ns
        key = f"{url} row group {group} {self._columns} {stamp}"
        with self._cache.open(key, lambda path: self._lay_down(url, group, path)) as file:
            table = pyarrow.ipc.open_file(pyarrow.memory_map(f"/dev/fd/{file.fileno()}")).read_all()
        if table.num_rows != self.shard_sizes[shard]:
            raise DataError(
                f"row group {group} of {url} has {table.num_rows} rows, and {self.shard_sizes[shard]} were counted: it has "
                "changed. Put the old file back, or begin a new job"
            )
        return lambda row: {name: _value(column[row], pyarrow) for name, column in zip(table.column_names, table.columns)}

    def _lay_down(self, url: str, group: int, path: Path) -> None:
        pyarrow, parquet = arrow()

        def read(file: Any) -> Any:
            opened = parquet.ParquetFile(file)
            unknown = sorted(set(self._columns or ()) - set(opened.schema_arrow.names))
            if unknown:
                raise DataError(f"{url} has no column {unknown[0]!r}; allowed: {', '.join(opened.schema_arrow.names)}")
            return opened.read_row_group(group, columns=self._columns, use_threads=False)

        try:
            table = with_file(url, read, self._options)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"cannot read row group {group} of {url}: {error}. Copy it again from where it was made") from None
        with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


def _value(scalar: Any, pyarrow: Any) -> Any:
    kind = scalar.type
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_fixed_size_list(kind):
        inner = kind.value_type
        numbers = pyarrow.types.is_integer(inner) or pyarrow.types.is_floating(inner)
        if numbers and scalar.is_valid and not scalar.values.null_count:
            return scalar.values.to_numpy(zero_copy_only=False).copy()  # torch wants memory that may change
    return scalar.as_py()
