"""How far a file is that goes or comes, over as many tries as that takes."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from ebb.client.files import localfiles

CHUNK = 2**18
Moved = Callable[[int], None]
"""Told of each bytes that went or came; negative when they were for nothing."""


@dataclass(kw_only=True)
class Moving:
    """Bytes that go or come. `total`: those of this run; it falls when some were for nothing."""

    path: str
    file: Path
    moved: Moved
    total: int = 0
    _at: int | None = None

    def starts_at(self, offset: int) -> None:
        """The next try goes on from there. What was there before the first is told, but was no work of ours."""
        change = offset - (self._at or 0)
        self.total += 0 if self._at is None else change
        self._at = offset
        self.moved(change)

    def count(self, size: int) -> None:
        """So much went or came."""
        self._at = (self._at or 0) + size
        self.total += size
        self.moved(size)

    async def pieces(self, offset: int, end: int) -> AsyncIterator[bytes]:
        """What is to go, at most up to `end`: a log may have grown since it was announced."""
        async for piece in localfiles.pieces(self.file, offset, end, CHUNK):
            yield piece
            self.count(len(piece))
