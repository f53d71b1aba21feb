"""Numbers of a demo run, from what the job and the devcluster wrote. Pure: lists of dictionaries in, numbers out.

A metrics line is one optimizer step that finished: time (unix seconds), step, world_size, generation. See trainer/metrics.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Line = dict[str, Any]


@dataclass(frozen=True)
class ReclaimedMachine:
    """One machine taken away: when it began (unix seconds), with notice or without, and the job's wanted number of workers."""

    at: float
    notice: bool
    wanted: int


class MissingFigure(ValueError):
    """The job's records do not hold what the figure needs; the message says what is missing."""


def recovery_seconds(lines: Sequence[Line], reclaim: ReclaimedMachine) -> float:
    """From the last optimizer step before the membership change to the first step of the new generation.

    Steps taken during a notice do not count: the clock of a reclaim with notice starts at the last step before the notice.
    """
    generation = _last_before(lines, reclaim.at)["generation"]
    counted = [line for line in lines if line["generation"] == generation]
    last = _last_before(counted, reclaim.at) if reclaim.notice else counted[-1]
    return float(_first(lines, generation, 1, reclaim.at)["time"] - last["time"])


def full_size_seconds(lines: Sequence[Line], reclaim: ReclaimedMachine) -> float:
    """From the reclaim to the first step of a later generation that again has the wanted number of workers."""
    generation = _last_before(lines, reclaim.at)["generation"]
    return float(_first(lines, generation, reclaim.wanted, reclaim.at)["time"] - reclaim.at)


def joined_seconds(lines: Sequence[Line], asked_at: float, wanted: int) -> float:
    """From asking for more workers to the first step that all of them take together."""
    return float(_first(lines, 0, wanted, asked_at)["time"] - asked_at)


def most_zones_at_once(samples: Iterable[Iterable[str]]) -> int:
    """The largest number of zones that one job's running pods were seen in at the same moment."""
    return max((len(set(zones)) for zones in samples), default=0)


def _last_before(lines: Sequence[Line], at: float) -> Line:
    before = [line for line in lines if line["time"] <= at]
    if not before:
        raise MissingFigure(f"no optimizer step was recorded before {at:.1f}")
    return before[-1]


def _first(lines: Sequence[Line], after_generation: int, world_size: int, at: float) -> Line:
    """The first step later than `at` in a later generation with at least that many ranks."""
    for line in lines:
        if line["time"] > at and line["generation"] > after_generation and line["world_size"] >= world_size:
            return line
    raise MissingFigure(f"no step with {world_size} workers was recorded after generation {after_generation}")
