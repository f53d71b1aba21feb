"""The arithmetic of one optimizer step: the gradient of the mean loss over the global batch, however it is split.

The loss of every sample has the weight 1/G (G: samples in this step over all ranks), so uneven shares and accumulation give
the gradient that one large batch would. DistributedDataParallel averages over ranks: multiplying by their number makes it a sum.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from trainer.data import Batch

# mean and deviation of ImageNet's channels (torchvision's reference training); any fixed numbers would do
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step, seen from one rank."""

    num_micro_batches: int
    num_samples: int  # of all ranks
    world_size: int
    label_smoothing: float = 0.0


def normalise(images: torch.Tensor, device: torch.device) -> torch.Tensor:
    """uint8 images to floats, on the device that computes."""
    mean = torch.tensor(_MEAN, device=device).view(1, 3, 1, 1)
    deviation = torch.tensor(_DEVIATION, device=device).view(1, 3, 1, 1)
    return (images.to(device, non_blocking=True).float() / 255 - mean) / deviation


def backward(
    network: torch.nn.Module,
    batches: Iterator[Batch],
    step: Step,
    *,
    empty: Batch,
    device: torch.device,
    before_sharing: Callable[[list[int]], None],
) -> torch.Tensor:
    """Leave this step's gradient in the parameters, the same on every rank.

    Takes `num_micro_batches` from `batches`, or uses `empty`, whose samples weigh nothing, when this rank's share is empty: its
    collectives are still needed. `before_sharing` gets all ids of this rank before its gradients are given to the others.
    Returns the sum of this rank's losses divided by the samples of the step.
    """
    total = torch.zeros((), device=device)
    ids: list[int] = []
    for number in range(max(1, step.num_micro_batches)):
        batch = next(batches) if step.num_micro_batches else empty
        weight = 1 / step.num_samples if step.num_micro_batches else 0.0
        ids += batch.ids if step.num_micro_batches else []
        last = number >= step.num_micro_batches - 1
        with contextlib.nullcontext() if last else _unshared(network):
            loss = _weighted_loss(network, batch, weight, step.label_smoothing, device)
            if last:
                before_sharing(ids)
            (loss * step.world_size).backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total


def _weighted_loss(
    network: torch.nn.Module, batch: Batch, weight: float, label_smoothing: float, device: torch.device
) -> torch.Tensor:
    images, labels = batch.images, batch.labels
    if len(labels) == 1:  # BatchNorm needs two values per channel: the sample twice, at half its weight
        images, labels, weight = images.repeat(2, 1, 1, 1), labels.repeat(2), weight / 2
    losses = cross_entropy(
        network(normalise(images, device)), labels.to(device), reduction="none", label_smoothing=label_smoothing
    )
    return losses.sum() * weight


def _unshared(network: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    if isinstance(network, DistributedDataParallel):
        context: contextlib.AbstractContextManager[None] = network.no_sync()
        return context
    return contextlib.nullcontext()


def learning_rate(step: int, *, peak: float, total_steps: int, warmup_steps: int) -> float:
    """Of a step: a line up to the peak, then a cosine down to zero. A pure function: a restart needs no state for it."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * done))
