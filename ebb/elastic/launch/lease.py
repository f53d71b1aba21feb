"""One worker at a time, among machines that share a disk and no clock.

    with Lease(path=folder / "lock", holder="worker 0 of digits", say=say).take(done) as mine:
        if mine: ...

A file: its holder counts up in it, and the others go by their own clocks, so machines need not agree on the time. A holder that
is killed stops counting, and after SILENT_SECONDS the next worker takes over; a lock of the file system could outlive a machine
that never comes back. Two may then believe that they hold it (one was only slow), so the work must be harmless to do twice.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path

from ebb.compat import dataclass

RENEW_SECONDS = 5.0
SILENT_SECONDS = 60.0  # twelve counts that did not come
_LOOK_SECONDS = 1.0
_NOTE_SECONDS = 10.0
_END_SECONDS = 2.0  # for a count that a disk holds up: a notice leaves 30 s for all there is to do


@dataclass(kw_only=True)
class Lease:
    """One holder at a time, among machines that share a disk; `waited` is true afterwards if another one held it."""

    path: Path
    holder: str
    say: Callable[[str], None]
    doing: str = "does it"
    renew_seconds: float = RENEW_SECONDS
    silent_seconds: float = SILENT_SECONDS
    look_seconds: float = _LOOK_SECONDS
    waited: bool = False
    _token: str = field(default_factory=lambda: secrets.token_hex(8))

    @contextlib.contextmanager
    def take(self, done: Callable[[], bool]) -> Iterator[bool]:
        """True where it is ours to do; False once `done()`. Raises OSError where the disk cannot be written."""
        if not self._wait(done):
            yield False
            return
        ended = threading.Event()
        renewer = threading.Thread(target=self._renew, args=(ended,), name="lease", daemon=True)
        renewer.start()
        try:
            yield True
        finally:
            ended.set()
            renewer.join(_END_SECONDS)
            with contextlib.suppress(OSError):  # then it counts no more, and is taken over
                if self._is_ours():
                    self.path.unlink(missing_ok=True)

    def _wait(self, done: Callable[[], bool]) -> bool:
        seen: str | None = None
        since = began = time.monotonic()
        noted = 0.0
        while not done():
            if self._create():
                return True
            self.waited = True
            found, now = self._seen(), time.monotonic()
            if found != seen:
                seen, since = found, now
            elif now - since >= self.silent_seconds:
                self.say(f"{_holder_in(found)} has been silent for {now - since:.0f} s: taking over")
                if self._seen() == found:
                    self.path.unlink(missing_ok=True)
                continue
            if now - noted >= _NOTE_SECONDS:
                self.say(f"{_holder_in(found)} {self.doing}; waiting for it since {now - began:.0f} s")
                noted = now
            time.sleep(self.look_seconds)  # network file systems tell of no changes by other machines
        return False

    def _create(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as file:
            file.write(self._content(0))
        return True

    def _renew(self, ended: threading.Event) -> None:
        """In place: a client of a network file system asks the server again for a file that it opens, but not for a name."""
        count = 0
        while not ended.wait(self.renew_seconds):
            count += 1
            with contextlib.suppress(OSError):  # a disk that hangs for a moment; the next count may come through
                if not self._is_ours():
                    return
                with self.path.open("r+") as file:
                    file.write(self._content(count))
                    file.flush()
                    os.fsync(file.fileno())

    def _content(self, count: int) -> str:
        """Of one length, whatever the count: it is written over."""
        return f"{self._token} {count:012} {self.holder}\n"

    def _is_ours(self) -> bool:
        """Raises OSError where that cannot be said."""
        return self._read().startswith(self._token)

    def _seen(self) -> str:
        """The content for those who wait; empty where it cannot be read."""
        try:
            return self._read()
        except OSError:
            return ""

    def _read(self) -> str:
        try:
            return self.path.read_text(errors="replace")
        except FileNotFoundError:
            return ""


def _holder_in(content: str) -> str:
    words = content.strip().split(" ", 2)
    return words[2] if len(words) == 3 else "another worker"
