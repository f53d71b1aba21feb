"""Tensors in one file, in the format of safetensors, written and read one after the other: no more than one is in memory.

    write(file, {"w": TensorForm.of(tensor)}, [tensor])        # file.write(bytes-like); the header first, so forms come first
    TensorFile(path).read("w", 2, into=rows)                   # from row 2 on, into memory that is there already

The format (https://github.com/huggingface/safetensors#format): the length of a JSON header in eight bytes, the header, and the
numbers of all tensors. Nothing is mapped: pages of a mapped file would count as this process's memory for as long as it lives.
"""

from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from ebb.compat import Self
from ebb.elastic.checkpoint.errors import RefusedError

_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
_ALIGNED = 8  # the header's length, as the library has it
_LONGEST_HEADER = 100 * 2**20  # as the library has it
_METADATA = "__metadata__"


class TensorForm(NamedTuple):
    """The part of a tensor that the header has."""

    shape: list[int]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Self:
        return cls(list(tensor.shape), tensor.dtype)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Writable(Protocol):
    def write(self, content: memoryview) -> Any: ...


def write(
    file: Writable, forms: Mapping[str, TensorForm], tensors: Iterable[torch.Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """`tensors` are of these forms, in the same order; each is let go before the next one is asked for. Raises RefusedError."""
    facts: dict[str, Any] = {_METADATA: {"format": "pt", **(metadata or {})}}
    end = 0
    for name, form in forms.items():
        if form.dtype not in _NAMES:
            raise RefusedError(f"{name} is of {form.dtype}, which safetensors does not have")
        facts[name] = {"dtype": _NAMES[form.dtype], "shape": form.shape, "data_offsets": [end, end + form.nbytes]}
        end += form.nbytes
    header = json.dumps(facts, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNED)
    file.write(memoryview(len(header).to_bytes(8, "little") + header))
    for each in tensors:
        if each.numel():
            file.write(_content(each.detach().cpu().contiguous()))


def in_known_form(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory; as bytes where the format has no name for the numbers. It has at least one dimension."""
    return tensor if tensor.dtype in _NAMES else tensor.view(torch.uint8)


class TensorFile:
    """One that is read. It is open as long as this lives."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and RefusedError for a file of another format."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        length = int.from_bytes(os.pread(self._descriptor, 8, 0), "little")
        try:
            if length > _LONGEST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            facts = json.loads(os.pread(self._descriptor, length, 8))
            self.metadata: dict[str, str] = facts.pop(_METADATA, {})
            self._first = {name: 8 + length + each["data_offsets"][0] for name, each in facts.items()}
            self.shapes: dict[str, list[int]] = {name: each["shape"] for name, each in facts.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RefusedError(f"{path} is no file of tensors that this version reads: {error}") from error

    def read(self, name: str, start: int, *, into: torch.Tensor) -> None:
        """Rows from number `start` on, as many as there is memory for: on the CPU, contiguous, of the tensor's own dtype."""
        if not into.numel():
            return
        content = _content(into)
        position = self._first[name] + start * (into[0].numel() * into.element_size())
        while content:
            taken = os.preadv(self._descriptor, [content], position)
            if not taken:
                raise RefusedError(f"{self._path} ends in the middle of {name}")
            position, content = position + taken, content[taken:]


def _content(tensor: torch.Tensor) -> memoryview:
    """Its very memory."""
    numbers: Any = tensor.reshape(-1).view(torch.uint8).numpy()  # numpy's type does not say that it is a buffer
    return memoryview(numbers)
