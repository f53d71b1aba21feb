"""The cost of a change, by the steps that were written down: the time without any, and those redone or left out. Pure.

change = between(lines, incarnations_before, 2)    # from the last step before it to the first one after it
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Line:
    """A step that one process has done. `incarnation`: all processes that met at once have the same, and no others.
    `first` and `end`: how many samples the job had used, in the order of its epochs, before and after it."""

    time: float
    incarnation: str
    world_size: int
    first: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Change:
    seconds: float  # without a step
    steps_redone: float  # of the size that they had before
    samples_lost: int  # that nobody has trained on in their epoch, in what the job goes on with


def between(lines: Sequence[Line], before: Collection[str], world_size: int) -> Change | None:
    """`before` are the incarnations there were. None while there is no step of a later one of this size."""
    old = [line for line in lines if line.incarnation in before]
    new = [line for line in lines if line.incarnation not in before and line.world_size == world_size]
    if not old or not new:
        return None
    last, first = max(old, key=lambda line: line.time), min(new, key=lambda line: line.time)
    size = last.end - last.first
    return Change(
        seconds=round(first.time - last.time, 3),
        steps_redone=round(max(0, last.end - first.first) / size, 2),
        samples_lost=max(0, first.first - last.end),
    )
