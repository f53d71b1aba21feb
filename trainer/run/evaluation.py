"""Evaluation: every sample exactly once over all ranks, nothing padded, sums added up at the end.

    figures = evaluate(model, dataset, measure, group, batch_size=256, workers=4)      # {"top1": 0.93, "samples": 10000.0}

Ranks may have different numbers of batches, or none: no rank waits for another before the end.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from trainer.data.order import in_order
from trainer.run.feed import Loader
from trainer.run.group import Group
from trainer.run.step import Sums

Measure = Callable[[Any], Mapping[str, "torch.Tensor | float"]]


@torch.no_grad()
def evaluate(
    models: list[torch.nn.Module], loader: Loader, measure: Measure, group: Group, *, batch_size: int
) -> dict[str, float]:
    """`measure` gets a batch on the device and returns sums over its samples, by name; the result has their means over all
    samples, and `samples`, their number: the same on every rank.

    The buffers become rank 0's; the models are left in the mode (train or eval) in which they were.
    """
    group.hand_out_tensors([each for model in models for each in model.buffers()])
    plan = in_order(len(loader), group.rank, group.world_size, batch_size)
    sums = Sums(group.device)
    training = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        for _, batch in loader.start(plan, group.device, say=_silent):
            for name, value in measure(batch).items():
                sums.add(name, value, 1.0)
    finally:
        for model, mode in zip(models, training, strict=True):
            model.train(mode)
    return _means(sums, sum(map(len, plan)), group)


def _means(sums: Sums, samples: int, group: Group) -> dict[str, float]:
    names: list[str] = group.hand_out_facts(sums.names)  # a rank without a batch knows none
    total, *totals = group.sum([float(samples), *sums.take(names)])
    return {**{name: value / total for name, value in zip(names, totals, strict=True)}, "samples": total}


def _silent(_: str) -> None:
    pass
