"""A team whose jobs have cost what they may cost in a month: they wait, and those that run are stopped with a checkpoint."""

from typing import Any

import pytest

from ebb.api.platform import Team
from ebb.api.spec import Job
from ebb.controller.reconciler.capacity import claim
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_group, make_platform, make_pod
from tests.controller.reconciler.scenes import gpu_job, placed_job, reasons, why, zone_of
from tests.looks import again, done, look

TEAM = "ebb-team-vision"
SENTENCE = "team 'vision' has spent 4000.00 of the 4000.00 USD that its jobs may cost in 2027-01: the job holds no machines until"


def seen(job: dict[str, Any], *pods: Any, spent: float | None, limit: float | None = 4000.0, namespace: str = TEAM) -> Plan:
    job["metadata"]["namespace"] = namespace
    team = Team(name="vision", namespace=TEAM, usd_per_month=limit)
    platform = make_platform(make_group("t4-a", zone="local-a", max=20), teams=(team,))
    return look(job, *pods, platform=platform, spent=spent)


@pytest.mark.parametrize(
    ("spent", "limit", "namespace", "waits"),
    [
        (3999.99, 4000.0, TEAM, False),
        (4000.0, 4000.0, TEAM, True),
        (9999.0, 5000.0, "ebb-team-speech", False),
        (9999.0, None, TEAM, False),
        (None, 4000.0, TEAM, True),
    ],
    ids=["under", "over", "another team", "without a budget", "not known yet"],
)
def test_a_job_of_a_team_over_its_budget_waits(spent: float | None, limit: float | None, namespace: str, waits: bool) -> None:
    decided = seen(gpu_job(), spent=spent, limit=limit, namespace=namespace)
    assert (zone_of(decided) == "") == waits
    assert (why(decided)[0] == "TeamBudgetSpent") == waits


def test_it_says_whose_budget_it_is_and_what_lets_it_go_on() -> None:
    decided = seen(gpu_job(), spent=4000.0)
    message = why(decided)[1]
    assert message.startswith(SENTENCE)
    assert "usdPerMonth of the team is raised in the stack" in message
    assert decided.wake_at is not None
    assert NOW < decided.wake_at <= NOW + 60


def test_a_job_that_runs_is_stopped_in_the_next_round_and_goes_on_when_it_may() -> None:
    job = placed_job(low=2, replicas=2)
    pods = [make_pod(job, index) for index in range(2)]
    running = seen(job, *pods, spent=10.0)
    assert zone_of(running)
    assert running.wake_at is not None, "nothing else would tell it that the budget is spent"
    over = seen(job, *pods, spent=4000.0)
    assert reasons(over)[-1] == "MachinesReleased"
    assert (zone_of(over), done(over)) == ("", [])
    stopped = seen(again(job, over), *pods, spent=4000.0)
    assert sorted(done(stopped)) == ["-0", "-1"]
    assert zone_of(seen(again(job, over), spent=10.0)), "the next month"


def test_a_job_whose_controller_has_just_begun_keeps_its_workers() -> None:
    job = placed_job(low=2, replicas=2)
    assert zone_of(seen(job, *(make_pod(job, index) for index in range(2)), spent=None))


def test_a_job_that_waits_for_its_team_keeps_nobody_out() -> None:
    job = gpu_job()
    waiting = Job.of(again(job, seen(job, spent=4000.0)))
    assert claim(waiting, {}, NOW).refused
