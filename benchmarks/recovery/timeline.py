"""The cost of a change, by the steps that were written down: the time without any, and those redone or left out. Pure.

change = between(lines, incarnations_before, 2)    # from the last step before it to the first one of two after it
"""

import itertools
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
    seconds: float  # the longest time without a step, until all train together again
    full_seconds: float  # until then
    steps_redone: float  # of the size that they had before
    samples_lost: int  # that nobody has trained on in their epoch, in what the job goes on with


def between(lines: Sequence[Line], before: Collection[str], world_size: int) -> Change | None:
    """`before` are the incarnations there were. None while there is no step of a later one of this size. Some may have trained
    meanwhile without the others."""
    old = [line for line in lines if line.incarnation in before]
    new = sorted((line for line in lines if line.incarnation not in before), key=lambda line: line.time)
    together = next((number for number, line in enumerate(new) if line.world_size == world_size), None)
    if not old or together is None:
        return None
    last = max(old, key=lambda line: line.time)
    steps = [last, *new[: together + 1]]
    pairs = list(itertools.pairwise(steps))
    changes = [(one, following) for one, following in pairs if one.incarnation != following.incarnation]
    redone = sum(max(0, one.end - following.first) for one, following in changes)
    return Change(
        seconds=round(max(following.time - one.time for one, following in pairs), 3),
        full_seconds=round(new[together].time - last.time, 3),
        steps_redone=round(redone / (last.end - last.first), 2),
        samples_lost=sum(max(0, following.first - one.end) for one, following in changes),
    )
