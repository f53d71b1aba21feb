"""One point by Optuna, in a process of its own: JSON in, JSON out. `python -m ebb.elastic.launch.optuna_sampler`

    {"sampler": "tpe", "seed": 0, "number": 7, "mode": "min", "axes": [{"key": "lr", "low": 1e-4, "high": 1, "log": true}, ...],
     "trials": [{"number": 1, "point": {"lr": "0.1"}, "finished": true, "value": 0.3}, ...]}     ->     {"lr": "0.0132"}

The study is made anew from the trials each time: nothing but the runs' own files is kept. Runs that still train are trials that
run, of which the sampler keeps away (constant_liar). The same trials and the same seed give the same point.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

DIGITS = 6  # significant ones, as of points that `ebb sweep --random` draws


def suggest(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return the point as texts. Raises ImportError without Optuna."""
    import optuna  # noqa: PLC0415 - only here is it needed

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {axis["key"]: _distribution(optuna, axis) for axis in asked["axes"]}
    # A generator that began at the same number for each run would draw the same first points for all of them.
    sampler = optuna.samplers.TPESampler(seed=int(asked["seed"]) * 100003 + int(asked["number"]), constant_liar=True)
    directions = optuna.study.StudyDirection
    direction = directions.MAXIMIZE if asked.get("mode") == "max" else directions.MINIMIZE
    study = optuna.create_study(sampler=sampler, direction=direction)
    study.add_trials(_trial(optuna, each, distributions) for each in asked["trials"])
    found = study.ask(distributions).params
    return {axis["key"]: _text(found[axis["key"]]) for axis in asked["axes"]}


def _distribution(optuna: Any, axis: Mapping[str, Any]) -> Any:
    if "values" in axis:
        return optuna.distributions.CategoricalDistribution([str(value) for value in axis["values"]])
    kind = optuna.distributions.IntDistribution if axis.get("whole") else optuna.distributions.FloatDistribution
    return kind(axis["low"], axis["high"], log=bool(axis.get("log")))


def _trial(optuna: Any, each: Mapping[str, Any], distributions: Mapping[str, Any]) -> Any:
    """A run that finished without a number is one that failed: what it had says nothing."""
    state, value = optuna.trial.TrialState.RUNNING, each.get("value")
    if each.get("finished"):
        state = optuna.trial.TrialState.FAIL if value is None else optuna.trial.TrialState.COMPLETE
    params = {key: _number(each["point"][key], kind, optuna) for key, kind in distributions.items()}
    return optuna.trial.create_trial(state=state, params=params, distributions=dict(distributions), value=value)


def _number(text: str, kind: Any, optuna: Any) -> Any:
    if isinstance(kind, optuna.distributions.CategoricalDistribution):
        return text
    number = int(text) if isinstance(kind, optuna.distributions.IntDistribution) else float(text)
    return min(kind.high, max(kind.low, number))  # a text has fewer digits


def _text(value: Any) -> str:
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    print(json.dumps(suggest(json.load(sys.stdin))))
