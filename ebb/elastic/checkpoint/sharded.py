"""Tensors of which each rank holds some rows (torch's DTensor), in a state of plain ones.

    local(tensor)                                # the numbers of this rank, of any tensor
    to_local(state)                              # a state with those in the place of DTensors
    from_local(saved, like)                      # the reverse, for load_state_dict
    cut(saved, like)                             # from a state with whole tensors

`like(path)` is the tensor that lives at that place of the state, or None. FSDP cuts a tensor into rows: chunk number r of as many
as there are ranks. The last ones may have fewer rows than the others, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

try:
    from torch.distributed.tensor import DTensor, Shard
except ImportError:  # before torch 2.5
    from torch.distributed._tensor import DTensor, Shard  # type: ignore[attr-defined]

from ebb.elastic.checkpoint.snapshot import Path, replace_with_path

__all__ = ["DTensor", "Like", "cut", "from_local", "local", "rows_of", "to_local", "wrap_like"]

Like = Callable[[Path], "torch.Tensor | None"]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The very memory of this rank."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def to_local(state: Any) -> Any:
    return replace_with_path(state, lambda _, tensor: local(tensor))


def from_local(saved: Any, like: Like) -> Any:
    """Its tensors are this rank's rows."""
    return replace_with_path(saved, lambda path, tensor: _wrap(tensor, like(path)))


def cut(saved: Any, like: Like) -> Any:
    """The rows of this rank, of whole tensors."""

    def rows(path: Path, tensor: torch.Tensor) -> torch.Tensor:
        target = like(path)
        if not isinstance(target, DTensor) or isinstance(tensor, DTensor) or tensor.shape != target.shape:
            return tensor
        start, stop = rows_of(target)
        return _wrap(tensor[start:stop].clone(), target)

    return replace_with_path(saved, rows)


def rows_of(tensor: DTensor) -> tuple[int, int]:
    """The first row that this rank holds, and the one after its last."""
    (placement,) = tensor.placements
    assert placement == Shard(0), f"{placement}: only rows are cut"
    size = -(-tensor.shape[0] // tensor.device_mesh.size())
    start = min(tensor.device_mesh.get_local_rank() * size, tensor.shape[0])
    return start, min(start + size, tensor.shape[0])


def wrap_like(rows: torch.Tensor, like: DTensor) -> DTensor:
    """This rank's rows as a part of a tensor of the same form."""
    found: DTensor = DTensor.from_local(
        rows, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return found


def _wrap(tensor: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
    if not isinstance(target, DTensor) or tensor.shape != target._local_tensor.shape:
        return tensor
    return wrap_like(tensor.to(target._local_tensor.device), target)
