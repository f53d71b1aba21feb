"""The point of a run whose sweep asks Optuna for it: chosen when the run starts, from what the runs before it came to.

    arguments = place(arguments, os.environ, say)     # once the code is there: train.py --lr {lr} -> train.py --lr 0.013
    tell(os.environ, say)                             # once the program has finished

$EBB_SWEEP_SEARCH says what may vary and where the sweep's folder is, on the volume that all runs share. Each run has one file in
it, 007.json, with its point and, at its end, its value; these are all that remembers the search. One run chooses at a time, so
each sees the points of all others, also of those that still train; a run that starts again after a reclaim finds its own. Optuna
runs in a process of its own, with the job's packages, and is needed nowhere else: neither here nor in the platform.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ebb.compat import dataclass
from ebb.elastic.contract import ENV_OUTPUT_DIR, ENV_SWEEP_SEARCH
from ebb.elastic.launch.last_figures import find_metric, read_object
from ebb.elastic.launch.lease import Lease

Say = Callable[[str], None]
_SAMPLER = "ebb.elastic.launch.optuna_sampler"


class PointError(Exception):
    """No point can be chosen; the message is a sentence that names the fix. Another try would end the same."""


@dataclass(frozen=True)
class Search:
    """$EBB_SWEEP_SEARCH."""

    study: Path  # the sweep's folder
    number: int  # of the run, from 1
    told: Mapping[str, Any]  # sampler, seed, metric, mode, axes

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Search | None:
        """None for a job whose point is in its words already. Raises PointError."""
        text = environment.get(ENV_SWEEP_SEARCH)
        if not text:
            return None
        try:
            told = json.loads(text)
            return cls(Path(told["study"]), int(told["number"]), told)
        except (ValueError, KeyError, TypeError) as error:
            raise PointError(f"{ENV_SWEEP_SEARCH} is no search ({error!r}): submit the sweep again with `ebb sweep`") from error

    @property
    def file(self) -> Path:
        return self.study / f"{self.number:03}.json"

    def trials(self) -> list[dict[str, Any]]:
        """Those of all runs, in their order. A file that cannot be read is left out."""
        return [found for path in sorted(self.study.glob("*.json")) if (found := read_object(path))]


def place(arguments: list[str], environment: Mapping[str, str], say: Say) -> list[str]:
    """The words with the run's point in them. Raises PointError."""
    search = Search.of(environment)
    if search is None:
        return arguments
    try:
        search.study.mkdir(parents=True, exist_ok=True)
        holder = f"run {search.number}"
        lease = Lease(path=search.study / "lock", holder=holder, say=say, doing="chooses its point")
        with lease.take(search.file.is_file) as mine:
            if mine and not search.file.is_file():
                _choose(search, environment, say)
        point = {str(key): str(value) for key, value in (read_object(search.file) or {})["point"].items()}
    except (OSError, KeyError, AttributeError) as error:
        raise PointError(f"the sweep's folder {search.study} cannot be used: {error}. Can user 1000 write there?") from error
    return list(_words(arguments, point))


def tell(environment: Mapping[str, str], say: Say) -> None:
    """Write down what the finished run came to. What cannot be written costs the search this run."""
    with contextlib.suppress(PointError):
        search = Search.of(environment)
        if search and (trial := read_object(search.file)):
            value = find_metric(Path(environment.get(ENV_OUTPUT_DIR, ".")), str(search.told.get("metric", "loss")))
            if value is None:
                say(f"this run has no {search.told.get('metric', 'loss')}: the sweep learns nothing of it")
            try:
                _write(search.file, {**trial, "finished": True, "value": value})
            except OSError as error:
                say(f"the sweep does not learn of this run: {error.strerror}: {search.file}")


def _choose(search: Search, environment: Mapping[str, str], say: Say) -> None:
    trials = search.trials()
    asked = json.dumps({**search.told, "trials": trials})
    done = subprocess.run(
        [sys.executable, "-m", _SAMPLER], input=asked, capture_output=True, text=True, env=dict(environment), check=False
    )
    try:
        point = json.loads(done.stdout)
    except ValueError:
        words = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        if "No module named 'optuna'" in words:
            raise PointError(
                "Optuna, which chooses this sweep's points, is not installed: add the line `optuna` to the requirements.txt of "
                "your code's folder, or install it in your image"
            ) from None
        raise PointError(f"Optuna cannot choose a point: {words}") from None
    _write(search.file, {"number": search.number, "point": point})
    known = sum(1 for each in trials if each.get("finished"))
    said = " ".join(f"{key}={value}" for key, value in point.items())
    say(f"point of run {search.number}, by Optuna after {known} finished runs: {said}")


def _words(arguments: list[str], point: Mapping[str, str]) -> Iterator[str]:
    """A flag and a negative number become one word: argparse would take most of them for a flag."""
    flag = None
    for word in arguments:
        placed = word
        for key, value in point.items():
            placed = placed.replace(f"{{{key}}}", value)
        if flag is not None:
            joined = placed != word and placed.startswith("-")
            yield f"{flag}={placed}" if joined else flag
            flag = None
            if joined:
                continue
        if placed.startswith("--") and "=" not in placed and len(placed) > 2:
            flag = placed
        else:
            yield placed
    if flag is not None:
        yield flag


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(content))
    new.replace(path)
