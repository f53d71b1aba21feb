"""Notifications follow from a job's written status alone: the same status, the same ids."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.contract import FAILED, SUCCEEDED
from ebb.api.spec import Job
from ebb.api.status import RECLAIMED, Cost, HistoryEntry, Hold, Progress, Status
from ebb.controller.reconciler.notifications import NEWS_SECONDS, RECLAIMS_SECONDS, due, remembered
from tests.builders import NOW, UID, make_job

JOB = Job.of(make_job())
TRAINING = Status(progress=Progress(step=4700), cost=Cost(usd_spent=12.3, at=stamp(NOW)))


def ended(kind: str, message: str = "", at: float = NOW) -> Status:
    return replace(TRAINING, state=kind, completion_time=stamp(at)).with_condition(kind, True, "Reason", message, at)


def lost(*ages: float) -> Status:
    """Machines lost so many seconds ago."""
    history = tuple(HistoryEntry(at=stamp(NOW - age), what=RECLAIMED, worker=0, cause="NodeGone") for age in ages)
    return replace(TRAINING, history=history, reclaims=len(ages))


def keys(status: Status, now: float = NOW) -> list[str]:
    return [one.key for one in due(JOB, status, now)]


HELD = replace(TRAINING, hold=Hold(reason="BudgetSpent", message="40 USD are spent.", generation=1, at=stamp(NOW)))


@pytest.mark.parametrize(
    ("status", "key", "text"),
    [
        (ended(SUCCEEDED), "finished", "digits finished at step 4,700; its machines cost about 12.30 USD."),
        (ended(FAILED, "exit code 1"), "failed", "digits failed at step 4,700: exit code 1"),
        (HELD, f"held/{stamp(NOW)}", "digits was stopped at step 4,700: 40 USD are spent."),
        (replace(TRAINING, budget_warned=40.0), "budget/40", "digits has spent 90 % of its budget of 40.00 USD."),
        (
            lost(90, 30),
            f"reclaims/{stamp(NOW - 30)}",
            "digits lost two workers within 60 s (NodeGone), 2 in all; it replaces them.",
        ),
    ],
)
def test_each_kind_is_told_once(status: Status, key: str, text: str) -> None:
    (one,) = due(JOB, status, NOW)
    assert (one.key, one.id, one.text, one.step, one.usd_spent) == (key, f"{UID}/{key}", text, 4700, 12.3)
    assert due(JOB, remembered(status, key), NOW) == ()


def test_the_user_is_named() -> None:
    job: dict[str, Any] = make_job()
    job["metadata"]["labels"] = {"ebb.dev/user": "alice"}
    (one,) = due(Job.of(job), ended(SUCCEEDED), NOW)
    assert (one.user, one.text.split(" finished")[0]) == ("alice", "digits (alice)")


def test_old_news_are_none() -> None:
    assert keys(ended(SUCCEEDED, at=NOW - NEWS_SECONDS + 1)) == ["finished"]
    assert keys(ended(SUCCEEDED, at=NOW - NEWS_SECONDS)) == []


def test_a_job_that_trains_has_no_news() -> None:
    assert keys(TRAINING) == []
    assert keys(lost(30)) == []


@pytest.mark.parametrize("reason", ["AmongTheWorst", "PausedBySweep"])
def test_runs_that_a_sweep_stops_are_no_news(reason: str) -> None:
    """There are dozens, and nobody has to do anything."""
    assert keys(replace(TRAINING, hold=Hold(reason=reason, message="", generation=1, at=stamp(NOW)))) == []


def test_reclaims_far_apart_are_ordinary() -> None:
    assert keys(lost(RECLAIMS_SECONDS + 31, 30)) == []
    assert keys(lost(RECLAIMS_SECONDS + 30, 30)) == [f"reclaims/{stamp(NOW - 30)}"]


def test_a_storm_is_told_of_once_in_ten_minutes() -> None:
    storm = lost(*range(1500, -1, -100))
    told = []
    while new := due(JOB, storm, NOW):
        (one,) = new
        told.append(one.key)
        storm = remembered(storm, one.key)
    assert told == [f"reclaims/{stamp(NOW - age)}" for age in (1400, 800, 200)]


def test_a_second_budget_is_told_of_anew_and_the_first_is_forgotten() -> None:
    first = remembered(replace(TRAINING, budget_warned=40.0), "budget/40")
    second = replace(first, budget_warned=80.0)
    assert keys(second) == ["budget/80"]
    assert remembered(second, "budget/80").notified == ("budget/80",)
