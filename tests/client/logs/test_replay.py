"""Log lines: which are new after a reconnection, and how workers are merged."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from ebb.client.logs import Line
from ebb.client.logs.lines import parse
from ebb.client.logs.replay import Replay, merge


def at(second: float, text: str) -> str:
    whole, fraction = divmod(round(second * 10**9), 10**9)
    return f"2026-11-21T12:00:{whole:02}.{fraction:09}Z {text}"


def replayed(replay: Replay, *raw: str) -> list[str]:
    lines = [line for line in map(parse, raw) if line]
    return [fresh.text for line in lines if (fresh := replay.new(line))]


PARSED = {
    "nanoseconds": ("2026-11-21T12:00:01.123456789Z a b", datetime(2026, 11, 21, 12, 0, 1, 123456, UTC), "a b"),
    "trimmed zeros": ("2026-11-21T12:00:01.5Z x", datetime(2026, 11, 21, 12, 0, 1, 500000, UTC), "x"),
    "another zone": ("2026-11-21T14:00:01+02:00 x", datetime(2026, 11, 21, 12, 0, 1, 0, UTC), "x"),
    "empty line": ("2026-11-21T12:00:01Z ", datetime(2026, 11, 21, 12, 0, 1, 0, UTC), ""),
    "leading spaces stay": ("2026-11-21T12:00:01Z   x", datetime(2026, 11, 21, 12, 0, 1, 0, UTC), "  x"),
}


@pytest.mark.parametrize(("raw", "time", "text"), PARSED.values(), ids=PARSED)
def test_parse(raw: str, time: datetime, text: str) -> None:
    assert parse(raw) == Line(raw.partition(" ")[0], time, text)


@pytest.mark.parametrize("raw", ["unable to retrieve container logs for containerd://1", "2026-11-21T12:00:01 no zone", ""])
def test_lines_without_a_time_are_nobodys(raw: str) -> None:
    assert parse(raw) is None


def test_the_first_connection_asks_for_all() -> None:
    replay = Replay()
    assert replay.connect() is None
    assert replayed(replay, at(1, "a"), at(1, "a"), at(1.5, "b")) == ["a", "a", "b"]


def test_a_reconnection_looks_back_and_shows_nothing_twice() -> None:
    replay = Replay()
    replay.connect()
    first = [at(8.9, "old"), at(9.2, "a"), at(10.1, "b"), at(10.1, "b"), at(10.4, "c")]
    replayed(replay, *first)
    assert replay.connect() == "2026-11-21T12:00:09Z"
    assert replayed(replay, *first[1:], at(10.4, "c"), at(11, "d")) == ["c", "d"]


def test_a_late_line_of_the_other_stream_is_not_lost() -> None:
    replay = Replay()
    replay.connect()
    replayed(replay, at(9.999, "out 1"), at(10.001, "out 2"))
    replay.connect()
    assert replayed(replay, at(9.999, "out 1"), at(10.001, "out 2"), at(9.9995, "err 1")) == ["err 1"]
    replay.connect()
    assert replayed(replay, at(9.999, "out 1"), at(10.001, "out 2"), at(9.9995, "err 1")) == []


def test_a_server_that_ignores_since_shows_nothing_twice() -> None:
    replay = Replay()
    replay.connect()
    lines = [at(second, f"line {second}") for second in range(30)]
    replayed(replay, *lines)
    replay.connect()
    assert replayed(replay, *lines, at(31, "new")) == ["new"]


def test_a_line_that_broke_off_is_completed() -> None:
    replay = Replay()
    replay.connect()
    assert replayed(replay, at(1, "a"), at(2, "step 12")) == ["a", "step 12"]
    replay.connect()
    assert replayed(replay, at(1, "a"), at(2, "step 120 loss 0.1"), at(2, "step 120 loss 0.1 again")) == [
        "0 loss 0.1", "step 120 loss 0.1 again",
    ]  # fmt: skip
    replay.connect()
    assert replayed(replay, at(1, "a"), at(2, "step 120 loss 0.1"), at(2, "step 120 loss 0.1 again")) == []


def test_a_whole_line_is_no_beginning_of_the_next() -> None:
    replay = Replay()
    replay.connect()
    replayed(replay, at(2, "step 1"))
    replay.connect()
    assert replayed(replay, at(2, "step 1"), at(2, "step 10")) == ["step 10"]


def test_breaks_at_every_position_of_a_fast_log_lose_and_repeat_nothing() -> None:
    lines = [at(10 + index / 7, f"line {index % 3}") for index in range(60)]  # many equal texts, seven a second
    for stop in range(1, 60, 3):
        replay = Replay()
        replay.connect()
        seen = replayed(replay, *lines[:stop])
        since = replay.connect()
        assert since is not None
        again = [line for line in lines if line[:19] >= since[:19]]
        assert seen + replayed(replay, *again) == [line.partition(" ")[2] for line in lines], stop


def test_memory_stays_at_two_seconds() -> None:
    replay = Replay()
    replay.connect()
    replayed(replay, *(at(index / 100, "x") for index in range(5000)))
    assert len(replay._recent) <= 200


async def test_workers_are_merged_by_time_and_keep_their_own_order() -> None:
    def lines(*raw: str) -> list[Line]:
        return [line for line in map(parse, raw) if line]

    zero = lines(at(1, "z1"), at(3, "z3"), at(2.9, "z2.9 late"), at(5, "z5"))
    one = lines(at(2, "o2"), at(4, "o4"))

    async def batches(lines: list[Line]) -> AsyncIterator[list[Line]]:
        for start in range(0, len(lines), 3):
            yield []
            yield lines[start : start + 3]

    assert [(worker, line.text) async for worker, line in merge([(0, batches(zero)), (1, batches(one))])] == [
        (0, "z1"), (1, "o2"), (0, "z3"), (0, "z2.9 late"), (1, "o4"), (0, "z5"),
    ]  # fmt: skip
