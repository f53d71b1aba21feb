"""The same gradient on all ranks of a generation: the mean over the global batch, whatever their shares are.

AveragedGradients: the loss that a program gives is a mean over a micro-batch. Its weight is (samples of the micro-batch) /
(samples of the step), so the sum over all micro-batches of all ranks is the gradient that one large batch would have. Weights of
the program's own (weights.py) stand in the place of the samples.

VirtualGradients: bit for bit the same weights at any number of ranks. A fixed number of virtual workers computes, and ranks lend
them processors.

Virtual worker v has the v-th share of each step, its own random numbers and its own buffers (BatchNorm's running statistics).
Its gradient depends on nothing else. Sums in floating point depend on their order: so every rank gets the gradient of every
worker and adds them up itself, worker 0 first. The buffers travel with them: so every rank has those of all workers after each
step, whichever of them it has next, and the model's own (in checkpoints, for evaluation) are worker 0's.

It costs V times the network's traffic of the gradients and memory for those of a rank's workers. The same bits need the same kind
of processor, the same number of threads, and the same torch.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Protocol

import torch
from torch.nn.parallel import DistributedDataParallel

from ebb.compat import zip
from ebb.elastic.data.order import Piece, share
from ebb.elastic.runtime.buckets import Buckets
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.plan import MicroBatch, workers_of
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.weights import Weights, multiply, positive, refuse_mix, without_gradients


class Gradients(Protocol):
    """One rank's part."""

    def begin(self, micro_batch: MicroBatch) -> None:
        """Before its forward pass."""

    def weight(self, micro_batch: MicroBatch, step_size: int, given: float | None = None) -> float:
        """The factor of the mean loss before its backward pass, once for each. `given`: the program's, for its samples."""

    def pass_of_nothing(self) -> contextlib.AbstractContextManager[None]:
        """Around a backward pass whose gradients do not count."""

    def end(self, micro_batch: MicroBatch) -> None:
        """After its backward pass."""

    def share(self, step_size: int) -> float:
        """All micro-batches are done: leave the step's gradient in the parameters, the same on every rank. The answer is the
        sum of the program's weights over all ranks; 0 where it gives none."""

    def commit(self) -> None:
        """The step is done."""

    def may_repeat(self, *, given: bool) -> bool:
        """True if this rank may begin the step once more by itself, with other micro-batches. `given`: the last backward pass has
        begun, in which other ranks may get its gradients."""

    def undo(self) -> None:
        """Nothing of the step that has begun is done: what its passes changed in the buffers and gradients goes back."""

    def follow(self) -> None:
        """The group has other ranks now."""


def share_gradients(models: list[torch.nn.Module], group: Group, *, summed_as: torch.dtype | None) -> Gradients:
    """Of a run without virtual workers. `summed_as`: of a group that changes; DistributedDataParallel has a hook for it."""
    if isinstance(group, Members):
        return SummedGradients(models, group, summed_as=summed_as)
    return AveragedGradients(models, group)


class SummedGradients:
    """Over a group that changes (buckets.py). Whether all ranks gave their part is known when the last backward pass is through:
    share() raises PeerLostError, and the step can be done again."""

    def __init__(self, models: list[torch.nn.Module], group: Members, *, summed_as: torch.dtype | None) -> None:
        self._group = group
        self._parameters = [each for model in models for each in model.parameters()]
        self._saved = SavedBuffers([each for model in models for each in model.buffers()])
        self._buckets = Buckets(self._parameters, group, dtype=summed_as)
        self._weights = Weights(group)

    def begin(self, micro_batch: MicroBatch) -> None:
        self._saved.keep()
        if micro_batch.last:
            self._buckets.arm()

    def weight(self, micro_batch: MicroBatch, step_size: int, given: float | None = None) -> float:
        self._weights.add(given, last=micro_batch.last)
        return micro_batch.num_samples / step_size if given is None else self._weights.part(given, step_size)

    def pass_of_nothing(self) -> contextlib.AbstractContextManager[None]:
        return without_gradients(self._parameters)

    def end(self, micro_batch: MicroBatch) -> None:
        """Nothing: gradients add up in the parameters."""

    def share(self, step_size: int) -> float:
        self._buckets.finish()
        return _settle(self._parameters, self._weights.settle(step_size))

    def commit(self) -> None:
        self._saved.forget()

    def may_repeat(self, *, given: bool) -> bool:
        return not given or self._group.world_size == 1

    def undo(self) -> None:
        """The gradients go too: they are of a part of the ranks, or of the samples."""
        self._buckets.disarm()
        self._weights.forget()
        self._saved.put_back()
        for each in self._parameters:
            each.grad = None

    def follow(self) -> None:
        self._weights.follow()  # the buckets ask the group each time


class AveragedGradients:
    """DistributedDataParallel averages over ranks during the last backward pass of a step: times their number it is the sum.
    Alone a rank has the whole sum already."""

    def __init__(self, wrapped: list[torch.nn.Module], group: Group) -> None:
        self._wrapped = [each for each in wrapped if isinstance(each, DistributedDataParallel)]
        self._parameters = [each for model in wrapped for each in model.parameters()]
        self._world_size = group.world_size
        self._weights = Weights(group)
        self._buffers = SavedBuffers([each for model in wrapped for each in model.buffers()])

    def begin(self, micro_batch: MicroBatch) -> None:
        self._buffers.keep()
        for each in self._wrapped:
            each.require_backward_grad_sync = micro_batch.last  # what its no_sync() does, over a loop that is the program's

    def weight(self, micro_batch: MicroBatch, step_size: int, given: float | None = None) -> float:
        self._weights.add(given, last=micro_batch.last)
        if given is None:
            return micro_batch.num_samples * self._world_size / step_size
        return self._weights.part(given, step_size) * self._world_size

    def pass_of_nothing(self) -> contextlib.AbstractContextManager[None]:
        return without_gradients(self._parameters)

    def end(self, micro_batch: MicroBatch) -> None:
        """Nothing: gradients add up in the parameters."""

    def share(self, step_size: int) -> float:
        """The last backward pass has summed them."""
        return _settle(self._parameters, self._weights.settle(step_size))

    def commit(self) -> None:
        self._buffers.forget()

    def may_repeat(self, *, given: bool) -> bool:
        """A static graph cannot have several micro-batches (speed/settings.py)."""
        return self._world_size == 1 or not (given or any(each.static_graph for each in self._wrapped))

    def undo(self) -> None:
        self._weights.forget()
        self._buffers.put_back()
        for parameter in self._parameters:
            parameter.grad = None
        for each in self._wrapped:
            each.reducer._reset_state()  # a forward pass that is not gone on from has told it to expect gradients

    def follow(self) -> None:
        raise NotImplementedError("DistributedDataParallel averages over the ranks with which it was made")


def _settle(parameters: list[torch.nn.Parameter], found: tuple[float, float]) -> float:
    """Of all weights; their sum is returned."""
    total, factor = found
    if factor != 1.0:
        multiply((each.grad for each in parameters), factor)
    return total


class SavedBuffers:
    """Buffers as they were before a step. They take their own size in memory once more."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        kinds = {(each.dtype, each.device) for each in tensors}
        # torch copies lists of one kind in one go: on a GPU a copy of its own for each of some hundred costs a millisecond
        self._tensors = [[each for each in tensors if (each.dtype, each.device) == kind] for kind in kinds]
        self._before: list[list[torch.Tensor]] = []
        self._kept = False

    @torch.no_grad()
    def keep(self) -> None:
        """Once a step: later calls change nothing."""
        if self._kept:
            return
        self._before = self._before or [[torch.empty_like(each) for each in tensors] for tensors in self._tensors]
        for tensors, before in zip(self._tensors, self._before, strict=True):
            torch._foreach_copy_(before, tensors)
        self._kept = True

    def forget(self) -> None:
        self._kept = False

    @torch.no_grad()
    def put_back(self) -> None:
        if self._kept:
            for tensors, before in zip(self._tensors, self._before, strict=True):
                torch._foreach_copy_(tensors, before)


_ALIGNED = 16  # bytes: any tensor's numbers can be seen in a message at a multiple of that


class VirtualGradients:
    """Gradients (see gradients.py) by virtual workers. `models` are plain, and the same on all ranks."""

    def __init__(self, models: list[torch.nn.Module], group: Group, num_workers: int) -> None:
        self._group = group
        self._num_workers = num_workers
        self.follow()
        self._parameters = [each for model in models for each in model.parameters() if each.requires_grad]
        self._live = [each for model in models for each in model.buffers()]
        self.buffers = [[each.detach().clone() for each in self._live] for _ in range(num_workers)]
        self._messages: dict[int, torch.Tensor] = {}
        self._before: list[list[torch.Tensor]] | None = None
        self._weight = math.nan  # of the worker under way, as far as it is

    def follow(self) -> None:
        """The group has other ranks now."""
        size = self._group.world_size
        self._owner = {worker: rank for rank in range(size) for worker in workers_of(rank, size, self._num_workers)}

    def load(self, others: list[list[torch.Tensor]] | None) -> None:
        """The buffers of a checkpoint: worker 0's are in the models already; `others` are the rest's, None for the same."""
        others = [self._live] * (self._num_workers - 1) if others is None else others
        for kept, saved in zip(self.buffers, [self._live, *others], strict=True):
            for target, source in zip(kept, saved, strict=True):
                target.copy_(source)

    def begin(self, micro_batch: MicroBatch) -> None:
        if micro_batch.first:
            for parameter in self._parameters:
                parameter.grad = None
            self._take(self.buffers[micro_batch.worker])

    def weight(self, micro_batch: MicroBatch, step_size: int, given: float | None = None) -> float:
        before = 0.0 if micro_batch.first else self._weight
        self._weight = math.nan if given is None else before + given
        return (micro_batch.num_samples if given is None else given) / step_size

    def pass_of_nothing(self) -> contextlib.AbstractContextManager[None]:
        return without_gradients(self._parameters)

    def end(self, micro_batch: MicroBatch) -> None:
        if micro_batch.last:
            self._messages[micro_batch.worker] = self._packed()

    @torch.no_grad()
    def share(self, step_size: int) -> float:
        totals: list[torch.Tensor | None] = [None] * len(self._parameters)
        weights: list[float] = []  # of each worker with samples; NaN: without weights
        fresh = list(self.buffers)
        for worker in range(self._num_workers):
            if not share(Piece(0, step_size), worker, self._num_workers).size:
                continue
            message = self._messages.pop(worker, None)
            message = self._blank() if message is None else message
            self._group.hand_out_tensors([message], source=self._owner[worker])
            fresh[worker] = self._add(message, totals)
            weights.append(self._unpacked(message)[0].item())
        weight = 0.0  # of all; 0: without weights
        if any(unweighted := [math.isnan(each) for each in weights]):
            if not all(unweighted):
                raise refuse_mix("other ranks")
        else:
            weight = positive(sum(weights))
        for parameter, total in zip(self._parameters, totals, strict=True):
            parameter.grad = total
        self._before, self.buffers = self.buffers, fresh
        self._take(self.buffers[0])
        return _settle(self._parameters, (weight, step_size / weight if weight else 1.0))

    def commit(self) -> None:
        self._before = None

    def may_repeat(self, *, given: bool) -> bool:
        """Other micro-batches are other bits."""
        return False

    def undo(self) -> None:
        self.buffers = self._before or self.buffers
        self._messages = {}
        self._take(self.buffers[0])

    def _add(self, message: torch.Tensor, totals: list[torch.Tensor | None]) -> list[torch.Tensor]:
        """A worker's gradients to the sums; its buffers are returned."""
        _, present, *tensors = self._unpacked(message)
        count = len(self._parameters)
        for number, there in enumerate(present.tolist()):
            before = totals[number]
            if there and before is None:
                totals[number] = torch.empty_like(self._parameters[number]).copy_(tensors[number])
            elif there and before is not None:
                before.add_(tensors[number])
        return [each.clone() for each in tensors[count:]]

    def _take(self, buffers: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for live, kept in zip(self._live, buffers, strict=True):
                live.copy_(kept)

    def _layout(self) -> list[tuple[torch.Size, torch.dtype, int, int]]:
        """Shape, dtype, start and size in bytes of each part: weight, which gradients there are, gradients, buffers."""
        parts = [(torch.Size([]), torch.float64), (torch.Size([len(self._parameters)]), torch.uint8)]
        parts += [(each.shape, each.dtype) for each in (*self._parameters, *self._live)]
        found, at = [], 0
        for shape, dtype in parts:
            size = shape.numel() * dtype.itemsize
            found.append((shape, dtype, at, size))
            at += -(-size // _ALIGNED) * _ALIGNED
        return found

    def _blank(self) -> torch.Tensor:
        *_, (_, _, start, size) = self._layout()
        return torch.zeros(start + size, dtype=torch.uint8, device=self._group.device)

    def _unpacked(self, message: torch.Tensor) -> list[torch.Tensor]:
        """Its parts, as views."""
        return [message[start : start + size].view(dtype).view(shape) for shape, dtype, start, size in self._layout()]

    @torch.no_grad()
    def _packed(self) -> torch.Tensor:
        """Pack the gradients and buffers that the worker has just left in the models."""
        message = self._blank()
        weight, present, *tensors = self._unpacked(message)
        weight.fill_(self._weight)
        gradients = [each.grad for each in self._parameters]
        present.copy_(torch.tensor([each is not None for each in gradients], dtype=torch.uint8))
        for target, source in zip(tensors, [*gradients, *self._live], strict=True):
            if source is not None:
                target.copy_(source)
        return message


def fix_algorithms(device: torch.device) -> None:
    """On a GPU: only algorithms that give the same bits each time; what has none is said by torch, once."""
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True, warn_only=True)
