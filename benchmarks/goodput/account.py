"""Goodput, and what each event cost, from the steps that were written down; benchmarks/goodput says what counts. Pure.

window = Window(reference=..., began=..., ended=...)
account = take_account(lines, [Happened(name="notice", time=...), ...], window)
account.goodput, account.seconds_lost, account.waits[0]
"""

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.recovery.timeline import Line

LEAST_STEPS = 20  # before the first event, for a rate


class UnmeasuredError(Exception):
    """The steps do not say how fast an undisturbed job is."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Unix seconds. The rate is that of the steps from `reference` to `began`; goodput is of the time from then on."""

    reference: float
    began: float
    ended: float


@dataclass(frozen=True, kw_only=True)
class Happened:
    name: str
    time: float


@dataclass(frozen=True, kw_only=True)
class Account:
    goodput: float
    steps: int  # that count
    ideal_steps: float
    seconds_lost: float  # in which an undisturbed job makes the steps that are missing
    seconds_without_step: float  # the sum of `waits`
    steps_redone: int  # thrown away since the first event; most were done again
    step_seconds: float  # before the first event
    waits: list[float]  # of each event, in their order: longest_waits


def lineage(lines: Sequence[Line]) -> list[Line]:
    """The steps that are in the job's weights after the last line: a step takes the place of all that began at its samples or
    after them, since whoever made it had none of those."""
    found: list[Line] = []
    for line in sorted(lines, key=lambda line: line.time):
        while found and found[-1].end > line.first:
            found.pop()
        found.append(line)
    return found


def undisturbed_step_seconds(lines: Sequence[Line], window: Window) -> float:
    """The mean before the first event. Raises UnmeasuredError."""
    times = sorted(line.time for line in lines if window.reference <= line.time <= window.began)
    if len(times) < LEAST_STEPS:
        seconds = window.began - window.reference
        raise UnmeasuredError(f"{len(times)} steps in the {seconds:.0f} s before the first event, fewer than {LEAST_STEPS}")
    return (times[-1] - times[0]) / (len(times) - 1)


def longest_waits(lines: Sequence[Line], happened: Sequence[Happened], ended: float, step_seconds: float) -> list[float]:
    """Of each event the longest time without a step after it, beyond an ordinary step, until the next one happens, or the end."""
    times = sorted(line.time for line in lines)
    found = []
    for begin, end in pairwise([*(each.time for each in happened), ended]):
        inside = times[bisect_right(times, begin) : bisect_left(times, end)]
        found.append(max(0.0, max(later - sooner for sooner, later in pairwise([begin, *inside, end])) - step_seconds))
    return found


def take_account(lines: Sequence[Line], happened: Sequence[Happened], window: Window) -> Account:
    """`lines` may go on after the end: they say what of the steps before it was thrown away. Raises UnmeasuredError."""
    step_seconds = undisturbed_step_seconds(lines, window)
    ideal = (window.ended - window.began) / step_seconds
    before = lineage([line for line in lines if line.time <= window.began])
    # Steps from before the window that an event throws away are missing in it, and may be more than it has made so far.
    steps = max(0, sum(line.time <= window.ended for line in lineage(lines)) - len(before))
    waits = longest_waits(lines, happened, window.ended, step_seconds)
    return Account(
        goodput=round(steps / ideal, 4),
        steps=steps,
        ideal_steps=round(ideal, 1),
        seconds_lost=round((ideal - steps) * step_seconds, 1),
        seconds_without_step=round(sum(waits), 1),
        steps_redone=sum(window.began < line.time <= window.ended for line in lines) - steps,
        step_seconds=round(step_seconds, 4),
        waits=waits,
    )


def by_name(happened: Sequence[Happened], waits: Sequence[float]) -> dict[str, dict[str, float]]:
    """The number of each kind of event, and the seconds without a step after it."""
    found: dict[str, list[float]] = {}
    for each, seconds in zip(happened, waits, strict=True):
        found.setdefault(each.name, []).append(seconds)
    return {
        name: {
            "count": len(seconds),
            "median_seconds": round(statistics.median(seconds), 2),
            "largest_seconds": round(max(seconds), 2),
        }
        for name, seconds in found.items()
    }
