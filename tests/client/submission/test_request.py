"""The printed command that asks for the same job again, and what no platform could run."""

from dataclasses import fields

import pytest

from ebb.client.errors import BadRequest
from ebb.client.submission.jobfile import request_of
from ebb.client.submission.request import Request, check, command_of


def test_the_command_starts_the_same_job_again() -> None:
    request = Request(
        name="scan-1", arguments=("train.py", "--note", "two words", "--lr", "0.1"), gpus=4, min_gpus=2, max_gpus=8, gpu="T4",
        zone="local-a", capacity="on-demand", env={"A": "1 2"}, image="me/own:1", shm="1Gi", data="digits",
    )  # fmt: skip
    assert command_of(request) == (
        "ebb submit --gpus 4 --min 2 --max 8 --gpu T4 --zone local-a --image me/own:1 --shm 1Gi --data digits --on-demand "
        "--env 'A=1 2' -- python train.py --note 'two words' --lr 0.1"
    )


def test_what_was_not_said_is_not_in_the_command() -> None:
    request = request_of({}, {}, ["-m", "trainer", "--lr", "0.1"], "x")
    assert command_of(request) == "ebb submit -- -m trainer --lr 0.1"


def test_what_belongs_to_one_start_is_not_in_it() -> None:
    told = Request(name="a", arguments=("-m", "trainer"), user="me", deadline="2026-12-01T00:00:00Z", resume_from="/mnt/output/x")
    assert command_of(told, "local", name="a", more=["--workers", "2"]) == "ebb local --name a --workers 2 -- -m trainer"


def test_every_field_of_a_request_is_thought_of() -> None:
    """A new one either becomes the flag of its own name, or is named in commandline.py."""
    assert {field.name for field in fields(Request)} == {
        "name", "arguments", "gpus", "min_gpus", "max_gpus", "gpu", "zone", "capacity", "env", "image", "shm", "data", "code",
        "priority", "max_cost", "deadline", "user", "progress_regex", "resume_from", "secrets", "registry_secret",
        "hold_on_failure", "burn_in", "interpreter", "run_as", "writable_root", "queue",
    }  # fmt: skip


PROGRESS = r"step (?P<step>\d+).*loss (?P<loss>[\d.]+)"


def test_the_command_says_how_progress_is_read() -> None:
    request = Request(name="a", arguments=("x.py",), progress_regex=PROGRESS)
    check(request)
    assert command_of(request) == f"ebb submit --progress-regex '{PROGRESS}' -- python x.py"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step (", r"progress-regex 'step \(' is no regular expression of Python: .*position 5.*as in 'step \(\?P<step>"),
        (r"loss (?P<loss>\S+)", "has no group named step: put the number of steps done into one, as in"),
    ],
)
def test_an_expression_that_tells_no_step_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        check(Request(name="a", arguments=("x.py",), progress_regex=text))
