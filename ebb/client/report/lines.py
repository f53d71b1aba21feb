"""The metric lines of a job, reduced while they are read: a million of them become some hundred `Span`s. Pure.

    reader = Reader()
    for line in metrics_jsonl: reader.feed(line)
    training = reader.done()

Neighbouring lines share a span as soon as there are too many, and a span keeps the least, the mean and the greatest of what its
lines say: so a peak of one step is still seen among a million. Totals are those of the last line, not sums over spans.
"""

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

SPANS = 300  # at least so many once there are more lines: as many as a screen has places for
CHANGES = 500  # of the membership; with more, the shortest pauses are left out
_NUMBERS = frozenset({int, float})
FIGURES = 3  # of the program's own, in the order in which it names them


@dataclass(slots=True)
class Range:
    """One number over some lines; values that are no numbers (NaN, infinite) are left out."""

    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    count: int = 0

    def add(self, value: object) -> None:
        if (found := number(value)) is not None:
            self.low = found if found < self.low else self.low
            self.high = found if found > self.high else self.high
            self.total += found
            self.count += 1

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def join(self, later: "Range") -> None:
        self.low, self.high = min(self.low, later.low), max(self.high, later.high)
        self.total, self.count = self.total + later.total, self.count + later.count


@dataclass(slots=True)
class Span:
    """Some lines in a row. `time`, `step` and the totals are those of the last."""

    time: float = 0.0
    step: int = 0
    useful_seconds: float = 0.0
    useful_rank_seconds: float = 0.0  # the same, times the ranks that trained
    lines: int = 0
    loss: Range = field(default_factory=Range)
    rate: Range = field(default_factory=Range)
    figures: dict[str, Range] = field(default_factory=dict)
    without_loss: int = 0  # lines of a program that had none to say

    def take(self, line: dict[str, Any], useful_seconds: float, useful_rank_seconds: float) -> None:
        """The next line."""
        self.time, self.step, self.lines = line["time"], line["step"], self.lines + 1
        self.useful_seconds, self.useful_rank_seconds = useful_seconds, useful_rank_seconds
        self.loss.add(line.get("loss"))
        self.without_loss += "loss" not in line
        self.rate.add(line.get("samples_per_second"))
        figures = line.get("figures")
        if figures and isinstance(figures, dict):
            for name, value in itertools.islice(figures.items(), FIGURES):
                self.figures.setdefault(str(name), Range()).add(value)

    def join(self, later: "Span") -> None:
        self.time, self.step, self.lines = later.time, later.step, self.lines + later.lines
        self.useful_seconds, self.useful_rank_seconds = later.useful_seconds, later.useful_rank_seconds
        self.loss.join(later.loss)
        self.rate.join(later.rate)
        self.without_loss += later.without_loss
        for name, each in later.figures.items():
            self.figures.setdefault(name, Range()).join(each)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of the membership: no step was made from `at` until `until`."""

    at: float
    until: float
    generation: int  # the new one
    before: int  # world sizes
    after: int
    steps_redone: int

    @property
    def seconds(self) -> float:
        return self.until - self.at


@dataclass(frozen=True, kw_only=True)
class Training:
    """Summary of all lines."""

    spans: tuple[Span, ...] = ()
    changes: tuple[Change, ...] = ()
    changes_left_out: int = 0
    lines: int = 0
    unreadable: int = 0  # lines that were cut off or are of something else
    not_numbers: int = 0  # losses that were NaN or infinite
    first_time: float | None = None
    first_seconds: float = 0.0  # that the steps up to the first line took
    first_world_size: int = 0
    global_batch: int | None = None
    samples: int = 0  # trained on in all, each counted once
    last: Mapping[str, Any] = field(default_factory=dict)


class Reader:
    """Takes lines in the order of the file. Its memory does not grow with their number."""

    def __init__(self, spans: int = SPANS) -> None:
        self._limit, self._share = 2 * spans, 1  # lines for each span
        self._spans: list[Span] = []
        self._filled = 0  # lines in the last span
        self._changes: list[Change] = []
        self._useful = self._rank_seconds = 0.0
        self._left_out = self._lines = self._unreadable = 0
        self._first: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._batch: int | None = None

    def feed(self, text: str | bytes) -> None:
        """One line of metrics.jsonl; what is none is counted."""
        if not text.strip():
            return
        try:
            line = _parsed(text)
        except ValueError:
            line = None
        if isinstance(line, dict) and number(line.get("time")) is not None and type(line.get("step")) is int:
            self.add(line)
        else:
            self._unreadable += 1

    def add(self, line: dict[str, Any]) -> None:
        """One line's facts."""
        last, self._last = self._last, line
        self._lines += 1
        if not last:
            self._first = line
        elif line.get("generation") != last.get("generation"):
            self._note(last, line)
        useful = number(line.get("useful_seconds")) or 0.0
        # Between two lines the world is that of the second: a membership changes at a step, and lines are written after steps.
        self._rank_seconds += (useful - self._useful) * _count(line, "world_size")
        self._useful = useful
        if self._batch is None and (samples := _count(line, "samples")) and line["step"] > 0:
            self._batch = max(1, round(samples / line["step"]))  # all steps but the last have the whole global batch
        self._span().take(line, useful, self._rank_seconds)

    def done(self) -> Training:
        return Training(
            spans=tuple(self._spans),
            changes=tuple(sorted(self._changes, key=lambda change: change.at)),
            changes_left_out=self._left_out,
            lines=self._lines,
            unreadable=self._unreadable,
            not_numbers=sum(span.lines - span.loss.count - span.without_loss for span in self._spans),
            first_time=self._first.get("time"),
            first_seconds=number(self._first.get("useful_seconds")) or 0.0,
            first_world_size=_count(self._first, "world_size"),
            global_batch=self._batch,
            samples=_count(self._last, "samples"),
            last=self._last,
        )

    def _span(self) -> Span:
        """Return where the next line belongs."""
        if self._spans and self._filled < self._share:
            self._filled += 1
            return self._spans[-1]
        if len(self._spans) == self._limit:
            for first, second in zip(self._spans[::2], self._spans[1::2], strict=True):
                first.join(second)
            self._spans, self._share = self._spans[::2], 2 * self._share
        self._spans.append(Span())
        self._filled = 1
        return self._spans[-1]

    def _note(self, last: dict[str, Any], line: dict[str, Any]) -> None:
        """Another membership than before."""
        change = Change(
            at=last["time"],
            until=max(line["time"], last["time"]),
            generation=_count(line, "generation"),
            before=_count(last, "world_size"),
            after=_count(line, "world_size"),
            steps_redone=max(0, _count(line, "steps_redone") - _count(last, "steps_redone")),
        )
        self._changes.append(change)
        if len(self._changes) > 2 * CHANGES:
            self._left_out += len(self._changes) - CHANGES
            self._changes = sorted(self._changes, key=lambda each: -each.seconds)[:CHANGES]


def _parsed(text: str | bytes) -> Any:
    """JSON, and Python's NaN and Infinity, which a trainer writes whose loss is gone."""
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text)


def number(value: object) -> float | None:
    """A number that can be drawn; JSON's true and false are none."""
    return float(value) if type(value) in _NUMBERS and math.isfinite(value) else None  # type: ignore[arg-type]


def _count(line: Mapping[str, Any], key: str) -> int:
    return int(number(line.get(key)) or 0)
