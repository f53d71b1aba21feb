"""Of all plays of a size and a way: what it cost, what it saved, how long it took, and the promises that were not kept. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.spot.curve import speed
from benchmarks.spot.others import Case, Played

OURS, OTHER, ON_DEMAND = "ours", "uniform_progress", "on_demand"
KNOWS = 0.02  # that the other way may save more in the mean: it knows at once what each zone has
LEAST_SAVED, FEW = 0.6, 16  # of the price on on-demand machines, on as many GPUs at most
Figures = dict[str, Any]


def figures(case: Case, plays: Sequence[Played], full: Sequence[Played], usd_per_gpu_hour: float) -> Figures:
    """Of one way at one size. `full`: the same plays on on-demand machines.

    saving                   mean part of the on-demand price that was not paid, of the plays that came to an end
    saving_against_few_gpus  the same against on-demand machines that do this work on few GPUs, where they are most efficient
    times_as_long            mean time in those that the work takes undisturbed
    late                     plays whose work was not done before the deadline
    unfinished               plays whose work was not done when they were given up
    """
    ended = [(one, other) for one, other in zip(plays, full, strict=True) if one.seconds is not None]
    gpus = case.machines * case.gpus_per_machine
    few = usd_per_gpu_hour * speed(gpus) * case.seconds / 3600
    savings = [1 - one.usd / other.usd for one, other in ended]
    return {
        "saving": _mean(savings),
        "least_saving": round(min(savings), 3) if savings else None,
        "saving_against_few_gpus": _mean([1 - one.usd / few for one, _ in ended]),
        "usd": _mean([one.usd for one, _ in ended], 2),
        "times_as_long": _mean([one.seconds / case.seconds for one, _ in ended if one.seconds is not None], 2),
        "reclaims": round(statistics.fmean(one.reclaims for one in plays), 1),
        "late": sum(one.late(case.deadline) for one in plays),
        "unfinished": len(plays) - len(ended),
    }


def _mean(values: Sequence[float], digits: int = 3) -> float | None:
    return round(statistics.fmean(values), digits) if values else None


def broken(told: Mapping[int, Mapping[str, Figures]]) -> list[str]:
    """The promises that are not kept, in sentences. `told`: by number of GPUs, then by way."""
    wrong = [f"{gpus} GPUs: ours was late {ways[OURS]['late']} times" for gpus, ways in told.items() if ways[OURS]["late"]]
    wrong += [
        f"{gpus} GPUs: ours saves {ways[OURS]['saving']}, less than {LEAST_SAVED:g}"
        for gpus, ways in told.items()
        if gpus <= FEW and (ways[OURS]["saving"] or 0.0) < LEAST_SAVED
    ]
    ours, other = (_mean([ways[way]["saving"] or 0.0 for ways in told.values()]) for way in (OURS, OTHER))
    if (ours or 0.0) < (other or 0.0) - KNOWS:
        wrong.append(f"ours saves {ours} in the mean, {OTHER} {other}")
    return wrong
