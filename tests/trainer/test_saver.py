"""When checkpoints are written, and that a failing disk costs no training."""

from pathlib import Path
from typing import Any

import pytest

from trainer.checkpoint import CheckpointError, CheckpointFolder
from trainer.saver import Cadence, Saver


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("cost_seconds", "expected"),
    [
        pytest.param(0.0, 5.0, id="cheap-the-shortest"),
        pytest.param(0.2, 20.0, id="one-percent"),
        pytest.param(60.0, 300.0, id="dear-the-longest"),
    ],
)
def test_the_distance_follows_the_cost(cost_seconds: float, expected: float) -> None:
    cadence = Cadence(shortest_seconds=5, longest_seconds=300, overhead=0.01)
    assert cadence.seconds_between(cost_seconds) == expected


def saver(output: Path, clock: Clock) -> tuple[CheckpointFolder, Saver]:
    folder = CheckpointFolder(output, keep=9, identity={})
    cadence = Cadence(shortest_seconds=5, longest_seconds=300, overhead=0.01)
    return folder, Saver(folder, generation=folder.claim_generation(), cadence=cadence, clock=clock)


def test_a_checkpoint_is_written_when_one_is_due(tmp_path: Path) -> None:
    clock = Clock()
    _, writer = saver(tmp_path, clock)

    def take_state() -> dict[str, Any]:
        clock.now += 0.125  # one percent of 12.5 s
        return {"at": clock.now}

    for step in range(1, 60):
        clock.now = float(step)
        writer.maybe_save(step, take_state)
        writer.finish()
    written = sorted(int(path.stem[8:16]) for path in (tmp_path / "checkpoints").glob("*.json"))
    assert written == [5, 18, 31, 44, 57]


def test_saving_now_is_done_when_it_returns_and_only_once(tmp_path: Path) -> None:
    folder, writer = saver(tmp_path, Clock())
    calls = []

    def take_state() -> dict[str, Any]:
        calls.append(1)
        return {}

    writer.save_now(7, take_state)
    writer.save_now(7, take_state)
    found = folder.newest()
    assert found is not None
    assert found.manifest.step == 7
    assert len(calls) == 1


def test_a_checkpoint_that_cannot_be_written_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, writer = saver(tmp_path, Clock())

    def full(*_: Any, **__: Any) -> None:
        raise CheckpointError("no space left")

    monkeypatch.setattr(folder, "save", full)
    writer.save_now(3, dict)
    assert writer.saved_step == -1
    assert capsys.readouterr().err == "no space left\n"


def test_the_cost_is_told_once(tmp_path: Path) -> None:
    clock = Clock()
    _, writer = saver(tmp_path, clock)

    def take_state() -> dict[str, Any]:
        clock.now += 2
        return {}

    writer.save_now(1, take_state)
    assert [writer.take_cost(), writer.take_cost()] == [2.0, 0.0]
