"""The format of a line in the file, and the way from a pipe's bytes to lines. Pure.

lines = Lines("6.2.out")
lines.feed(b"step 1\nste")       # b"step 1\n": whole lines; the rest waits
lines.end()                      # b"ste\n": the last one, whose writer is gone
marked(batch, stamp(time.time_ns()))
"""

import time

from ebb.compat import dataclass

LONGEST = 2**20  # bytes of a line, and of what waits for the end of one
_NANOSECONDS = 10**9


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Whole lines of one stream. `more`: it is one piece of a line that goes on in the next batch of the stream.

    `shown`: so many of its bytes has a terminal already.
    """

    tag: str
    text: bytes
    more: bool = False
    shown: int = 0

    @property
    def count(self) -> int:
        return self.text.count(b"\n")


class Lines:
    """One stream of one process."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._rest = bytearray()
        self._shown = 0  # of the rest

    def feed(self, data: bytes) -> list[Batch]:
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._rest += data
            return self._pieces()
        whole = bytes(self._rest) + data[:end]
        self._rest = bytearray(data[end:])
        return [self._batch(whole)]

    def bar(self) -> bytes:
        """The new part of a line that writes over itself, for a terminal: it is to be seen long before it ends."""
        new = bytes(self._rest[self._shown :])
        if b"\r" not in new and not self._shown:
            return b""
        self._shown = len(self._rest)
        return new

    def end(self) -> list[Batch]:
        if not self._rest:
            return []
        rest, self._rest = bytes(self._rest), bytearray()
        return [self._batch(rest + b"\n")]

    def _pieces(self) -> list[Batch]:
        """Of a line that is too long to wait for."""
        found = []
        while len(self._rest) > LONGEST:
            found.append(self._batch(bytes(self._rest[:LONGEST]) + b"\n", more=True))
            del self._rest[:LONGEST]
        return found

    def _batch(self, text: bytes, *, more: bool = False) -> Batch:
        shown = min(self._shown, len(text) - 1)  # never the end of a line
        self._shown -= shown
        return Batch(tag=self.tag, text=text, more=more, shown=shown)


def stamp(nanoseconds: int) -> str:
    """RFC 3339 with nanoseconds."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09}Z"


def marked(batch: Batch, moment: str) -> bytes:
    """As it stands in the file: each line with its time and tag in front."""
    front = f"{moment} {batch.tag}{'+' if batch.more else ''} ".encode()
    return front + batch.text[:-1].replace(b"\n", b"\n" + front) + b"\n"
