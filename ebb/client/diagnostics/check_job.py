"""A job that measures something, for `ebb check network` and `ebb check storage`: sent, read while it runs, and deleted.

    prepared = prepare_check_job(ebb, "storage", ("-m", ...), asked)   # nothing is sent; estimate(prepared): its price
    await run_check_job(ebb, prepared, reading, note=print, show=show)

The job's program prints its figures, and a reading takes them from its log as they come. The job ends by itself after
LIMIT_SECONDS, and Kubernetes deletes it ten minutes later if this process has ended before it could.
"""

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ebb.client.errors import ClientError
from ebb.client.jobs.view import FINISHED, JobView, stage
from ebb.client.logs import Line, follow_logs
from ebb.client.platform.connection import Ebb
from ebb.client.submission.fit import price
from ebb.client.submission.request import Request
from ebb.client.submission.submit import Prepared, prepare, submit
from ebb.kube import ELASTIC_JOBS, KubeError, NotFound, Object

LIMIT_SECONDS = 1800  # from its first worker on; machines that boot are in it
USUAL_SECONDS = 300  # with the start of its workers
_KEEP_SECONDS = 600
_LAST_LINES = 12

Show = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The words on the command line that say on which machines a check runs."""

    gpus: int
    gpu: str | None = None
    zone: str | None = None
    capacity: str | None = None
    image: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckEstimate:
    """USD: of the usual time, and of all the time that the job may take."""

    machines: int
    usd: float
    usd_at_most: float
    seconds: int = USUAL_SECONDS
    seconds_at_most: int = LIMIT_SECONDS


class CheckReading(Protocol):
    """Figures, from the lines of the job's log."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def done(self) -> int: ...

    @property
    def total(self) -> int: ...

    @property
    def newest(self) -> str: ...

    def feed(self, text: str) -> bool:
        """Return whether the line is one of them."""


def fields_of(text: str, word: str) -> dict[str, Any] | None:
    """The JSON object after the word; None where the line is no figure."""
    _, mark, rest = text.partition(f"{word} {{")
    try:
        said = json.loads(f"{{{rest}") if mark else None
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def prepare_check_job(ebb: Ebb, kind: str, arguments: tuple[str, ...], asked: CheckOptions) -> Prepared:
    """Return the job that would be sent, with all of its GPUs or none. Raises BadRequest."""
    request = Request(
        name=f"{kind}-check-{secrets.token_hex(2)}",
        arguments=arguments,
        gpus=asked.gpus,
        min_gpus=asked.gpus,
        max_gpus=asked.gpus,
        gpu=asked.gpu,
        zone=asked.zone,
        capacity=asked.capacity,
        image=asked.image,
    )
    prepared = prepare(ebb, request)
    limits = {"activeDeadlineSeconds": LIMIT_SECONDS, "ttlSecondsAfterFinished": _KEEP_SECONDS, "backoffLimit": 0}
    prepared.body["spec"].update(limits)
    return prepared


def estimate(prepared: Prepared) -> CheckEstimate:
    assert prepared.fit is not None
    found = price(prepared.fit, prepared.fit.workers)
    hourly = found.usd_per_hour / 3600
    return CheckEstimate(machines=found.machines, usd=hourly * USUAL_SECONDS, usd_at_most=hourly * LIMIT_SECONDS)


class _Sink:
    """The job's log: figures are read, other lines kept for the case that it fails."""

    def __init__(self, reading: CheckReading, note: Callable[[str], None], show: Show) -> None:
        self.reading, self.note, self._show = reading, note, show
        self.last: list[str] = []
        self._begun = False

    def line(self, worker: int, line: Line) -> None:
        if not self.reading.feed(line.text):
            self.last = [*self.last[1 - _LAST_LINES :], f"w{worker} | {line.text}"]
            return
        self._begun = True
        self._show(self.reading.done, self.reading.total, self.reading.newest)

    def job(self, job: Object) -> None:
        """Show how far it is, until it says so itself."""
        if not self._begun and (text := stage(job)):
            self._show(0, self.reading.total, text)


async def run_check_job(ebb: Ebb, prepared: Prepared, reading: CheckReading, *, note: Callable[[str], None], show: Show) -> None:
    """Run the job to its end and delete it, also when this is cancelled. Raises ClientError where it has no result, KubeError."""
    sink = _Sink(reading, note, show)
    name = prepared.body["metadata"]["name"]
    try:
        job = await submit(ebb, prepared.body, note=note)
        ended = await follow_logs(ebb.kube, job.namespace, name, sink, on_change=sink.job)
    finally:
        await _remove(ebb, name, note)
    if ended.state != FINISHED or not reading.is_complete:
        raise ClientError(_failure(ended, sink.last))


async def _remove(ebb: Ebb, name: str, note: Callable[[str], None]) -> None:
    """Its name is known to nobody else, and it may be there although its submission was not answered."""
    try:
        with suppress(NotFound):
            await ebb.kube.delete(ELASTIC_JOBS, ebb.namespace, name)
    except KubeError as error:
        minutes = (LIMIT_SECONDS + _KEEP_SECONDS) // 60
        note(f"{name} could not be deleted ({error}): `ebb delete {name}` does; by itself it is gone after {minutes} min.")


def _failure(ended: JobView, last: list[str]) -> str:
    lines = "".join(f"\n{line}" for line in last)
    return f"the check has no result: its job {ended.name} is {ended.state}{f', {ended.detail}' if ended.detail else ''}.{lines}"
