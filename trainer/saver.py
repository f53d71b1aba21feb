"""When checkpoints are written, and by whom: in a thread while training goes on, at once before leaving.

    saver = Saver(folder, generation=3, cadence=Cadence(...))
    saver.maybe_save(step, take_state)     # between steps: starts a write if one is due
    saver.save_now(step, take_state)       # before leaving: returns when it is on the disk
    saver.finish()

The state is copied to the CPU between two steps (that is the cost: the training stands still), the rest runs in one thread.
A disk that is full costs the checkpoint, never the training: a sentence is printed, the older checkpoint stays.
"""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer.checkpoint import CheckpointError, CheckpointFolder, Manifest

State = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """Far enough apart that writing takes `overhead` of the time, within the two limits."""

    shortest_seconds: float
    longest_seconds: float
    overhead: float

    def seconds_between(self, cost_seconds: float) -> float:
        return min(self.longest_seconds, max(self.shortest_seconds, cost_seconds / self.overhead))


class Saver:
    """The checkpoints of one rank in one generation."""

    def __init__(
        self,
        folder: CheckpointFolder,
        *,
        generation: int,
        cadence: Cadence,
        writer: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._generation = generation
        self._writer = writer
        self._cadence = cadence
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._last_start = clock()
        self._last_cost = 0.0
        self.saved_step = -1  # of this generation
        self._untold_cost = 0.0

    def maybe_save(self, step: int, take_state: Callable[[], State]) -> None:
        """Start a write when the last one is long enough ago and done."""
        writing = self._thread is not None and self._thread.is_alive()
        if writing or self._clock() - self._last_start < self._cadence.seconds_between(self._last_cost):
            return
        self._last_start = self._clock()
        state = take_state()
        self._thread = threading.Thread(target=self._write, args=(step, state), name="checkpoint")
        self._thread.start()
        self._count(self._clock() - self._last_start)

    def save_now(self, step: int, take_state: Callable[[], State]) -> None:
        """Return when a checkpoint of `step` is on the disk, or could not be written."""
        start = self._clock()
        self.finish()
        if self.saved_step != step:
            self._write(step, take_state())
        self._count(self._clock() - start)

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _write(self, step: int, state: State) -> None:
        try:
            manifest: Manifest = self._folder.save(state, generation=self._generation, step=step, writer=self._writer)
        except CheckpointError as error:
            print(error, file=sys.stderr, flush=True)
            return
        self.saved_step = manifest.step

    def _count(self, seconds: float) -> None:
        self._last_cost = seconds
        self._untold_cost += seconds

    def take_cost(self) -> float:
        """Seconds for which the training stood still since the last call."""
        cost, self._untold_cost = self._untold_cost, 0.0
        return cost
