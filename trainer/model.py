"""The models: every classification network of torchvision, by its name.

    build("resnet18", num_classes=10)

Weights always start from the seed: nothing is downloaded. BatchNorm: each rank normalises with the statistics of its own
micro-batches; the running statistics that are kept (in checkpoints, for evaluation) are those of rank 0 of the generation,
whose share of a step is never smaller than another's. Nothing is sent between ranks for them during a step; `train.py` hands
rank 0's to all before evaluation.
"""

import difflib

import torch
from torchvision import models
from torchvision.models import get_model, list_models  # type: ignore[attr-defined]


class UnknownModelError(ValueError):
    """torchvision has no classification network of this name."""


def names() -> list[str]:
    """The allowed names."""
    return list(list_models(module=models))


def build(name: str, num_classes: int) -> torch.nn.Module:
    """The network with fresh weights from torch's random state.

    Raises UnknownModelError with the allowed names.
    """
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise UnknownModelError(f"--arch is {name!r}; {hint}allowed: {', '.join(names())}")
    network: torch.nn.Module = get_model(name, weights=None, num_classes=num_classes)
    return network
