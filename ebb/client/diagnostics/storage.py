"""`ebb check storage`: a small job that measures a volume from its machines at once, beside what a job needs of it.

    prepared = prepare_check(ebb, StorageOptions(gpus=4, volume="data"))      # nothing is sent; estimate(prepared): its price
    report = await check_storage(ebb, prepared, need, note=print, show=show)  # the job is deleted, whatever happens
    report.finding.level, report.finding.text, report.finding.fix

The job runs ebb/elastic/storagecheck; check_job.py sends, follows and deletes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ebb.api.contract import STORAGE_LINE
from ebb.api.platform import Volume
from ebb.client.diagnostics.check_job import CheckOptions, Show, fields_of, prepare_check_job, run_check_job
from ebb.client.diagnostics.symptoms import Finding, ok, problem
from ebb.client.errors import BadRequest
from ebb.client.platform.connection import Ebb
from ebb.client.submission.submit import Prepared

PROGRAM = ("-m", "ebb.elastic.storagecheck")
FIGURES = 5
SAMPLE_BYTES = 110_000  # a photograph of ImageNet, in the mean
READ, SMALL_READ = "read", "small-read"


@dataclass(frozen=True, kw_only=True)
class StorageOptions(CheckOptions):
    """The words on the command line."""

    volume: str = "data"
    sample_bytes: int = SAMPLE_BYTES


@dataclass(frozen=True, kw_only=True)
class StorageFigure:
    """One kind of access, from all machines at once. `least_bytes_per_second`: of the slowest machine."""

    operation: str
    bytes: int
    operations: int
    bytes_per_second: float
    per_second: float
    least_bytes_per_second: float


@dataclass(frozen=True, kw_only=True)
class StorageNeed:
    """The speed that a job asks of the volume. `job`: whose speed that is, "" where it was given."""

    samples_per_second: float
    sample_bytes: int
    job: str = ""

    @property
    def bytes_per_second(self) -> float:
        return self.samples_per_second * self.sample_bytes


@dataclass(frozen=True, kw_only=True)
class StorageReport:
    """Result of `ebb check storage`. `needed_bytes_per_second`: None where no need was given."""

    job: str
    path: str
    machines: int
    figures: tuple[StorageFigure, ...]
    need: StorageNeed | None
    needed_bytes_per_second: float | None
    finding: Finding


def prepare_check(ebb: Ebb, asked: StorageOptions) -> Prepared:
    """Return the job that would be sent. Raises BadRequest."""
    if asked.gpus < 1:
        raise BadRequest(f"gpus {asked.gpus} is too few: use --gpus 1 or more; those of one machine measure it once.")
    if asked.sample_bytes < 1:
        raise BadRequest(f"sample-bytes {asked.sample_bytes} is too few: use --sample-bytes 1 or more.")
    volume = _volume(ebb, asked.volume)
    arguments = (*PROGRAM, volume.mount_path, "--sample-bytes", str(asked.sample_bytes))
    return prepare_check_job(ebb, "storage", arguments, asked)


def _volume(ebb: Ebb, name: str) -> Volume:
    every = ebb.platform.seen_from(ebb.namespace).volumes
    found = next((one for one in every if one.name == name and not one.read_only), None)
    if found is None:
        usable = ", ".join(one.name for one in every if not one.read_only)
        raise BadRequest(f"volume {name!r} is none that jobs may write to: use {usable}.")
    return found


class StorageReading:
    """The figures, from the lines of the job's log; they begin anew where a machine was lost and its job began again."""

    total = FIGURES

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        self.figures: list[StorageFigure] = []
        self.is_complete = False

    def feed(self, text: str) -> bool:
        """Return whether the line is one of them."""
        said = fields_of(text, STORAGE_LINE)
        if said is None:
            return False
        kind = said.pop("kind", "")
        if kind == "start":
            self.start, self.figures, self.is_complete = said, [], False
        elif kind == "figure":
            self.figures.append(StorageFigure(**said))
        elif kind == "end":
            self.is_complete = True
        return True

    @property
    def done(self) -> int:
        return len(self.figures)

    @property
    def newest(self) -> str:
        return self.figures[-1].operation if self.figures else "starting"


async def check_storage(
    ebb: Ebb, prepared: Prepared, need: StorageNeed | None, *, note: Callable[[str], None], show: Show
) -> StorageReport:
    """Run the job to its end and delete it, also when this is cancelled. Raises ClientError where it has no result, KubeError."""
    reading = StorageReading()
    await run_check_job(ebb, prepared, reading, note=note, show=show)
    return report_of(prepared.body["metadata"]["name"], reading, need)


def report_of(job: str, reading: StorageReading, need: StorageNeed | None) -> StorageReport:
    """Pure."""
    figures = tuple(reading.figures)
    return StorageReport(
        job=job,
        path=reading.start["path"],
        machines=reading.start["machines"],
        figures=figures,
        need=need,
        needed_bytes_per_second=need.bytes_per_second if need else None,
        finding=judge(figures, need),
    )


def judge(figures: tuple[StorageFigure, ...], need: StorageNeed | None) -> Finding:
    """One sentence about the volume, and what to do about it."""
    by_name = {one.operation: one for one in figures}
    files, large = by_name[SMALL_READ].per_second, by_name[READ].bytes_per_second
    has = f"it gives {files:,.0f} files/s, and {rate_text(large)} of large ones"
    if need is None:
        return ok("storage", f"{has}; --job or --samples says what a job needs")
    whose = f"{need.job} reads" if need.job else "the job reads"
    asks = f"{whose} {need.samples_per_second:,.0f} samples/s, {rate_text(need.bytes_per_second)}"
    if files >= need.samples_per_second:
        return ok("storage", f"{asks}: {has}")
    if large >= need.bytes_per_second:
        fix = "Pack the data into shards once, which are read in large parts: python -m ebb.elastic.data convert FOLDER OUT."
        return problem("storage", f"{asks}: {has}, so as single files GPUs would wait for data", fix)
    fix = (
        "Ask the platform's owner for a faster volume (the throughput of EFS, FSx, Filestore and Azure Files grows with what is "
        "paid), or make samples smaller: python -m ebb.elastic.data convert --size 256 FOLDER OUT."
    )
    return problem("storage", f"{asks}: {has}, so GPUs would wait for data", fix)


def rate_text(rate: float) -> str:
    """12.3 MB/s; of 1000, as networks and volumes are sold."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if rate >= limit:
            return f"{rate / limit:.3g} {unit}/s" if rate < 999.5 * limit else f"{rate / limit:.0f} {unit}/s"
    return f"{rate:.0f} B/s"
