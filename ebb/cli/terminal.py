"""The terminal: a question, a progress bar, log lines, and raw input for a program in a worker."""

import asyncio
import json
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ebb.cli.render import make_console
from ebb.client.files.data import Show, Silent
from ebb.client.logs import Line


def is_interactive() -> bool:
    """Return whether a question would be seen, and could be answered."""
    return sys.stdin.isatty() and make_console().is_terminal


def confirm(question: str) -> bool:
    """Return whether the answer is yes. Ctrl-C and the end of input are a no.

    asyncio, under which verbs run, would only note a Ctrl-C here, and go on waiting for the answer.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(question, default=True)
    except typer.Abort:
        typer.echo(err=True)
        return False
    finally:
        signal.signal(signal.SIGINT, before)


class Bar:
    """See ebb.client.files.data.Show."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._size = progress, 0
        self._task = progress.add_task("reading the folder", total=None)

    def announce(self, files: int, size: int) -> None:
        """See Show."""
        self._size += size
        what = "1 file" if files == 1 else f"{files} files"
        self._progress.update(self._task, total=self._size, description=what)

    def moved(self, size: int) -> None:
        """See Show."""
        self._progress.advance(self._task, size)


@contextmanager
def progress_bar() -> Iterator[Show]:
    """On a terminal a bar on stderr, else silence."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield Silent()
        return
    # Narrow: all of it fits 80 columns.
    columns = (TextColumn("{task.description}"), BarColumn(20), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress)


COLOURS = (36, 33, 35, 32, 34, 31)  # ANSI: cyan, yellow, magenta, green, blue, red


@dataclass(kw_only=True)
class Writer:
    """Sink of `ebb logs`. `prefix`: whether to show the worker, `ranks`: whether to show the rank, where it is known."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    notes: TextIO = field(default_factory=lambda: sys.stderr)
    colour: bool = False
    json: bool = False
    prefix: bool = True
    ranks: bool = True

    def line(self, worker: int, line: Line) -> None:
        if self.json:
            facts = {"worker": worker, "rank": line.rank, "stream": line.stream, "time": line.stamp, "text": line.text}
            self.out.write(json.dumps(facts) + "\n")
        else:
            self.out.write(f"{self._prefix(worker, line.rank)}{line.text}\n")
        self.out.flush()

    def note(self, text: str) -> None:
        self.notes.write(f"\x1b[2m{text}\x1b[0m\n" if self.colour else f"{text}\n")
        self.notes.flush()

    def _prefix(self, worker: int, rank: int | None) -> str:
        names = [f"w{worker}"] if self.prefix else []
        if self.ranks and rank is not None:
            names.append(f"r{rank}")
        if not names:
            return ""
        text = f"{' '.join(names)} | "
        return f"\x1b[{COLOURS[worker % len(COLOURS)]}m{text}\x1b[0m" if self.colour else text


CHUNK = 2**15


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Every key goes to the program, Ctrl-C too, and nothing is echoed here."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def resizes(tell: Callable[[], None]) -> Iterator[None]:
    """`tell` when the terminal gets another size."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def keys(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what is typed or piped, until its end."""
    # A thread, as a redirected file cannot be waited for; a daemon, so that it does not keep the program from ending.
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes](8)

    def read() -> None:
        try:
            while True:
                data = os.read(descriptor, CHUNK)
                asyncio.run_coroutine_threadsafe(queue.put(data), loop).result()
                if not data:
                    return
        except (OSError, RuntimeError, asyncio.CancelledError):
            return  # the terminal or the loop is gone

    threading.Thread(target=read, daemon=True).start()
    while data := await queue.get():
        yield data


def write(channel: int, data: bytes) -> None:
    """Bytes as they come, to stdout (1) or stderr (2)."""
    stream = sys.stdout.buffer if channel == 1 else sys.stderr.buffer
    stream.write(data)
    stream.flush()
