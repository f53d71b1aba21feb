"""Successive halving: which runs stop, which pause, which go on, as they arrive in any order."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ebb.api.halving import (
    Phase,
    SweepRun,
    new_rung,
    promoted_now,
    promotions,
    rung_step,
    rungs_reached,
    verdicts,
)
from ebb.api.parts import ASHA, STOP_WORST, Halving
from ebb.api.status import Progress, Rung

HALF = Halving(algorithm=STOP_WORST, after=100)
THIRD = Halving(algorithm=ASHA, after=9, factor=3)


def run(name: str, phase: Phase = Phase.BUSY, promoted: int = 0, **rungs: float) -> SweepRun:
    return SweepRun(name=name, phase=phase, promoted=promoted, rungs={int(key[1:]): value for key, value in rungs.items()})


def paused(name: str, promoted: int = 0, **rungs: float) -> SweepRun:
    return run(name, Phase.PAUSED, promoted, **rungs)


def test_rungs_are_a_factor_apart() -> None:
    assert [rungs_reached(HALF, step) for step in (99, 100, 399, 1000)] == [(), (100,), (100, 200), (100, 200, 400, 800)]
    assert rungs_reached(THIRD, 90) == (9, 27, 81)


# --- stop-worst ---


@pytest.mark.parametrize(
    ("runs", "stopped"),
    [
        ([run("a", s100=0.5)], []),
        ([run("a", s100=0.5), run("b")], []),
        ([run("a", s100=0.5), run("b", s100=0.4)], ["a"]),
        ([run("a", s100=0.5), run("b", s100=0.9), run("c", s100=0.1), run("d", s100=0.7)], ["d", "b"]),
        ([run("a", Phase.DONE, s100=0.5), run("b", s100=0.4)], []),
        ([run("a", s100=0.5), run("b", s100=0.4), run("c", s100=0.3)], ["a"]),
        ([run("a", s100=0.1, s200=0.9), run("b", s100=0.9, s200=0.1)], ["b", "a"]),
        ([run("a", s100=math.inf), run("b", s100=0.4)], ["a"]),
        ([run("b", s100=0.5), run("a", s100=0.5)], ["b"]),
    ],
    ids=["alone", "not so far", "two", "four", "over but counted", "a third is rounded down", "each rung", "no number", "equal"],
)
def test_who_is_stopped(runs: list[SweepRun], stopped: list[str]) -> None:
    assert [verdict.name for verdict in verdicts(runs, HALF)] == stopped


def test_why_it_is_stopped() -> None:
    (found,) = verdicts([run("a", s100=0.5), run("b", s100=0.4)], HALF)
    assert found.because == "loss 0.5 at step 100 is among the worst 50% of 2 runs"


def test_more_of_a_rate_is_better() -> None:
    rates = [run("a", s100=5.0), run("b", s100=50.0)]
    assert [found.name for found in verdicts(rates, replace(HALF, metric="samples_per_second"))] == ["a"]
    slow, fast = paused("a", s9=5.0), paused("b", s9=50.0)
    assert promotions([slow, fast], replace(THIRD, factor=2, metric="samples_per_second")) == ("b",)


def test_one_run_is_never_stopped_whatever_the_share() -> None:
    rule = replace(HALF, fraction=0.99)
    for count in (1, 2, 10, 100):
        runs = [run(f"r{index:03}", s100=float(index)) for index in range(count)]
        assert "r000" not in {verdict.name for verdict in verdicts(runs, rule)}


def seen(rule: Halving, step: int, loss: float | None, *rungs: int, promoted: int = 0) -> Rung | None:
    return new_rung(rule, dict.fromkeys(rungs, 1.0), promoted, Progress(step=step, loss=loss))


def test_what_a_run_had_at_a_rung_stays() -> None:
    assert seen(HALF, 99, 0.4) is None
    assert seen(HALF, 230, 0.4, 100) == Rung(step=200, value=0.4)
    assert seen(HALF, 230, 0.4, 100, 200) is None
    assert seen(HALF, 900, 0.4, 100) == Rung(step=800, value=0.4), "and it is not compared where nobody saw it"
    assert seen(HALF, 900, None) is None, "a program that says no loss is compared nowhere"


def test_under_asha_a_run_is_seen_at_the_rung_where_it_pauses() -> None:
    assert seen(THIRD, 8, 0.4) is None
    assert seen(THIRD, 80, 0.4) == Rung(step=9, value=0.4)
    assert seen(THIRD, 80, 0.4, 9) is None
    assert seen(THIRD, 80, math.inf, 9, promoted=1) == Rung(step=27, value=math.inf)
    assert seen(THIRD, 9, None) == Rung(step=9, value=None), "it pauses whatever it has, or it would never stop"


# --- asha ---


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([paused("a", s9=0.1)], ()),
        ([paused("a", s9=0.1), paused("b", s9=0.2)], ()),
        ([paused("a", s9=0.1), paused("b", s9=0.2), paused("c", s9=0.3)], ("a",)),
        ([run("a", promoted=1, s9=0.1), paused("b", s9=0.2), paused("c", s9=0.3)], ()),
        ([run("a", promoted=1, s9=0.4), *(paused(name, s9=0.2) for name in "bcdef")], ("b", "c")),
        ([run("a", Phase.IDLE, s9=0.1), paused("b", s9=0.2), paused("c", s9=0.3)], ()),
        ([paused(name, s9=math.inf) for name in "abc"], ()),
        (
            [
                *(paused(name, 1, s9=0.1, s27=value) for name, value in (("a", 0.3), ("b", 0.2), ("c", 0.4))),
                *(paused(name, s9=0.05) for name in "defghijkl"),
            ],
            ("b", "d", "e", "f", "g"),
        ),
    ],
    ids=["alone", "two", "the best of three", "promoted", "once it was the best", "stopped by people", "no numbers", "two rungs"],
)
def test_who_goes_on(runs: list[SweepRun], names: tuple[str, ...]) -> None:
    """Of the last: four of twelve are promotable at the first rung, and the better one of the second goes before them."""
    assert promotions(runs, THIRD) == names


def test_a_pause_ends_only_where_there_is_room() -> None:
    runs = [paused(f"r{index}", s9=index / 10) for index in range(9)]
    assert promoted_now(runs, THIRD, None) == ("r0", "r1", "r2")
    assert promoted_now([*runs, run("x"), run("y")], THIRD, 3) == ("r0",)
    assert promoted_now([*runs, run("x"), run("y")], THIRD, 2) == ()
    assert promoted_now([*runs, run("new", Phase.NEW)], THIRD, 1) == ("r0",), "before a run that never trained"


def test_the_best_goes_on_where_nothing_else_could_bring_it_further() -> None:
    two = [paused("a", s9=0.2), paused("b", s9=0.1)]
    assert promoted_now(two, THIRD, 1) == ("b",)
    assert promoted_now([*two, run("c", Phase.NEW)], THIRD, 1) == ()
    assert promoted_now([*two, run("c", Phase.DONE)], THIRD, 1) == ()
    assert promoted_now([*two, run("c", Phase.IDLE)], THIRD, 1) == ("b",), "one that failed is no result"
    assert promoted_now([paused("a", 1, s9=0.1, s27=0.9), *two], THIRD, 1) == ("a",), "of those that came furthest"
    assert promoted_now([paused("a", s9=math.inf)], THIRD, 1) == ()


class Sweep:
    """Runs in a random order of events, at most `at_once` of them busy, until nothing can happen any more."""

    def __init__(self, seed: int, *, count: int, at_once: int, rule: Halving, top: int) -> None:
        self._source, self.rule, self._top, self.at_once = random.Random(seed), rule, top, at_once
        self.values = {f"r{index:02}": self._source.random() for index in range(count)}
        self.runs = {name: run(name, Phase.NEW) for name in self.values}
        self.promoted: list[tuple[str, int, tuple[SweepRun, ...]]] = []

    def play(self) -> Iterator[None]:
        while True:
            busy = [name for name, each in self.runs.items() if each.phase is Phase.BUSY]
            first = promoted_now(self.runs.values(), self.rule, self.at_once)
            new = [name for name, each in self.runs.items() if each.phase is Phase.NEW]
            if first:
                self._promote(first[0])
            elif new and len(busy) < self.at_once:
                self.runs[new[0]] = replace(self.runs[new[0]], phase=Phase.BUSY)
            elif busy:
                self._arrive(self._source.choice(busy))
            else:
                return
            yield

    def _promote(self, name: str) -> None:
        each = self.runs[name]
        self.promoted.append((name, rung_step(self.rule, each.promoted), tuple(self.runs.values())))
        self.runs[name] = replace(each, phase=Phase.BUSY, promoted=each.promoted + 1)

    def _arrive(self, name: str) -> None:
        each = self.runs[name]
        if each.promoted >= self._top:
            self.runs[name] = replace(each, phase=Phase.DONE)
            return
        rung = rung_step(self.rule, each.promoted)
        noise = self._source.random() / 100
        self.runs[name] = replace(each, phase=Phase.PAUSED, rungs={**each.rungs, rung: self.values[name] + noise})


@pytest.mark.parametrize("seed", range(60))
def test_the_rule_of_the_paper_holds_in_any_order(seed: int) -> None:
    """Algorithm 2 of Li et al. (2020): whoever is promoted from a rung is among the best floor(n / factor) of the n that came
    there until then, and is promoted from it once. Never more than `at_once` are busy. No run that could go on is left behind."""
    source = random.Random(seed)
    rule = replace(THIRD, factor=source.choice((2, 3, 4)))
    sweep = Sweep(seed, count=source.randrange(1, 30), at_once=source.randrange(1, 6), rule=rule, top=source.randrange(1, 4))
    for _ in sweep.play():
        assert sum(each.phase is Phase.BUSY for each in sweep.runs.values()) <= sweep.at_once
    assert len({(name, rung) for name, rung, _ in sweep.promoted}) == len(sweep.promoted)
    for name, rung, runs in sweep.promoted:
        there = sorted((each for each in runs if rung in each.rungs), key=lambda each: (each.rungs[rung], each.name))
        best = [each.name for each in there[: len(there) // rule.factor]]
        alone = not any(each.phase in (Phase.BUSY, Phase.NEW, Phase.DONE) for each in runs)
        assert name in best or alone
    assert promotions(sweep.runs.values(), rule) == ()
    assert any(each.phase is Phase.DONE for each in sweep.runs.values()), "one has all its steps"
    for number in range(3):
        rung = rung_step(rule, number)
        there = [each for each in sweep.runs.values() if rung in each.rungs]
        further = sum(each.promoted > number for each in there)
        assert further >= len(there) // rule.factor


def test_the_same_values_in_the_same_order_are_the_same_sweep() -> None:
    def played(seed: int) -> dict[str, SweepRun]:
        sweep = Sweep(seed, count=20, at_once=3, rule=THIRD, top=2)
        for _ in sweep.play():
            pass
        return sweep.runs

    assert played(1) == played(1)
    assert played(1) != played(2)
