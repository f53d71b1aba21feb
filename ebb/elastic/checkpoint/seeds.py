"""Resume from one file: that of the original torchelastic ImageNet example, or a plain file of ours.

    origin = read_file(Path("checkpoint.pth"), arch="resnet18", identity={...})
    step = origin.step_at(dataset_size=1_281_167, global_batch=256)

The original writes {epoch, arch, best_acc1, state_dict, optimizer} at the end of each epoch, `epoch` being the one just done. It
has no step: the training goes on with the step in which the next epoch begins; when an epoch's end lies within a step, the less
than one global batch of samples before it are used a second time, and none is lost. A plain file of ours knows its step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ebb.compat import dataclass, zip
from ebb.elastic.checkpoint.errors import ForeignCheckpointError, RefusedError
from ebb.elastic.checkpoint.files import Disk
from ebb.elastic.checkpoint.optimizers import load_state
from ebb.elastic.checkpoint.state import load

_FIELDS = ("epoch", "arch", "state_dict")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The facts in a checkpoint file; `content` is for load()."""

    content: bytes
    epochs: int  # complete ones
    step: int | None

    def step_at(self, *, dataset_size: int, global_batch: int) -> int:
        return self.epochs * dataset_size // global_batch if self.step is None else self.step


def read_file(path: Path, *, arch: str, identity: dict[str, Any], disk: Disk | None = None) -> Origin:
    """Raises RefusedError for a file that is none of these, ForeignCheckpointError for another model's or another run's."""
    try:
        content = (disk or Disk()).read(path)
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error.strerror}; name a checkpoint file or a job's output folder") from error
    state = load(content, str(path))
    missing = [name for name in _FIELDS if name not in state]
    if missing or not isinstance(state["epoch"], int) or not isinstance(state["state_dict"], dict):
        raise RefusedError(
            f"{path} has {sorted(map(str, state))[:8]} and lacks {missing or 'a usable epoch or state_dict'}: it must hold "
            "epoch, arch, state_dict and optimizer, as the original ImageNet example and --checkpoint-file write them"
        )
    _refuse_foreign(path, state, arch, identity)
    return Origin(content=content, epochs=state["epoch"] + 1, step=state.get("step"))


def _refuse_foreign(path: Path, state: dict[str, Any], arch: str, identity: dict[str, Any]) -> None:
    found, wanted = {"arch": state["arch"], **state.get("identity", {})}, {"arch": arch, **identity}
    differences = [
        f"{key} is {wanted.get(key)!r} here and must be {found[key]!r} as in the file"
        for key in sorted(found)
        if found[key] != wanted.get(key)
    ]
    if differences:
        raise ForeignCheckpointError(f"{path} is of another run: {'; '.join(differences)}. Start with the settings of that run")


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """The momentum of a file; learning rate, weight decay and the like stay those of this run's settings."""
    ours = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    try:
        load_state(optimizer, saved)
    except (ValueError, KeyError) as error:
        raise RefusedError(f"the optimizer in the file does not fit {type(optimizer).__name__}: {error}") from error
    for group, settings in zip(optimizer.param_groups, ours, strict=True):
        group.update(settings)
