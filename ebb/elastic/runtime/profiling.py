"""A trace of some steps, made when somebody asks for one: `ebb profile JOB`.

    profiler = Profiler(output, device)
    profiler.begin()         # before each step, on rank 0
    profiler.end(step)       # after it

A request is the file OUTPUT/profile/request.json, {"id": "4f2a", "steps": 5}. The trace is OUTPUT/profile/4f2a.json.gz, in the
format of Chrome's tracing, and appears whole; then the request is gone. A process that is lost meanwhile leaves the request, and
the next rank 0 begins anew. It is rank 0's own time alone: torch.profiler's, with the shapes of what was computed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

FOLDER, REQUEST = "profile", "request.json"
MOST_STEPS = 100
_LOOK_SECONDS = 2.0  # between two looks for a request: one call to a network file system


class Profiler:
    def __init__(self, output: Path, device: torch.device, *, say: Callable[[str], None] = print) -> None:
        self._folder, self._say = output / FOLDER, say
        self._activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self._profile: profile | None = None
        self._id, self._left = "", 0
        self._refused = ""
        self._looked_at = 0.0

    def begin(self) -> None:
        if self._profile is None and (found := self._asked()) is not None:
            self._id, self._left = found
            self._profile = profile(activities=self._activities, record_shapes=True)
            self._profile.start()

    def end(self, step: int) -> None:
        """`step` is the number of steps done."""
        if self._profile is None:
            return
        self._profile.step()
        self._left -= 1
        if self._left == 0:
            taken, self._profile = self._profile, None
            taken.stop()
            self._keep(taken, step)

    def stop(self) -> None:
        """The program leaves the loop: what is under way has no trace."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None

    def _asked(self) -> tuple[str, int] | None:
        now = time.monotonic()
        if now < self._looked_at + _LOOK_SECONDS:
            return None
        self._looked_at = now
        try:
            text = (self._folder / REQUEST).read_text()
        except OSError:
            return None
        try:
            asked: dict[str, Any] = json.loads(text)
            name, steps = str(asked["id"]), int(asked["steps"])
            if not (name.isalnum() and 1 <= steps <= MOST_STEPS):
                raise ValueError(text)
        except (ValueError, KeyError, TypeError):
            if text != self._refused:
                self._say(f"{self._folder / REQUEST} is no request for a trace, and is left alone: {text[:100]!r}")
            self._refused = text
            return None
        return name, steps

    def _keep(self, taken: profile, step: int) -> None:
        """A disk that is full, or a volume that is gone, costs the trace alone."""
        path = self._folder / f"{self._id}.json.gz"
        partial = path.with_name(f".tmp-{path.name}")
        began = time.monotonic()
        try:
            taken.export_chrome_trace(str(partial))
            partial.rename(path)
            (self._folder / REQUEST).unlink(missing_ok=True)
        except (OSError, RuntimeError) as error:
            self._say(f"no trace of the steps until {step}: {error}")
            return
        self._say(
            f"a trace of the steps until {step} is in {path}; the training stood still for {time.monotonic() - began:.1f} s"
        )
