"""The lines of a run as curves: a listener for its report.

    events = EventFile(output / "tensorboard", generation=run.generation, first_step=run.step)
    run.report.listeners.append(Curves(events))

train/ is what the network does, time/ where the seconds go, job/ what machines do: a dent in one is explained by another.
"""

from collections.abc import Callable

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
