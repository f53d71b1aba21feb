"""Shards of each format, written by the libraries that are used for it; a sample's number is in its content."""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import webdataset

FORMATS = ("webdataset", "mds", "parquet")
# A length for each shard that a WebDataset or a row group has; MDS's writer makes them by bytes.
SIZES = (7, 12, 3, 9, 1, 11, 5)


def tars(folder: Path, sizes: tuple[int, ...] = SIZES, suffix: str = "") -> str:
    """Returns the pattern by which they are opened."""
    number = 0
    for shard, size in enumerate(sizes):
        with webdataset.TarWriter(str(folder / f"{shard:03}.tar{suffix}")) as writer:
            for _ in range(size):
                writer.write({"__key__": f"sample{number:04}", "cls": number, "txt": f"text {number}"})
                number += 1
    return f"{folder}/{{000..{len(sizes) - 1:03}}}.tar{suffix}"


def mds(folder: Path, count: int = sum(SIZES), compression: str | None = None, **columns: str) -> Path:
    writer = _mds_writer()
    with writer(out=str(folder), columns={"id": "int", "text": "str", **columns}, compression=compression, size_limit=500) as out:
        for number in range(count):
            more = {"tokens": numpy.arange(number % 3 + 1, dtype=numpy.uint16)} if columns else {}
            out.write({"id": number, "text": f"text {number}", **more})
    return folder


def parquet(folder: Path, count: int = sum(SIZES), rows: int = 6, files: int = 2) -> str:
    """`rows` in a group."""
    for file in range(files):
        numbers = list(range(file * count // files, (file + 1) * count // files))
        table = pyarrow.table(
            {"id": numbers, "text": [f"text {number}" for number in numbers], "tokens": [[number, 1] for number in numbers]}
        )
        pyarrow.parquet.write_table(table, folder / f"{file}.parquet", row_group_size=rows)
    return f"{folder}/*.parquet"


def _mds_writer() -> Any:
    """MosaicML's writer, without the rest of its package, which asks for much that is not installed."""
    name = "streaming.base.format.mds.writer"
    if name not in sys.modules:
        found = importlib.util.find_spec("streaming")
        assert found is not None
        assert found.submodule_search_locations is not None
        root = Path(found.submodule_search_locations[0])
        for package in ("streaming", "streaming.base", "streaming.base.format", "streaming.base.format.mds"):
            module = types.ModuleType(package)
            module.__path__ = [str(root.joinpath(*package.split(".")[1:]))]
            sys.modules[package] = module
    return importlib.import_module(name).MDSWriter
