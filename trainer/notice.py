"""How a reclaim is heard: SIGTERM, seen at once, acted on at a step boundary.

    notice = install()          # first thing in the process, main thread
    ... notice.seen             # read between steps; train.py makes all ranks agree on it
    notice.leave_within(20, 75) # optional: end the process if no step boundary comes (a peer vanished in a collective)

A Python signal handler cannot run while the main thread is inside a collective, so the signal is taken from a wake-up
descriptor by a side thread. The notice only sets a flag: it never waits for a collective and never writes a checkpoint.
Inside Kubernetes SIGTERM with its grace is all there is; the metadata services of the clouds come later, for runs outside.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable


class Interrupted(BaseException):  # not an Exception: torch's rendezvous swallows those and tries again
    """A notice came to a launcher that was only waiting."""


class Notice:
    """The flag of this process. `seen` never becomes false again: a process that was told to leave leaves."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._watchers: list[Callable[[], None]] = []

    @property
    def seen(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Return after so long, or at once when there is a notice."""
        self._event.wait(seconds)

    def give(self) -> None:
        """What a signal does; a test may call it."""
        self._event.set()
        for watcher in self._watchers:
            watcher()

    def leave_within(self, seconds: float, exit_code: int) -> None:
        """From a notice on, the process ends with `exit_code` after `seconds` if it has not left by itself.

        It is for the process that waits in a collective for a machine that is gone: its main thread cannot act.
        """

        def arm() -> None:
            timer = threading.Timer(seconds, os._exit, [exit_code])
            timer.daemon = True
            timer.start()

        self._watchers.append(arm)
        if self.seen:
            arm()


_installed: list[Notice] = []


def install() -> Notice:
    """Take SIGTERM of this process; call it in the main thread. A second call gives the same notice."""
    if _installed:
        return _installed[0]
    notice = Notice()
    _installed.append(notice)
    os.register_at_fork(after_in_child=forget)
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    # a handler must exist for the descriptor to be written; SIGINT comes from a terminal, or when the launcher was killed
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.signal(signal.SIGINT, lambda number, _frame: signal.signal(number, signal.default_int_handler) and None)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(reader, writer, notice), name="notice", daemon=True).start()
    return notice


def forget() -> None:
    """In every process forked from this one: SIGTERM ends it, and is no notice for this one, whose descriptor it has."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to all: they end with the one they work for


def _listen(reader: socket.socket, _keep_open: socket.socket, notice: Notice) -> None:
    while numbers := reader.recv(64):
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            notice.give()
