"""The notice of a reclaim: SIGTERM, seen at once, acted on at a step boundary.

    notice = install()          # first thing in the process, main thread
    ... notice.seen             # read between steps; runtime/loop.py makes all ranks agree on it
    ... notice.take_wish()      # read between steps too: true once when a checkpoint soon would be wise
    notice.leave_within(20, 75) # optional: end the process if no step boundary comes (a peer vanished in a collective)
    with notice.saving(): ...   # the boundary has come: the save may take until the machine goes

A Python signal handler cannot run while the main thread is inside a collective, so the signal is taken from a wake-up
descriptor by a side thread. The notice only sets a flag: it never waits for a collective and never writes a checkpoint.
Inside Kubernetes SIGTERM with its grace is all there is. Outside, the launcher's watcher sends the same signal for a cloud's
announcement, and leaves the time at which the machine goes in a file (relay.py), which is read here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

from ebb.elastic.notices.relay import Relay

# For the launcher to leave the membership after its workers, so that the others need not find out that this machine is gone.
_MARGIN_SECONDS = 2.0
# A deadline nearer than this, or past, is no reason to give up: the machine may well last so long, and a step may end in it.
_LEAST_SECONDS = 5.0


class Notice:
    """The flag of this process. `seen` never becomes false again: a process that was told to leave leaves."""

    def __init__(self, relay: Relay | None = None) -> None:
        self._event = threading.Event()
        self._relay = relay
        self._watchers: list[Callable[[], None]] = []
        self._wishes_taken = 0
        self._idle = threading.Event()  # no save is going on
        self._idle.set()
        self.leave_by: float | None = None  # on time.monotonic(); None: nobody said when the machine goes

    @property
    def seen(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Return after so long, or at once when there is a notice."""
        self._event.wait(seconds)

    def give(self, leave_by: float | None = None) -> None:
        """Act as for a signal; a test may call it. Said again, it may bring the deadline that was not known before."""
        self.leave_by = leave_by if self.leave_by is None else self.leave_by
        self._event.set()
        for watcher in self._watchers:
            watcher()

    def hear(self) -> None:
        """The signal has come."""
        self.give(self._relay.deadline() if self._relay else None)

    def take_wish(self) -> bool:
        """True if a checkpoint was wished for since the last call. A process that is new takes an old wish too: it costs one."""
        wishes = self._relay.wishes() if self._relay else 0
        taken, self._wishes_taken = self._wishes_taken, wishes
        return wishes > taken

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """In here the limit of leave_within ends nothing, and the launcher waits: a large state takes longer to save than a step
        boundary to come. What ends it is the machine's own end, where that is known; in Kubernetes the kubelet comes when the
        grace is over."""
        self._idle.clear()
        if self._relay:
            self._relay.begin_saving(os.getpid())
        try:
            yield
        finally:
            self._idle.set()
            if self._relay:
                self._relay.end_saving(os.getpid())

    def leave_within(self, seconds: float, exit_code: int) -> None:
        """From a notice on, the process ends with `exit_code` after `seconds` if it has not left by itself; sooner when the
        machine goes sooner.

        It is for the process that waits in a collective for a machine that is gone: its main thread cannot act.
        """
        ends_at: list[float] = []

        def arm() -> None:
            now = time.monotonic()
            left = seconds_to_leave(seconds, self.leave_by, now)
            if ends_at and ends_at[-1] <= now + left:
                return
            ends_at.append(now + left)
            timer = threading.Timer(left, self._end, [exit_code])
            timer.daemon = True
            timer.start()

        self._watchers.append(arm)
        if self.seen:
            arm()

    def _end(self, exit_code: int) -> None:
        if not self._idle.is_set():
            left = None if self.leave_by is None else max(0.0, self.leave_by - _MARGIN_SECONDS - time.monotonic())
            if self._idle.wait(left):
                time.sleep(_LEAST_SECONDS)  # it is saved: the process ends by itself, unless it hangs
        os._exit(exit_code)


def seconds_to_leave(longest: float, leave_by: float | None, now: float) -> float:
    """The longest wait for a step boundary and its checkpoint: `longest`, or what the notice leaves of it."""
    if leave_by is None:
        return longest
    return min(longest, max(_LEAST_SECONDS, leave_by - now - _MARGIN_SECONDS))


_installed: list[Notice] = []


def install() -> Notice:
    """Take SIGTERM of this process; call it in the main thread. A second call gives the same notice."""
    if _installed:
        return _installed[0]
    notice = Notice(Relay.find(os.environ))
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
            notice.hear()
