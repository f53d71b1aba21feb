"""The list of the images of a folder <class>/<image>: one file, read by mmap, so that millions of names cost no memory.

    write(path, listing, ...)                  # listing: one Listed per class, in the order of the classes
    index = ImageIndex.load(root, path)
    path, label = index[number]

A sample's number is its place in the list: classes by name, in a class the files by name. The file holds for each class its names
one after the other and a table of their ends (uint32); its facts are the classes and the folders. Loading reads the facts alone.
`fingerprint` is that of the names: two folders with the same names have the same one, wherever they are mounted. Where the file
lies and when it is made again is listing.py's.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Optional

from ebb.elastic.data.sealed import DataError, seal, unseal

_KIND, _SCHEMA = "image index", 2
_MAX_NAMES_BYTES = 2**32 - 1

Folder = tuple[str, Optional[int]]  # relative to the root; time of its change in ns, None: it was changing while it was listed


@dataclass(frozen=True)
class Listed:
    """One class: its file names (relative to its folder) in order, and the folders that they are in."""

    name: str
    files: list[bytes]
    folders: list[Folder]


@dataclass
class _Table:
    """The facts about all classes; grows while the file is written."""

    classes: list[tuple[str, int, int, int]] = field(default_factory=list)  # name, images, start of the names, their bytes
    folders: list[Folder] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)


class EmptyError(DataError):
    """There is no image."""


def write(path: Path, listing: Iterable[Listed], *, root_mtime_ns: int | None, made_at: float) -> str:
    """Write the file; returns the fingerprint. Memory: one class at a time, and the names of the folders.

    Raises EmptyError.
    """
    table = _Table(folders=[("", root_mtime_ns)])
    with path.open("wb") as file:
        for listed in listing:
            _write_class(file, listed, table)
        if not any(images for _, images, _, _ in table.classes):
            raise EmptyError("no image")
        facts = {"kind": _KIND, "schema": _SCHEMA, "fingerprint": table.digest.hexdigest(), "made_at": made_at}
        seal(file, facts | {"classes": table.classes, "folders": table.folders})
    return str(facts["fingerprint"])


def _write_class(file: IO[bytes], listed: Listed, table: _Table) -> None:
    names, ends = b"".join(listed.files), array("I", [0])
    if len(names) > _MAX_NAMES_BYTES:
        raise DataError(f"the class {listed.name!r} has 4 GiB of file names: spread them over several classes")
    at = 0
    for name in listed.files:
        at += len(name)
        ends.append(at)
    content = names + ends.tobytes()
    table.digest.update(json.dumps([listed.name, len(listed.files)]).encode() + content)
    table.classes.append((listed.name, len(listed.files), file.tell(), len(names)))
    table.folders += listed.folders
    file.write(content)


class ImageIndex:
    """The images of `root`. Nothing in it is counted by reference, so forked loader processes share it for good."""

    def __init__(self, root: Path, path: Path, facts: dict[str, Any], content: mmap.mmap) -> None:
        self.root = root
        self.path = path
        self.classes: list[str] = [name for name, *_ in facts["classes"]]
        self.folders: list[Folder] = [(name, mtime) for name, mtime in facts["folders"]]
        self.fingerprint: str = facts["fingerprint"]
        self.made_at: float = facts["made_at"]
        self._blocks = [(start, start + length) for _, _, start, length in facts["classes"]]  # names, then their ends
        self._first = first_of_each(images for _, images, _, _ in facts["classes"])
        self._content = content

    @classmethod
    def load(cls, root: Path, path: Path) -> ImageIndex:
        """Raises DamagedError for a file that is torn or something else, FileNotFoundError for none."""
        facts, content = unseal(path, kind=_KIND, schema=_SCHEMA)
        return cls(root, path, facts, content)

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageIndex.load, (self.root, self.path)  # for loader processes that are not forked; the file never changes

    def __len__(self) -> int:
        return self._first[-1]

    def __getitem__(self, number: int) -> tuple[Path, int]:
        """The path and the label of a sample."""
        label = label_of(number, self._first)
        return self.root / self.classes[label] / os.fsdecode(self._name(label, number - self._first[label])), label

    @property
    def images_per_class(self) -> list[int]:
        return [stop - start for start, stop in zip(self._first, self._first[1:], strict=False)]

    def listed(self, label: int, folders: list[Folder]) -> Listed:
        """A class as it was listed."""
        files = [self._name(label, place) for place in range(self._first[label + 1] - self._first[label])]
        return Listed(self.classes[label], files, folders)

    def _name(self, label: int, place: int) -> bytes:
        names, ends = self._blocks[label]
        start, stop = struct.unpack_from("<II", self._content, ends + 4 * place)
        return self._content[names + start : names + stop]


def first_of_each(images: Iterable[int]) -> list[int]:
    """The number of the first sample of each class, and of the one after the last."""
    first = [0]
    for count in images:
        first.append(first[-1] + count)
    return first


def label_of(number: int, first: list[int]) -> int:
    """The class of a sample."""
    if not 0 <= number < first[-1]:
        raise IndexError(f"sample {number} of {first[-1]}")
    return bisect_right(first, number) - 1
