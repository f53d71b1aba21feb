"""Successive halving of a sweep's runs: which stop early, which go on. Pure: the controller decides by it, `ebb` reads it.

    stop-worst    the worst share of those that got as far are stopped: verdicts(runs, rule)
    asha          each run pauses at its rung; the best of those that came there go on: promotions(runs, rule)

Both are the asynchronous rules of Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020, arXiv
1810.05934): the second is their Algorithm 2, the first its variant that stops and never pauses. Runs need not start together.
A run's value at a rung is the first one that was seen at or past it, so it is a few steps late; it stays, and counts when the
run is over. Nothing is drawn: the same values, arriving in the same order, give the same decisions.
"""

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ebb.api.contract import REASON_SWEEP_PAUSED, SUCCEEDED
from ebb.api.parts import ASHA, Halving
from ebb.api.spec import Job
from ebb.api.status import Progress, Rung

METRICS = {"loss": False, "samples_per_second": True}
"""Metrics in a job's status -> whether more is better."""


class Phase(enum.Enum):
    """State of a run in its sweep."""

    NEW = "new"  # it has no machines yet and never came to a rung
    BUSY = "busy"  # it trains, or is to as soon as there are machines
    PAUSED = "paused"  # at its rung
    DONE = "done"  # it has finished
    IDLE = "idle"  # it has failed, or was stopped


@dataclass(frozen=True, kw_only=True)
class SweepRun:
    """A run as far as it has come. `rungs`: step -> its value there, infinite in the bad direction for none."""

    name: str
    phase: Phase = Phase.BUSY
    rungs: Mapping[int, float] = field(default_factory=dict)
    promoted: int = 0  # how often: the number of the rung at which it pauses next

    @classmethod
    def of(cls, job: Job, metric: str) -> "SweepRun":
        """As its status says."""
        status, sweep = job.status, job.status.sweep
        rungs = {rung.step: valued(rung.value, metric) for rung in sweep.rungs} if sweep else {}
        if status.is_true(SUCCEEDED):
            phase = Phase.DONE
        elif status.ended or job.deleting or job.spec.suspend:
            phase = Phase.IDLE
        elif status.hold:
            phase = Phase.PAUSED if status.hold.reason == REASON_SWEEP_PAUSED else Phase.IDLE
        else:
            phase = Phase.BUSY if status.placement or rungs else Phase.NEW
        return cls(name=job.name, phase=phase, rungs=rungs, promoted=sweep.promotions if sweep else 0)


@dataclass(frozen=True, kw_only=True)
class Siblings:
    """The other runs of a sweep, and those paused ones of all that may go on now."""

    runs: tuple[SweepRun, ...] = ()
    promoted: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StopDecision:
    """A run to stop, and why."""

    name: str
    because: str


def valued(value: float | None, metric: str) -> float:
    """A value that can be compared: none is worse than any other."""
    if value is not None and math.isfinite(value):
        return value
    return -math.inf if METRICS[metric] else math.inf


def metric_in(progress: Progress, metric: str) -> float | None:
    """The metric as the workers report it."""
    return progress.samples_per_second if metric == "samples_per_second" else progress.loss


def rung_step(rule: Halving, number: int) -> int:
    """The step of a rung: after, factor x after, factor x factor x after, ..."""
    return rule.after * int(rule.factor**number)


def rungs_reached(rule: Halving, step: int) -> tuple[int, ...]:
    """Steps of the rungs up to `step`."""
    found: list[int] = []
    while (rung := rung_step(rule, len(found))) <= step:
        found.append(rung)
    return tuple(found)


def new_rung(rule: Halving, rungs: Mapping[int, float], promoted: int, progress: Progress) -> Rung | None:
    """The rung at which the run is now seen for the first time; None: it is at none, or was seen there.

    Under stop-worst a run that nobody saw at a rung has no value there and is not compared there: what it has learned since would
    make every other look bad. Under asha it pauses at the first look at or past its rung, whatever that has.
    """
    value = metric_in(progress, rule.metric)
    if rule.algorithm == ASHA:
        rung = rung_step(rule, promoted)
        return None if progress.step < rung or rung in rungs else Rung(step=rung, value=value)
    reached = rungs_reached(rule, progress.step)
    if not reached or value is None or reached[-1] in rungs:
        return None
    return Rung(step=reached[-1], value=value)


def verdicts(runs: Iterable[SweepRun], rule: Halving) -> tuple[StopDecision, ...]:
    """Those to stop now: each once, for the earliest rung at which it is among the worst floor(fraction x runs seen there)."""
    runs = list(runs)
    found: dict[str, StopDecision] = {}
    for rung in sorted({rung for run in runs for rung in run.rungs}):
        there = _best_first(runs, rung, rule)
        for run in there[len(there) - int(rule.fraction * len(there) + 1e-9) :]:
            if run.phase is Phase.BUSY and run.name not in found:
                found[run.name] = StopDecision(name=run.name, because=_because(run, rung, rule, len(there)))
    return tuple(found.values())


def promotions(runs: Iterable[SweepRun], rule: Halving) -> tuple[str, ...]:
    """The paused runs that may go on, from the highest rung down and there the best first: those among the best
    floor(runs that came there / factor) that were not promoted from it before. One without a value never is."""
    runs = list(runs)
    found: list[str] = []
    for rung in sorted({rung for run in runs for rung in run.rungs}, reverse=True):
        there = _best_first(runs, rung, rule)
        found += [
            run.name
            for run in there[: len(there) // rule.factor]
            if run.phase is Phase.PAUSED and rung_step(rule, run.promoted) == rung and math.isfinite(run.rungs[rung])
        ]
    return tuple(found)


def promoted_now(runs: Iterable[SweepRun], rule: Halving, at_once: int | None) -> tuple[str, ...]:
    """Those of `promotions` for which there is room beside the runs that are busy.

    Where nothing else could bring any further, the best goes on: the paper never runs out of new runs, and a sweep that does has
    to end with one that has all its steps.
    """
    runs = list(runs)
    found = promotions(runs, rule)
    if not found and not any(run.phase in (Phase.BUSY, Phase.NEW, Phase.DONE) for run in runs):
        found = _best_paused(runs, rule)
    return found if at_once is None else found[: max(0, at_once - sum(run.phase is Phase.BUSY for run in runs))]


def _best_paused(runs: Iterable[SweepRun], rule: Halving) -> tuple[str, ...]:
    """The best of those that came furthest."""
    paused = [run for run in runs if run.phase is Phase.PAUSED]
    rung = max((rung_step(rule, run.promoted) for run in paused), default=0)
    found = [run.name for run in _best_first(paused, rung, rule) if math.isfinite(run.rungs[rung])]
    return tuple(found[:1])


def _best_first(runs: Iterable[SweepRun], rung: int, rule: Halving) -> list[SweepRun]:
    sign = -1 if METRICS[rule.metric] else 1
    return sorted((run for run in runs if rung in run.rungs), key=lambda run: (sign * run.rungs[rung], run.name))


def _because(run: SweepRun, rung: int, rule: Halving, of: int) -> str:
    return f"{rule.metric} {run.rungs[rung]:.4g} at step {rung} is among the worst {rule.fraction:.0%} of {of} runs"
