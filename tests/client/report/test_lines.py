"""A million metric lines become some hundred points, and nothing that a person would look for is lost on the way."""

import json
import math
from itertools import pairwise
from typing import Any

import pytest

from ebb.client.jobs.goodput import share
from ebb.client.report.lines import CHANGES, SPANS, Range, Reader, Training
from tests.client.report import story


def read(*lines: bytes) -> Training:
    reader = Reader()
    for line in lines:
        reader.feed(line)
    return reader.done()


def line(**facts: object) -> bytes:
    return json.dumps({"time": 100.0, "step": 1, "loss": 1.0, **facts}).encode() + b"\n"


def test_few_lines_stay_what_they_are() -> None:
    found = read(*story.text(story.metric_lines(((40.0, 2, 0),), until=60.0)).splitlines(keepends=True))
    assert found.lines == len(found.spans) == 100  # 20 seconds with steps of 0.2
    assert [span.step for span in found.spans] == list(range(1, 101))
    assert (found.spans[0].time, found.spans[-1].time) == (story.BEGIN + 40.2, story.BEGIN + 60.0)
    assert found.global_batch == story.BATCH
    assert all(span.loss.low == span.loss.mean == span.loss.high for span in found.spans)


def test_very_many_lines_are_a_few_points_with_their_peak_and_their_mean() -> None:
    """As a million lines are of the usual number of points."""
    spans, lines, odd = 16, 1_000_000 * 16 // SPANS, 777_777 * 16 // SPANS
    reader, line = Reader(spans=spans), {"time": 0.0, "step": 0, "loss": 1.0}
    for step in range(1, lines + 1):
        reader.add({**line, "time": step * 0.5, "step": step, "loss": 99.0 if step == odd else 1.0})
    found = reader.done()
    assert spans <= len(found.spans) <= 2 * spans
    assert found.lines == sum(span.lines for span in found.spans) == lines
    peak = next(span for span in found.spans if span.loss.high == 99.0)
    assert peak.time / 0.5 - peak.lines < odd <= peak.time / 0.5
    assert sum(span.loss.total for span in found.spans) == pytest.approx(lines + 98.0)
    assert found.spans[-1].step == lines


def useful_rank_seconds(lines: list[dict[str, Any]], spans: int = SPANS) -> float:
    reader = Reader(spans=spans)
    for each in lines:
        reader.add(each)
    return reader.done().spans[-1].useful_rank_seconds


def test_useful_time_counts_on_the_ranks_that_trained_however_few_points_are_kept() -> None:
    lines = list(story.metric_lines())
    ordered = [{"useful_seconds": 0.0}, *lines]
    gained = ((later["useful_seconds"] - earlier["useful_seconds"]) * later["world_size"] for earlier, later in pairwise(ordered))
    assert useful_rank_seconds(lines, spans=10) == pytest.approx(sum(gained))


def test_lines_count_each_gain_on_the_machines_that_made_it() -> None:
    useful, worlds = (10, 20, 30, 25, 35), (2, 2, 1, 1, 4)
    lines = [
        {"time": float(at), "step": at, "useful_seconds": seconds, "world_size": world}
        for at, (seconds, world) in enumerate(zip(useful, worlds, strict=True))
    ]
    assert useful_rank_seconds(lines) == 20 + 20 + 10 - 5 + 40
    assert useful_rank_seconds(lines) / 2 == 42.5, "with two ranks a machine"
    assert share(useful_rank_seconds(lines), 170) == 0.5
    assert share(0.0, 100) == 0.0


def test_changes_of_the_membership_are_kept_with_what_they_cost() -> None:
    found = read(*story.text(story.metric_lines()).splitlines(keepends=True))
    assert [(change.before, change.after, change.generation) for change in found.changes] == [(2, 1, 2), (1, 2, 3), (2, 3, 4)]
    assert [change.steps_redone for change in found.changes] == [1, 0, 0]
    assert all(2.0 <= change.seconds <= 3.0 for change in found.changes)


def test_of_very_many_changes_the_longest_pauses_are_kept() -> None:
    reader = Reader()
    for generation in range(3 * CHANGES):
        pause = 1000.0 if generation == 7 else 1.0
        reader.add({"time": generation * 2000.0, "step": generation, "generation": generation})
        reader.add({"time": generation * 2000.0 + 2000.0 - pause, "step": generation, "generation": generation})
    found = reader.done()
    assert len(found.changes) <= 2 * CHANGES
    assert found.changes_left_out == 3 * CHANGES - 1 - len(found.changes)
    assert max(found.changes, key=lambda change: change.seconds).generation == 8
    assert [change.at for change in found.changes] == sorted(change.at for change in found.changes)


@pytest.mark.parametrize(
    "bad",
    [
        b"\n",
        b'{"time": 1.0, "st',
        b"[1, 2]\n",
        b'{"step": 3}\n',
        b'{"time": "now", "step": 3}\n',
        b'{"time": 1, "step": true}\n',
        b"\xff\n",
    ],
    ids=["empty", "torn", "list", "no time", "text", "true", "bytes"],
)
def test_what_is_no_line_is_left_out(bad: bytes) -> None:
    found = read(line(step=1), bad, line(step=2))
    assert (found.lines, found.unreadable) == (2, 0 if bad == b"\n" else 1)


def test_a_loss_that_is_no_number_is_counted_and_not_drawn() -> None:
    found = read(line(step=1), line(step=2, loss=math.nan), line(step=3, loss=math.inf), line(step=4, loss=None))
    assert found.not_numbers == 3
    assert [span.loss.mean for span in found.spans] == [1.0, None, None, None]


def test_no_line_at_all() -> None:
    assert Reader().done() == Training()


def test_ranges_join() -> None:
    first, second = Range(), Range()
    for value in (1.0, 5.0, math.nan):
        first.add(value)
    second.add(-2)
    first.join(second)
    assert (first.low, first.mean, first.high, first.count) == (-2.0, 4.0 / 3, 5.0, 3)
