"""Axes hold what they are made for, whatever its size, and say it in words that fit."""

import pytest

from ebb.client.report.chart import MOST_STEPS, Axis, axis, duration, log_axis, percent, short, usd

SIZES = (1e-12, 3e-5, 0.0499, 0.7, 1.0, 9.99, 64.0, 12345.0, 7e8)


def holds(found: Axis, low: float, high: float) -> None:
    assert found.low <= low + 1e-9 * abs(low)
    assert found.high >= high - 1e-9 * abs(high)
    assert 2 <= len(found.ticks) <= 2 * MOST_STEPS
    places, words = [found.place(tick) for tick, _ in found.ticks], [text for _, text in found.ticks]
    assert len(set(places)) == len(places)
    assert places == sorted(places)
    assert -1e-6 <= places[0] <= places[-1] <= 1 + 1e-6
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
        found = axis(begin, begin + length, kind="seconds", exact=True)
        assert len(found.ticks) <= MOST_STEPS + 1
        assert all(found.low <= tick <= found.high for tick, _ in found.ticks)
        words = [text for _, text in found.ticks]
        assert len(set(words)) == len(words), words
        assert max(map(len, words), default=0) <= 8


def test_counts_end_where_the_count_does() -> None:
    assert axis(0.0, 50_688.0, exact=True).high == 50_688.0
    assert axis(0.0, 0.0, exact=True).high == 1.0


def test_things_are_counted_in_whole_numbers() -> None:
    assert [text for _, text in axis(0.0, 1.0, whole=True).ticks] == ["0", "1"]
    assert [text for _, text in axis(0.0, 3.0, whole=True).ticks] == ["0", "1", "2", "3"]
    assert [text for _, text in axis(0.0, 64.0, whole=True).ticks] == ["0", "10", "20", "30", "40", "50", "60", "70"]


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
