"""The lines of a run as curves: a listener for its report.

    events = EventFile(output / "tensorboard", generation=run.generation, first_step=run.step)
    run.report.listeners.append(Curves(events))
    append(output / "validations.jsonl", {"step": 1200, "epoch": 3, "top1": 71.2})     # facts that come seldom

train/ is what the network does, time/ where the seconds go, job/ what machines do: a dent in one is explained by another.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ebb.elastic.report.events import EventFile
from ebb.elastic.runtime.metrics import Progress


class Curves:
    """Called with each line."""

    def __init__(self, events: EventFile, *, more: Callable[[], dict[str, float]] = dict) -> None:
        """`more`: further points of the program, asked for with each line."""
        self._events, self._more = events, more

    def __call__(self, line: Progress) -> None:
        self._events.scalars(line.step, {**points(line), **self._more()})


def points(line: Progress) -> dict[str, float]:
    return {
        "train/loss": line.loss,
        **{f"train/{name}": value for name, value in line.figures.items()},
        "time/samples_per_second": line.samples_per_second,
        "time/step_seconds": line.step_seconds,
        "time/data_seconds": line.data_seconds,
        "job/epoch": line.epoch,
        "job/world_size": line.world_size,
        "job/generation": line.generation,
        "job/lost_seconds": line.lost_seconds,
        "job/steps_redone": line.steps_redone,
    }


def append(path: Path, facts: dict[str, Any]) -> None:
    """Append a JSON line to a file of the job, by rank 0 of each generation. A full disk costs the line, not the training.

    A step that is done again after a loss has a second line: the last one of a step counts."""
    try:
        with path.open("ab") as file:
            torn = file.tell() > 0 and path.read_bytes()[-1:] != b"\n"  # by a kill: it must not swallow this line too
            file.write((b"\n" if torn else b"") + json.dumps(facts).encode() + b"\n")
    except OSError as error:
        print(f"{path} cannot be written: {error.strerror}; training goes on", file=sys.stderr, flush=True)
