"""How many answers are right, counted on the device without waiting for it.

    right_answers(scores_NK, labels_N)      # {"top1": 93, "top5": 99} as tensors: sums add up over ranks and batches of any size

Shapes: N samples, K classes.
"""

import torch


def right_answers(scores_NK: torch.Tensor, labels_N: torch.Tensor) -> dict[str, torch.Tensor]:
    """Samples whose label has the highest score, and whose label is among the five highest; with fewer classes, all."""
    places_N = places(scores_NK.detach(), labels_N)
    return {"top1": (places_N < 1).sum(), "top5": (places_N < 5).sum()}


def places(logits_NK: torch.Tensor, labels_N: torch.Tensor) -> torch.Tensor:
    """(N,): how many classes come before the label's. Of equal scores the lower class comes first, as argmax has it; a score that
    is not a number comes before all, so a network that has diverged gets nothing right."""
    own_N1 = logits_NK.gather(1, labels_N[:, None])
    classes_K = torch.arange(logits_NK.shape[1], device=logits_NK.device)
    higher_NK = ~(logits_NK <= own_N1)
    equal_before_NK = (logits_NK == own_N1) & (classes_K < labels_N[:, None])
    places_N: torch.Tensor = (higher_NK | equal_before_NK).sum(1)
    return places_N
