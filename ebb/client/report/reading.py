"""Figures for a report: from the metric lines in the job's folder, through the gateway, else from the platform's status.

    read = await Reading(ebb, open_files).of(job)
    read.training, read.source, read.notes

`notes` lists what could not be had, and the page shows it: a report never looks more complete than it is. Logs are not read:
their sentences are for people.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from ebb.client.errors import ClientError, Missing
from ebb.client.logs.sources import job_folder
from ebb.client.platform.connection import Ebb
from ebb.client.report.lines import Reader, Training
from ebb.client.sweep.results import ResultFiles
from ebb.kube import KubeError, Object

FILE = "metrics.jsonl"
NO_LINES = f"The job has written no {FILE}: no step was reported so far, by Ebb's loop, ebb.log() or --progress-regex."
STATUS_ONLY = "The figures are the last that the platform saw: there are no curves, and no account of where the time went."
AT_ONCE = 4  # files: enough to hide the way to the platform, few enough for a small gateway


class ReportFiles(ResultFiles, Protocol):
    """The part of files/transfer.py's `Files` that a report needs."""


OpenFiles = Callable[[Ebb], AbstractAsyncContextManager[ReportFiles]]


@dataclass(frozen=True, kw_only=True)
class Read:
    """Metrics found of one job's training, and their source."""

    training: Training
    source: str
    notes: tuple[str, ...] = ()


class Reading:
    """Of one report: the gateway is opened once, however many jobs there are."""

    def __init__(self, ebb: Ebb, open_files: OpenFiles) -> None:
        self._ebb, self._open = ebb, open_files
        self._files: ReportFiles | None = None
        self._closed = ""  # why there are none
        self._turns = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Reading"]:
        """While the block runs, files can be had, if the gateway is there."""
        async with AsyncExitStack() as stack:
            try:
                self._files = await stack.enter_async_context(self._open(self._ebb))
            except (ClientError, KubeError, OSError) as error:
                self._closed = str(error)
            yield self

    @asynccontextmanager
    async def again(self, _: Ebb) -> AsyncIterator[ReportFiles]:
        """The same files for others, within `opened`. Raises ClientError where there are none."""
        if self._files is None:
            raise ClientError(self._closed)
        yield self._files

    async def of(self, job: Object) -> Read:
        """Of one job; never raises for what is missing."""
        async with self._turns:
            try:
                if self._files is None:
                    raise ClientError(self._closed)
                training = await read_lines(self._files.read(f"{job_folder(job)}/{FILE}"))
            except Missing:
                why = NO_LINES
            except (ClientError, KubeError, OSError) as error:
                why = f"The job's folder could not be read: {str(error).rstrip('.')}."
            else:
                return Read(training=training, source=f"{FILE} of the job's folder")
        return Read(training=Training(), source="the job's status", notes=(why, STATUS_ONLY))


async def read_lines(pieces: AsyncIterator[bytes]) -> Training:
    """A metrics.jsonl in pieces of any size. What stands after the last line end is on its way: it is left out without a word."""
    reader, rest = Reader(), b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            reader.feed(line)
    return reader.done()
