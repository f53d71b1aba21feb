"""Figures for a report: from the job's folder through the gateway, else from its workers' logs, else from the platform's status.

    read = await Reading(ebb, open_files).of(job)
    read.training, read.source, read.notes

`notes` lists what could not be had, and the page shows it: a report never looks more complete than it is. Out of a log come the
sentences of ebb/elastic/runtime/report.py (a test holds the two together); seconds useful and lost, and steps done again, are
not in them.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ebb.api.clock import unix
from ebb.api.contract import LABEL_JOB
from ebb.client.errors import ClientError, Missing
from ebb.client.jobs.view import own_pods
from ebb.client.logs.pod import lines_now
from ebb.client.logs.replay import Replay
from ebb.client.logs.sources import job_folder
from ebb.client.platform.connection import Ebb
from ebb.client.report.lines import Reader, Training
from ebb.kube import PODS, KubeError, Object

FILE = "metrics.jsonl"
AT_ONCE = 4  # files or logs: enough to hide the way to the platform, few enough for a small gateway


class ReportFiles(Protocol):
    """The part of files/transfer.py's `ReportFiles` that a report needs."""

    def read(self, path: str) -> AsyncIterator[bytes]:
        """From the first byte to what is now the end. Raises Missing, ClientError, KubeError."""


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

    async def of(self, job: Object) -> Read:
        """Of one job; never raises for what is missing."""
        async with self._turns:
            try:
                training = await self._from_folder(job)
            except Missing:
                why = f"The job has written no {FILE}: its program is none of Ebb's trainers, or has not come so far."
            except (ClientError, KubeError, OSError) as error:
                why = f"The job's folder could not be read: {str(error).rstrip('.')}."
            else:
                return Read(training=training, source=f"{FILE} of the job's folder")
            return await self._instead(job, why)

    async def _instead(self, job: Object, why: str) -> Read:
        training = await self._from_logs(job)
        if training.lines:
            less = (
                "Loss and rate are from the logs of the workers that still are there, so the beginning may be missing, and what "
            )
            return Read(training=training, source="the workers' logs", notes=(why, f"{less}was useful or lost is not known."))
        return Read(training=training, source="the job's status", notes=(why, "Its workers' logs say nothing of a loss either."))

    async def _from_folder(self, job: Object) -> Training:
        if self._files is None:
            raise ClientError(self._closed)
        return await read_lines(self._files.read(f"{job_folder(job)}/{FILE}"))

    async def _from_logs(self, job: Object) -> Training:
        """Rank 0 speaks, and moves from worker to worker as they are lost."""
        kube, namespace, name = self._ebb.kube, job["metadata"]["namespace"], job["metadata"]["name"]
        try:
            pods = await kube.list(PODS, namespace, labels=f"{LABEL_JOB}={name}")
        except KubeError:
            pods = []
        logs = await asyncio.gather(*(lines_now(kube, namespace, pod, Replay()) for pod in own_pods(job, pods)))
        facts: list[dict[str, Any]] = [line for log in logs for each in log if (line := parse_sentence(each.stamp, each.text))]
        reader = Reader()
        for line in sorted(facts, key=lambda line: line["time"]):
            reader.add(line)
        return reader.done()


async def read_lines(pieces: AsyncIterator[bytes]) -> Training:
    """A metrics.jsonl in pieces of any size. What stands after the last line end is on its way: it is left out without a word."""
    reader, rest = Reader(), b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            reader.feed(line)
    return reader.done()


_SENTENCE = re.compile(
    r"step (?P<step>\d+)/(?P<total_steps>\d+)  epoch (?P<epoch>\S+)  loss (?P<loss>\S+)  (?P<figures>.*?)"
    r"(?P<samples_per_second>\S+) samples/s  step (?P<step_seconds>\S+) s  data (?P<data_seconds>\S+) s  "
    r"world (?P<world_size>\d+)  generation (?P<generation>\d+)"
)


def parse_sentence(stamp: str, text: str) -> dict[str, Any] | None:
    """None: another line of the log."""
    match = _SENTENCE.fullmatch(text.strip())
    if match is None:
        return None
    words = match.groupdict()
    figures = dict(part.rsplit(" ", 1) for part in words.pop("figures").strip().split("  ") if " " in part)
    try:
        counts = {key: int(words.pop(key)) for key in ("step", "total_steps", "world_size", "generation")}
        return {
            "time": unix(stamp),
            **counts,
            **{key: float(value) for key, value in words.items()},
            "figures": {name: float(value) for name, value in figures.items()},
        }
    except ValueError:
        return None
