"""The exponential moving average of the weights (EMA), which often evaluates better than the weights themselves.

    average = WeightAverage(network, decay=0.9999, every=32)
    ... average.update(step)                  # after every step; `step` steps are done
    average.answers(images)                   # of the network with the averaged weights
    checkpoint: average.state_dict(), average.load_state_dict(saved)

What happens at a step depends on its number and the weights alone, which are the same on every rank: so every rank has the same
average, whatever machines came and went, and rank 0's is the one that is kept. Parameters and the floating buffers (BatchNorm's
statistics: each rank's own, as in the network) are averaged; counters are copied. At the start, when there is little to
average, the decay is smaller: (1 + step) / (10 + step), as in TensorFlow's moving averages.
"""

from typing import Any

import torch


class WeightAverage:
    """The average of one network, on its device, in 32 bits or better. `network` is the plain one, not wrapped for ranks."""

    def __init__(self, network: torch.nn.Module, *, decay: float, every: int = 1) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"--ema is {decay!r}; it must be at least 0 and less than 1, such as 0.9999")
        if every < 1:
            raise ValueError(f"--ema-every is {every!r}; it must be at least 1")
        self._network = network
        self._decay, self._every = decay, every
        self._tensors = {name: _wide(tensor.detach()).clone() for name, tensor in network.state_dict().items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after `step` steps, if it is this one's turn: fewer turns take less of the time."""
        if step % self._every:
            return
        # of `every` steps at once: with `every` the length of the memory stays what `decay` says
        decay = min(self._decay, (1 + step) / (10 + step)) ** self._every
        now = self._network.state_dict()
        floats = [name for name, tensor in self._tensors.items() if tensor.is_floating_point()]
        averages = [self._tensors[name] for name in floats]
        torch._foreach_lerp_(averages, [_wide(now[name]) for name in floats], 1 - decay)  # one kernel for many tensors
        for name in self._tensors.keys() - set(floats):
            self._tensors[name].copy_(now[name])

    def answers(self, images: torch.Tensor) -> torch.Tensor:
        """The network's answer with these weights. Its own stay where they are: a checkpoint may be made at any moment."""
        own = self._network.state_dict()
        tensors = {name: tensor.to(own[name].dtype) for name, tensor in self._tensors.items()}
        found: torch.Tensor = torch.func.functional_call(self._network, tensors, (images,))
        return found

    def weights(self) -> dict[str, torch.Tensor]:
        """By their names in the network's state_dict; the live tensors."""
        return dict(self._tensors)

    def state_dict(self) -> dict[str, Any]:
        """References to the live tensors."""
        return {"tensors": dict(self._tensors)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises ValueError for the average of another network."""
        saved = state["tensors"]
        if {name: tensor.shape for name, tensor in saved.items()} != {name: each.shape for name, each in self._tensors.items()}:
            raise ValueError(
                "the saved average of the weights is of another network: start with --ema in a fresh --output folder"
            )
        for name, tensor in self._tensors.items():
            tensor.copy_(saved[name])


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """A decay of 0.9999 changes nothing in 16 bits."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
