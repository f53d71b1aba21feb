"""How long each rank has waited for data: a step is as slow as the slowest rank, and that one knows which knob to turn.

    waits = Waits(rank, world_size, seconds=lambda: source.waited_seconds)
    waits.begin_step();  agreement = group.agree(..., sums=waits.mine())
    waits.of_all(agreement.wait().sums)         # Waited(seconds=0.2, rank=3)

The ranks add up vectors in which each has places of its own, so that every rank knows all of them.
"""

from collections.abc import Callable
from typing import NamedTuple


class Waited(NamedTuple):
    seconds: float  # the longest wait of any rank in this step
    rank: int  # that has waited most since the last line


class Waits:
    """Of one rank in one generation."""

    def __init__(self, rank: int, world_size: int, seconds: Callable[[], float]) -> None:
        self._rank, self._world_size, self._seconds = rank, world_size, seconds
        self._before = 0.0  # this step
        self._told = [0.0] * world_size  # by each rank at the last line, since the start

    def begin_step(self) -> None:
        self._before = self._seconds()

    def mine(self) -> list[float]:
        """Two numbers for each rank: its wait in this step, and since the start."""
        found = [0.0] * (2 * self._world_size)
        found[2 * self._rank : 2 * self._rank + 2] = [self._seconds() - self._before, self._seconds()]
        return found

    def of_all(self, sums: list[float]) -> Waited:
        """From the sum over the ranks of mine()."""
        of_step, since_start = sums[::2], sums[1::2]
        since_line = [now - before for now, before in zip(since_start, self._told, strict=True)]
        self._told = since_start
        return Waited(max(of_step), since_line.index(max(since_line)))
