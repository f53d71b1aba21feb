"""Runs the commands of a rehearsal: each line is shown as it comes and kept in the transcript; a deadline interrupts.

    with Shell(folder / "transcript.txt") as shell:
        ran = shell.run(["pulumi", "up", "--yes"], seconds=3600)       # ran.code, ran.output
        ran = shell.run(["pulumi", "stack", "export"], quiet=True)     # the output is returned alone; errors are shown

Every command is in a session of its own: Ctrl-C of the terminal reaches the rehearsal alone, and that says when a command has to
end. It is interrupted then, and has time to finish what it is at: Pulumi writes down what there is. Blocking; one at a time.

    TooLong      the command was interrupted, as its time was over
"""

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

CANCEL_SECONDS = 900.0  # for what Pulumi has begun: a cloud may take that long to answer for a control plane
KILL_SECONDS = 30.0


class TooLong(Exception):
    """The command was interrupted, as its time was over."""


@dataclass(frozen=True)
class Ran:
    """Exit status, and what was printed: without errors if it was quiet."""

    code: int
    output: str


class Shell:
    """`cancel_seconds`: that an interrupted command has to finish what it is at."""

    def __init__(
        self,
        transcript: Path,
        *,
        cancel_seconds: float = CANCEL_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._cancel_seconds, self._now = transcript, cancel_seconds, now
        self._writing = threading.Lock()

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._started = self._path.open("w"), self._now()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def say(self, line: str) -> None:
        """Show a line and keep it with its time. A terminal that has gone (its window was closed) does not stop a destroy."""
        with self._writing:
            self._file.write(f"[{self._now() - self._started:7.1f} s] {line}\n")
            self._file.flush()
            with contextlib.suppress(OSError):
                print(line, flush=True)

    def run(
        self,
        words: Sequence[str],
        *,
        seconds: float = math.inf,
        quiet: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Ran:
        """`variables`: added to the environment. Raises TooLong after `seconds`; then, and on Ctrl-C, the command has ended."""
        self.say(f"$ {' '.join(words)}")
        try:
            process = subprocess.Popen(
                list(words), env={**os.environ, **(variables or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if quiet else subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError as error:
            self.say(f"{words[0]}: {error.strerror}")
            return Ran(127, "")
        lines: list[str] = []
        with process:
            streams = [(process.stdout, lines, not quiet), (process.stderr, [], True)]
            readers = [threading.Thread(target=self._read, args=one) for one in streams if one[0] is not None]
            for reader in readers:
                reader.start()
            try:
                process.wait(None if seconds == math.inf else seconds)
            except subprocess.TimeoutExpired:
                self._end(process, words[0])
                raise TooLong(words[0]) from None
            except BaseException:
                self._end(process, words[0])
                raise
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # a child that is left would hold our end of the pipe
                for reader in readers:
                    reader.join()
        return Ran(process.returncode, "".join(lines))

    def _read(self, stream: IO[str], lines: list[str], shown: bool) -> None:
        for line in stream:
            lines.append(line)
            if shown:
                self.say(line.rstrip("\n"))

    def _end(self, process: subprocess.Popen[str], name: str) -> None:
        """Interrupt it, once more when its time to finish is over (by which Pulumi gives up at once), then kill it."""
        self.say(f"interrupting {name}: it may finish what it is at")
        for grace in (self._cancel_seconds, KILL_SECONDS):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
                return
        process.kill()
        process.wait()
