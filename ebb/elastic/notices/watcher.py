"""The launcher's ear outside Kubernetes: one thread per machine that asks the cloud whether it takes the machine back.

    watcher = Watcher(source, relay, interrupt=interrupt_main_thread, say=say)
    watcher.start()
    ... watcher.left()          # the workers have left with their checkpoint

A reclaim acts as SIGTERM to the launcher does, with the deadline left in the relay for the workers; an announcement of a risk
only makes a checkpoint sooner. A reclaim that lies minutes or days ahead is a risk until two minutes before it.
Whatever the service answers, or does not, costs a line in the log: the training never ends because of it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable

from ebb.elastic.notices.relay import Relay
from ebb.metadata.announcement import AHEAD_SECONDS, Announcement, Source
from ebb.metadata.polling import Poller
from ebb.metadata.service import MetadataError


def interrupt_main_thread() -> None:
    """SIGTERM to this process, handled like one from outside; it interrupts whatever the main thread waits for."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


class Watcher:
    """Looks at one source until it announces a reclaim, or is stopped."""

    def __init__(
        self,
        source: Source,
        relay: Relay,
        *,
        interrupt: Callable[[], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._relay = relay
        self._interrupt = interrupt
        self._say = say
        self._clock = clock
        self._poller = Poller(source, self._tell, clock)
        self._over = threading.Event()
        self._known: set[str] = set()  # announcements that were acted upon

    def start(self) -> None:
        self._say(f"listening for notices of {self._source.name}")
        threading.Thread(target=self._run, name="notices", daemon=True).start()

    def stop(self) -> None:
        """Look no more; does not wait for a look that is going on."""
        self._over.set()

    def left(self) -> None:
        """Tell the cloud that it need not wait, if it wants to know. Takes a few seconds at most, and never fails."""
        self.stop()
        try:
            told = self._source.left()
        except MetadataError as error:
            told = f"{self._source.name} could not be told that the machine may go: {error}"
        if told:
            self._tell(told)

    def look(self) -> float:
        """Look once and act; returns the seconds until the next look."""
        look = self._poller.look()
        if look.announcement is not None:
            self._act(look.announcement)
        return look.pause_seconds

    def _run(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            try:
                pause = self.look()
            except Exception as error:  # the edge of a thread: a mistake in here must be read, and must not cost the notice
                self._tell(f"notices of {self._source.name}: {type(error).__name__}: {error}")
                pause = self._source.retry_seconds

    def _act(self, said: Announcement) -> None:
        if said.imminent:
            if said.seconds_left is not None:
                with contextlib.suppress(OSError):  # no room for a small file: the workers leave without knowing the hurry
                    self._relay.tell_deadline(self._clock() + max(0.0, said.seconds_left))
            self._tell(f"{said.text}: the workers save and leave{_within(said.seconds_left)}")
            self._interrupt()
            self._over.set()
        elif said.key not in self._known:
            self._known.add(said.key)
            self._relay.wish_for_checkpoint()
            later = f"; they leave {AHEAD_SECONDS:.0f} s before" if said.reclaim else " and stay"
            self._tell(f"{said.text}: the workers make a checkpoint soon{later}")

    def _tell(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a log that is gone must not cost the notice
            self._say(text)


def _within(seconds: float | None) -> str:
    return "" if seconds is None else f" within {max(0.0, seconds):.0f} s"
