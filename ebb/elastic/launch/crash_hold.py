"""Keeps the container of a program that failed, so that people can look into it: `ebb submit --hold-on-failure 30m`.

    hold = CrashHold.of(os.environ, page, say)   # None without $EBB_HOLD_ON_FAILURE_SECONDS
    hold.begin("KeyError: 'lr'", 1)              # the workers' processes have ended, and their GPU memory is free
    code = hold.wait(reclaim)                    # the program's own when the time is over; that of a reclaim for SIGTERM

The controller hears of it by the launcher's page of metrics and stops the other workers. The file system is as the program left
it. A command that `ebb exec` starts has neither the launcher's folder nor its environment (code that came with the job, its
packages), so a script is left that gives it both. What torchrun told each rank is left out: a program that is started again by
hand then runs alone, and waits for no others.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from ebb.compat import Self
from ebb.elastic.contract import ENV_HOLD_SECONDS, HOLD_SCRIPT, METRIC_HELD_SECONDS
from ebb.elastic.launch.page import LauncherPage, sample
from ebb.elastic.launch.reclaim import Interrupted

_LOOK_SECONDS = 0.2
_LONGEST_MESSAGE = 300
_END = ": the job ends"  # of the launcher's sentence; it does not, as long as it is held


class Notices(Protocol):
    """The part of reclaim.Reclaim that a hold needs."""

    @property
    def name(self) -> str: ...
    @property
    def exit_code(self) -> int: ...
    def waiting(self) -> contextlib.AbstractContextManager[None]: ...


class CrashHold:
    """One for the life of a launcher."""

    def __init__(
        self, seconds: float, page: LauncherPage, say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._page, self._say, self._clock = seconds, page, say, clock
        self._message, self._code, self._ends = "", 0, 0.0

    @classmethod
    def of(cls, environment: Mapping[str, str], page: LauncherPage, say: Callable[[str], None]) -> Self | None:
        text = environment.get(ENV_HOLD_SECONDS, "")
        return cls(float(text), page, say) if text.isdigit() and int(text) else None

    def begin(self, message: str, code: int) -> None:
        """Tell the controller, and leave the script. What cannot be written costs the script, not the hold."""
        self._message, self._code, self._ends = message, code, self._clock() + self._seconds
        try:
            leave_script(Path(tempfile.gettempdir()) / HOLD_SCRIPT, Path.cwd(), os.environ)
        except OSError as error:
            self._say(f"no {HOLD_SCRIPT} is left: {error.strerror}; `ebb exec` starts without the program's environment")
        self._page.put("hold", self._text)

    def wait(self, notices: Notices) -> int:
        """Until the time is over or the machine is wanted back; the exit code of the launcher."""
        self._say(f"this machine is held for {self._seconds / 60:g} min: `ebb exec` opens a shell in it")
        try:
            with notices.waiting():
                while self._clock() < self._ends:
                    time.sleep(_LOOK_SECONDS)  # a signal interrupts it
        except Interrupted:
            self._say(f"this machine is held no longer: {notices.name}")
            return notices.exit_code
        self._say(self._message)  # the last line is what the pod's status keeps
        return self._code

    def _text(self) -> str:
        words = self._message.removesuffix(_END)[:_LONGEST_MESSAGE]
        left = max(0.0, self._ends - self._clock())
        meaning = "Seconds for which this machine is held after its program has failed."
        return sample(METRIC_HELD_SECONDS, meaning, left, exit_code=str(self._code), message=words)


def leave_script(path: Path, folder: Path, environment: Mapping[str, str]) -> None:
    """A script that runs its arguments in that folder and environment; for its owner's eyes alone, as secrets may be in it."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items() if name.isidentifier()]
    lines = ["#!/bin/sh", f"cd {shlex.quote(str(folder))}", *exports, 'exec "$@"', ""]
    path.unlink(missing_ok=True)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    with os.fdopen(number, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join(lines))
