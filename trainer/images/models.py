"""The models: every classification network of torchvision, by its name.

    build("efficientnet_b7", num_classes=1000, image_size=600)

Weights always start from the seed: nothing is downloaded. The auxiliary heads of GoogLeNet and Inception are left out, so that
every network gives one tensor (N, classes). BatchNorm: each rank normalises with the statistics of its own micro-batches; the
running statistics that are kept (in checkpoints, for evaluation) are those of rank 0 of the generation, whose share of a step is
never smaller than another's. Nothing is sent between ranks for them during a step; rank 0's are handed to all before evaluation.
"""

import difflib
from typing import Any

import torch
from torchvision import models
from torchvision.models import get_model, list_models  # type: ignore[attr-defined]

from ebb.elastic import ConfigError


class UnknownModelError(ConfigError):
    """torchvision has no classification network of this name, or not for images of this size."""


def names() -> list[str]:
    """The allowed names."""
    return list(list_models(module=models))


def build(name: str, num_classes: int, image_size: int = 224) -> torch.nn.Module:
    """The network with fresh weights from torch's random state.

    `image_size` matters to the few networks that are made for one size (vit_*, maxvit_t); the others take any.
    Raises UnknownModelError with the allowed names.
    """
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise UnknownModelError(f"--arch is {name!r}; {hint}allowed: {', '.join(names())}")
    try:
        network: torch.nn.Module = get_model(name, weights=None, num_classes=num_classes, **_options(name, image_size))
    except (ValueError, AssertionError) as error:  # torch._assert, for a size that the patches do not divide
        reason = str(error).splitlines()[0][:200]
        raise UnknownModelError(f"--arch {name} cannot be made for --image-size {image_size}: {reason}") from error
    return network


def _options(name: str, image_size: int) -> dict[str, Any]:
    if name.startswith("vit_"):
        return {"image_size": image_size}
    if name == "maxvit_t":
        return {"input_size": (image_size, image_size)}
    if name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}
    return {}
