"""Signals to the launcher at any moment of its life: SIGTERM, Ctrl-C, a terminal that closes.

    reclaim = Reclaim()          # first thing in the process, in the main thread: PID 1 ignores what it has no handler for
    reclaim.listen()             # from here on a signal raises Interrupted
    with reclaim.waiting(): ...  # in here too; after it a signal is only noted
    reclaim.seen                 # for those who look between two of their steps

A handler of Python's runs between two lines of Python: a main thread that waits inside C, such as for the store of a machine that
is not there, hears nothing. So a side thread hears too, and ends the process when only waiting is interrupted by it.
It imports little, to be early, and stops no workers: agent.py does.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ebb.elastic.contract import EXIT_RECLAIMED

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# For a main thread inside C to come back to Python. Kubernetes gives 30 s in all, a notice of a cloud as many at least.
_STUCK_SECONDS = 5.0


def say(text: str) -> None:
    """Print one of the launcher's own lines among those of its workers."""
    print(f"[launcher {time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Interrupted(BaseException):  # not an Exception: torch's rendezvous swallows those and tries again
    """A notice came while there was nothing to save. Raised once; a second Ctrl-C raises it whatever goes on."""


class Reclaim:
    """One for the life of a process. `hurried`: a second Ctrl-C wants everything to end at once."""

    def __init__(self, *, end: Callable[[int], None] = os._exit) -> None:
        self.seen = self.hurried = False
        self._number = signal.SIGTERM
        self._waiting = False
        self._end = end
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        for number in _SIGNALS:
            if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:  # nohup; a shell's background
                signal.signal(number, self._hear)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen_aside, args=(reader, writer), name="reclaim", daemon=True).start()

    @property
    def name(self) -> str:
        return signal.Signals(self._number).name

    @property
    def exit_code(self) -> int:
        """A reclaim is SIGTERM; the others come from a person, who wants no replacement."""
        return EXIT_RECLAIMED if self._number == signal.SIGTERM else 128 + self._number

    def listen(self) -> None:
        """From now on there is nothing to save. Raises Interrupted for a signal that has come already."""
        self._waiting = True
        if self.seen:
            self._interrupt()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """In here a signal raises Interrupted, one that came before too; afterwards it is only noted."""
        try:
            self.listen()
            yield
        finally:
            self._waiting = False

    def _hear(self, number: int, _frame: Any) -> None:
        again, self.seen = self.seen, True
        if not again:
            self._number = signal.Signals(number)
        elif number == signal.SIGINT and not self.hurried:
            self.hurried = self._waiting = True
        if self._waiting:
            self._interrupt()

    def _interrupt(self) -> None:
        self._waiting = False  # once: what is done on the way out must not be interrupted in turn
        raise Interrupted

    def _listen_aside(self, reader: socket.socket, _keep_open: socket.socket) -> None:
        while numbers := reader.recv(64):
            heard = [number for number in numbers if number in _SIGNALS]
            deadline = time.monotonic() + _STUCK_SECONDS
            while heard and not self.seen and time.monotonic() < deadline:
                time.sleep(0.1)  # nothing to wait on that a signal handler could set safely
            if heard and not self.seen and self._waiting:
                self._number = signal.Signals(heard[0])
                say(f"left while waiting for other machines: {self.name}")
                self._end(self.exit_code)
