"""Who trained when and where: a job's time, cut where its membership changed, and the machine time that it paid for. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ebb.api.clock import unix
from ebb.api.status import PLACED
from ebb.client.jobs.view import JobView
from ebb.client.report.lines import Training


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """From the first to the last step of one membership."""

    seconds: float
    until: float
    workers: int
    generation: int
    zone: str  # "": not known


class Zones:
    """Where the job was when, by its history."""

    def __init__(self, job: JobView) -> None:
        placed = [item for item in job.history if item.what == PLACED and item.at]
        self._times = [unix(item.at) or 0.0 for item in placed]
        self._names = [item.cause for item in placed]
        self._now = job.zone

    def at(self, moment: float) -> str:
        if not self._times:
            return self._now
        index = bisect_right(self._times, moment)
        return self._names[index - 1] if index else ""  # older than the history reaches


def stretches_of(training: Training, zones: Zones, *, begin: float, end: float | None, ranks: int) -> tuple[Stretch, ...]:
    """One for each membership; the last goes on until `end` while the job runs."""
    if training.first_time is None:
        return ()
    last = end or float(training.last["time"])
    starts = [(training.first_time, training.first_world_size, 0)]
    starts += [(change.until, change.after, change.generation) for change in training.changes]
    ends = [change.at for change in training.changes] + [last]
    return tuple(
        Stretch(
            seconds=round(at - begin, 3),
            until=round(until - begin, 3),
            workers=-(-world // max(1, ranks)),
            generation=generation,
            zone=zones.at(at),
        )
        for (at, world, generation), until in zip(starts, ends, strict=True)
        if until >= at
    )


class Paid:
    """Machine seconds paid for until a moment. The platform knows their sum alone: machines are paid for while their workers meet
    anew, and what the stretches do not account for was paid just before the first step, while the workers started."""

    def __init__(self, stretches: Sequence[Stretch], *, end: float, total: float) -> None:
        """`total` until `end`; 0: not known, then only the stretches count."""
        moments = [(each.seconds, each.workers) for each in stretches] or [(0.0, 1)]
        until = [*(at for at, _ in moments[1:]), max(end, moments[-1][0])]
        known = sum(workers * (stop - at) for (at, workers), stop in zip(moments, until, strict=True))
        first, workers = moments[0]
        before = min(first, max(0.0, total - known) / max(1, workers))
        scale = total / (known + before * workers) if total and known else 1.0
        self.corners: list[tuple[float, float]] = [(0.0, 0.0), (first - before, 0.0), (first, before * workers * scale)]
        for (at, held), stop in zip(moments, until, strict=True):
            self.corners.append((stop, self.corners[-1][1] + held * (stop - at) * scale))

    @property
    def total(self) -> float:
        return self.corners[-1][1]

    def until(self, moment: float) -> float:
        index = bisect_right(self.corners, moment, key=lambda corner: corner[0])
        if index == len(self.corners):
            return self.total
        (at, low), (later, high) = self.corners[max(0, index - 1)], self.corners[index]
        return low + (high - low) * (moment - at) / (later - at) if later > at else low
