"""Mixup (arXiv 1710.09412): images blended with one another, and their labels with them; the same blends at any world size.

    mixup = Mixup(alpha=0.2, seed=config.seed)
    loader = run.loader(images, together=mixup.together)
    mixed = mixup.mixed(images, labels, step=step.samples, own=step.piece)

Partners are the two samples of a pair of positions of the step: (0, 1), (2, 3), ... The order of an epoch is random, so its
neighbours are as good partners as any, and no rank needs an image that another one has: the loader never parts a pair. The
proportion of a pair is drawn from Beta(alpha, alpha) by a generator keyed with (seed, position of the pair). So neither the
number of ranks, nor accumulation, nor a restart changes a bit of a blended image. The last sample of a step with an odd
number stays as it is.
"""

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import torch

from ebb.elastic.data import Piece


class Mixed(NamedTuple):
    """N images. `proportions` say how much of each is its own image and label; the rest is its partner's. None: all."""

    images_NCHW: torch.Tensor
    labels_N: torch.Tensor
    other_labels_N: torch.Tensor
    proportions_N: torch.Tensor | None


@dataclass(frozen=True, kw_only=True)
class Mixup:
    alpha: float  # 0.2 is usual for ImageNet; larger blends more; 0 blends nothing
    seed: int

    @property
    def together(self) -> int:
        """For the loader."""
        return 2 if self.alpha else 1

    def mixed(self, images: torch.Tensor, labels: torch.Tensor, *, step: Piece, own: Piece) -> Mixed:
        """`images` (floats, normalised or not) and `labels` are those at the positions `own`, which begin with a pair of `step`.
        Where there are others than these (one image that comes twice, or weighs nothing), they stay as they are."""
        if not self.alpha or len(images) != own.size:
            return Mixed(images, labels, labels, None)
        assert (own.start - step.start) % 2 == 0, (own, step)
        places = torch.arange(own.size, device=images.device)
        partners = torch.where((places ^ 1) < own.size, places ^ 1, places)
        proportions = [self._proportion(first) for first in range(own.start, own.stop - 1, 2) for _ in range(2)]
        proportions_N = torch.tensor(proportions + [1.0] * (own.size % 2)).to(images.device, non_blocking=True)
        weights = proportions_N.to(images.dtype).view(-1, *[1] * (images.dim() - 1))
        return Mixed(torch.lerp(images[partners], images, weights), labels, labels[partners], proportions_N)

    def _proportion(self, first: int) -> float:
        """Of a sample's own image; both partners have the same."""
        return Random(f"mixup {self.seed} {first}").betavariate(self.alpha, self.alpha)  # noqa: S311  # no secret
