"""Reads what the launcher and its workers write, and passes it on: whole lines, to the container's stdout and to the volume.

    pipes = LogPipes.of(os.environ)             # from here on this process's own stdout and stderr are pipes as well
    path = pipes.pipe("6.2.out", 1)             # a worker that opens this path and writes to it is heard
    pipes.renew()                               # the workers that have it are gone: their pipes end when nobody holds them
    pipes.close()

One thread reads all pipes. It waits for the container's stdout, as the workers themselves would have, and for nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from ebb.compat import Self
from ebb.elastic.contract import ENV_OUTPUT_DIR, ENV_POD_UID, ENV_WORKER_INDEX
from ebb.elastic.launch.logs.lines import Batch, Lines, marked, stamp
from ebb.elastic.launch.logs.progress import LineProgress
from ebb.elastic.launch.logs.volume import LauncherLog

# Lines that come within it are passed on together: 200 rounds a second at most, whatever the workers write.
_GATHER_SECONDS = 0.005
_READ_BYTES = 65536  # all that a pipe holds
_CLOSE_SECONDS = 2.0  # for what a worker that will not end still writes
_ENV_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set in every container of every pod


class Sink(Protocol):
    """The part of volume.Volume that the reader needs."""

    def put(self, lines: bytes, count: int) -> bool: ...
    def close(self) -> int: ...


class LogPipes:
    """One for the life of a launcher. Without a sink it is only a word: no pipe, no thread, and workers inherit our streams."""

    def __init__(
        self,
        open_sink: Callable[[Callable[[str], None]], Sink] | None,
        read_progress: Callable[[Callable[[str], None]], LineProgress | None] | None = None,
    ) -> None:
        self._console = {1: 1, 2: 2}
        self._terminals: set[int] = set()
        self._pipes: dict[int, tuple[Lines, int]] = {}  # by the end that is read: its lines, and which stream they go on to
        self._ends: list[int] = []  # those of workers that are written to, as long as they are started
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._sink = open_sink(self._say) if open_sink else None
        self._progress = read_progress(self._say) if read_progress and self._sink is not None else None
        if self._sink is not None:
            self._poll = select.epoll()
            self._waker, self._wake = os.pipe()
            self._poll.register(self._waker, select.EPOLLIN)
            self._take_over()
            self._thread = threading.Thread(target=self._read_all, name="log reader", daemon=True)
            self._thread.start()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """With a file where a job's folder is known; in a pod only with the pod's uid, by which readers tell pods apart."""
        host = re.sub("[^A-Za-z0-9]", "-", socket.gethostname())
        name = environment.get(ENV_POD_UID) or ("" if _ENV_KUBERNETES in environment else f"{host}-{os.getpid()}")
        output = environment.get(ENV_OUTPUT_DIR)
        if not (output and name):
            return cls(None)
        folder = Path(output) / "logs" / f"worker-{environment.get(ENV_WORKER_INDEX, '0')}"
        start = stamp(time.time_ns()).replace("-", "").replace(":", "").replace(".", "-")
        return cls(lambda tell: LauncherLog(folder, f"{start}.{name}", tell=tell), lambda say: LineProgress.of(environment, say))

    @property
    def works(self) -> bool:
        return self._sink is not None and not self._closing.is_set()

    def pipe(self, tag: str, stream: int) -> str:
        """A path that the workers of this machine can open and write to; `stream`: 1 or 2, where its lines go on to."""
        return f"/proc/{os.getpid()}/fd/{self._pipe(tag, stream)}"

    def renew(self, world_size: int | None = None) -> None:
        """Before pipes for new workers: what the old ones had is no longer held open by us."""
        if self._progress is not None:
            self._progress.renew(world_size)
        for end in self._ends:
            os.close(end)
        self._ends = []

    def close(self) -> None:
        """Pass on what was written until now; what comes later, by workers that will not end, is lost. May be called again."""
        if self._sink is None or self._closing.is_set():
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        for number, saved in self._console.items():
            os.dup2(saved, number)
        self._closing.set()
        os.write(self._wake, b"!")
        self._thread.join()
        if self._progress is not None:
            self._progress.close()
        if lost := self._sink.close():
            self._say(f"{lost} lines are not on the output volume, which did not take them in time; they are above")

    def _pipe(self, tag: str, stream: int) -> int:
        reader, writer = os.pipe()
        with self._lock:
            self._pipes[reader] = (Lines(tag), stream)
        self._poll.register(reader, select.EPOLLIN)
        self._ends.append(writer)
        return writer

    def _take_over(self) -> None:
        """This process's own stdout and stderr, and so those of all that it starts without pipes of their own."""
        for number, name in ((1, "out"), (2, "err")):
            (sys.stdout if number == 1 else sys.stderr).flush()
            self._console[number] = os.dup(number)
            os.dup2(self._pipe(f"-.-.{name}", number), number)
        self._terminals = {number for number, saved in self._console.items() if os.isatty(saved)}
        self.renew()

    # --- The thread ---

    def _read_all(self) -> None:
        while not self._closing.is_set():
            try:
                much = self._pass_on(self._read(self._ready(timeout=None)))
                self._show_bars()
            except Exception as error:  # the edge of a thread: without it the pipes would fill, and training stand still
                self._say(f"some lines of this machine are lost: {error!r}")
                much = False
            if not much:
                self._closing.wait(_GATHER_SECONDS)
        deadline = time.monotonic() + _CLOSE_SECONDS
        while time.monotonic() < deadline and (events := self._ready()):
            self._pass_on(self._read(events))
        self._pass_on([(batch, stream) for lines, stream in self._pipes.values() for batch in lines.end()])

    def _ready(self, timeout: float | None = 0.0) -> dict[int, int]:
        """The pipes from which something is to be had, and whether that is lines, their end, or both."""
        return {number: event for number, event in self._poll.poll(timeout) if number != self._waker}

    def _read(self, events: Mapping[int, int]) -> list[tuple[Batch, int]]:
        """One read of each pipe, in the order in which they were made: a worker's are before those of the one in its place."""
        with self._lock:
            pipes = [(number, *pipe) for number, pipe in self._pipes.items() if number in events]
        found = []
        for number, lines, stream in pipes:
            batches = lines.feed(os.read(number, _READ_BYTES)) if events[number] & select.EPOLLIN else []
            if events[number] & select.EPOLLHUP:  # nobody can write to it any more
                batches += self._last_of(number, lines)
            found += [(batch, stream) for batch in batches]
        return found

    def _last_of(self, number: int, lines: Lines) -> list[Batch]:
        found = []
        while data := os.read(number, _READ_BYTES):
            found += lines.feed(data)
        self._forget(number)
        return found + lines.end()

    def _forget(self, number: int) -> None:
        self._poll.unregister(number)
        with self._lock:
            del self._pipes[number]
        os.close(number)

    def _pass_on(self, batches: list[tuple[Batch, int]]) -> bool:
        """True if there is so much that nobody should wait before reading on."""
        if not batches:
            return False
        moment = stamp(time.time_ns())
        assert self._sink is not None
        self._sink.put(b"".join(marked(batch, moment) for batch, _ in batches), sum(batch.count for batch, _ in batches))
        for stream in (1, 2):
            self._print(stream, b"".join(batch.text[batch.shown :] for batch, each in batches if each == stream))
        if self._progress is not None:
            for batch, _ in batches:
                self._progress.read(batch)
        return sum(len(batch.text) for batch, _ in batches) >= _READ_BYTES

    def _show_bars(self) -> None:
        """Progress bars, where a person sees them. Logs of a pod are whole lines: there one would be torn by another rank's."""
        if not self._terminals:
            return
        with self._lock:
            pipes = list(self._pipes.values())
        for lines, stream in pipes:
            if stream in self._terminals:
                self._print(stream, lines.bar())

    def _print(self, stream: int, text: bytes) -> None:
        """Waits for whoever reads it. One that reads no more is no reason to end: the volume has the lines."""
        rest = memoryview(text)
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(self._console[stream], rest) :]

    def _say(self, text: str) -> None:
        """Past the pipes: what the volume's own thread has to tell must not come back to it."""
        self._print(2, f"[launcher {time.strftime('%H:%M:%S')}] {text}\n".encode())
