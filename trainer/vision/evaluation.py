"""Evaluation: every sample exactly once over all ranks, nothing padded, counts summed at the end.

    counts = evaluate(network, batches, group=group, forward=lambda images: network(normalise(images)))

Each rank brings its own batches (trainer/data/order.py: in_order), of any sizes, also none: no rank waits for another before the
one sum at the end, so the network must be the plain one and not DistributedDataParallel, whose forward pass may talk.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import torch

from trainer.data.loader import Batch
from trainer.vision.accuracy import Counter, Counts
from trainer.vision.loss import losses


class Ranks(Protocol):
    """What is needed of trainer.group.Group."""

    @property
    def device(self) -> torch.device: ...

    def sum(self, numbers: list[float]) -> list[float]: ...


@torch.no_grad()
def evaluate(
    network: torch.nn.Module, batches: Iterable[Batch], *, group: Ranks, forward: Callable[[torch.Tensor], torch.Tensor]
) -> Counts:
    """The counts of all ranks, the same on each. `forward` gets images as they are loaded and returns (N, K) scores.

    The network is left in the mode (train or eval) in which it was.
    """
    counter = Counter(group.device)
    training = network.training
    network.eval()
    try:
        for batch in batches:
            scores_NK = forward(batch.images)
            labels_N = batch.labels.to(group.device, non_blocking=True)
            counter.add(scores_NK, labels_N, losses(scores_NK, labels_N))
    finally:
        network.train(training)
    return Counts.of(group.sum(list(counter.counts())))
