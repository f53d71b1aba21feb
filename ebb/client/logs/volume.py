"""The logs of a job on the output volume, which stay when pods and machines are gone.

    shelf = Shelf(files, "/mnt/output/elastic-job/digits-1a2b3c4d")
    await shelf.look()                                    # which pods have written something
    reading = shelf.reading("<pod uid>")
    async for lines in reading.now(): ...                 # what is there; again: what has come since

A line is known by its place, file and offset, so nothing is shown twice and nothing is left out. How the files come to be, and
what a machine that dies may take with it, is written in ebb/elastic/launch/logs: on a network file system the lines of its last
second or so, as what a write has handed to the kernel there is not yet with the server.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Protocol

from ebb.client.errors import ClientError, Missing
from ebb.client.files.transfer import FileEntry, gateway
from ebb.client.jobs.view import worker_container
from ebb.client.jobs.watch import Board
from ebb.client.logs.lines import FileLines, Line, Part
from ebb.client.platform.connection import Ebb
from ebb.kube import KubeError

LOOK_SECONDS = 5.0  # how old a listing may be: new pods and the next part of a file are seen that late
DRAIN_SECONDS = 3.0  # for the last lines of a machine that is gone to arrive on the volume
RECHECK_SECONDS = 1.0
TRIES_AT_END = 3
PIECE_BYTES = 2**21
CLOCKS_SECONDS = 60.0  # by which the volume's clock may be behind those of the machines
UNREADABLE = "the output volume cannot be read, so lines of workers that are gone are missing"


class LogFiles(Protocol):
    """The part of files/transfer.py's `LogFiles` that logs need."""

    async def list(self, path: str, *, recursive: bool) -> Sequence[FileEntry]:
        """Return what is in and below a folder. Raises Missing, ClientError, KubeError."""

    def read(self, path: str, start: int) -> AsyncIterator[bytes]:
        """From a byte to what is now the end. Raises Missing, ClientError, KubeError."""


@asynccontextmanager
async def on_volume(ebb: Ebb, note: Callable[[str], None]) -> AsyncIterator[LogFiles | None]:
    """The way to the volume; None, and a note, on a platform that has none now."""
    async with AsyncExitStack() as stack:
        found: LogFiles | None = None
        try:
            found = await stack.enter_async_context(gateway(ebb))
        except (ClientError, KubeError) as error:
            note(f"{UNREADABLE}: {error}")
        yield found


class Shelf:
    """Pods that have written logs. Call `look` before anything else."""

    def __init__(self, files: LogFiles, job_folder: str) -> None:
        self.files = files
        self.workers: dict[str, int] = {}  # by pod uid, in the order in which they started
        self._folder = f"{job_folder}/logs"
        self._parts: dict[str, list[Part]] = {}
        self._looked_at = float("-inf")

    async def look(self, max_age_seconds: float = 0.0) -> None:
        """Read the listing, unless the last one is younger. Raises ClientError, KubeError."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at <= max_age_seconds:
            return
        self._looked_at = now
        found: list[tuple[Part, int]] = []
        for entry in await self._entries():
            folder, _, name = entry.name.partition("/")
            index, part = folder.removeprefix("worker-"), Part.of(f"{self._folder}/{entry.name}", entry.modified_ns / 1e9)
            if part is not None and index.isdigit() and "/" not in name:
                found.append((part, int(index)))
        parts: dict[str, list[Part]] = {}
        for part, worker in sorted(found):
            parts.setdefault(part.pod, []).append(part)
            self.workers.setdefault(part.pod, worker)
        self._parts = parts

    async def _entries(self) -> Sequence[FileEntry]:
        try:
            return await self.files.list(self._folder, recursive=True)
        except Missing:  # no launcher has come so far
            return ()

    def parts(self, pod: str) -> list[Part]:
        return self._parts.get(pod, [])

    def reading(self, pod: str, since: datetime | None = None) -> "Reading":
        return Reading(self, pod, since)


class Reading:
    """One reader's place in the files of one pod. With `since` it leaves out files in which all lines are older."""

    def __init__(self, shelf: Shelf, pod: str, since: datetime | None = None) -> None:
        self._shelf, self._pod = shelf, pod
        self._since = since.timestamp() - CLOCKS_SECONDS if since else 0.0
        self._lines = FileLines()
        self._part: Part | None = None
        self._offset = 0

    async def now(self) -> AsyncIterator[list[Line]]:
        """Yield what was written since the last time. Raises ClientError, KubeError; the next call then resumes behind it."""
        while True:
            following = self._next()  # looked at first: a file that has a successor is never written to again
            if self._part is not None:
                async for lines in self._rest_of(self._part):
                    yield lines
            if following is None:
                return
            self._begin(following)

    async def last(self, count: int) -> list[Line]:
        """The last lines of what is there; `now` goes on behind them. Reads the newest two parts, and all only if it must."""
        parts = self._shelf.parts(self._pod)
        for first in ([parts[-2]] if len(parts) > 2 else []) + parts[:1]:
            found: deque[Line] = deque(maxlen=count)
            self._begin(first)
            async for lines in self.now():
                found.extend(lines)
            if len(found) == count:
                break
        return list(found) if parts else []

    async def _rest_of(self, part: Part) -> AsyncIterator[list[Line]]:
        while data := await self._piece(part):
            self._offset += len(data)
            if lines := self._lines.feed(data):
                yield lines
            if len(data) < PIECE_BYTES:
                return

    async def _piece(self, part: Part) -> bytes:
        """Not the whole at once: whoever merges many workers would hold a connection to the gateway for each of them."""
        found, pieces = bytearray(), self._shelf.files.read(part.path, self._offset)
        try:
            async for data in pieces:
                found += data
                if len(found) >= PIECE_BYTES:
                    break
        except Missing:
            return b""  # it was too old to be kept: a line in the next part says so
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()
        return bytes(found)

    def _next(self) -> Part | None:
        """The file after the one that is read."""
        parts = self._shelf.parts(self._pod)
        if self._part is None:
            return next((part for part in parts if part.written_at >= self._since), None)
        return next((part for part in parts if part > self._part), None)

    def _begin(self, part: Part) -> None:
        self._part, self._offset = part, 0
        self._lines.begin(part)


class FileTail:
    """Follows one pod's files until the pod has ended or is gone. `show` gets each line once."""

    def __init__(self, board: Board, shelf: Shelf, pod: str, reading: Reading, show: Callable[[Line], None]) -> None:
        self._board, self._shelf, self._pod, self._reading, self._show = board, shelf, pod, reading, show

    async def run(self) -> bool:
        """False if its last lines could not be read."""
        while (wait := self._ends_in()) is None:
            await self._read()
            await asyncio.sleep(RECHECK_SECONDS)
        await asyncio.sleep(wait)
        for _ in range(TRIES_AT_END):
            if await self._read(look_seconds=0.0):
                return True
            await asyncio.sleep(RECHECK_SECONDS)
        return False

    def _ends_in(self) -> float | None:
        """Return how long its lines may still take to arrive; None while it runs."""
        pod = next((pod for pod in self._board.pods if pod["metadata"]["uid"] == self._pod), None)
        if pod is None:
            return DRAIN_SECONDS
        return RECHECK_SECONDS if "terminated" in (worker_container(pod)[1].get("state") or {}) else None

    async def _read(self, look_seconds: float = LOOK_SECONDS) -> bool:
        """False if the volume cannot be reached now: the next time brings what this one did not."""
        try:
            await self._shelf.look(look_seconds)
            async for lines in self._reading.now():
                for line in lines:
                    self._show(line)
        except (ClientError, KubeError):
            return False
        return True
