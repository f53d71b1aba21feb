"""What is predicted and drawn, as a mistake there would hide those of the controller; and (e2e) a short week, for real."""

import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.week import actions, model
from benchmarks.week.actions import Fail, Finish, Train
from benchmarks.week.kinds import KINDS, MOST, draw
from benchmarks.week.model import DELETED, FAILED, HELD, RUNNING, SUCCEEDED, SUSPENDED, UNTOUCHED, WAITING, End
from benchmarks.week.scenarios import Scenario, manifest
from devcluster.settings import CHECKOUT
from ebb.api.spec import parse_spec
from tests.benchmarks.weeks import make_job

Object = dict[str, Any]
NOW = 1_800_000_000.0
LONGEST_SECONDS = 900.0  # every act has a time limit of its own, which says what did not come; this one says nothing


def make_scenario(*lived: actions.Action, **more: Any) -> Scenario:
    return Scenario(**{"name": "one", "kind": "steady", "low": 1, "replicas": 2, "high": 4, "actions": lived, **more})


# --- What is predicted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "end"),
    [
        (make_scenario(Train(5), Finish()), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_scenario(Train(5), Finish(), ttl=3), End(state=SUCCEEDED, reason="ElasticJobSucceeded", gone=True)),
        (
            make_scenario(Fail(1), Fail(137), Finish(), backoff_limit=2),
            End(state=SUCCEEDED, reason="ElasticJobSucceeded", failures=2),
        ),
        (make_scenario(Fail(1), Fail(1), backoff_limit=1), End(state=FAILED, reason="ElasticJobFailed", failures=2)),
        (make_scenario(Fail(1, workers=3), backoff_limit=0), End(state=FAILED, reason="ElasticJobFailed", failures=1)),
        (make_scenario(Fail(1), policy="Never"), End(state=FAILED, reason="ElasticJobFailed", failures=1)),
        (make_scenario(Fail(143), Fail(2), policy="ExitCode"), End(state=FAILED, reason="ElasticJobFailed", failures=2)),
        (make_scenario(Fail(138), Finish(), backoff_limit=0), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_scenario(actions.Leave(), Finish(), backoff_limit=0), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_scenario(Train(5), actions.Suspend()), End(state=SUSPENDED, reason="ElasticJobSuspended")),
        (make_scenario(actions.Suspend(), actions.Resume(), Finish()), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_scenario(Train(5), actions.Delete()), End(state=DELETED, gone=True)),
        (make_scenario(actions.Overrun()), End(state=FAILED, reason="DeadlineExceeded")),
        (make_scenario(actions.Spend()), End(state=HELD, reason="BudgetSpent")),
        (make_scenario(actions.Spend(), actions.Allow(), Finish()), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_scenario(actions.Outlive()), End(state=HELD, reason="DeadlinePassed")),
        (make_scenario(actions.Hang()), End(state=HELD, reason="NoProgress")),
        (make_scenario(actions.Rest(5), kind="misfit"), End(state=WAITING, reason="NoZoneFits")),
        (make_scenario(actions.Rest(5), spec={"managedBy": "somebody"}), End(state=UNTOUCHED)),
    ],
    ids=lambda value: " ".join(type(act).__name__ for act in value.actions) if isinstance(value, Scenario) else value.state,
)
def test_the_end_follows_from_the_actions(scenario: Scenario, end: End) -> None:
    assert model.predict(scenario, patient=True) == end


def test_containers_that_cannot_start_are_given_up_only_in_a_run_that_is_long_enough() -> None:
    scenario = make_scenario(actions.Stick())
    assert model.predict(scenario, patient=True) == End(state=HELD, reason="CannotStart")
    assert model.predict(scenario, patient=False) == End(state=WAITING)


@pytest.mark.parametrize(
    ("end", "job", "deleted", "words"),
    [
        (End(state=SUCCEEDED), make_job(SUCCEEDED), False, ""),
        (End(state=SUCCEEDED), make_job(RUNNING), False, "predicted Succeeded, found Running"),
        (
            End(state=FAILED, reason="DeadlineExceeded"),
            make_job(FAILED, reason="ElasticJobFailed"),
            False,
            "found Failed (Elastic",
        ),
        (End(state=SUCCEEDED), make_job(SUCCEEDED, failures=1), False, "failed at 0 moments, status.failures is 1"),
        (End(state=SUCCEEDED, failures=2), make_job(SUCCEEDED, failures=1), False, "failed at 2 moments"),
        (End(state=HELD, reason="BudgetSpent"), make_job(SUSPENDED, hold="BudgetSpent"), False, ""),
        (End(state=HELD, reason="BudgetSpent"), make_job(SUSPENDED, hold="NoProgress"), False, "found Held (NoProgress)"),
        (End(state=HELD, reason="BudgetSpent"), make_job(SUSPENDED), False, "found Suspended"),
        (End(state=DELETED, gone=True), make_job(RUNNING), True, ""),
        (End(state=DELETED, gone=True), make_job(RUNNING), False, "is still there"),
        (End(state=SUCCEEDED), make_job(SUCCEEDED), True, "is gone"),
        (End(state=DELETED, gone=True), make_job(FAILED), True, "deleted while it had work to do"),
        (End(state=UNTOUCHED), make_job(WAITING), False, "predicted Untouched"),
    ],
)
def test_a_job_that_came_to_something_else_is_told(end: End, job: Object, deleted: bool, words: str) -> None:
    found = model.differences(make_scenario(), end, job, deleted=deleted)
    assert any(words in text for text in found) if words else found == []


# --- Which jobs are drawn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("jobs", "seconds"), [(25, 180.0), (300, 3600.0)])
def test_scenarios_are_the_same_for_a_seed_and_have_the_time_to_end(jobs: int, seconds: float) -> None:
    scenarios = draw(jobs=jobs, seconds=seconds, rng=random.Random(4))
    assert scenarios == draw(jobs=jobs, seconds=seconds, rng=random.Random(4))
    assert scenarios != draw(jobs=jobs, seconds=seconds, rng=random.Random(5))
    assert len({scenario.name for scenario in scenarios}) == jobs
    assert all(scenario.arrives + scenario.need <= seconds for scenario in scenarios)


def test_a_long_week_has_every_kind_of_life() -> None:
    kinds = Counter(scenario.kind for seed in range(3) for scenario in draw(jobs=300, seconds=3600, rng=random.Random(seed)))
    assert set(kinds) == set(KINDS)


@pytest.mark.parametrize("seed", range(3))
def test_every_fate_is_a_valid_job(seed: int) -> None:
    for scenario in draw(jobs=300, seconds=3600, rng=random.Random(seed)):
        spec = parse_spec(manifest(scenario, namespace="elastic-job", now=NOW)["spec"])
        assert spec.max_replicas is not None
        assert spec.max_replicas <= MOST or scenario.kind == "misfit"
        assert len(f"{scenario.name}-worker-{spec.max_replicas}") <= 63
        assert all(scenario.low <= act.to <= scenario.high for act in scenario.actions if isinstance(act, actions.Scale))


# --- For real -------------------------------------------------------------------------------------------------------------------


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Whatever it started ends with it: the kernel sees to that."""
    command = [sys.executable, "-m", "benchmarks.week", *arguments]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def children(process: subprocess.Popen[str]) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.e2e
def test_a_short_week_ends_as_predicted() -> None:
    """Under two minutes; more where the machine has other work, too. `make prove-week` plays the long one."""
    with started("--jobs", "14", "--minutes", "1.5") as week:
        watchdog = threading.Timer(LONGEST_SECONDS, week.send_signal, (signal.SIGINT,))
        watchdog.start()
        said, _ = week.communicate()
        watchdog.cancel()
    assert week.returncode == 0, said[-60_000:]
    figures = json.loads(said.splitlines()[-1])
    assert (figures["model_agrees"], figures["violations"], figures["jobs"]) == (True, [], 14)
    assert figures["reclaims"] > 0
    assert figures["controller_kills"] > 0
    assert figures["workers_lost"] > 0


@pytest.mark.e2e
def test_an_interrupted_week_leaves_nothing() -> None:
    with started("--jobs", "10", "--minutes", "3") as week:
        assert week.stdout is not None
        for line in week.stdout:
            if "0 s  jobs:" in line:
                break
        programs = children(week)
        assert len(programs) >= 6  # etcd, API server, controller manager, scheduler, kwok, controller
        week.send_signal(signal.SIGINT)
        week.communicate(timeout=60)
    assert week.returncode == 130
    assert [pid for pid in programs if Path(f"/proc/{pid}").exists()] == []
