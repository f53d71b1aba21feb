"""What is new among the lines that a pod's log brings again: pure code under pod.py.

A follower that lost its connection asks for the lines since a moment and gets some of them again, because the API counts in
whole seconds. Time stamps alone cannot tell (two lines may share one, and stdout and stderr may pass each other), so `Replay`
counts the lines of the last two seconds and takes those off what comes again.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ebb.client.logs.lines import Line

LOOK_BACK = timedelta(seconds=1)
"""How much older than the newest line a late one may be: stdout and stderr are written by two threads of the runtime."""


@dataclass
class Replay:
    """What was seen of one pod's log. `connect` before every connection, `new` for every line that it brings."""

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
