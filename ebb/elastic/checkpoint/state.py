"""The content of a checkpoint: a dict of tensors and plain values, that `torch.load` reads anywhere without running code.

    state = collect(arch="resnet18", network=network, optimizer=optimizer, progress=Progress(...), parts={"scaler": ...})
    folder.save(dump(state), fence, step=120);  state = load(found.content);  network.load_state_dict(weights(state))

The first five entries are those that the original torchelastic example writes (epoch, arch, best_acc1, state_dict with the
prefix "module.", optimizer), so its own script, and what people have written for its files, reads ours. The others are what
that one lacks. `epoch` is the last epoch that is complete, -1 for none.
"""

from __future__ import annotations

import io
import random
import sys
from pickle import UnpicklingError
from typing import Any

import torch

from ebb.compat import dataclass
from ebb.elastic.checkpoint.errors import RefusedError
from ebb.elastic.checkpoint.files import HashingFile
from ebb.elastic.checkpoint.folder import Dump
from ebb.elastic.checkpoint.values import decode

PREFIX = "module."


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The progress of the training; a world size is in none of it."""

    step: int
    samples: int  # used so far, over all epochs: the sampler's whole state together with the seed
    epoch: int  # complete epochs
    best_accuracy: float = 0.0  # in per cent


def collect(
    *,
    arch: str,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    reached: Reached,
    seed: int,
    parts: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """References to the live tensors, no copies. `parts`: what else the training needs (scaler, ema, account, identity...)."""
    return {
        "epoch": reached.epoch - 1,
        "arch": arch,
        "best_acc1": reached.best_accuracy,
        "state_dict": {PREFIX + name: tensor.detach() for name, tensor in network.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "step": reached.step,
        "sampler": {"seed": seed, "samples": reached.samples},
        "random": capture_random(),
        **(parts or {}),
    }


def dump(state: dict[str, Any]) -> Dump:
    def write(file: HashingFile) -> None:
        torch.save(state, file)  # type: ignore[arg-type]  # it needs write and flush only

    return write


def load(content: bytes, where: str = "the checkpoint") -> dict[str, Any]:
    """On the CPU, and no code in it is run. Raises RefusedError for what is not a dict of tensors and plain values."""
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise RefusedError(f"{where} cannot be read as tensors and plain values: {reason}") from error
    if not isinstance(state, dict):
        raise RefusedError(f"{where} holds a {type(state).__name__}; a dict with state_dict is needed")
    decoded: dict[str, Any] = decode(state)
    return decoded


def weights(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """For a network that is not wrapped."""
    return {name.removeprefix(PREFIX): tensor for name, tensor in state["state_dict"].items()}


def capture_random() -> dict[str, Any]:
    """The generators of this process."""
    version, numbers, gauss = random.getstate()
    saved: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": {"version": version, "numbers": torch.tensor(numbers, dtype=torch.int64), "gauss": gauss},
    }
    if torch.cuda.is_available():
        saved["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        kind, keys, position, has_gauss, cached = sys.modules["numpy"].random.get_state()
        facts = {"kind": kind, "position": int(position), "has_gauss": int(has_gauss), "cached": float(cached)}
        saved["numpy"] = {**facts, "keys": torch.tensor(keys.astype("int64"))}
    return saved


def restore_random(saved: dict[str, Any], *, rank: int, seed: int) -> None:
    """Rank 0 goes on with the writer's generators; the others, of which there may be any number, start from `seed` + rank."""
    if rank != 0:
        torch.manual_seed(seed + rank)
        random.seed(seed + rank)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed((seed + rank) % 2**32)
        return
    torch.set_rng_state(saved["torch"])
    python = saved["python"]
    random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
    if "cuda" in saved and torch.cuda.is_available():
        torch.cuda.set_rng_state(saved["cuda"])
    if "numpy" in saved and "numpy" in sys.modules:
        found = saved["numpy"]
        keys = found["keys"].numpy().astype("uint32")
        sys.modules["numpy"].random.set_state((found["kind"], keys, found["position"], found["has_gauss"], found["cached"]))
