"""Where the time of a job went, over its generations."""

import json
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.runtime.metrics import LastStep, Progress
from ebb.elastic.runtime.report import TimeAccount
from tests.elastic.runtime.programs import Program, train
from tests.elastic.runtime.ranks import Ended, together


def progress(**changes: Any) -> Progress:
    values: dict[str, Any] = {
        "time": 1000.0,
        "step": 50,
        "total_steps": 100,
        "epoch": 1.0,
        "loss": 0.5,
        "samples_per_second": 100.0,
        "world_size": 2,
        "generation": 1,
        "useful_seconds": 50.0,
        "lost_seconds": 3.0,
        "steps_redone": 1,
        "checkpoint_seconds": 0.5,
    }
    return Progress(**{**values, **changes})


SAVED = {"useful_seconds": 40.0, "lost_seconds": 3.0, "steps_redone": 1, "checkpoint_seconds": 0.4}


@pytest.mark.parametrize(
    ("saved", "resumed_step", "last", "expected"),
    [
        pytest.param(None, 0, None, (0.0, 0.0, 0, 0.0), id="fresh"),
        pytest.param(SAVED, 40, progress(), (40.0, 20.0, 11, 0.5), id="ten-steps-done-again"),
        pytest.param({**SAVED, "useful_seconds": 50.0}, 50, progress(), (50.0, 10.0, 1, 0.5), id="nothing-done-again"),
        pytest.param({**SAVED, "useful_seconds": 51.0}, 51, progress(), (51.0, 10.0, 1, 0.5), id="steps-after-the-last-line"),
        pytest.param(None, 0, progress(), (0.0, 60.0, 51, 0.5), id="no-checkpoint-yet"),
        pytest.param(SAVED, 40, None, (40.0, 3.0, 1, 0.4), id="metrics-file-gone"),
    ],
)
def test_a_new_generation_starts_with(
    saved: dict[str, Any] | None, resumed_step: int, last: Progress | None, expected: tuple[float, float, int, float]
) -> None:
    account = TimeAccount.resume(saved, resumed_step=resumed_step, last=last)
    account.begin(1007.0)  # 7 s after the last line
    assert (account.useful_seconds, account.lost_seconds, account.steps_redone, account.checkpoint_seconds) == expected


def test_steps_after_the_last_line_count_as_done_again(tmp_path: Path) -> None:
    """A line every ten steps; killed after 17 with a checkpoint of 5, then again after 8 without any line."""
    line = progress(step=10, steps_redone=0)
    first = LastStep(tmp_path / "last-step")
    for step in range(18):
        first.write(step, 0)
    account = TimeAccount.resume(SAVED, resumed_step=5, last=line, last_step=LastStep(tmp_path / "last-step"))
    assert account.steps_redone == 12
    second = LastStep(tmp_path / "last-step")
    for step in range(5, 9):
        second.write(step, account.steps_redone)
    again = TimeAccount.resume(SAVED, resumed_step=5, last=line, last_step=LastStep(tmp_path / "last-step"))
    assert again.steps_redone == 15


@pytest.mark.parametrize("text", [None, "", "000000000", "x y"])
def test_without_the_last_step_the_lines_count(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "last-step").write_text(text)
    found = LastStep(tmp_path / "last-step")
    assert TimeAccount.resume(SAVED, resumed_step=40, last=progress(), last_step=found).steps_redone == 11


def test_a_job_killed_between_two_lines(tmp_path: Path) -> None:
    """The whole of it: a line every ten steps, killed in step 8, and no checkpoint."""
    settings = {"log_every": 10, "checkpoint_min_seconds": 600.0, "checkpoint_seconds": 600.0}
    assert together(train, 1, Program(output=tmp_path, vanish_at=8, settings=settings)) == [Ended(9)]
    train(Program(output=tmp_path, settings=settings))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["steps_redone"] == 8


def test_a_checkpoint_keeps_what_a_resume_takes() -> None:
    account = TimeAccount(useful_seconds=5.0, lost_seconds=1.0, steps_redone=2, checkpoint_seconds=0.1)
    assert TimeAccount.resume(account.saved(), resumed_step=9, last=None) == account
