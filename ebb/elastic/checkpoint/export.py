"""The weights of a checkpoint, in parts or not, as one safetensors file: tensor by tensor, so that no more than one is in memory.

    export(output / "checkpoints", Path("model.safetensors"))

The names are those of the model's own state_dict. The format (https://github.com/huggingface/safetensors#format): the length of
a JSON header in eight bytes, the header, and the numbers of all tensors one after the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ebb.elastic.checkpoint.errors import RefusedError
from ebb.elastic.checkpoint.files import Disk, NewFile
from ebb.elastic.checkpoint.folder import read_whole
from ebb.elastic.checkpoint.manifest import newest_manifest
from ebb.elastic.checkpoint.parts import assemble, is_note, open_parts
from ebb.elastic.checkpoint.state import load, weights

_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
_ALIGNED = 8  # the header's length, as the library has it


def export(place: Path, file: Path) -> str:
    """The answer is a sentence about it. Raises RefusedError, OSError, and ValueError for a checkpoint that is damaged."""
    manifest = newest_manifest(place.parent)
    if manifest is None:
        raise RefusedError(f"{place} holds no checkpoint; `python -m ebb.elastic.checkpoint inspect` shows what it holds")
    found = read_whole(Disk(), place, manifest.name)
    held, parts = weights(load(found.content)), open_parts(found.parts)
    facts: dict[str, Any] = {}
    end = 0
    for name, each in held.items():
        note: Any = each
        shape, dtype = (note["shape"], getattr(torch, note["dtype"])) if is_note(each) else (list(each.shape), each.dtype)
        if dtype not in _NAMES:
            raise RefusedError(f"{name} is of {dtype}, which safetensors does not have")
        size = math.prod(shape) * dtype.itemsize
        facts[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": [end, end + size]}
        end += size
    header = json.dumps({"__metadata__": {"format": "pt"}, **facts}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNED)
    file.parent.mkdir(parents=True, exist_ok=True)
    with NewFile(Disk(), file) as target:
        target.write(len(header).to_bytes(8, "little") + header)
        for tensor in _whole(held, parts):
            rows: Any = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()  # numpy's type does not say that it is a buffer
            target.write(memoryview(rows))
    return f"{file}: {len(facts)} tensors, {end / 1e6:.1f} MB, after step {manifest.step}"


def _whole(held: dict[str, Any], parts: dict[str, Any]) -> Iterator[torch.Tensor]:
    for each in held.values():
        yield assemble(each, parts, 0, each["shape"][0]) if is_note(each) else each
