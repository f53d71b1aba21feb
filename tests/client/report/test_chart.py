"""Axes hold what they are made for, whatever its size, and say it in words that fit."""

import pytest

from ebb.client.report.chart import (
    MOST_TICKS,
    Axis,
    axis,
    count_axis,
    duration,
    log_axis,
    percent,
    seconds_axis,
    short,
    usd,
    whole_axis,
)

SIZES = (1e-12, 3e-5, 0.0499, 0.7, 1.0, 9.99, 64.0, 12345.0, 7e8)


def holds(found: Axis, low: float, high: float) -> None:
    assert found.low <= low + 1e-9 * abs(low)
    assert found.high >= high - 1e-9 * abs(high)
    assert 2 <= len(found.ticks) <= 2 * MOST_TICKS
    assert list(found.ticks) == sorted(set(found.ticks))
    places = [found.place(tick) for tick in found.ticks]
    assert places == sorted(places)
    assert -1e-6 <= places[0] <= places[-1] <= 1 + 1e-6
    words = [found.write(tick) for tick in found.ticks]
    assert len(set(words)) == len(words), words


@pytest.mark.parametrize("size", SIZES)
def test_numbers(size: float) -> None:
    for low, high in ((0.0, size), (size, 2 * size), (-size, size), (size, size), (0.9 * size, size)):
        holds(axis(low, high), low, high)
    holds(log_axis(size, 3000 * size), size, 3000 * size)
    holds(log_axis(size, 1e9 * size), size, 1e9 * size)


@pytest.mark.parametrize("length", [0.5, 5.0, 61.0, 182.0, 3700.0, 86400.0, 9e5, 4e7])
def test_times(length: float) -> None:
    for begin in (0.0, 1000.0):
        found = seconds_axis(begin, begin + length)
        assert len(found.ticks) <= MOST_TICKS + 1
        assert all(found.low <= tick <= found.high for tick in found.ticks)
        words = [found.write(tick) for tick in found.ticks]
        assert len(set(words)) == len(words), words
        assert max(map(len, words), default=0) <= 8


def test_counts_end_where_the_count_does() -> None:
    assert count_axis(0.0, 50_688.0).high == 50_688.0
    assert count_axis(0.0, 0.0).high == 1.0
    assert whole_axis(0).ticks == (0.0, 1.0)
    assert whole_axis(3).ticks == (0.0, 1.0, 2.0, 3.0)
    assert whole_axis(64).ticks[-1] == 66.0


def test_words() -> None:
    assert [short(value) for value in (0.0, 0.125, 1500.0, 12_345.0, 1.2e6, 3e-7)] == [
        "0",
        "0.125",
        "1500",
        "12.35k",
        "1.2M",
        "3e-7",
    ]
    assert [duration(value) for value in (0.44, 2.0, 41.2, 68.0, 7500.0, 90_000.0)] == [
        "0.4 s", "2 s", "41 s", "1 min 8 s", "2 h 5 min", "1 d 1 h",
    ]  # fmt: skip
    assert [usd(value) for value in (0.0, 0.0185, 0.5, 1234.5)] == ["$0.00", "$0.0185", "$0.50", "$1,234.50"]
    assert [percent(value) for value in (0.0, 0.00444, 0.915, 1.0)] == ["0 %", "0.4 %", "91.5 %", "100 %"]
