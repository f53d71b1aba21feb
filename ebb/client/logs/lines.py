"""Log lines: how the API server and the files on the output volume write them, and which are wanted. Pure.

A line of a file, which the launcher writes (ebb/elastic/launch/logs), has in front when it was read and by whom it was written:

    2026-11-22T12:58:54.123456789Z 6.2.out step 100 loss 1.23       rank 6, the machine's third process, its stdout
    2026-11-22T12:58:54.130000000Z -.-.err [launcher 12:58:54] ...   the launcher's own

A `+` behind the stream says that the line goes on in the next one of that rank and stream. What stands after the last line end of
a file is half a line, whose rest is in the next file or was never written: it is no line.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

_FILE = re.compile(r"(?P<start>[0-9TZ-]+)\.(?P<pod>[A-Za-z0-9-]+)\.(?P<part>\d+)\.log")
_TAG = re.compile(r"(?:(\d+)\.\d+|-\.-)\.(out|err)(\+?)")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one worker's log; `stamp` is the writer's own text (nanoseconds), `time` the same to compare by. `rank` and
    `stream` are known of lines from the volume; the launcher's have no rank."""

    stamp: str
    time: datetime
    text: str
    rank: int | None = None
    stream: str = ""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Filter of log lines; without any field, all."""

    worker: int | None = None
    rank: int | None = None
    since: datetime | None = None
    grep: re.Pattern[str] | None = None
    lost: bool = False  # only those of workers that are gone
    tail: int | None = None  # of each worker the last so many lines, before `rank` and `grep` choose among them

    def wants(self, line: Line) -> bool:
        if self.rank is not None and line.rank != self.rank:
            return False
        if self.since is not None and line.time < self.since:
            return False
        return self.grep is None or self.grep.search(line.text) is not None


ALL = Choice()


@dataclass(frozen=True, order=True)
class Part:
    """A file of one pod's log: parts of one pod are in the order of (start, part)."""

    start: str
    part: int
    pod: str
    path: str = field(compare=False)
    written_at: float = field(compare=False, default=0.0)  # for the last time, seconds of the epoch

    @classmethod
    def of(cls, path: str, written_at: float = 0.0) -> "Part | None":
        """None for what is no log of a launcher's."""
        match = _FILE.fullmatch(path.rpartition("/")[2])
        return cls(match["start"], int(match["part"]), match["pod"], path, written_at) if match else None


def parse(raw: str) -> Line | None:
    """`2026-11-21T07:12:15.123456789Z text` -> Line; None for what carries no time, such as the kubelet's own complaints."""
    stamp, _, text = raw.partition(" ")
    time = _moment(stamp)
    return Line(stamp, time, text) if time else None


class FileLines:
    """The lines of one pod's files, from pieces of them as they come. `begin` before the first piece of each."""

    def __init__(self) -> None:
        self._start = ""
        self._rest = b""
        self._begun: dict[str, Line] = {}  # lines that go on, by tag

    def begin(self, part: Part) -> None:
        self._rest = b""
        if part.start != self._start:  # another launcher
            self._start = part.start
            self._begun.clear()

    def feed(self, data: bytes) -> list[Line]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line for raw in whole if (line := self._line(raw.decode(errors="replace"))) is not None]

    def _line(self, raw: str) -> Line | None:
        found = parse(raw)
        if found is None:
            return None
        tag, _, text = found.text.partition(" ")
        match = _TAG.fullmatch(tag)
        if match is None:
            return found
        rank, stream, more = match.groups()
        line = Line(found.stamp, found.time, text, None if rank is None else int(rank), stream)
        key = tag.removesuffix("+")
        if begun := self._begun.pop(key, None):
            line = Line(line.stamp, line.time, begun.text + line.text, line.rank, line.stream)
        if more:
            self._begun[key] = line
            return None
        return line


def _moment(stamp: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return time.astimezone(UTC) if time.tzinfo else None
