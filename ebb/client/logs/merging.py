"""Lines of several workers as one stream in the order of time.

    async for worker, line in merged([(0, batches_of_worker_0), (1, batches_of_worker_1)]): ...

A line never comes before the line in front of it in its own worker's log, whatever their clocks say. Only what is next of each
worker is held in memory.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime

from ebb.client.logs.lines import Line

Batches = AsyncIterator[list[Line]]


async def merged(streams: Iterable[tuple[int, Batches]]) -> AsyncIterator[tuple[int, Line]]:
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
        """That of the next line, but not before the one in front of it."""
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
