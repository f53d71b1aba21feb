"""Where the time of a job went, over its generations."""

from typing import Any

import pytest

from ebb.elastic.runtime.metrics import Progress
from ebb.elastic.runtime.report import TimeAccount


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


def test_a_checkpoint_keeps_what_a_resume_takes() -> None:
    account = TimeAccount(useful_seconds=5.0, lost_seconds=1.0, steps_redone=2, checkpoint_seconds=0.1)
    assert TimeAccount.resume(account.saved(), resumed_step=9, last=None) == account
