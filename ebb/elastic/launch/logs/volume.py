"""Writes lines to the output volume from a thread of its own, so that nobody waits for a volume that hangs.

    volume = Volume(folder, "20261122T125854.123456789Z.<pod uid>", tell=print)
    volume.put(lines, count)          # returns at once; False: there was no room, they are counted and will be told of
    volume.close()                    # waits for what is under way, but not for ever

After an error a file is never written to again: it may end in half a line, which readers leave out. What was not written whole
is written to the next part as soon as the volume takes it. A network file system may take lines and say only at the next sync or
close that its disk was full: how many those are at most is then a line of the next part.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ebb.elastic.launch.logs.lines import Batch, marked, stamp

WAITING_BYTES = 16 * 2**20  # at 4,000 lines of 100 bytes a second: 40 s of a volume that does not answer
PART_BYTES = 64 * 2**20
PARTS = 32  # the first, which shows how it began, and the newest
SYNC_SECONDS = 1.0
RETRY_SECONDS = 5.0
CLOSE_SECONDS = 5.0  # of the 30 that a notice gives
_ROUND_BYTES = 2**20  # written at once, so that a part is not much larger than it should be
OWN = "-.-.err"  # the tag of what this file says itself


class LauncherLog:
    """The file of one launcher, as a series of parts. Errors are told once until the volume works again."""

    def __init__(self, folder: Path, name: str, *, tell: Callable[[str], None]) -> None:
        self._folder, self._name, self._tell = folder, name, tell
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._held = self._missing = 0  # bytes that wait; lines that found no room
        self._changed = threading.Condition()
        self._closing = self._failed = self._last_try = False
        self._file = -1
        self._parts: list[Path] = []
        self._number = self._size = self._unsynced = 0
        self._unsure = 0  # lines that were written since the last sync that went well
        self._synced_at = 0.0
        self._thread = threading.Thread(target=self._write_all, name="log volume", daemon=True)
        self._thread.start()

    def put(self, lines: bytes, count: int) -> bool:
        with self._changed:
            full = self._held + len(lines) > WAITING_BYTES
            if full:
                self._missing += count
            else:
                self._tell_of_missing()
                self._add(lines, count)
            self._changed.notify()
        return not full

    def close(self, seconds: float = CLOSE_SECONDS) -> int:
        """The number of lines that are not on the volume, as far as is known."""
        with self._changed:
            self._tell_of_missing()
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        with self._changed:
            return self._missing + sum(count for _, count in self._waiting)

    def _add(self, lines: bytes, count: int) -> None:
        self._waiting.append((lines, count))
        self._held += len(lines)

    def _tell_of_missing(self) -> None:
        if self._missing:
            self._add(own_line(f"{self._missing} lines are not here: the volume did not take them in time"), self._missing)
            self._missing = 0

    # --- The thread ---

    def _write_all(self) -> None:
        while self._wait():
            try:
                self._open()
                self._write_round()
                self._sync()
                self._failed = False
            except OSError as error:
                self._give_up(error)
                if not self._pause():
                    return
        self._close_file()

    def _wait(self) -> bool:
        """For lines, or the time to sync what is written; False at the end."""
        with self._changed:
            if not self._waiting and not self._closing:
                self._changed.wait(SYNC_SECONDS if self._unsynced else None)
            return bool(self._waiting or not self._closing)

    def _open(self) -> None:
        if self._file >= 0 and self._size < PART_BYTES:
            return
        self._close_file()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._name}.{self._number:06}.log"
        self._number += 1
        # O_EXCL: no two launchers ever write to one file, whatever their names come to
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = 0
        self._parts.append(path)
        self._remove_old()

    def _remove_old(self) -> None:
        while len(self._parts) > PARTS:
            path = self._parts.pop(1)
            self._write(own_line(f"{path.name} is removed: a launcher keeps its first part and its {PARTS - 1} newest"))
            path.unlink(missing_ok=True)

    def _write_round(self) -> None:
        """Some of what waits; it leaves the queue when it is written."""
        with self._changed:
            taken, size = 0, 0
            while taken < len(self._waiting) and size < _ROUND_BYTES:
                size += len(self._waiting[taken][0])
                taken += 1
            data = b"".join(self._waiting[index][0] for index in range(taken))
        written = self._size
        try:
            self._write(data)
        finally:
            self._forget(self._size - written)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            done = os.write(self._file, rest)
            rest = rest[done:]
            self._size += done
            self._unsynced += done

    def _forget(self, written: int) -> None:
        """The lines that are written whole; of the batch that is written in part, the lines that are."""
        with self._changed:
            while self._waiting and written >= len(self._waiting[0][0]):
                lines, count = self._waiting.popleft()
                written -= len(lines)
                self._held -= len(lines)
                self._unsure += count
            if self._waiting and written:
                lines, count = self._waiting.popleft()
                end = lines.rfind(b"\n", 0, written) + 1
                whole = lines.count(b"\n", 0, end)
                self._waiting.appendleft((lines[end:], max(0, count - whole)))
                self._held -= end
                self._unsure += whole

    def _sync(self) -> None:
        if self._unsynced and time.monotonic() - self._synced_at >= SYNC_SECONDS:
            os.fdatasync(self._file)
            self._unsynced, self._synced_at = 0, time.monotonic()
            self._unsure = 0

    def _doubt(self) -> None:
        """The lines since the last sync, in a line that counts for as many until it is itself on the volume."""
        if self._unsure:
            text = own_line(f"up to {self._unsure} lines before this may not be here: the volume took them and failed")
            with self._changed:
                self._waiting.appendleft((text, self._unsure))
                self._held += len(text)
        self._unsure = 0

    def _give_up(self, error: OSError) -> None:
        """This part: half a line may be its last. An empty one is not left behind."""
        if self._file >= 0:
            self._doubt()  # whatever failed: an error is told once, so a sync that now goes well proves nothing
            self._close_file()
            if self._size == 0:
                with contextlib.suppress(OSError):
                    self._parts.pop().unlink()
        if not self._failed:
            self._failed = True
            self._tell(f"the log on the output volume cannot be written ({error}); trying again, and this output goes on")

    def _pause(self) -> bool:
        """Until the next try; the end allows one more, and False is after that."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)
            last, self._last_try = self._last_try, self._closing
            return not last

    def _close_file(self) -> None:
        if self._file >= 0:
            try:
                try:
                    if self._unsynced:
                        os.fdatasync(self._file)
                finally:
                    os.close(self._file)
                self._unsure = 0
            except OSError:
                self._doubt()
        self._file, self._unsynced = -1, 0


def own_line(text: str) -> bytes:
    """A line of the launcher's among the others."""
    return marked(Batch(tag=OWN, text=f"[launcher] {text}\n".encode()), stamp(time.time_ns()))
