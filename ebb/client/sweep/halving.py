"""Early stopping of a sweep's runs: the worst share of those that got as far. Pure code.

    rungs = rungs_reached(after=100, step=450)        # (100, 200, 400): every run is compared where it has come past these steps
    for verdict in verdicts(runs, rule): ...          # those to stop now, with why

This is successive halving as runs arrive (ASHA's stopping rule, arXiv 1810.05934), so that runs need not start together: at each
rung the worst floor(fraction x runs that were seen there) are stopped, the best never are. What a run had at a rung is kept with
it, and counts when it is over. The number is the first one that was seen at or past the rung and before the next, so it is a few
steps late. A run that nobody saw there has none at that rung and is not compared there: what it has learned since would make
every other look bad.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ebb.client.errors import BadRequest

METRICS = {"loss": False, "samples_per_second": True}
"""Metrics in a job's status -> whether more is better."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """--stop-worst FRACTION --metric METRIC --after STEPS."""

    fraction: float
    metric: str = "loss"
    after: int

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise BadRequest(f"stop-worst {self.fraction:g} is not a fraction: use more than 0 and less than 1, such as 0.5.")
        if self.metric not in METRICS:
            raise BadRequest(
                f"stop-worst compares runs while they train, by what a job's status has, and metric {self.metric!r} is not in "
                f"it: use {' or '.join(METRICS)}, or leave --stop-worst out."
            )
        if self.after < 1:
            raise BadRequest(f"after {self.after} is too early: runs are compared from step 1 on.")


@dataclass(frozen=True, kw_only=True)
class HalvingRun:
    """A run as far as it has come. `rungs`: rung -> what it had there."""

    name: str
    step: int | None
    value: float | None
    goes_on: bool
    rungs: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StopDecision:
    """A run to stop, and why."""

    name: str
    because: str


def with_new_rungs(run: HalvingRun, rule: Rule) -> dict[int, float]:
    """Return what the run had at the rungs where it was seen, now at the newest; equal to `run.rungs` where nothing is new.

    A number that is none (nan) is worse than any other.
    """
    if run.step is None or run.value is None:
        return dict(run.rungs)
    value = run.value if math.isfinite(run.value) else (-math.inf if METRICS[rule.metric] else math.inf)
    newest = rungs_reached(rule.after, run.step)[-1:]
    return {**dict.fromkeys(newest, value), **run.rungs}


def rungs_reached(after: int, step: int) -> tuple[int, ...]:
    """after, 2 after, 4 after ... up to `step`."""
    found = []
    while after <= step:
        found.append(after)
        after *= 2
    return tuple(found)


def verdicts(runs: Iterable[HalvingRun], rule: Rule) -> tuple[StopDecision, ...]:
    """Those to stop now: each once, for the earliest rung at which it is among the worst."""
    runs = list(runs)
    found: dict[str, StopDecision] = {}
    for rung in sorted({rung for run in runs for rung in run.rungs}):
        there = [run for run in runs if rung in run.rungs]
        there.sort(key=lambda run: (run.rungs[rung], run.name), reverse=not METRICS[rule.metric])  # the worst first
        for run in there[: int(rule.fraction * len(there) + 1e-9)]:
            if run.goes_on and run.name not in found:
                found[run.name] = StopDecision(name=run.name, because=_because(run, rung, rule, len(there)))
    return tuple(found.values())


def _because(run: HalvingRun, rung: int, rule: Rule, of: int) -> str:
    return f"{rule.metric} {run.rungs[rung]:.4g} at step {rung} is among the worst {rule.fraction:.0%} of {of} runs"
