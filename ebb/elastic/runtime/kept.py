"""What a run's checkpoints hold: the model, the optimizer, and anything else of the program that has a state_dict.

kept = Kept(model=model, optimizer=optimizer, others={"schedule": schedule, "scaler": scaler})
kept.state(reached, ...);  kept.load(saved, restart=False)
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ebb.elastic.checkpoint import ForeignCheckpointError
from ebb.elastic.checkpoint.optimizers import load_state
from ebb.elastic.checkpoint.seeds import load_optimizer
from ebb.elastic.checkpoint.state import PREFIX, Reached, collect, weights
from ebb.elastic.runtime.virtual import Virtual

Weights = Callable[[], Mapping[str, torch.Tensor]]  # by the names of the network's state_dict


class Kept:
    """`model` may be wrapped and compiled; its plain form is what is kept. `evaluated` gives the weights that validations judge
    where they are not the model's own: a moving average of them."""

    def __init__(
        self,
        *,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        others: Mapping[str, Any],
        arch: str = "",
        evaluated: Weights | None = None,
    ) -> None:
        for name, each in others.items():
            if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                raise TypeError(
                    f"run.register_state({name}=...) is a {type(each).__name__}, which has no state_dict and load_state_dict: "
                    "give it both, or leave it out"
                )
        self.network = plain(model)
        self.optimizer = optimizer
        self._others = dict(others)
        self._evaluated = evaluated
        self.arch = arch or type(self.network).__name__

    @property
    def in_pairs(self) -> bool:
        """Whether a forward pass needs two samples: batch normalisation of any kind."""
        return any(isinstance(each, torch.nn.modules.batchnorm._BatchNorm) for each in self.network.modules())

    @property
    def evaluated(self) -> list[torch.Tensor]:
        """Those weights; none where they are the model's own."""
        return [each.detach() for each in self._evaluated().values()] if self._evaluated else []

    def identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to fit."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        return {
            "arch": self.arch,
            "weights": digest.hexdigest()[:12],  # of their names and shapes
            "optimizer": type(self.optimizer).__name__,
        }

    def state(self, reached: Reached, *, seed: int, virtual: Virtual | None, parts: dict[str, Any]) -> dict[str, Any]:
        """References to the live tensors; the saver copies."""
        state = collect(arch=self.arch, network=self.network, optimizer=self.optimizer, reached=reached, seed=seed, parts=parts)
        if self._evaluated is not None:  # where any program looks for weights are those that were judged
            state["trained"] = state["state_dict"]
            state["state_dict"] = {PREFIX + name: each.detach() for name, each in self._evaluated().items()}
        state["kept"] = {name: each.state_dict() for name, each in self._others.items()}
        if virtual is not None:
            state["virtual_buffers"] = virtual.buffers[1:]  # the first worker's are the model's own
        return state

    def load(self, saved: dict[str, Any], *, settings_stay: bool) -> None:
        """Put the state in place. `settings_stay`: the optimizer's learning rate and the like stay those of this program.

        Raises ForeignCheckpointError when it does not fit.
        """
        try:
            self.network.load_state_dict(weights({"state_dict": saved.get("trained", saved["state_dict"])}))
            if settings_stay:
                load_optimizer(self.optimizer, saved["optimizer"])
            else:
                load_state(self.optimizer, saved["optimizer"])
            for name, state in saved.get("kept", {}).items():
                if name in self._others:
                    self._others[name].load_state_dict(state)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ForeignCheckpointError(
                f"the checkpoint does not fit what run.register_state() was given: {reason}. Give this job its own "
                "--output folder, or start it with the program of that run"
            ) from error


def plain(model: torch.nn.Module) -> torch.nn.Module:
    """Without DistributedDataParallel and torch.compile around it, in any order."""
    while True:
        inner = getattr(model, "_orig_mod", None) or (
            model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else None
        )
        if inner is None:
            return model
        model = inner
