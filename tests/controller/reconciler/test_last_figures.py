"""The last figures of a finished run: from its pod's termination message into the status."""

import json
from typing import Any

import pytest

from ebb.api.schema import encode
from ebb.api.status import Progress
from tests.builders import make_job, make_pod
from tests.looks import look

SEEN = Progress(step=44, total_steps=47, loss=0.5, useful_seconds=40.0, world_size=2)


def progress(*messages: str, code: int = 0, known: Progress | None = SEEN, seen: Progress | None = SEEN) -> Progress | None:
    status = {"progress": encode(known)} if known else {}
    job = make_job(status=status)
    ended = {"phase": "Failed" if code else "Succeeded", "exit_code": code}
    pods = [make_pod(job, index, message=message, **ended) for index, message in enumerate(messages)]  # type: ignore[arg-type]
    return look(job, *pods, progress=seen).status.progress


def said(**figures: Any) -> str:
    return json.dumps({"ebb": figures})


def test_a_run_ends_with_all_its_steps() -> None:
    found = progress(said(step=47, total_steps=47, loss=0.25, samples_per_second=9))
    assert found is not None
    assert (found.step, found.total_steps, found.loss, found.samples_per_second) == (47, 47, 0.25, 9.0)
    assert (found.useful_seconds, found.world_size) == (40.0, 2), "what it does not say stays"


def test_the_worker_that_came_furthest_counts() -> None:
    found = progress(said(step=46, loss=1.0), said(step=47, loss=0.25))
    assert found is not None
    assert (found.step, found.loss) == (47, 0.25)


def test_a_controller_that_never_saw_it_train_has_them_too() -> None:
    found = progress(said(step=47, loss=0.25), known=None, seen=None)
    assert found is not None
    assert (found.step, found.loss) == (47, 0.25)


def test_a_run_that_diverged_at_last_has_no_loss() -> None:
    found = progress(said(step=47))
    assert found is not None
    assert (found.step, found.loss) == (47, None)


@pytest.mark.parametrize(
    "message",
    ["", "done", "{", "[]", '{"ebb": 7}', '{"ebb": {"step": "47"}}', '{"ebb": {"step": true}}', '{"ebb": {"step": NaN}}',
     '{"ebb": {"step": 1e300}}', said(loss=0.1), said(step=43, loss=0.1)],
)  # fmt: skip
def test_what_is_no_such_message_changes_nothing(message: str) -> None:
    assert progress(message) == SEEN


def test_one_that_failed_says_no_figures() -> None:
    assert progress(said(step=47, loss=0.25), code=1) == SEEN
