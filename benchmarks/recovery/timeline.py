"""The cost of a change, by the steps that were written down: the time without any, and those redone or left out. Pure.

change = between(lines, incarnations_before, 2, happened=now)    # until the first step of two after it

The seconds of a change are those that no ordinary step explains, from the moment it happens: a step that lasts a second is not
lost because a change came before it. The step under way that is done again is told apart (gap_seconds).
"""

import itertools
import statistics
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
    seconds: float  # the longest time without a step, beyond an ordinary one, from the change until all train together again
    gap_seconds: float  # the longest time between two steps
    full_seconds: float  # from the last step before the change until all train together again
    step_seconds: float  # of an ordinary step of the size at the end of that longest time
    steps_redone: float  # of the size that they had before
    samples_lost: int  # that nobody has trained on in their epoch, in what the job goes on with
    bytes_read: int = 0  # by the processes of the machines that are left
    pids_kept: bool = False  # theirs are the same as before
    transfer_seconds: float = 0.0  # in which a state went to those that are new
    load: float = 0.0  # average of the machine's last minute


def between(lines: Sequence[Line], before: Collection[str], world_size: int, *, happened: float = 0.0) -> Change | None:
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
    ordinary = {size: step_seconds(lines, size) for size in {line.world_size for line in steps}}
    gaps = [
        (following.time - max(one.time, happened) - ordinary[following.world_size], ordinary[following.world_size])
        for one, following in pairs
    ]
    return Change(
        seconds=round(max(0.0, max(gaps)[0]), 3),
        gap_seconds=round(max(following.time - one.time for one, following in pairs), 3),
        full_seconds=round(new[together].time - last.time, 3),
        step_seconds=round(max(gaps)[1], 3),
        steps_redone=round(redone / (last.end - last.first), 2),
        samples_lost=sum(max(0, following.first - one.end) for one, following in changes),
    )


def step_seconds(lines: Sequence[Line], world_size: int) -> float:
    """The median over all memberships of this size; 0 where none has done two steps."""
    found = [
        following.time - one.time
        for one, following in itertools.pairwise(sorted(lines, key=lambda line: (line.incarnation, line.time)))
        if one.incarnation == following.incarnation and one.world_size == world_size
    ]
    return statistics.median(found) if found else 0.0
