"""Weights of micro-batches: the mean over what counts in a step, such as its tokens, and not over its samples.

    step.backward(loss, weight=tokens)                  # the loss is a mean over `tokens` tokens

The gradient of a step is then the sum of weight * gradient over all micro-batches of all ranks, divided by the sum of the
weights. That sum is known when the last rank is at its last micro-batch. So gradients are summed undivided, the weights beside
them in an all-reduce of two numbers that starts before the last backward pass, and all ranks divide once, before the optimizer.

A generation is weighted or not, as all ranks know after its first step: a run without weights pays for one such sum a generation.

Sums over thousands of tokens would overflow in fp16: so each step is divided beforehand by the power of two that is nearest to
the weights of the step before, which all ranks of the generation know, and the first one by that nearest to its samples. By
powers of two, since they change no bit of the result: a step is the same in whichever generation it comes first.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import Any

import torch

from ebb.elastic.runtime.process_group import Group, PeerLostError

_ALLOWED = "a finite number of 0 or more: how much of the micro-batch counts in its mean loss, such as the number of its tokens"


def check_weight(weight: Any, step: int) -> float:
    """The weight of a micro-batch as a number. Raises ValueError."""
    one = isinstance(weight, torch.Tensor) and weight.numel() == 1 and not weight.is_complex()
    number = float(weight) if one or (isinstance(weight, Real) and not isinstance(weight, bool)) else math.nan
    if math.isfinite(number) and number >= 0:
        return number
    shown = f"<a tensor of shape {tuple(weight.shape)}>" if isinstance(weight, torch.Tensor) and not one else repr(weight)
    raise ValueError(f"step {step}: step.backward(loss, weight={shown}); allowed is {_ALLOWED}")


class Weights:
    """Of one rank's micro-batches, and their sum over the ranks of `group`."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._weighted: bool | None = None  # the steps of this generation; None: not known before the first
        self._mine = 0.0
        self._unit = 0.0  # of this step's weights; 0: its samples
        self._sums: Callable[[], list[float]] | None = None  # over the ranks, on their way
        self._lost: PeerLostError | None = None

    def forget(self) -> None:
        """Nothing of the step is done."""
        self._mine, self._sums, self._lost = 0.0, None, None

    def follow(self) -> None:
        """The group has other ranks now, and some are new."""
        self._weighted, self._unit = None, 0.0

    def part(self, weight: float, step_size: int) -> float:
        """A micro-batch's of the step, as far as that is known before it ends."""
        return weight / (self._unit or _power_near(step_size))

    def add(self, weight: float | None, *, last: bool) -> None:
        """Before a backward pass. `last`: the next one gives this rank's gradients to others."""
        has_weight = weight is not None
        self._mine += weight or 0.0
        if not last:
            return
        if self._weighted is not None and self._weighted != has_weight:
            raise refuse_mix("other steps")
        if self._weighted is False:
            return
        try:
            self._sums = self._group.begin_sum([self._mine, float(has_weight)])
        except PeerLostError as error:
            self._lost = error  # settle() raises it, where all that is lost with a generation is noticed

    def settle(self, step_size: int) -> tuple[float, float]:
        """The sum over all ranks, and the factor that part() lacked; (0, 1) without weights. Raises PeerLostError, ValueError."""
        if self._lost is not None:
            raise self._lost
        if self._sums is None:
            return 0.0, 1.0
        total, weighted = self._sums()
        self.forget()
        if weighted not in (0.0, float(self._group.world_size)):
            raise refuse_mix("other ranks")
        self._weighted = weighted > 0
        if not self._weighted:
            return 0.0, 1.0
        factor = (self._unit or _power_near(step_size)) / positive(total)
        self._unit = _power_near(total)
        return total, factor


def _power_near(number: float) -> float:
    return float(2.0 ** round(math.log2(number)))


def positive(total: float) -> float:
    """The sum of a step's weights. Raises ValueError."""
    if total > 0:
        return total
    raise ValueError(
        "the weights of all micro-batches of the step are 0 on all ranks: it has no mean loss; leave out what has no tokens when "
        "the data is made, or use a larger global_batch"
    )


def refuse_mix(others: str) -> RuntimeError:
    return RuntimeError(
        f"step.backward() has a weight in some places, and none in {others}: give weight=... in every micro-batch of every step, "
        "or in none"
    )


@torch.no_grad()
def multiply(gradients: Iterable[torch.Tensor | None], factor: float) -> None:
    """All of them, in place."""
    present = [each for each in gradients if each is not None]
    dense = [each for each in present if not each.is_sparse]
    if dense:
        torch._foreach_mul_(dense, factor)
    for each in present:
        if each.is_sparse:
            each.mul_(factor)


@contextlib.contextmanager
def without_gradients(parameters: Iterable[torch.nn.Parameter]) -> Iterator[None]:
    """A backward pass that adds exactly nothing, where 0 times a loss of no token, which is NaN, would add NaN. It runs all the
    same: other ranks wait for the collectives in it."""
    hooks = [each.register_hook(torch.zeros_like) for each in parameters if each.requires_grad]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()
