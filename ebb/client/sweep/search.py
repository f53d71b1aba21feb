"""A sweep whose points Optuna chooses, one run after the other: what each run is told. The choice itself is made where the run
starts (ebb/elastic/launch/sweep_point.py), so that neither a laptop nor the platform takes part in it.

    search = Search(sampler="tpe", seed=0, metric=SweepMetric(), axes=axes)
    slots(axes, 20)                              # 20 points whose values are yet to be chosen: lr={lr}
    environment_of(search, study, number=7)      # what the launcher reads
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ebb.api.contract import ENV_SWEEP_SEARCH
from ebb.client.errors import BadRequest
from ebb.client.staging.code import Code
from ebb.client.sweep.overrides import Axis, Values
from ebb.client.sweep.points import MOST_POINTS, Point
from ebb.client.sweep.results import SweepMetric
from ebb.kube import Object

SAMPLERS = ("tpe",)
_OPTUNA = re.compile(r"^\s*optuna\b", re.MULTILINE | re.IGNORECASE)
STUDIES = ".ebb/sweeps"  # on the output volume
ANNOTATION_SEARCH = "ebb.dev/sweep-search"  # what is searched, and how: the same for all runs


@dataclass(frozen=True, kw_only=True)
class Search:
    """--sampler NAME --seed SEED --metric METRIC --mode MODE."""

    sampler: str
    seed: int
    metric: SweepMetric
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise BadRequest(f"sampler {self.sampler!r} is unknown: use {' or '.join(SAMPLERS)}.")
        if not any(not isinstance(axis, Values) or len(axis.values) > 1 for axis in self.axes):
            raise BadRequest("sampler has nothing to choose: give an interval or several values, as in 'lr=interval(0,1)'.")

    @property
    def record(self) -> Object:
        """The part that is the same for all runs."""
        return {
            "sampler": self.sampler,
            "seed": self.seed,
            "metric": self.metric.name,
            "mode": self.metric.mode,
            "axes": [_axis(axis) for axis in self.axes],
        }


def slots(axes: Sequence[Axis], number: int | None) -> tuple[Point, ...]:
    """Runs whose values are yet to be chosen. Raises BadRequest."""
    if number is None:
        raise BadRequest("sampler needs the number of runs: add --random 20.")
    if not 1 <= number <= MOST_POINTS:
        raise BadRequest(f"random {number} is not a number of points: use 1 to {MOST_POINTS:,}.")
    values = tuple((axis.key, f"{{{axis.key}}}") for axis in axes)
    return tuple(Point(values=values, number=index) for index in range(1, number + 1))


def check_brought(code: Code | None) -> None:
    """Raises BadRequest unless the code brings Optuna, which the platform's own image does not have."""
    file = Path(code.folder) / "requirements.txt" if code else None
    if file is None or not file.is_file() or not _OPTUNA.search(file.read_text(errors="replace")):
        lacks = f"{file} does not name it" if file else "no code brings it"
        raise BadRequest(
            f"sampler needs Optuna where the runs train, and {lacks}: add the line `optuna` to the requirements.txt of your "
            "code's folder, or give an --image that has it."
        )


def environment_of(search: Search, study: str, number: int) -> Mapping[str, str]:
    """Variables for a run's launcher; `study`: the sweep's folder, as the pod sees it."""
    return {ENV_SWEEP_SEARCH: json.dumps({**search.record, "study": study, "number": number})}


def point_file(study: str, number: int) -> str:
    """The file with a run's point."""
    return f"{study}/{number:03}.json"


def _axis(axis: Axis) -> Object:
    if isinstance(axis, Values):
        return {"key": axis.key, "values": list(axis.values)}
    if axis.whole:
        return {"key": axis.key, "low": math.ceil(axis.low), "high": math.floor(axis.high), "whole": True, "log": axis.log}
    return {"key": axis.key, "low": axis.low, "high": axis.high, "log": axis.log}
