"""Which runs of a sweep are stopped early, as they arrive in any order."""

import math
from dataclasses import replace

import pytest

from ebb.client.errors import BadRequest
from ebb.client.sweep.halving import HalvingRun, Rule, StopDecision, rungs_reached, verdicts, with_new_rungs

RULE = Rule(fraction=0.5, metric="loss", after=100)


def run(name: str, *, goes_on: bool = True, **rungs: float) -> HalvingRun:
    return HalvingRun(
        name=name, step=None, value=None, goes_on=goes_on, rungs={int(key[1:]): value for key, value in rungs.items()}
    )


def test_rungs_double() -> None:
    assert [rungs_reached(100, step) for step in (99, 100, 399, 1000)] == [(), (100,), (100, 200), (100, 200, 400, 800)]


def test_the_worst_half_of_those_that_came_as_far_is_stopped() -> None:
    runs = [run("a", s100=0.5), run("b", s100=0.9), run("c", s100=0.1), run("d", s100=0.7)]
    assert verdicts(runs, RULE) == (
        StopDecision(name="b", because="loss 0.9 at step 100 is among the worst 50% of 4 runs"),
        StopDecision(name="d", because="loss 0.7 at step 100 is among the worst 50% of 4 runs"),
    )


@pytest.mark.parametrize(
    ("runs", "stopped"),
    [
        ([run("a", s100=0.5)], []),
        ([run("a", s100=0.5), run("b")], []),
        ([run("a", s100=0.5), run("b", s100=0.4)], ["a"]),
        ([run("a", goes_on=False, s100=0.5), run("b", s100=0.4)], []),
        ([run("a", s100=0.5), run("b", s100=0.4), run("c", s100=0.3)], ["a"]),
        ([run("a", s100=0.1, s200=0.9), run("b", s100=0.9, s200=0.1)], ["b", "a"]),
        ([run("a", s100=math.inf), run("b", s100=0.4)], ["a"]),
        ([run("b", s100=0.5), run("a", s100=0.5)], ["b"]),
    ],
    ids=["alone", "not so far", "two", "over but counted", "a third is rounded down", "at each rung", "no number", "equal"],
)
def test_who_is_stopped(runs: list[HalvingRun], stopped: list[str]) -> None:
    assert [verdict.name for verdict in verdicts(runs, RULE)] == stopped


def test_more_of_a_rate_is_better() -> None:
    rule = Rule(fraction=0.5, metric="samples_per_second", after=10)
    assert [verdict.name for verdict in verdicts([run("a", s10=5.0), run("b", s10=50.0)], rule)] == ["a"]


def test_one_run_is_never_stopped_whatever_the_share() -> None:
    rule = Rule(fraction=0.99, after=1)
    for count in (1, 2, 10, 100):
        runs = [run(f"r{index:03}", s1=float(index)) for index in range(count)]
        assert "r000" not in {verdict.name for verdict in verdicts(runs, rule)}


def test_what_a_run_had_at_a_rung_stays() -> None:
    seen = HalvingRun(name="a", step=230, value=0.4, goes_on=True, rungs={100: 0.6})
    assert with_new_rungs(seen, RULE) == {100: 0.6, 200: 0.4}
    assert with_new_rungs(HalvingRun(name="a", step=900, value=0.4, goes_on=True, rungs={100: 0.6}), RULE) == {100: 0.6, 800: 0.4}
    assert with_new_rungs(HalvingRun(name="a", step=None, value=None, goes_on=True), RULE) == {}
    assert with_new_rungs(HalvingRun(name="a", step=100, value=math.nan, goes_on=True), RULE) == {100: math.inf}


def test_a_run_is_not_compared_where_nobody_saw_it() -> None:
    """What it has after many steps says nothing against one that is at its first rung."""
    old = HalvingRun(name="old", step=10_000, value=0.1, goes_on=True)
    new = HalvingRun(name="new", step=120, value=0.5, goes_on=True)
    assert verdicts([replace(run, rungs=with_new_rungs(run, RULE)) for run in (old, new)], RULE) == ()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"fraction": 1.0, "after": 1}, "stop-worst 1 is not a fraction"),
        ({"fraction": 0.0, "after": 1}, "stop-worst 0 is not a fraction"),
        ({"fraction": 0.5, "after": 0}, "after 0 is too early"),
        (
            {"fraction": 0.5, "after": 1, "metric": "accuracy"},
            "metric 'accuracy' is not in it: use loss or samples_per",
        ),
    ],
)
def test_refusals(values: dict[str, object], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        Rule(**values)  # type: ignore[arg-type]
