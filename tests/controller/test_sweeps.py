"""The runs of sweeps as the controller keeps them: whose lot changes when one came further."""

from dataclasses import replace
from typing import Any

from ebb.api.spec import Job
from ebb.api.status import Hold, Placed, Rung, Sweep
from ebb.controller.sweeps import Sweeps
from tests.builders import make_job

HALF = {"algorithm": "stop-worst", "after": 10}
PAIR = {"algorithm": "asha", "after": 10, "factor": 2}


def job(
    run: str, value: float | None = None, *, rule: dict[str, Any] | None = None, hold: str = "", name: str = "scan", **group: Any
) -> Job:
    """A run that is placed, or held at its rung."""
    found = Job.of(make_job(run, group={"name": name, "halving": rule or HALF, **group}))
    held = Hold(reason=hold, message="", generation=1, at="2026-11-21T12:00:00Z") if hold else None
    rungs = (Rung(step=10, value=value),) if value is not None else ()
    status = replace(found.status, sweep=Sweep(rungs=rungs), hold=held, placement=None if held else Placed(zone="a"))
    return replace(found, status=status)


def keys(*names: str) -> list[tuple[str, str]]:
    return [("elastic-job", name) for name in names]


def test_a_run_is_told_when_another_one_makes_it_one_of_the_worst() -> None:
    sweeps = Sweeps()
    assert sweeps.put(job("a", 0.5)) == []
    assert sweeps.put(job("b")) == []
    assert sweeps.put(job("b", 0.1)) == keys("a")
    assert sweeps.put(job("b", 0.1)) == [], "nothing is new"


def test_a_paused_run_is_told_when_it_may_go_on() -> None:
    sweeps = Sweeps()
    one = job("a", 0.1, rule=PAIR, hold="PausedBySweep", maxParallel=1)
    assert sweeps.put(one) == []
    assert sweeps.put(job("b", rule=PAIR, maxParallel=1)) == []
    assert sweeps.put(job("b", 0.5, rule=PAIR, hold="PausedBySweep", maxParallel=1)) == keys("a")
    assert sweeps.siblings(one).promoted == ("a",)
    assert [run.name for run in sweeps.siblings(one).runs] == ["b"]
    busy = job("b", 0.5, rule=PAIR, maxParallel=1)
    sweeps.put(busy)
    assert sweeps.siblings(one).promoted == ()
    assert sweeps.drop(("elastic-job", "b")) == keys("a"), "it was the only one that could still train"


def test_a_larger_limit_is_news_too() -> None:
    sweeps = Sweeps()
    for name, value in (("a", 0.1), ("b", 0.2), ("c", 0.3), ("d", 0.4)):
        sweeps.put(job(name, value, rule=PAIR, hold="PausedBySweep", maxParallel=1))
    assert sweeps.siblings(job("a", 0.1, rule=PAIR)).promoted == ("a",)
    sweeps.put(job("e", rule=PAIR, maxParallel=9))
    assert sweeps.siblings(job("a", 0.1, rule=PAIR)).promoted == ("a", "b")


def test_a_run_that_left_the_comparison_still_counts_for_the_others() -> None:
    sweeps = Sweeps()
    sweeps.put(job("a", 0.5))
    out = job("b", 0.1)
    assert out.spec.group is not None
    out = replace(out, spec=replace(out.spec, group=replace(out.spec.group, halving=None)))
    assert sweeps.put(out) == keys("a")
    assert sweeps.siblings(out).runs == ()


def test_sweeps_of_other_names_and_namespaces_are_others() -> None:
    sweeps = Sweeps()
    sweeps.put(job("a", 0.5))
    assert sweeps.put(job("b", 0.1, name="other")) == []
    assert sweeps.put(replace(job("b", 0.1), namespace="ebb-team-vision")) == []
    assert sweeps.put(job("b", 0.1)) == keys("a"), "and a job may change from one to another"
    assert sweeps.drop(("elastic-job", "nobody")) == []
