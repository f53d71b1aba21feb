"""A sweep in a researcher's words: its ElasticJobs -> `SweepView`, which the table and `-o json` show. Pure code.

Fields are only added to, as those of `JobView`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ebb.api import contract as names
from ebb.client.jobs.view import FINISHED, OVER, STOPPED, view
from ebb.client.sweep.halving import goes_on
from ebb.client.sweep.results import MODES, FinalFigures, SweepMetric, best_of, has_ended, score_of
from ebb.kube import Object

PAUSED = "paused"  # at its rung: it goes on if it is promoted
LABEL_SWEEP = "ebb.dev/sweep"
ANNOTATION_POINT = "ebb.dev/sweep-point"  # JSON: key -> value, in the order in which they were given
ANNOTATION_COMMAND = "ebb.dev/command"  # what starts the same run again, alone


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One point of a sweep. Numbers are None before the trainer said any."""

    job: str
    point: dict[str, str]
    state: str
    detail: str
    step: int | None
    total_steps: int | None
    metric: float | None
    usd_spent: float | None
    stopped_because: str  # by --stop-worst, or never promoted by --asha; "" if it was not
    command: str  # starts the same run again, alone
    source: str = ""  # of the metric: a file of the run's, or its status; "" where nothing says it


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """A sweep. `best` is the job whose metric is the best so far, "" while none has one."""

    name: str
    namespace: str
    metric: str
    best: str
    max_parallel: int | None
    usd_spent: float | None
    runs: tuple[RunView, ...]
    mode: str = "min"  # or max: which metric is the best
    notes: tuple[str, ...] = ()  # what could not be read

    @property
    def by(self) -> SweepMetric:
        """The comparison of its runs."""
        return SweepMetric(name=self.metric, more_is_better=self.mode == MODES[True])

    @property
    def over(self) -> bool:
        """Nothing of it goes on by itself: all have ended or are stopped."""
        return all(run.state in OVER or run.state == STOPPED for run in self.runs)


def sweep_view(
    name: str,
    namespace: str,
    jobs: Iterable[Object],
    *,
    metric: SweepMetric | None = None,
    finals: Mapping[str, FinalFigures] | None = None,
    points: Mapping[str, dict[str, str]] | None = None,
    notes: Iterable[str] = (),
    now: float | None = None,
) -> SweepView:
    """The runs in the order of their points, numbers by size. By the jobs' uid: `finals`, what was read of their files, and
    `points`, those that runs chose themselves."""
    metric, finals, points = metric or SweepMetric(), finals or {}, points or {}
    jobs = list(jobs)
    pausing = goes_on(jobs)
    runs = sorted(
        (
            _run(job, metric, finals.get(job["metadata"]["uid"]), points.get(job["metadata"]["uid"]), now, pausing=pausing)
            for job in jobs
        ),
        key=lambda run: (_order(run.point), run.job),
    )
    groups = [job["spec"].get("group") or {} for job in jobs]
    limits = {int(group["maxParallel"]) for group in groups if group.get("maxParallel")}
    spent = [run.usd_spent for run in runs if run.usd_spent is not None]
    return SweepView(
        name=name,
        namespace=namespace,
        metric=metric.name,
        mode=metric.mode,
        notes=tuple(notes),
        best=best_of({run.job: run.metric for run in runs}, metric),
        max_parallel=min(limits, default=None),
        usd_spent=sum(spent) if spent else None,
        runs=tuple(runs),
    )


def annotations(job: Object) -> dict[str, str]:
    """A job's annotations."""
    return job["metadata"].get("annotations") or {}


def _run(
    job: Object,
    metric: SweepMetric,
    final: FinalFigures | None,
    point: dict[str, str] | None,
    now: float | None,
    *,
    pausing: bool,
) -> RunView:
    seen, told = view(job, now), annotations(job)
    held = str(((job.get("status") or {}).get("hold") or {}).get("reason") or "")
    paused = held == names.REASON_SWEEP_PAUSED and seen.state == STOPPED
    score, source = score_of(seen, final, metric)
    last = final.step if final and has_ended(seen) else None
    return RunView(
        job=seen.name,
        point=point or _point(told.get(ANNOTATION_POINT, "")),
        state=PAUSED if paused and pausing else seen.state,
        detail=seen.detail,
        step=seen.step if last is None else last,
        total_steps=seen.total_steps,
        metric=score,
        source=source,
        usd_spent=seen.usd_spent,
        stopped_because=seen.detail if held == names.REASON_SWEEP_WORST or (paused and not pausing) else "",
        command=told.get(ANNOTATION_COMMAND, ""),
    )


def _point(text: str) -> dict[str, str]:
    """{} for a label that somebody set by hand."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _order(point: dict[str, str]) -> list[tuple[str, float, str]]:
    return [(key, _number(value), value) for key, value in point.items()]


def _number(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(found) else found  # nan has no place in an order


def count_states(sweep: SweepView) -> str:
    """Return how many runs are in which state, finished ones first."""
    states = [run.state for run in sweep.runs]
    ordered = sorted(set(states), key=lambda state: (state != FINISHED, state))
    return ", ".join(f"{states.count(state)} {state}" for state in ordered)
