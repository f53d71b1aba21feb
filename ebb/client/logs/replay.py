"""New lines among those that a pod's log brings again, and the lines of several workers in the order of time. Under pod.py.

A follower that lost its connection asks for the lines since a moment and gets some of them again, because the API counts in
whole seconds. Time stamps alone cannot tell (two lines may share one, and stdout and stderr may pass each other), so `Replay`
counts the lines of the last two seconds and takes those off what comes again.

    async for worker, line in merge([(0, batches_of_worker_0), (1, batches_of_worker_1)]): ...

A line never comes before the line in front of it in its own worker's log, whatever their clocks say. Only what is next of each
worker is held in memory.
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ebb.client.logs.lines import Line

LOOK_BACK = timedelta(seconds=1)
"""Age of a late line below the newest, at most: stdout and stderr are written by two threads of the runtime."""


@dataclass
class Replay:
    """Lines seen of one pod's log. `connect` before every connection, `new` for every line that it brings."""

    _recent: deque[Line] = field(default_factory=deque)
    _newest: datetime | None = None
    _since: datetime | None = None
    _again: Counter[tuple[str, str]] = field(default_factory=Counter)
    _last: Line | None = None
    _cut: Line | None = None

    def connect(self) -> str | None:
        """The moment to ask lines from (None: all), and from now on expect the known ones again."""
        self._since = self._start()
        self._again = Counter((line.stamp, line.text) for line in self._recent if self._since and line.time >= self._since)
        self._cut = self._last  # the connection may have broken in the middle of this one
        return self._since.strftime("%Y-%m-%dT%H:%M:%SZ") if self._since else None

    def new(self, line: Line) -> Line | None:
        """The line if it is new, its unseen rest if a connection broke inside it, None if it was seen."""
        if self._since and line.time < self._since:
            return None  # a runtime that does not know `since` sends all
        key = (line.stamp, line.text)
        if self._again[key] > 0:
            self._again[key] -= 1
            if self._cut and key == (self._cut.stamp, self._cut.text):
                self._cut = None  # it was whole
            return None
        fresh = self._rest(line)
        self._remember(line)
        return fresh

    def _rest(self, line: Line) -> Line:
        cut, self._cut = self._cut, None
        if cut and cut.stamp == line.stamp and line.text.startswith(cut.text):
            self._again[(cut.stamp, cut.text)] -= 1
            return Line(line.stamp, line.time, line.text[len(cut.text) :])
        return line

    def _remember(self, line: Line) -> None:
        self._last = line
        self._recent.append(line)
        self._newest = max(self._newest or line.time, line.time)
        start = self._start()
        while start and self._recent and self._recent[0].time < start:
            self._recent.popleft()

    def _start(self) -> datetime | None:
        return self._newest.replace(microsecond=0) - LOOK_BACK if self._newest else None


Batches = AsyncIterator[list[Line]]


async def merge(streams: Iterable[tuple[int, Batches]]) -> AsyncIterator[tuple[int, Line]]:
    """(worker, line); of lines of the same time those of the stream that is named first."""
    cursors = [_Cursor(worker, batches) for worker, batches in streams]
    filled = await asyncio.gather(*(cursor.fill() for cursor in cursors))
    heap = [(cursor.time, order) for order, cursor in enumerate(cursors) if filled[order]]
    heapq.heapify(heap)
    while heap:
        _, order = heap[0]
        cursor = cursors[order]
        yield cursor.worker, cursor.take()
        if cursor.place < len(cursor.lines) or await cursor.fill():
            heapq.heapreplace(heap, (cursor.time, order))
        else:
            heapq.heappop(heap)


class _Cursor:
    """The place in one stream."""

    def __init__(self, worker: int, batches: Batches) -> None:
        self.worker, self._batches = worker, batches
        self.lines: list[Line] = []
        self.place = 0
        self._latest = datetime.min.replace(tzinfo=UTC)

    @property
    def time(self) -> datetime:
        """Time of the next line, but not before the one in front of it."""
        self._latest = max(self._latest, self.lines[self.place].time)
        return self._latest

    def take(self) -> Line:
        self.place += 1
        return self.lines[self.place - 1]

    async def fill(self) -> bool:
        """False at the end."""
        async for lines in self._batches:
            if lines:
                self.lines, self.place = lines, 0
                return True
        return False
