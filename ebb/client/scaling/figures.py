"""Figures of scaling: the reports of one job per size -> speed-up, efficiency and cost per epoch. Pure.

The field names are what `ebb bench scaling -o json` prints: they are only added to.

An epoch's time is that of its steps. Machines that boot, the start of the program, validation and checkpoints are not in it, nor
is what a reclaim costs; the cost is the whole bill of the job, in which all of that is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ebb.client.jobs.view import FINISHED, JobView
from ebb.client.report.data import RunReport


@dataclass(frozen=True, kw_only=True)
class SizeFigures:
    """One epoch on so many GPUs. Speed-up and ideal are in times of the smallest size; None: not known, or not yet."""

    gpus: int
    job: str
    state: str  # "missing" before it is submitted
    workers: int
    gpu_type: str
    capacity: str
    zone: str
    network: str
    reclaims: int
    steps: int | None
    epoch_seconds: float | None
    samples_per_second: float | None
    speed_up: float | None
    ideal: float
    efficiency: float | None
    usd: float | None  # of the job, its machines' boot and its validation included
    usd_on_demand: float | None
    source: str = ""  # of the time


@dataclass(frozen=True, kw_only=True)
class ScalingReport:
    """All sizes of one measurement, the smallest first."""

    name: str
    namespace: str
    program: str
    sizes: tuple[SizeFigures, ...]
    notes: tuple[str, ...] = ()  # what is missing, and why

    @property
    def measured(self) -> tuple[SizeFigures, ...]:
        return tuple(size for size in self.sizes if size.epoch_seconds is not None)


MISSING = "missing"


def scaling_report(
    name: str, namespace: str, program: str, jobs: Mapping[int, str], found: Mapping[int, RunReport]
) -> ScalingReport:
    """`jobs`: the job of each size; `found`: the reports of those that are there."""
    times = {gpus: epoch_seconds(found[gpus]) if gpus in found else None for gpus in sorted(jobs)}
    first = next((gpus for gpus, seconds in times.items() if seconds), min(jobs))
    notes = [f"{gpus_text(gpus)}: {note}" for gpus in times if gpus in found for note in found[gpus].notes]
    notes += [
        f"{gpus_text(gpus)}: {times[gpus]:.0f} s are few for an epoch; its slow first steps weigh much. Use more data."
        for gpus in times
        if (times[gpus] or SHORT_SECONDS) < SHORT_SECONDS
    ]
    sizes = tuple(
        _size(gpus, jobs[gpus], found.get(gpus), seconds, first=first, first_seconds=times[first])
        for gpus, seconds in times.items()
    )
    return ScalingReport(name=name, namespace=namespace, program=program, sizes=sizes, notes=tuple(notes))


SHORT_SECONDS = 20.0


def epoch_seconds(run: RunReport) -> float | None:
    """Of a job that has finished, by its own lines; by the platform's status where those cannot be read."""
    if run.job.state != FINISHED:
        return None
    if run.times.useful:
        return run.times.useful
    rate, steps = run.job.steps_per_second, run.job.total_steps or run.job.step
    return steps / rate if rate and steps else None


def _size(
    gpus: int, name: str, run: RunReport | None, seconds: float | None, *, first: int, first_seconds: float | None
) -> SizeFigures:
    job: JobView | None = run.job if run else None
    speed_up = first_seconds / seconds if seconds and first_seconds else None
    ideal = gpus / first
    return SizeFigures(
        gpus=gpus,
        job=name,
        state=job.state if job else MISSING,
        workers=job.wanted_workers if job else 0,
        gpu_type=job.gpu_type if job else "",
        capacity=job.capacity if job else "",
        zone=job.zone if job else "",
        network=job.network if job else "",
        reclaims=job.reclaims if job else 0,
        steps=(job.total_steps or job.step) if job else None,
        epoch_seconds=None if seconds is None else round(seconds, 3),
        samples_per_second=_rate(run, seconds),
        speed_up=None if speed_up is None else round(speed_up, 4),
        ideal=ideal,
        efficiency=None if speed_up is None else round(speed_up / ideal, 4),
        usd=job.usd_spent if job and job.state == FINISHED else None,
        usd_on_demand=job.usd_on_demand if job and job.state == FINISHED else None,
        source=run.source if run and seconds else "",
    )


def _rate(run: RunReport | None, seconds: float | None) -> float | None:
    """Samples of the epoch through its time; the platform's last figure where nobody says how many there were."""
    if run is None or not seconds:
        return None
    samples = next((point.samples for point in reversed(run.points) if point.samples), None)
    return round(samples / seconds, 3) if samples else run.job.samples_per_second


def extremes(report: ScalingReport) -> tuple[SizeFigures, SizeFigures] | None:
    """The smallest and the largest size that were measured; None before the first."""
    measured: Sequence[SizeFigures] = report.measured
    return (measured[0], measured[-1]) if measured else None


def gpus_text(number: int) -> str:
    """1 GPU, 2 GPUs."""
    return f"{number} GPU" + "s" * (number != 1)
