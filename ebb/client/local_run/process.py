"""The training as a process of this machine: started, told of signals, and what it left when it ended."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ebb.api.contract import EXIT_FINISHED, EXIT_RECLAIMED
from ebb.client.errors import ClientError
from ebb.client.jobs.view import FAILED_STATE, FINISHED, STOPPED
from ebb.client.jobs.watch import ignore
from ebb.client.local_run.plan import LocalRun

_TOLD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPED = {EXIT_RECLAIMED, *(128 + number for number in _TOLD)}  # the launcher's codes, see ebb/elastic/launch
_CHECKPOINT = re.compile(r"g\d+-s(\d+)-.*\.json")  # one that counts; its manifest is written last


@dataclass(frozen=True, kw_only=True)
class LocalResult:
    """Result of a local run. `checkpoint_step` is None where it left no checkpoint."""

    name: str
    state: str  # finished, failed, stopped
    exit_code: int  # of the launcher
    output: str
    step: int | None
    loss: float | None
    checkpoint_step: int | None


def start(run: LocalRun, *, note: Callable[[str], None] = ignore, quiet: bool = False) -> LocalResult:
    """Run it to its end; with `quiet` what it prints goes to stderr. Blocks. Raises ClientError if it cannot start.

    Call it from the main thread: Ctrl-C, SIGTERM and SIGHUP go on to the training, which writes a checkpoint and ends. A second
    Ctrl-C ends it at once.
    """
    Path(run.output).mkdir(parents=True, exist_ok=True)
    with _Handing(note) as handing:  # before it starts: a signal in between would leave a training that nobody ends
        process = _start_process(run, quiet=quiet)
        handing.on_to(process)
        code = process.wait()
    return _result_of(run, code)


def _start_process(run: LocalRun, *, quiet: bool) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            run.command,
            cwd=run.folder,
            env=os.environ | dict(run.environment),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if quiet else None,
            start_new_session=True,  # or a terminal's Ctrl-C reaches it and all of its workers, beside what we hand on
        )
    except OSError as error:
        raise ClientError(f"{run.command[0]} cannot be started: {error.strerror or error}.") from error


class _Handing:
    """Signals go to the training while the block runs; those that come before there is one are kept for it."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: list[int] = []
        self._heard: set[int] = set()
        self._before: dict[int, Any] = {}

    def on_to(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        while self._kept:
            self._send(process, self._kept.pop(0))

    def __enter__(self) -> "_Handing":
        for number in _TOLD:
            before = signal.getsignal(number)
            if number == signal.SIGTERM or before is not signal.SIG_IGN:  # nohup; a shell's background
                self._before[number] = before
                signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self._process is None:
            self._kept.append(number)
        else:
            self._send(self._process, number)

    def _send(self, process: "subprocess.Popen[bytes]", number: int) -> None:
        again = number == signal.SIGINT and number in self._heard
        self._heard.add(number)
        what = "end at once" if again else "write a checkpoint and end"
        with suppress(OSError):  # the terminal may be closed: that is what SIGHUP says
            self._note(f"{signal.Signals(number).name}: the training is told to {what}")
        process.send_signal(number)  # last: its answer may be a signal to this process, which interrupts what comes after


def _result_of(run: LocalRun, code: int) -> LocalResult:
    code = 128 - code if code < 0 else code  # killed by a signal, as a shell reports it
    last = _last_line(Path(run.output) / "metrics.jsonl")
    return LocalResult(
        name=run.name,
        state=FINISHED if code == EXIT_FINISHED else STOPPED if code in _STOPPED else FAILED_STATE,
        exit_code=code,
        output=run.output,
        step=last.get("step"),
        loss=last.get("loss"),
        checkpoint_step=_checkpoint_step(Path(run.output) / "checkpoints"),
    )


def _last_line(path: Path) -> dict[str, Any]:
    """Of the metrics; {} for a program that writes none, or a line that was cut."""
    try:
        found = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


def _checkpoint_step(folder: Path) -> int | None:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))), default=None)
