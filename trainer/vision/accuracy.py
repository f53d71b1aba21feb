"""How many answers are right: exact counts, gathered on the device without waiting for it.

    counter = Counter(device)
    counter.add(logits, labels, losses)       # after every batch: no number is fetched
    counts = counter.counts()                 # at the end of an interval: the one wait
    counts.top1_accuracy, counts.mean_loss

Counts can be added over ranks and batches of any size; means could not. Shapes: N samples, K classes.
"""

from typing import NamedTuple, Self

import torch


class Counts(NamedTuple):
    """Sums over samples, as floats: whole numbers are exact in them up to 2^53."""

    samples: float
    top1: float  # samples whose label has the highest score
    top5: float  # samples whose label is among the five highest; with fewer classes, all
    loss: float  # sum of the samples' losses

    @property
    def top1_accuracy(self) -> float:
        """From 0 to 1."""
        return self.top1 / self.samples if self.samples else 0.0

    @property
    def top5_accuracy(self) -> float:
        """From 0 to 1."""
        return self.top5 / self.samples if self.samples else 0.0

    @property
    def mean_loss(self) -> float:
        return self.loss / self.samples if self.samples else 0.0

    @classmethod
    def of(cls, numbers: list[float]) -> Self:
        return cls(*numbers)


class Counter:
    """The counts of one rank."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(len(Counts._fields), dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, logits_NK: torch.Tensor, labels_N: torch.Tensor, losses_N: torch.Tensor) -> None:
        places_N = places(logits_NK, labels_N)
        samples = torch.full((), len(labels_N), device=logits_NK.device)
        parts = [samples, (places_N < 1).sum(), (places_N < 5).sum(), losses_N.detach().double().sum()]
        self._sums += torch.stack([part.double() for part in parts])

    def counts(self) -> Counts:
        """Waits for the device."""
        return Counts.of(self._sums.tolist())

    def take(self) -> Counts:
        """The counts, which start again from zero."""
        counts = self.counts()
        self._sums.zero_()
        return counts


def places(logits_NK: torch.Tensor, labels_N: torch.Tensor) -> torch.Tensor:
    """(N,): how many classes come before the label's. Of equal scores the lower class comes first, as argmax has it; a score that
    is not a number comes before all, so a network that has diverged gets nothing right."""
    own_N1 = logits_NK.gather(1, labels_N[:, None])
    classes_K = torch.arange(logits_NK.shape[1], device=logits_NK.device)
    higher_NK = ~(logits_NK <= own_N1)
    equal_before_NK = (logits_NK == own_N1) & (classes_K < labels_N[:, None])
    places_N: torch.Tensor = (higher_NK | equal_before_NK).sum(1)
    return places_N
