"""What is drawn: the same from the same seed, and nothing that a job could not live through."""

import dataclasses
import itertools
from collections import Counter
from pathlib import Path

from benchmarks.exact.history import GPT, KILLS, LARGEST_WORLD, LONGEST, RECOVERIES, SHORTEST, VIRTUAL_SHAPES, Event, draw
from benchmarks.exact.run import Settings, histories

DRAWN = [draw(seed, agents=False, virtual=False, recovery="restart") for seed in range(1, 201)]


def test_the_same_seed_is_the_same_history() -> None:
    assert draw(17, agents=True, virtual=False, recovery="restart") == draw(17, agents=True, virtual=False, recovery="restart")
    assert (
        draw(17, agents=True, virtual=False, recovery="restart").events
        == draw(17, agents=False, virtual=True, recovery="restart").events
    )
    assert draw(17, agents=True, virtual=False, recovery="restart") != draw(18, agents=True, virtual=False, recovery="restart")


def test_a_job_always_has_a_machine_and_never_more_than_fit() -> None:
    for history in DRAWN:
        assert SHORTEST <= len(history.events) <= LONGEST
        assert all(1 <= size <= history.largest for size in history.sizes()), history
        assert history.largest * history.processes <= LARGEST_WORLD


def test_two_hundred_histories_hold_everything() -> None:
    kinds = Counter(event.kind for history in DRAWN for event in history.events)
    worlds = {size * history.processes for history in DRAWN for size in history.sizes()}
    assert worlds == set(range(1, LARGEST_WORLD + 1))
    assert all(kinds[kind] >= 20 for kind in (*KILLS, "join", "notice")), kinds
    assert {history.processes for history in DRAWN} == {1, 2, 3, 4}
    assert {history.shape for history in DRAWN} == {GPT}
    assert {draw(seed, agents=False, virtual=True, recovery="restart").shape for seed in range(1, 201)} == set(VIRTUAL_SHAPES)
    hurried = [event for history in DRAWN for event in history.events if event.seconds is not None]
    assert len(hurried) > 50
    assert all(history.events[0].seconds is None for history in DRAWN)


def test_a_run_plays_both_ways_to_recover_or_the_one_that_it_is_told(tmp_path: Path) -> None:
    settings = Settings(first=1, histories=200, agents=34, at_once=1, recovery=None, events=None, resume=True, folder=tmp_path)
    drawn = histories(settings)
    ways = Counter(history.recovery for history in drawn)
    assert all(80 < ways[way] < 120 for way in RECOVERIES)
    assert {(history.recovery, history.agents, history.virtual) for history in drawn} == set(
        itertools.product(RECOVERIES, (True, False), (True, False))
    )
    only = histories(dataclasses.replace(settings, recovery="memory"))
    assert {history.recovery for history in only} == {"memory"}
    assert [history.events for history in only] == [history.events for history in drawn], "only the way to recover differs"


def test_as_many_events_as_are_asked_for(tmp_path: Path) -> None:
    settings = Settings(first=1, histories=50, agents=9, at_once=1, recovery=None, events=None, resume=True, folder=tmp_path)
    long = histories(dataclasses.replace(settings, events=20))
    assert {len(history.events) for history in long} == {20}
    for few, many in zip(histories(settings), long, strict=True):
        assert many.events[: len(few.events)] == few.events
        assert all(1 <= size <= many.largest for size in many.sizes()), many


def test_sizes_follow_the_events() -> None:
    history = draw(1, agents=False, virtual=False, recovery="restart")
    kinds: list[tuple[Event, int]] = [
        (Event(kind="join", machines=2), 4),
        (Event(kind="notice"), 1),
        (Event(kind="kill-machine"), 1),
        (Event(kind="kill-rank-zero"), 1),
        (Event(kind="kill-process"), 2),
        (Event(kind="kill-all", machines=1), 1),
    ]
    for event, expected in kinds:
        one = type(history)(**{**vars(history), "machines": 2, "events": (event,)})
        assert one.sizes() == [2, expected]


def test_agents_are_spread_evenly_and_virtual_workers_go_by_the_seed(tmp_path: Path) -> None:
    settings = Settings(first=1, histories=200, agents=34, at_once=1, recovery=None, events=None, resume=True, folder=tmp_path)
    drawn = histories(settings)
    assert sum(history.agents for history in drawn) == 34
    assert sum(history.agents for history in drawn[:100]) == 17
    assert sum(history.virtual for history in drawn) == 60
    assert sum(history.agents and history.virtual for history in drawn) >= 10
