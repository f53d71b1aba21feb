"""Results of a sweep's runs: one number for each, and which is the best. `ebb sweep show` and `ebb report` both ask here.

    metric = metric_of("val_acc", "max")
    finals = Finals(ebb, metric, note); await finals.read(jobs)
    score_of(view(job), finals.found.get(uid), metric)
    best_of({"scan-1": 0.7, "scan-2": None}, metric)

The platform reads a job's status from time to time and so misses a run's last steps. Once a run has ended, what counts is in the
files of its folder: the last line of metrics.jsonl for the loss and the rate; any other metric is looked for in result.json, then
in validations.jsonl (the last line that has it), then among the figures of that last line. Tails are read, never whole files.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ebb.api.halving import METRICS
from ebb.client.errors import BadRequest, ClientError, Missing
from ebb.client.jobs.view import OVER, STOPPED, JobView, view
from ebb.client.jobs.watch import ignore
from ebb.client.logs.sources import job_folder
from ebb.client.platform.connection import Ebb
from ebb.kube import KubeError, Object

LINES, RESULT, VALIDATIONS = "metrics.jsonl", "result.json", "validations.jsonl"
TAIL_BYTES = 2**16  # a line has some 500
AT_ONCE = 4
STATUS = "status"  # as the source of a number
MODES = ("min", "max")
ANNOTATION_STUDY = "ebb.dev/sweep-study"  # the file with the point of a run that chose it when it began


@dataclass(frozen=True, kw_only=True)
class SweepMetric:
    """--metric NAME --mode min|max."""

    name: str = "loss"
    more_is_better: bool = False

    @property
    def mode(self) -> str:
        return MODES[self.more_is_better]


def metric_of(name: str, mode: str | None = None) -> SweepMetric:
    """Raises BadRequest for a metric of which nobody said whether more is better."""
    if not name:
        raise BadRequest(f"metric is empty: use {', '.join(METRICS)}, or one that the program writes, such as val_acc.")
    if mode is None and name not in METRICS:
        raise BadRequest(f"metric {name!r}: say which value is the best, with --mode max or --mode min.")
    if mode not in (None, *MODES):
        raise BadRequest(f"mode {mode!r} is unknown: use min or max.")
    return SweepMetric(name=name, more_is_better=METRICS[name] if mode is None else mode == "max")


class ResultFiles(Protocol):
    """The part of files/transfer.py's `Files` that results need."""

    async def stat(self, path: str) -> Any:
        """Return its entry, with its `size`. Raises Missing, ClientError, KubeError."""

    def read(self, path: str, start: int = 0) -> AsyncIterator[bytes]:
        """From a byte to what is now the end. Raises Missing, ClientError, KubeError."""


OpenResults = Callable[[Ebb], AbstractAsyncContextManager[ResultFiles]]


@dataclass(frozen=True, kw_only=True)
class FinalFigures:
    """A run's own files, as far as they say what it came to; {} for what is not there."""

    line: Mapping[str, Any] = field(default_factory=dict)  # the last of metrics.jsonl
    result: Mapping[str, Any] = field(default_factory=dict)
    validations: tuple[Mapping[str, Any], ...] = ()

    @property
    def step(self) -> int | None:
        found = self.line.get("step")
        return found if type(found) is int else None

    def find(self, name: str) -> tuple[float | None, str]:
        """A metric's value, and the file that has it; "" where none has. None: it is no number, as of a run that diverged."""
        figures = self.line.get("figures")
        places: list[tuple[str, Mapping[str, Any]]] = [(LINES, self.line)]
        if name not in METRICS:
            places = [
                (RESULT, self.result),
                *((VALIDATIONS, row) for row in reversed(self.validations)),
                (LINES, figures if isinstance(figures, dict) else {}),
                *places,
            ]
        for file, facts in places:
            value = facts.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return (float(value) if math.isfinite(value) else None), file
        return None, ""


def score_of(seen: JobView, final: FinalFigures | None, metric: SweepMetric) -> tuple[float | None, str]:
    """A run's number and its source: its files where they were read and say it, else the job's status; "" where nothing does."""
    value, source = final.find(metric.name) if final else (None, "")
    if source or metric.name not in METRICS:
        return value, source
    found = getattr(seen, metric.name)
    return (None if found is None or not math.isfinite(found) else float(found)), STATUS if found is not None else ""


def ranked(scores: Mapping[str, float | None], metric: SweepMetric) -> list[str]:
    """The runs that have a number, the best first, and of equal ones the first. One that failed or was stopped may lead."""
    having = {run: score for run, score in scores.items() if score is not None}
    return sorted(having, key=lambda run: having[run], reverse=metric.more_is_better)


def best_of(scores: Mapping[str, float | None], metric: SweepMetric) -> str:
    """The run with the best number; "" where none has any."""
    return next(iter(ranked(scores, metric)), "")


def has_ended(seen: JobView) -> bool:
    """Return whether nothing of it trains any more, so that its files stay as they are."""
    return seen.state in OVER or seen.state == STOPPED


def point_in(content: bytes) -> dict[str, str]:
    """{} where none was chosen yet."""
    try:
        found = json.loads(content)["point"]
        return {str(key): str(value) for key, value in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def has_begun(job: Object) -> bool:
    """Return whether it has trained, so that it knows its point."""
    return bool((job.get("status") or {}).get("progress")) or has_ended(view(job))


class Finals:
    """Files of runs, each read once; `found` by the job's uid. What cannot be read is said once and tried again the next time."""

    def __init__(
        self,
        ebb: Ebb,
        metric: SweepMetric,
        *,
        open_files: OpenResults | None = None,
        note: Callable[[str], None] = ignore,
    ) -> None:
        self.found: dict[str, FinalFigures] = {}
        self.points: dict[str, dict[str, str]] = {}  # those that the runs chose themselves
        self._ebb, self._metric, self._note = ebb, metric, note
        self._open = open_files or _gateway
        self._noted = False

    async def read(self, jobs: Iterable[Object], *, running: bool = True) -> None:
        """Read those of runs that have ended; with `running`, of the others too where the status does not have the metric."""
        wanted, chosen = [], []
        for job in jobs:
            uid, ended = job["metadata"]["uid"], has_ended(view(job))
            if not ended:
                self.found.pop(uid, None)  # it was resumed, or was read while it trained
            if uid not in self.found and (ended or (running and self._metric.name not in METRICS)):
                wanted.append(job)
            if ANNOTATION_STUDY in (job["metadata"].get("annotations") or {}) and uid not in self.points and has_begun(job):
                chosen.append(job)
        if not wanted and not chosen:
            return
        try:
            async with self._open(self._ebb) as files:
                turns = asyncio.Semaphore(AT_ONCE)
                points = (self._read_point(files, job, turns) for job in chosen)
                await asyncio.gather(*(self._read(files, job, turns) for job in wanted), *points)
        except (ClientError, KubeError, OSError) as error:
            if not self._noted:
                self._noted = True
                self._note(
                    f"the runs' files cannot be read, so the values are the last that the platform saw: {str(error).rstrip('.')}."
                )

    async def _read(self, files: ResultFiles, job: Object, turns: asyncio.Semaphore) -> None:
        async with turns:
            self.found[job["metadata"]["uid"]] = await read_final(files, job_folder(job), self._metric)

    async def _read_point(self, files: ResultFiles, job: Object, turns: asyncio.Semaphore) -> None:
        async with turns:
            if point := point_in(await _tail(files, job["metadata"]["annotations"][ANNOTATION_STUDY])):
                self.points[job["metadata"]["uid"]] = point


async def read_final(files: ResultFiles, folder: str, metric: SweepMetric) -> FinalFigures:
    """Raises ClientError, KubeError; what is not there is none. Only files that may hold the metric are read."""
    lines = _rows(await _tail(files, f"{folder}/{LINES}"))
    line: Mapping[str, Any] = next((row for row in reversed(lines) if type(row.get("step")) is int), {})
    if metric.name in METRICS:
        return FinalFigures(line=line)
    result = _rows((await _tail(files, f"{folder}/{RESULT}")).replace(b"\n", b" ") + b"\n")
    validations = _rows(await _tail(files, f"{folder}/{VALIDATIONS}"))
    return FinalFigures(line=line, result=result[0] if result else {}, validations=tuple(validations))


async def _tail(files: ResultFiles, path: str) -> bytes:
    """The end of a file, which may begin within a line; b"" where it is not there."""
    try:
        start = max(0, (await files.stat(path)).size - TAIL_BYTES)
        return b"".join([piece async for piece in files.read(path, start)])
    except Missing:
        return b""


def _rows(content: bytes) -> list[dict[str, Any]]:
    """JSON lines; what is none, such as one that was cut off by a kill, is left out."""
    found = []
    for text in content.split(b"\n"):
        try:
            row = json.loads(text)
        except ValueError:
            continue
        if isinstance(row, dict):
            found.append(row)
    return found


def _gateway(ebb: Ebb) -> AbstractAsyncContextManager[ResultFiles]:
    from ebb.client.files.transfer import gateway  # noqa: PLC0415 - a sweep that is still to come needs none of it

    return gateway(ebb)
