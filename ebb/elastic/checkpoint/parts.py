"""A checkpoint in parts: every rank of a sharded model writes the rows that it holds, and any number of ranks reads them.

    head, rows = split(state)          # the rest, with a note in the place of each sharded tensor; the rows of this rank
    read(head, paths, like)            # the state again: of each tensor the rows that `like` has here, or all

A part is a file of torch's: {"rows": {"path of the tensor": [first row, rows]}}. It is mapped into memory, and of its pages those
alone are read that hold the rows that are asked for: so a rank needs memory for its own part, however many there are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import torch

from ebb.elastic.checkpoint.errors import RefusedError
from ebb.elastic.checkpoint.sharded import DTensor, Like, local, rows_of, wrap_like
from ebb.elastic.checkpoint.snapshot import Path, replace_with_path

_NOTE = "ebb.elastic.rows"  # the key by which a dict is known as a note of a tensor whose rows are in the parts


class Rows(NamedTuple):
    start: int
    numbers: torch.Tensor


def split(state: Any) -> tuple[Any, dict[str, list[Any]]]:
    """References to the live tensors."""
    rows: dict[str, list[Any]] = {}

    def note(path: Path, tensor: torch.Tensor) -> Any:
        if not isinstance(tensor, DTensor):
            return tensor
        name = json.dumps(path)
        rows[name] = [rows_of(tensor)[0], local(tensor)]
        return {_NOTE: name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}

    return replace_with_path(state, note), rows


def is_note(value: Any) -> bool:
    return isinstance(value, dict) and _NOTE in value


def read(head: Any, paths: Sequence[str], like: Like) -> Any:
    """The head's tree with tensors in memory of their own: parts of a DTensor where `like` has one, whole ones elsewhere.

    Raises RefusedError where rows are missing.
    """
    parts = open_parts(paths)

    def fill(value: Any, path: Path) -> Any:
        if is_note(value):
            target = like(path)
            start, stop = rows_of(target) if isinstance(target, DTensor) else (0, value["shape"][0])
            found = assemble(value, parts, start, stop)
            return wrap_like(found.to(local(target).device), target) if isinstance(target, DTensor) else found
        if isinstance(value, dict):
            for key, each in value.items():
                value[key] = fill(each, (*path, key))  # a Counter or an OrderedDict stays one
            return value
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(fill(each, (*path, number)) for number, each in enumerate(value))
        return value

    return fill(head, ())


def open_parts(paths: Sequence[str]) -> dict[str, list[Rows]]:
    """By tensor; nothing of them is read yet."""
    found: dict[str, list[Rows]] = {}
    for path in paths:
        content = torch.load(FilePath(path), map_location="cpu", weights_only=True, mmap=True)
        for name, (start, numbers) in content["rows"].items():
            found.setdefault(name, []).append(Rows(start, numbers))
    return found


def assemble(note: dict[str, Any], parts: dict[str, list[Rows]], start: int, stop: int) -> torch.Tensor:
    """The rows of one tensor. Raises RefusedError."""
    name, shape = note[_NOTE], note["shape"]
    found = torch.empty((stop - start, *shape[1:]), dtype=getattr(torch, note["dtype"]))
    missing = stop - start
    for rows in parts.get(name, []):
        first, last = max(start, rows.start), min(stop, rows.start + len(rows.numbers))
        if first < last:
            found[first - start : last - start] = rows.numbers[first - rows.start : last - rows.start]
            missing -= last - first
    if missing:
        raise RefusedError(f"the parts of the checkpoint lack {missing} of the rows {start} to {stop} of {name}")
    return found
