"""From measurements to the last line: percentiles, the promises and whether they are kept, and the report for people.

All pure. A figure's name says its unit; a rival's begin with its prefix. None: it was not reached before the cap.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Figures = dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Promise:
    """`figure` is at most `limit`, which is a number or the name of another figure."""

    figure: str
    limit: float | str
    meaning: str


PROMISES = (
    Promise(
        figure="create_1280_seconds",
        limit="kubeflow_tuned_create_1280_seconds",
        meaning="20 jobs of 64 workers: all pods are created no later than by the tuned operator",
    ),
    Promise(
        figure="running_1280_seconds",
        limit="kubeflow_tuned_running_1280_seconds",
        meaning="20 jobs of 64 workers: all pods run no later than with the tuned operator",
    ),
    Promise(
        figure="create_500_jobs_seconds",
        limit="kubeflow_tuned_create_500_jobs_seconds",
        meaning="500 jobs of 4 workers: all pods are created no later than by the tuned operator",
    ),
    Promise(
        figure="running_500_jobs_seconds",
        limit="kubeflow_tuned_running_500_jobs_seconds",
        meaning="500 jobs of 4 workers: all pods run no later than with the tuned operator",
    ),
    Promise(
        figure="replace_30_calls_per_worker",
        limit="kubeflow_tuned_replace_30_calls_per_worker",
        meaning="30 workers lost at once: no more API calls for each than by the tuned operator",
    ),
    Promise(figure="create_10000_seconds", limit=60.0, meaning="200 jobs of 50 workers: all pods are created within 60 s"),
    Promise(figure="rss_mb_at_10000", limit=200.0, meaning="200 jobs of 50 workers: never more than 200 MB of memory"),
    Promise(figure="replace_30_p99_seconds", limit=1.0, meaning="30 workers lost at once: 99 of 100 are replaced within 1 s"),
    Promise(figure="vanished_max_seconds", limit=2.0, meaning="a machine vanished: its worker is replaced within 2 s"),
    Promise(
        figure="silent_max_seconds",
        limit=60.0,
        meaning="a machine fell silent: its worker is replaced within 60 s",
    ),
    Promise(figure="rss_mb_500_jobs", limit=150.0, meaning="500 jobs of 4 workers: never more than 150 MB of memory"),
)
RATIOS = ("create_1280_seconds", "running_1280_seconds", "create_500_jobs_seconds", "running_500_jobs_seconds")
"""Times of ours that the last line also gives as a part of each rival's."""


@dataclass(frozen=True, kw_only=True)
class PromiseResult:
    """A promise beside what was measured; `kept` None: not both of its figures were."""

    promise: Promise
    measured: float | None
    limit: float | None
    kept: bool | None


def judge(figures: Mapping[str, float | None], promises: Sequence[Promise] = PROMISES) -> list[PromiseResult]:
    """A figure of ours that was capped breaks its promise; a rival's that was capped cannot be exceeded."""
    return [_verdict(promise, figures) for promise in promises]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many percent do not exceed."""
    assert values
    rank = max(1, math.ceil(len(values) * percent / 100))
    return sorted(values)[rank - 1]


def rate(values: Sequence[float], percent: float) -> float:
    """A percentile, to the millisecond: more than a watch can tell."""
    return round(percentile(values, percent), 3)


def spread(values: Sequence[float]) -> str:
    """For people."""
    return ", ".join(f"{name} {percentile(values, percent):.3f} s" for name, percent in (("p50", 50), ("p99", 99), ("max", 100)))


def median(rounds: Sequence[Mapping[str, float | None]]) -> Figures:
    """One set of figures out of several rounds of the same; None where any round came to its cap."""
    found: Figures = {}
    for name in dict.fromkeys(name for figures in rounds for name in figures):
        values = [figures.get(name) for figures in rounds]
        known = [value for value in values if value is not None]
        found[name] = percentile(known, 50) if len(known) == len(values) else None
    return found


def ratios(figures: Mapping[str, float | None]) -> Figures:
    """Ours divided by theirs, for what both reached."""
    found: Figures = {}
    for prefix in ("kubeflow_tuned_", "kubeflow_", "jobset_"):
        for name in RATIOS:
            ours, theirs = figures.get(name), figures.get(prefix + name)
            if ours is not None and theirs:
                found[f"ratio_to_{prefix}{name.removesuffix('_seconds')}"] = round(ours / theirs, 2)
    return found


def report(verdicts: Sequence[PromiseResult]) -> list[str]:
    """One line for each promise that was measured."""
    lines = []
    for verdict in verdicts:
        if verdict.kept is None:
            continue
        measured = "not reached" if verdict.measured is None else f"{verdict.measured:g}"
        limit = "" if verdict.limit is None else f", at most {verdict.limit:g}"
        lines.append(f"{'won ' if verdict.kept else 'LOST'} {verdict.promise.meaning}: {measured}{limit}")
    return lines


def last_line(figures: Mapping[str, float | None], verdicts: Sequence[PromiseResult]) -> str:
    """All of it as one JSON object; `promises_kept` counts only what was measured."""
    judged = [verdict.kept for verdict in verdicts if verdict.kept is not None]
    counts = {"promises_kept": sum(judged), "promises_broken": len(judged) - sum(judged)}
    return json.dumps({**figures, **ratios(figures), **counts})


def _verdict(promise: Promise, figures: Mapping[str, float | None]) -> PromiseResult:
    needed = [promise.figure, *([promise.limit] if isinstance(promise.limit, str) else [])]
    measured = figures.get(promise.figure)
    limit = figures.get(promise.limit) if isinstance(promise.limit, str) else promise.limit
    if any(name not in figures for name in needed):
        return PromiseResult(promise=promise, measured=measured, limit=limit, kept=None)
    kept = measured is not None and (limit is None or measured <= limit)
    return PromiseResult(promise=promise, measured=measured, limit=limit, kept=kept)
