"""`ebb list --queue`: place and reason of each job that waits, in words and as JSON."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from ebb.api.queue import MOST, Borrowing, Waiting, read, write
from ebb.cli.app import app
from ebb.client.queue import reason
from ebb.kube import Object
from tests.cli.world import FakeKube, platform_map, session

AT = 1_795_000_000.0


def waiting(**changes: Any) -> Waiting:
    values: dict[str, Any] = {
        "namespace": "elastic-job", "job": "digits", "user": "ada", "workers": 4, "gpus": 4, "why": "machines", "priority": 0,
        "overdue": 0, "share": 0, "older": 0, "team_used": 0.5, "user_used": 1.25,
    }  # fmt: skip
    return Waiting(**(values | changes))


LOAN = Borrowing(namespace="ebb-team-vision", job="large", user="ada", gpus=2, lenders=("speech", "music"))


def record_of(*jobs: Waiting, loans: tuple[Borrowing, ...] = ()) -> Object:
    metadata = {"name": "ebb-machines", "namespace": "ebb-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"queue.json": write(jobs, AT, loans)}}


REASONS: dict[str, dict[str, Any]] = {
    "gets 4 GPUs now": {"why": "next"},
    "waits for 4 GPUs; it is the first": {},
    "waits for 1 GPU; 1 older job is before it": {"gpus": 1, "older": 1},
    "waits for 4 GPUs; 2 jobs of people who used less of their share are before it": {"share": 2},
    "waits for machines for 4 workers; 1 job of higher priority and 2 jobs of people who used less of their share are before "
    "it": {"gpus": 0, "priority": 1, "share": 2},
    "waits for 4 GPUs; 2 jobs of higher priority, 1 job that waited for a day without any machine and 3 older jobs are before "
    "it": {"priority": 2, "overdue": 1, "older": 3},
    "gets 4 GPUs now, and borrows 2 of team speech": {"why": "next", "borrows": 2, "lenders": ("speech",)},
    "waits for 4 GPUs, 2 of them beyond its team's quota; 1 job that borrows no GPUs and 3 older jobs are before it": {
        "borrows": 2,
        "quota": 1,
        "older": 3,
    },
    "waits for 4 GPUs, 2 of them beyond its team's quota; what becomes free is kept for it, since it has waited for a day": {
        "borrows": 2,
        "has_turn": True,
    },
    "waits for 4 GPUs; 1 job larger than its team's quota that waited for a day and 1 older job are before it": {
        "turn": 1,
        "older": 1,
    },
    "waits for a run of its sweep to end": {"why": "group"},
    "cannot start: `ebb status` says why": {"why": "refused"},
    "needs 4 GPUs of a kind that the platform does not have": {"why": "nowhere"},
}


@pytest.mark.parametrize("sentence", REASONS)
def test_reasons(sentence: str) -> None:
    assert reason(waiting(**REASONS[sentence])) == sentence


def shown(*words: str, kube: FakeKube) -> Any:
    return CliRunner().invoke(app, ["list", "--queue", *words], obj=session(kube), env={"COLUMNS": "80", "TZ": "UTC"})


def test_the_line_in_words() -> None:
    kube = FakeKube(
        platform_map(),
        record_of(waiting(why="next", team_used=None, user_used=None), waiting(job="b", namespace="vision", user="", share=1)),
    )
    assert shown(kube=kube).stdout.splitlines() == [
        "PLACE NAME   TEAM        USER GPUS TEAM USED USER USED",
        "    1 digits elastic-job ada     4     first     first",
        "      gets 4 GPUs now",
        "    2 b      vision      -       4       50%      125%",
        "      waits for 4 GPUs; 1 job of people who used less of their share is before",
        "      it",
    ]


def test_the_line_as_json() -> None:
    told = json.loads(shown("-o", "json", kube=FakeKube(platform_map(), record_of(waiting(older=1)))).stdout)
    assert told == {
        "queue": [
            {
                "place": 1, "name": "digits", "namespace": "elastic-job", "user": "ada", "gpus": 4, "workers": 4,
                "reason": "waits for 4 GPUs; 1 older job is before it", "team_used": 0.5, "user_used": 1.25,
            }
        ],
        "borrowing": [],
        "waiting": 1,
        "at": "2026-11-18T11:06:40Z",
    }  # fmt: skip


def test_who_borrows_of_whom() -> None:
    result = shown(kube=FakeKube(platform_map(), record_of(loans=(LOAN,))))
    assert result.stdout.splitlines() == [
        "NAME  TEAM            USER BORROWED",
        "large ebb-team-vision ada         2",
        "      runs and borrows 2 GPUs of teams speech and music; stops with a checkpoint",
        "      when those need them",
    ]
    told = json.loads(shown("-o", "json", kube=FakeKube(platform_map(), record_of(loans=(LOAN,)))).stdout)
    assert (told["borrowing"][0]["gpus"], told["borrowing"][0]["lenders"]) == (2, ["speech", "music"])


def test_nobody_waits_and_nobody_knows() -> None:
    assert "No job waits" in shown(kube=FakeKube(platform_map(), record_of())).output
    for kube in (FakeKube(platform_map()), FakeKube(platform_map(), {**record_of(), "data": {"schema": "1"}})):
        result = shown(kube=kube)
        assert result.exit_code != 0
        assert "its controller is older" in result.output


def test_a_long_line_is_cut_and_says_so() -> None:
    kube = FakeKube(platform_map(), record_of(*(waiting(job=f"job-{number}") for number in range(MOST + 7))))
    assert "7 more wait behind these." in shown(kube=kube).output
    assert json.loads(shown("-o", "json", kube=kube).stdout)["waiting"] == MOST + 7


def test_a_newer_controller_may_tell_more() -> None:
    text = json.loads(write([waiting()], AT))
    text["jobs"][0]["colour"] = "green"
    told = read({"queue.json": json.dumps(text)})
    assert told is not None
    assert told.jobs == (waiting(),)
