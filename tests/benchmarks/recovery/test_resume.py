"""A run that was interrupted goes on where it was, and a state that does not fit is left out. Nothing is trained here."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.exact import machines
from benchmarks.exact.records import Records
from benchmarks.recovery import __main__ as bench
from benchmarks.recovery.play import EVENTS, FailedError, Found, Stage
from benchmarks.recovery.systems import System
from benchmarks.recovery.timeline import Change

CHANGE = Change(seconds=0.5, gap_seconds=1.5, full_seconds=1.5, step_seconds=1.0, steps_redone=0, samples_lost=0)


class Player:
    """In the place of play(): `played` are the events of each call; `stops` after so many is what it raises."""

    def __init__(self) -> None:
        self.played: list[tuple[str, ...]] = []
        self.stops: dict[int, BaseException] = {}

    def __call__(
        self, system: System, events: Sequence[str], stage: Stage, folder: Path, run_id: str
    ) -> Iterator[tuple[str, Found]]:
        self.played.append((system.name, *events))
        for number, event in enumerate(events):
            if number in self.stops:
                raise self.stops.pop(number)
            yield event, CHANGE


@pytest.fixture
def player(monkeypatch: pytest.MonkeyPatch) -> Player:
    player = Player()
    monkeypatch.setattr(bench, "play", player)
    monkeypatch.setattr(machines, "given_up", threading.Event())  # that of all benchmarks in this process stays unset
    return player


def begin(folder: Path, *more: str) -> bench.Run:
    """With c10d alone: it needs no etcd."""
    asked = ["--only", "c10d", "--events", "kill_pod,join,notice", "--states", "5", "--results", str(folder), *more]
    return bench.Run(bench.read_settings(asked), Records.open(folder, "code"), folder)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, player: Player) -> None:
    player.stops[1] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path, "--others", "2", "--repeat", "2").measure()
    run = begin(tmp_path, "--others", "2", "--repeat", "2")
    run.measure()
    assert player.played == [
        ("c10d", "kill_pod", "join", "notice"),
        ("c10d", "join", "notice"),
        ("c10d", "kill_pod", "join", "notice"),
    ]
    assert run.found == {"c10d": {event: {"5": [CHANGE, CHANGE]} for event in ("kill_pod", "join", "notice")}}


def test_a_job_that_does_not_come_up_costs_the_events_that_are_left(tmp_path: Path, player: Player) -> None:
    player.stops[2] = FailedError("no two machines trained")
    run = begin(tmp_path, "--others", "2", "--repeat", "2")
    run.measure()
    assert player.played == [("c10d", "kill_pod", "join", "notice"), ("c10d", "kill_pod", "join")]
    assert run.found["c10d"] == {
        "kill_pod": {"5": [CHANGE, CHANGE]},
        "join": {"5": [CHANGE, CHANGE]},
        "notice": {"5": ["no two machines trained"]},
    }


def test_a_state_that_does_not_fit_into_memory_is_not_tried(tmp_path: Path, player: Player) -> None:
    run = begin(tmp_path, "--others", "1", "--states", "900000")
    run.measure()
    assert player.played == []
    (reason,) = run.found["c10d"]["join"]["900000"]
    assert isinstance(reason, str)
    assert reason.startswith("it needs about 9450 GB of memory, and ")


def test_small_states_have_more_rounds_than_large_ones_and_ours_more_than_others() -> None:
    settings = bench.read_settings([])
    assert settings.events == tuple(EVENTS)
    rounds = {name: [settings.rounds(name, each) for each in settings.states] for name in settings.systems}
    others = {name: [1, 1, 1] for name in ("restart", "etcd_best", "c10d_best", "torchft_best")}
    assert rounds == {"ours": [20, 5, 5], **others}
