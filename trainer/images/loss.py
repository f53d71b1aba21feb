"""The loss of every sample by itself: the caller weighs them by 1/G, so that uneven shares of a step sum up to its mean.

Shapes: N samples of one forward pass, K classes.
"""

import torch
from torch.nn.functional import cross_entropy

from trainer.images.mixup import Mixed


def losses(logits_NK: torch.Tensor, labels_N: torch.Tensor, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """Cross entropy, (N,), in 32 bits also under autocast. Smoothing gives that share of the target to all classes alike."""
    return cross_entropy(logits_NK.float(), labels_N, reduction="none", label_smoothing=label_smoothing)


def mixed_losses(logits_NK: torch.Tensor, mixed: Mixed, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """(N,): each sample has two labels, in the proportion of its two images."""
    own = losses(logits_NK, mixed.labels_N, label_smoothing=label_smoothing)
    if mixed.proportions_N is None:
        return own
    other = losses(logits_NK, mixed.other_labels_N, label_smoothing=label_smoothing)
    return torch.lerp(other, own, mixed.proportions_N)
