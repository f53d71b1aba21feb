"""A sweep's report: every run's, and which settings tell them apart. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from ebb.client.report.data import RunReport


@dataclass(frozen=True, kw_only=True)
class RunOfSweep:
    """One run: the job's name, what was varied for it, and the command that starts it again alone ("" if it is not known)."""

    job: str
    settings: str
    command: str
    report: RunReport

    @property
    def last_loss(self) -> float | None:
        """The mean of the last point's; else what the platform last saw."""
        known = [point.loss.mean for point in self.report.points if point.loss]
        return known[-1] if known else self.report.job.loss

    @property
    def median_rate(self) -> float | None:
        known = sorted(point.samples_per_second.mean for point in self.report.points if point.samples_per_second)
        return known[len(known) // 2] if known else self.report.job.samples_per_second


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """All runs, in the order of their settings. `best`: the job with the least loss, "" while none has one."""

    name: str
    namespace: str
    best: str
    runs: tuple[RunOfSweep, ...]

    @property
    def source(self) -> str:
        return "; ".join(dict.fromkeys(run.report.source for run in self.runs))

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the runs, each with its run."""
        return tuple(f"{run.job}: {note}" for run in self.runs for note in run.report.notes)


def sweep_report(name: str, namespace: str, runs: Sequence[RunOfSweep]) -> SweepReport:
    compared = [run for run in runs if run.last_loss is not None]
    best = min(compared, key=lambda run: run.last_loss or 0.0, default=None)
    return SweepReport(name=name, namespace=namespace, best=best.job if best else "", runs=tuple(runs))
