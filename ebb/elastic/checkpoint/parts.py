"""A checkpoint in parts: every rank of a sharded model writes the rows that it holds, and any number of ranks reads them.

    head, rows = split(state)          # the rest, with a note in the place of each sharded tensor; the rows of this rank
    folder.write_part(dump_rows(rows), ...)
    read(head, paths, like)            # the state again: of each tensor the rows that `like` has here, or all

A part is a file of safetensors, whose metadata has the number of each tensor's first row. It is written from the very memory of
the rows, and read row by row into memory that stays: so a rank needs memory for its own part, however many there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import torch

from ebb.elastic.checkpoint.errors import RefusedError
from ebb.elastic.checkpoint.files import HashingFile
from ebb.elastic.checkpoint.folder import Dump
from ebb.elastic.checkpoint.sharded import DTensor, Like, local, rows_of, wrap_like
from ebb.elastic.checkpoint.snapshot import Path, replace_with_path
from ebb.elastic.checkpoint.tensor_file import TensorFile, TensorForm, in_known_form, write

_NOTE = "ebb.elastic.rows"  # the key by which a dict is known as a note of a tensor whose rows are in the parts


_FIRST_ROWS = "ebb.elastic.first_rows"  # in a part's metadata: by tensor


class Rows(NamedTuple):
    """Those of one tensor in one part."""

    start: int
    stop: int
    file: TensorFile


def split(state: Any) -> tuple[Any, dict[str, list[Any]]]:
    """References to the live tensors; of each the first row that this rank has, and its rows."""
    rows: dict[str, list[Any]] = {}

    def note(path: Path, tensor: torch.Tensor) -> Any:
        if not isinstance(tensor, DTensor):
            return tensor
        name = json.dumps(path)
        rows[name] = [rows_of(tensor)[0], local(tensor)]
        return {_NOTE: name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}

    return replace_with_path(state, note), rows


def dump_rows(rows: Mapping[str, Sequence[Any]]) -> Dump:
    """Tensor by tensor: no second copy of a part is made for the file."""
    held = {name: in_known_form(tensor) for name, (_, tensor) in rows.items()}
    first = json.dumps({name: start for name, (start, _) in rows.items()})

    def dump(file: HashingFile) -> None:
        forms = {name: TensorForm.of(each) for name, each in held.items()}
        write(file, forms, held.values(), {_FIRST_ROWS: first})

    return dump


def is_note(value: Any) -> bool:
    return isinstance(value, dict) and _NOTE in value


def read(head: Any, paths: Sequence[str], like: Like) -> Any:
    """The head's tree with tensors in memory of their own: parts of a DTensor where `like` has one, whole ones elsewhere.

    Raises RefusedError where rows are missing.
    """
    return _fill(head, (), open_parts(paths), like)


def _fill(value: Any, path: Path, parts: dict[str, list[Rows]], like: Like) -> Any:
    if is_note(value):
        target = like(path)
        start, stop = rows_of(target) if isinstance(target, DTensor) else (0, value["shape"][0])
        found = assemble(value, parts, start, stop)
        return wrap_like(found.to(local(target).device), target) if isinstance(target, DTensor) else found
    if isinstance(value, dict):
        for key, each in value.items():
            value[key] = _fill(each, (*path, key), parts, like)  # a Counter or an OrderedDict stays one
        return value
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_fill(each, (*path, number), parts, like) for number, each in enumerate(value))
    return value


def open_parts(paths: Sequence[str]) -> dict[str, list[Rows]]:
    """By tensor; nothing but the headers is read yet. Raises RefusedError."""
    found: dict[str, list[Rows]] = {}
    for path in paths:
        file = TensorFile(FilePath(path))
        for name, start in json.loads(file.metadata.get(_FIRST_ROWS, "{}")).items():
            found.setdefault(name, []).append(Rows(start, start + file.shapes[name][0], file))
    return found


def assemble(note: dict[str, Any], parts: dict[str, list[Rows]], start: int, stop: int) -> torch.Tensor:
    """The rows of one tensor. Raises RefusedError."""
    name, shape = note[_NOTE], note["shape"]
    found = torch.empty((stop - start, *shape[1:]), dtype=getattr(torch, note["dtype"]))
    missing = stop - start
    for rows in parts.get(name, []):
        first, last = max(start, rows.start), min(stop, rows.stop)
        if first < last:
            rows.file.read(name, first - rows.start, into=in_known_form(found[first - start : last - start]))
            missing -= last - first
    if missing:
        raise RefusedError(f"the parts of the checkpoint lack {missing} of the rows {start} to {stop} of {name}")
    return found
