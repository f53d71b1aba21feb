"""How the ranks of a generation come to the same gradient: the mean over the global batch, whatever their shares are.

The loss that a program gives is a mean over a micro-batch. Its weight is (samples of the micro-batch) / (samples of the step), so
the sum over all micro-batches of all ranks is the gradient that one large batch would have. virtual.py is the other way.
"""

from typing import Protocol

import torch
from torch.nn.parallel import DistributedDataParallel

from ebb.elastic.runtime.plan import MicroBatch


class Gradients(Protocol):
    """One rank's part."""

    def begin(self, micro_batch: MicroBatch) -> None:
        """Before its forward pass."""

    def weight(self, micro_batch: MicroBatch, step_size: int) -> float:
        """What the mean loss is multiplied with before its backward pass."""

    def end(self, micro_batch: MicroBatch) -> None:
        """After its backward pass."""

    def share(self, step_size: int) -> None:
        """All micro-batches are done: leave the step's gradient in the parameters, the same on every rank."""

    def commit(self) -> None:
        """The step is done."""

    def undo(self) -> None:
        """The step that has begun is not done and never will be: what its forward passes changed in the buffers goes back."""


class Averaged:
    """DistributedDataParallel averages over ranks during the last backward pass of a step: times their number it is the sum.
    Alone a rank has the whole sum already."""

    def __init__(self, wrapped: list[torch.nn.Module], world_size: int) -> None:
        self._wrapped = [each for each in wrapped if isinstance(each, DistributedDataParallel)]
        self._world_size = world_size
        self._buffers = [each for model in wrapped for each in model.buffers()]
        self._before: list[torch.Tensor] | None = None

    def begin(self, micro_batch: MicroBatch) -> None:
        if self._before is None and self._world_size > 1 and not any(each.is_cuda for each in self._buffers):
            self._before = [each.clone() for each in self._buffers]  # small; on a GPU nothing is saved after a loss
        for each in self._wrapped:
            each.require_backward_grad_sync = micro_batch.last  # what its no_sync() does, over a loop that is the program's

    def weight(self, micro_batch: MicroBatch, step_size: int) -> float:
        return micro_batch.num_samples * self._world_size / step_size

    def end(self, micro_batch: MicroBatch) -> None:
        """Nothing: gradients add up in the parameters."""

    def share(self, step_size: int) -> None:
        """Nothing: the last backward pass did."""

    def commit(self) -> None:
        self._before = None

    @torch.no_grad()
    def undo(self) -> None:
        for buffer, before in zip(self._buffers, self._before or self._buffers, strict=True):
            buffer.copy_(before)
