"""Mixup (arXiv 1710.09412): images blended with one another, and their labels with them; the same blends at any world size.

    mixup = Mixup(alpha=0.2, seed=config.seed)
    wide = mixup.needed(step, own)            # positions to load: at most one more at each end than this rank's own
    mixed = mixup.mixed(images, labels, step=step, own=own)     # images and labels of `wide`, blends of `own`

Partners are the two samples of a pair of positions of the step: (0, 1), (2, 3), ... The order of an epoch is random, so its
neighbours are as good partners as any, and a rank whose share begins or ends inside a pair needs one image of its neighbour's,
instead of the whole batch. The proportion of a pair is drawn from Beta(alpha, alpha) by a generator keyed with (seed, position
of the pair). So neither the number of ranks, nor accumulation, nor a restart changes a bit of a blended image. The last
sample of a step with an odd number stays as it is.

A sample that is loaded only as a partner is no sample of that rank: its loss and its id belong to the rank that owns it.
"""

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import torch

from trainer.data.order import Piece


class Mixed(NamedTuple):
    """N blended images. `proportions` say how much of each is its own image and label; the rest is its partner's."""

    images_NCHW: torch.Tensor
    labels_N: torch.Tensor
    other_labels_N: torch.Tensor
    proportions_N: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Mixup:
    alpha: float  # 0.2 is usual for ImageNet; larger blends more
    seed: int

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise ValueError(f"--mixup is {self.alpha!r}; it must be above 0, or leave it out to blend nothing")

    def needed(self, step: Piece, own: Piece) -> Piece:
        """`own`, a part of `step`, and the partners of its first and last sample."""
        if not own.size:
            return own
        start = own.start - (own.start - step.start) % 2
        return Piece(start, min(step.stop, own.stop + (own.stop - step.start) % 2))

    def mixed(self, images: torch.Tensor, labels: torch.Tensor, *, step: Piece, own: Piece) -> Mixed:
        """`images` (floats, normalised or not) and `labels` are those of needed(step, own), in its order."""
        wide = self.needed(step, own)
        assert len(images) == len(labels) == wide.size, (len(images), len(labels), wide)
        inside = slice(own.start - wide.start, own.stop - wide.start)
        own_images, own_labels = images[inside], labels[inside]
        places = torch.arange(own.start - step.start, own.stop - step.start, device=images.device)
        partners = torch.where((places ^ 1) < step.size, places ^ 1, places) - (wide.start - step.start)
        proportions = torch.tensor([self._proportion(position, step) for position in range(*own)])
        proportions_N = proportions.to(images.device, non_blocking=True)
        weights = proportions_N.to(images.dtype).view(-1, *[1] * (images.dim() - 1))
        return Mixed(torch.lerp(images[partners], own_images, weights), own_labels, labels[partners], proportions_N)

    def _proportion(self, position: int, step: Piece) -> float:
        """Of a sample's own image; both partners have the same."""
        first = position - (position - step.start) % 2
        if first + 1 == step.stop:
            return 1.0
        return Random(f"mixup {self.seed} {first}").betavariate(self.alpha, self.alpha)  # noqa: S311  # no secret
