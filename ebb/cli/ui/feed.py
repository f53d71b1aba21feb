"""The feed of one job's page, beside the snapshot: its metric lines, the events about it, and the end of its log.

    feed = JobFeed(ebb, job, changed)
    feed.training, feed.told, feed.lines
    await feed.close()

Only what came since the last time is read of the metrics. What cannot be had is in `notes`, and tried again.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from ebb.client.errors import ClientError, Missing
from ebb.client.jobs.view import OVER, view
from ebb.client.logs import Choice, Line, follow_logs, on_volume
from ebb.client.logs.sources import job_folder
from ebb.client.platform.connection import Ebb
from ebb.client.report.lines import Reader, Training
from ebb.client.report.reading import FILE, NO_LINES, STATUS_ONLY
from ebb.client.timeline.timeline import is_about
from ebb.kube import EVENTS, KubeError, Object

EVENTS_SECONDS = 10.0  # a namespace has many events, and what counts is in the job's history sooner
AGAIN_SECONDS = 10.0  # until what could not be had is asked for again
OVER_SECONDS = 60.0  # a job that is over says nothing new
TAIL = 100  # lines of each worker, to begin with
LINES = 500  # that are kept
LONGEST = 2000  # letters of a line
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")


class GrowingFiles(Protocol):
    """The part of files/transfer.py's `Files` that metric lines need."""

    def read(self, path: str, start: int) -> AsyncIterator[bytes]:
        """From a byte to what is now the end. Raises Missing, ClientError, KubeError."""


OpenFiles = Callable[[Ebb], AbstractAsyncContextManager[GrowingFiles]]


class Changed(Protocol):
    """Told of news; `page`: of more than lines of the log."""

    def __call__(self, *, page: bool) -> None: ...


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A line of the log, or a note about it. `number` grows by one from line to line."""

    number: int
    worker: int | None  # None: a note
    rank: int | None
    time: str
    text: str


class JobFeed:
    """See the module's docstring. It begins when it is made."""

    def __init__(self, ebb: Ebb, job: Object, changed: Changed, *, every: float, open_files: OpenFiles) -> None:
        self.job = job
        self.training = Training()
        self.source = "the job's status"
        self.notes: tuple[str, ...] = ()
        self.told: list[Object] = []
        self.lines: deque[LogLine] = deque(maxlen=LINES)
        self.numbered = 0  # lines so far
        self._ebb, self._changed, self._every, self._open_files = ebb, changed, every, open_files
        works = (self._follow_metrics(), self._follow_events(), self._follow_log())
        self._tasks = [asyncio.create_task(work) for work in works]

    def follow(self, jobs: Iterable[Object]) -> None:
        """Take the job's newest state from among them."""
        uid = self.job["metadata"]["uid"]
        self.job = next((job for job in jobs if job["metadata"]["uid"] == uid), self.job)

    def check(self) -> None:
        """Raise what nobody expected."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow_metrics(self) -> None:
        path = f"{job_folder(self.job)}/{FILE}"
        while True:
            reader, at, rest = Reader(), 0, b""
            try:
                async with self._open_files(self._ebb) as files:
                    while True:
                        over = self._is_over()  # looked at first: then all was written
                        async for piece in files.read(path, at):
                            at += len(piece)
                            *lines, rest = (rest + piece).split(b"\n")
                            for line in lines:
                                reader.feed(line)
                        self._take(reader.done())
                        await asyncio.sleep(OVER_SECONDS if over else self._every)
            except Missing:
                self._miss(NO_LINES)
            except (ClientError, KubeError, OSError) as error:
                self._miss(f"The job's folder could not be read: {str(error).rstrip('.')}.")
            await asyncio.sleep(AGAIN_SECONDS)

    def _take(self, training: Training) -> None:
        if training.lines != self.training.lines or self.notes:
            self.training, self.source, self.notes = training, f"{FILE} of the job's folder", ()
            self._changed(page=True)

    def _miss(self, why: str) -> None:
        notes = (why,) if self.training.lines else (why, STATUS_ONLY)
        if notes != self.notes:
            self.notes = notes
            self._changed(page=True)

    async def _follow_events(self) -> None:
        while True:
            try:
                told = await self._ebb.kube.list(EVENTS, self._ebb.namespace)
            except KubeError:  # the page says that the API server is away; without the right to events, the history is there
                told = self.told
            about = [event for event in told if is_about(event, self.job)]
            if about != self.told:
                self.told = about
                self._changed(page=True)
            await asyncio.sleep(OVER_SECONDS if self._is_over() else EVENTS_SECONDS)

    async def _follow_log(self) -> None:
        name, choice = str(self.job["metadata"]["name"]), Choice(tail=TAIL)
        while True:
            try:
                async with on_volume(self._ebb, self.note) as files:
                    await follow_logs(self._ebb.kube, self._ebb.namespace, name, self, choice=choice, files=files)
                return self.note(f"{name} is over: this is the end of its log.")
            except Missing as error:
                return self.note(str(error))
            except (ClientError, KubeError) as error:
                self.note(f"{error}; trying again")
            await asyncio.sleep(AGAIN_SECONDS)

    def line(self, worker: int, line: Line) -> None:
        """As a Sink of logs."""
        self._add(worker, line.rank, line.stamp, line.text)

    def note(self, text: str) -> None:
        """As a Sink of logs."""
        self._add(None, None, "", text)

    def _add(self, worker: int | None, rank: int | None, time: str, text: str) -> None:
        self.lines.append(LogLine(number=self.numbered, worker=worker, rank=rank, time=time, text=plain(text)))
        self.numbered += 1
        self._changed(page=False)

    def _is_over(self) -> bool:
        return view(self.job).state in OVER


def plain(text: str) -> str:
    """A line as a terminal would leave it: without colours, and of a progress bar its last state."""
    shown = _ANSI.sub("", text).rstrip("\r\n").rpartition("\r")[2]
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
