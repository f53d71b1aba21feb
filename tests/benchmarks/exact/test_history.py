"""What is drawn: the same from the same seed, and nothing that a job could not live through."""

from collections import Counter

from benchmarks.exact.history import GPT, KILLS, LARGEST_WORLD, LONGEST, SHORTEST, VIRTUAL_SHAPES, Event, draw
from benchmarks.exact.run import Settings, histories

DRAWN = [draw(seed, agents=False, virtual=False) for seed in range(1, 201)]


def test_the_same_seed_is_the_same_history() -> None:
    assert draw(17, agents=True, virtual=False) == draw(17, agents=True, virtual=False)
    assert draw(17, agents=True, virtual=False).events == draw(17, agents=False, virtual=True).events
    assert draw(17, agents=True, virtual=False) != draw(18, agents=True, virtual=False)


def test_a_job_always_has_a_machine_and_never_more_than_fit() -> None:
    for history in DRAWN:
        assert SHORTEST <= len(history.events) <= LONGEST
        assert all(1 <= size <= history.largest for size in history.sizes()), history
        assert history.largest * history.processes <= LARGEST_WORLD


def test_two_hundred_histories_hold_everything() -> None:
    kinds = Counter(event.kind for history in DRAWN for event in history.events)
    worlds = {size * history.processes for history in DRAWN for size in history.sizes()}
    assert worlds == set(range(1, 7))
    assert all(kinds[kind] >= 20 for kind in (*KILLS, "join", "notice")), kinds
    assert {history.processes for history in DRAWN} == {1, 2}
    assert {history.shape for history in DRAWN} == {GPT}
    assert {draw(seed, agents=False, virtual=True).shape for seed in range(1, 201)} == set(VIRTUAL_SHAPES)
    hurried = [event for history in DRAWN for event in history.events if event.seconds is not None]
    assert len(hurried) > 50
    assert all(history.events[0].seconds is None for history in DRAWN)


def test_sizes_follow_the_events() -> None:
    history = draw(1, agents=False, virtual=False)
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


def test_agents_are_spread_evenly_and_virtual_workers_go_by_the_seed(tmp_path: object) -> None:
    settings = Settings(first=1, histories=200, agents=34, at_once=1, resume=True, folder=tmp_path)  # type: ignore[arg-type]
    drawn = histories(settings)
    assert sum(history.agents for history in drawn) == 34
    assert sum(history.agents for history in drawn[:100]) == 17
    assert sum(history.virtual for history in drawn) == 60
    assert sum(history.agents and history.virtual for history in drawn) >= 10
