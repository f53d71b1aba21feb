"""The weights of a checkpoint, in parts or not, as one safetensors file: tensor by tensor, so that no more than one is in memory.

    export(output / "checkpoints", Path("model.safetensors"))

The names are those of the model's own state_dict.
"""

from __future__ import annotations

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
from ebb.elastic.checkpoint.tensor_file import TensorForm, write


def export(place: Path, file: Path) -> str:
    """The answer is a sentence about it. Raises RefusedError, OSError, and ValueError for a checkpoint that is damaged."""
    manifest = newest_manifest(place.parent)
    if manifest is None:
        raise RefusedError(f"{place} holds no checkpoint; `python -m ebb.elastic.checkpoint inspect` shows what it holds")
    found = read_whole(Disk(), place, manifest.name)
    held: dict[str, Any] = dict(weights(load(found.content)))  # notes among them
    parts = open_parts(found.parts)
    forms = {
        name: TensorForm(each["shape"], getattr(torch, each["dtype"])) if is_note(each) else TensorForm.of(each)
        for name, each in held.items()
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with NewFile(Disk(), file) as target:
        write(target, forms, _whole(held, parts))
    size = sum(each.nbytes for each in forms.values())
    return f"{file}: {len(forms)} tensors, {size / 1e6:.1f} MB, after step {manifest.step}"


def _whole(held: dict[str, Any], parts: dict[str, Any]) -> Iterator[torch.Tensor]:
    for each in held.values():
        yield assemble(each, parts, 0, each["shape"][0]) if is_note(each) else each
