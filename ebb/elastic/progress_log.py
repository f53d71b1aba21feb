"""Progress of programs without Ebb's training loop: a line of the log, metrics.jsonl, and Prometheus text for `ebb status`.

    import ebb
    ebb.log(step=120, loss=0.31, val_acc=0.87)          # on rank 0, or on every rank: rank 0 counts

Outside of Ebb it prints the line and does nothing else. In a job it writes the same files, and answers on the same port, as Ebb's
own loop does: so whatever shows the progress of a job shows this one's. A call costs some microseconds: at most one line a second
is printed and written, with all that was said since the last one. Nothing is raised but for a call that is wrong.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import operator
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from multiprocessing import util
from pathlib import Path
from typing import Any

from ebb.compat import dataclass
from ebb.elastic.contract import ENV_METRICS_PORT, ENV_OUTPUT_DIR, ENV_PROGRESS_REGEX
from ebb.elastic.runtime.metrics import Board, MetricLines, complain, last_record, serve

LINE_SECONDS = 1.0  # between two lines
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,63}")
_KNOWN = ("loss", "epoch", "total_steps", "samples_per_second")


@dataclass(kw_only=True)
class PlainProgress:
    """As runtime.metrics.Progress, of a program that says no more than this. None: it has not said."""

    time: float
    step: int
    total_steps: int | None = None
    epoch: float | None = None
    loss: float | None = None
    samples_per_second: float | None = None
    world_size: int | None = None
    useful_seconds: float | None = None
    lost_seconds: float = 0.0
    steps_redone: int = 0
    figures: dict[str, float] = field(default_factory=dict)


def check(step: Any, values: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """Raises ValueError, which names the first value that is wrong."""
    try:
        if isinstance(step, bool):
            raise TypeError
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(
            f"ebb.log(step={step!r}): allowed is a whole number of 0 or more, the optimizer steps done; give step=int(...)"
        )
    return number, {name: _number(name, value) for name, value in values.items() if value is not None}


def _number(name: str, value: Any) -> float:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"ebb.log({name!r}=...): a name has up to 64 letters, digits and _ . / -, and a letter or _ comes first; rename it"
        )
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        found = float(value)  # also of a tensor or an array of one number
    except (TypeError, ValueError, RuntimeError) as error:
        kind = f"a {type(value).__name__} of shape {tuple(value.shape)}" if getattr(value, "shape", ()) else repr(value)
        raise ValueError(f"ebb.log({name}={kind:.200}): allowed is one number; take its mean, or .item()") from error
    if name == "total_steps" and not (math.isfinite(found) and found >= 0):
        raise ValueError(f"ebb.log(total_steps={value!r}): allowed is a number of 0 or more; leave it out if it is not known")
    return found


class ProgressLog:
    """Progress of one job, as this process hears of it. `shows`: it prints a line for each that it writes."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        world_size: int | None,
        shows: bool = True,
        say: Callable[[str], None] = complain,
    ) -> None:
        self.board = Board()
        self._say = say
        self._output, self._port = environment.get(ENV_OUTPUT_DIR), environment.get(ENV_METRICS_PORT, "")
        self._world_size, self._shows = world_size, shows
        self._now: PlainProgress | None = None
        self._lines: MetricLines | None = None
        self._generation = 1
        self._began = False  # in this process, of which the first report is not the job's
        self._written_at = -math.inf
        self._pending = False
        self._serves = False
        self._process = os.getpid()
        self._lock = threading.Lock()

    def report(self, step: int, values: Mapping[str, float]) -> None:
        """After check()."""
        with self._lock:
            now = self._advance(step)
            for name in _KNOWN:
                if name in values:
                    setattr(now, name, int(values[name]) if name == "total_steps" else values[name])
            now.figures.update((name, value) for name, value in values.items() if name not in _KNOWN)
            self.board.show(now)
            self._pending = True
            if time.monotonic() - self._written_at >= LINE_SECONDS:
                self._write(now)

    def flush(self) -> None:
        """Write what has had no line yet. A process that was forked from this one has nothing to write."""
        if os.getpid() != self._process:
            return
        with self._lock, contextlib.suppress(OSError):
            if self._pending and self._now is not None:
                self._write(self._now)

    def close(self) -> None:
        """The last line is written."""
        self.begin_again(None)

    def begin_again(self, world_size: int | None) -> None:
        """The program starts anew, and another process may hear of it: this one says nothing until it does."""
        self.flush()
        with self._lock:
            self.board.progress, self._now, self._began, self._world_size = None, None, False, world_size
            self._written_at = -math.inf
            if self._lines is not None:
                self._lines.close()
            self._lines = None

    def _advance(self, step: int) -> PlainProgress:
        moment, before = time.time(), self._now
        if before is None:
            self._open()
            self._now = self._resumed(moment, step)
            return self._now
        passed = max(0.0, moment - before.time)
        if step > before.step:
            if not before.useful_seconds and not self._began:  # the first steps took as long as those that follow
                before.useful_seconds = passed * before.step / (step - before.step)
            before.useful_seconds = (before.useful_seconds or 0.0) + passed
            self._began = True
        elif step < before.step:  # the program goes back in the same process
            before.steps_redone += before.step - step
        before.time, before.step = moment, step
        return before

    def _resumed(self, moment: float, step: int) -> PlainProgress:
        """After the last line of a process before this one, if there was any."""
        last = last_record(Path(self._output) / "metrics.jsonl") if self._output else None
        now = PlainProgress(time=moment, step=step, world_size=self._world_size)
        if last is None:
            return now
        reached, useful = int(last.get("step") or 0), float(last.get("useful_seconds") or 0.0)
        kept = useful * min(1.0, step / reached) if reached else 0.0
        now.useful_seconds = kept
        now.lost_seconds = (
            float(last.get("lost_seconds") or 0.0) + useful - kept + max(0.0, moment - float(last.get("time") or moment))
        )
        now.steps_redone = int(last.get("steps_redone") or 0) + max(0, reached - step)
        self._generation, self._began = int(last.get("generation") or 0) + 1, True
        return now

    def _open(self) -> None:
        if self._output and self._lines is None:
            try:
                Path(self._output).mkdir(parents=True, exist_ok=True)
                self._lines = MetricLines(Path(self._output) / "metrics.jsonl", say=self._say)
            except OSError as error:
                self._say(f"{self._output} cannot be written: {error.strerror}; training goes on, and its curves are not kept")
                self._output = None
        if self._port.isdigit() and int(self._port) and not self._serves:
            self._serves = True
            serve(self.board, int(self._port), advice="a program that serves its own needs no ebb.log()", say=self._say)

    def _write(self, now: PlainProgress) -> None:
        self._written_at, self._pending = time.monotonic(), False
        if self._lines is not None:
            record = {name: _rounded(value) for name, value in vars(now).items() if value is not None}
            self._lines.write_record({**record, "generation": self._generation})
        if self._shows:
            _print(sentence(now))
        now.figures = {}  # the board shows none; the next line has those that come after this one


def sentence(now: PlainProgress) -> str:
    """The line of the log, in the words of Ebb's own loop."""
    total = f"/{now.total_steps}" if now.total_steps else ""
    words = [f"step {now.step}{total}"]
    words += [f"epoch {now.epoch:.2f}"] if now.epoch is not None else []
    words += [f"loss {now.loss:.4f}"] if now.loss is not None else []
    words += [f"{name} {value:.4f}" for name, value in now.figures.items()]
    words += [f"{now.samples_per_second:.0f} samples/s"] if now.samples_per_second is not None else []
    words += [f"world {now.world_size}"] if now.world_size is not None else []
    return "  ".join(words)


_own: ProgressLog | None = None
_of_loop: dict[str, float] | None = None  # figures for the next line of Ebb's own loop, which runs in this process


def log(*, step: int, **values: Any) -> None:
    """Report the progress of a training to `ebb status`, `ebb top`, reports and sweeps, from any program.

    `step`: the optimizer steps done. `loss`, `epoch`, `total_steps` and `samples_per_second` are shown as those of Ebb's own loop
    are; any other number is a figure of your own, such as val_acc. Call it on rank 0, or on all ranks. A tensor on a GPU is
    waited for. In a program with Ebb's loop, whose own numbers stand, figures come with the next line. Raises ValueError.
    """
    global _own  # noqa: PLW0603  # one for the life of a process
    number, found = check(step, values)
    if _of_loop is not None:
        _of_loop.update((name, value) for name, value in found.items() if name not in _KNOWN)
        return
    if _rank() != 0:
        return
    if _own is None:
        reads_lines = bool(os.environ.get(ENV_PROGRESS_REGEX))  # the launcher does, and reports what they say
        _own = ProgressLog({} if reads_lines else os.environ, world_size=_world_size())
        atexit.register(_own.flush)
        util.Finalize(None, _own.flush, exitpriority=0)  # in a process of multiprocessing, which knows no atexit
    with contextlib.suppress(OSError):  # a full disk, behind stderr too, costs the line
        _own.report(number, found)


def yield_to_loop() -> None:
    """Ebb's own loop begins in this process: it writes and serves from now on."""
    global _of_loop  # noqa: PLW0603
    _of_loop = {} if _of_loop is None else _of_loop


def take_figures() -> dict[str, float]:
    """For the next line of Ebb's own loop: the figures that log() got since the last one."""
    global _of_loop
    found, _of_loop = _of_loop or {}, {}
    return found


def _rank() -> int:
    return _asked("RANK", "get_rank", 0)


def _world_size() -> int:
    return _asked("WORLD_SIZE", "get_world_size", 1)


def _asked(variable: str, name: str, alone: int) -> int:
    """Of torchrun's variables, or of the process group of a program that was started otherwise."""
    if (text := os.environ.get(variable, "")).isdigit():
        return int(text)
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        return int(getattr(group, name)())
    return alone


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _print(text: str) -> None:
    """A console that takes nothing more costs the line, not the training."""
    with contextlib.suppress(OSError, ValueError):
        print(text, flush=True)
