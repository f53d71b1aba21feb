"""Machines whose GPU fails a job: nothing is spent for them, unless the program does that to every machine that it gets."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from tests.builders import NOW, make_job, make_pod
from tests.looks import JOB, again, done, ended, look


def after(*seconds_ago: float, cause: str = "HardwareFault", **status: Any) -> dict[str, Any]:
    """A job whose machines m0, m1, ... failed it so long ago."""
    history = [
        {"at": stamp(NOW - ago), "what": "reclaimed", "worker": 1, "node": f"m{number}", "cause": cause}
        for number, ago in enumerate(seconds_ago)
    ]
    return make_job(status={"history": history, "reclaims": len(history), **status})


@pytest.mark.parametrize(
    ("job", "failures", "action"),
    [
        pytest.param(JOB, 0, ["-1"], id="the-first"),
        pytest.param(after(60, 30), 0, ["-1"], id="the-third-within-an-hour"),
        pytest.param(after(90, 60, 30), 1, [], id="the-fourth-within-an-hour"),
        pytest.param(after(3700, 60, 30), 0, ["-1"], id="the-fourth-within-more"),
        pytest.param(after(90, 60, 30, cause="ReclaimNotice"), 0, ["-1"], id="after-reclaims"),
    ],
)
def test_what_is_spent(job: dict[str, Any], failures: int, action: list[str]) -> None:
    decided = look(job, make_pod(JOB), ended(79, 1))
    assert decided.status.failures == failures
    assert done(decided) == action
    entry = decided.status.history[-1]
    assert (entry.what, entry.node) == ("failed" if failures else "reclaimed", "n0")
    if failures:
        assert entry.cause == (
            "the launcher left with exit code 79 (after 3 other machines within the hour: that is the program's doing)"
        )


def test_a_loss_is_counted_once() -> None:
    first = look(JOB, make_pod(JOB), ended(79, 1))
    assert [event.reason for event in first.events if event.warning] == ["HardwareFault"]
    second = look(again(JOB, first), make_pod(JOB), ended(79, 1))
    assert second.status.reclaims == first.status.reclaims == 1
    assert [event.reason for event in second.events if event.warning] == []
