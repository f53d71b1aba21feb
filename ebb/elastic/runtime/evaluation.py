"""Evaluation: every sample exactly once over all ranks, nothing padded, sums added up at the end.

    figures = evaluate(models, loader, measure, group, batch_size=256, told=told)      # {"top1": 0.93, "samples": 10000.0}

Ranks may have different numbers of batches, or none: no rank waits for another before the end. It may take longer than a notice
lasts. So a rank that hears one leaves a word in the group's store, where the others look now and then, and all stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ebb.compat import zip
from ebb.elastic.checkpoint.sharded import DTensor
from ebb.elastic.data.order import Sample, in_order
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.loading import Loader
from ebb.elastic.runtime.pod import Pod
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.step import Sums

Measure = Callable[[Any], Mapping[str, "torch.Tensor | float"]]
_LOOK_SECONDS = 0.25  # between two looks at the store


class Stopped(Exception):
    """On all ranks: one was told to leave before the evaluation was through."""


@torch.no_grad()
def evaluate(
    models: list[torch.nn.Module],
    loader: Loader,
    measure: Measure,
    group: Group,
    *,
    batch_size: int,
    told: Callable[[], bool],
    more: Iterable[torch.Tensor] = (),
    pod: Pod | None = None,
) -> dict[str, float]:
    """`measure` gets a batch on the device and returns sums over its samples, by name; the result has their means over all
    samples, and `samples`, their number: the same on every rank.

    The buffers, and the tensors in `more`, become rank 0's; the models are left in the mode (train or eval) in which they were.
    `told` is asked after every batch whether to stop: then all ranks do. The ranks of a `pod` make as many passes, of
    which the last ones may count nothing. Raises Stopped.
    """
    # a rank of a sharded model has its own part of its weights, which are the same in all pods
    tensors = [each for each in (*(one for model in models for one in model.buffers()), *more) if not isinstance(each, DTensor)]
    together: Callable[[Callable[[], Any]], Any] = _alone if pod is None else pod.together
    together(lambda: group.hand_out_tensors(tensors))
    plan = in_order(len(loader), group.rank, group.world_size, batch_size)
    counted = len(plan)
    if pod is not None:
        plan += [[Sample(0, 0)]] * (len(in_order(len(loader), 0, group.world_size, batch_size)) - counted)
    sums = Sums(group.device)
    stopped = False
    training = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        for number, (_, batch) in enumerate(loader.start(plan, group.device, say=_silent)):
            found = measure(batch)
            if number < counted:
                for name, value in found.items():
                    sums.add(name, value, 1.0)
            heard = together(told)
            if stopped := heard if pod is None else pod.any(heard):
                break
    finally:
        for model, mode in zip(models, training, strict=True):
            model.train(mode)
    figures: dict[str, float] | None = together(lambda: _means(sums, sum(map(len, plan[:counted])), stopped, group))
    if figures is None:
        raise Stopped
    return figures


def listener(notice: Notice, group: Group, clock: Callable[[], float] = time.monotonic) -> Callable[[], bool]:
    """Return a function that is True once this rank, which then informs the others, or another one has heard a notice."""
    looked = clock()

    def heard_notice() -> bool:
        nonlocal looked
        if notice.seen:
            group.tell_leaving()
            return True
        if clock() - looked < _LOOK_SECONDS:
            return False
        looked = clock()
        return group.told_to_leave()

    return heard_notice


def _alone(work: Callable[[], Any]) -> Any:
    return work()


def _means(sums: Sums, samples: int, stopped: bool, group: Group) -> dict[str, float] | None:
    """None where a rank has stopped."""
    names: list[str] = group.hand_out_facts(sums.names)  # a rank without a batch knows none
    stops, total, *totals = group.sum([float(stopped), float(samples), *sums.take(names)])
    if stops:
        return None
    return {**{name: value / total for name, value in zip(names, totals, strict=True)}, "samples": total}


def _silent(_: str) -> None:
    pass
