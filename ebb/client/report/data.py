"""Plain records of a report: a job's view, its reduced metric lines and its history -> `RunReport`; of a sweep all of them. Pure.

    run = run_report(view(job), reader.done(), ranks_per_worker=1, now=time.time(), source="metrics.jsonl")

The field names are what `ebb report -o json` prints: they are only added to. Seconds count from the job's submission.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ebb.api.clock import stamp, unix
from ebb.api.status import HISTORY_LENGTH, LEFT, PLACED, PROGRAM_FAILED, RECLAIMED, STALL
from ebb.client.jobs.goodput import share
from ebb.client.jobs.view import OVER, Happening, JobView, describe
from ebb.client.report.lines import Change, Range, Training, number
from ebb.client.sweep.results import SweepMetric, best_of


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """From the first to the last step of one membership."""

    seconds: float
    until: float
    workers: int
    generation: int
    zone: str  # "": not known


class Zones:
    """Zones of a job over time, by its history."""

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


LOSSES = frozenset({RECLAIMED, LEFT, PROGRAM_FAILED, STALL})  # after which the workers meet anew
NEAR_SECONDS = 120.0  # a loss that is noticed later than this after a pause has not caused it


@dataclass(frozen=True, kw_only=True)
class Value:
    """A number over the lines that share a point."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Point:
    """Some metric lines in a row, at the moment of the last of them."""

    seconds: float
    step: int
    samples: int | None  # None: the global batch is not known
    loss: Value | None
    samples_per_second: Value | None
    goodput: float | None  # until then
    figures: dict[str, Value]
    redone: bool  # its steps were done again later


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the job's history, with what it cost where that is known."""

    seconds: float
    at: str
    what: str
    worker: int | None
    machine: str
    zone: str
    cause: str
    sentence: str
    loss: bool  # a worker was lost
    pause_seconds: float | None  # without a step
    steps_redone: int | None


@dataclass(frozen=True, kw_only=True)
class Times:
    """Breakdown of the job's time; None where no line says it."""

    total: float
    waiting: float | None
    useful: float | None
    lost: float | None
    other: float | None  # evaluations, checkpoints


@dataclass(frozen=True, kw_only=True)
class Money:
    """Until that moment, spread over the job's time by its workers; the last one holds the platform's own sums."""

    seconds: float
    usd_spent: float
    usd_on_demand: float


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One job."""

    job: JobView
    begin: str  # of the seconds; RFC 3339
    source: str  # where the figures are from
    notes: tuple[str, ...]  # what is missing, and why
    global_batch: int | None
    lines: int
    points: tuple[Point, ...]
    stretches: tuple[Stretch, ...]
    events: tuple[Event, ...]
    times: Times
    goodput: float | None  # the share of the paid machine time that trained: goodput.py
    money: tuple[Money, ...]

    @property
    def begin_seconds(self) -> float:
        return unix(self.begin) or 0.0


def run_report(
    job: JobView,
    training: Training,
    *,
    now: float,
    source: str,
    ranks_per_worker: int = 1,
    paid_seconds: float = 0.0,
    notes: Sequence[str] = (),
) -> RunReport:
    """`now`: unix seconds; the end of a job that goes on. `paid_seconds`: of machines until then, as the platform counts; 0: it
    does not say."""
    begin = min(filter(None, (unix(job.created), unix(job.started), training.first_time)), default=now)
    last = number(training.last.get("time"))
    ended = unix(job.ended) or (last if job.state in OVER else None)
    end = ended or now
    zones = Zones(job)
    held = end if ended or job.workers or last is None else last  # machines, until then
    stretches = stretches_of(training, zones, begin=begin, end=last if ended else held, ranks=ranks_per_worker)
    paid = Paid(stretches, end=max(0.0, held - begin), total=paid_seconds)
    points = _points(training, paid, begin, max(1, ranks_per_worker))
    return RunReport(
        job=job,
        begin=stamp(begin, digits=3),
        source=source,
        notes=(*notes, *_notes(job, training)),
        global_batch=training.global_batch,
        lines=training.lines,
        points=points,
        stretches=stretches,
        events=tuple(_event(item, training.changes, zones, begin) for item in job.history),
        times=_times(training, begin, end),
        goodput=points[-1].goodput if points and job.goodput is None else job.goodput,
        money=_money(job, paid),
    )


def _points(training: Training, paid: Paid, begin: float, ranks: int) -> tuple[Point, ...]:
    found: list[Point] = []
    timed = "useful_seconds" in training.last  # a program that writes the lines itself may leave it out
    least = None  # of the steps that come later
    for span in reversed(training.spans):
        redone = least is not None and span.step >= least
        least = span.step if least is None else min(least, span.step)
        found.append(
            Point(
                seconds=round(span.time - begin, 3),
                step=span.step,
                samples=min(span.step * training.global_batch, training.samples) if training.global_batch else None,
                loss=_value(span.loss),
                samples_per_second=_value(span.rate),
                goodput=share(span.useful_rank_seconds / ranks, paid.until(span.time - begin)) if timed else None,
                figures={name: value for name, each in span.figures.items() if (value := _value(each))},
                redone=redone,
            )
        )
    return tuple(reversed(found))


def _value(found: Range) -> Value | None:
    return None if found.mean is None else Value(low=found.low, mean=found.mean, high=found.high)


def _event(item: Happening, changes: Sequence[Change], zones: Zones, begin: float) -> Event:
    at = unix(item.at) or begin
    pause = _pause(at, changes) if item.what in LOSSES else None
    return Event(
        seconds=round(at - begin, 3),
        at=item.at,
        what=item.what,
        worker=item.worker,
        machine=item.machine,
        zone=item.cause if item.what == PLACED else zones.at(at),
        cause=item.cause,
        sentence=describe(item),
        loss=item.what in LOSSES,
        pause_seconds=None if pause is None else round(pause.seconds, 2),
        steps_redone=None if pause is None else pause.steps_redone,
    )


def _pause(at: float, changes: Sequence[Change]) -> Change | None:
    """The change of membership that belongs to a loss: the nearest that made the job smaller, else the nearest."""

    def distance(change: Change) -> float:
        return max(change.at - at, at - change.until, 0.0)

    near = [change for change in changes if distance(change) <= NEAR_SECONDS]
    return min(near, key=lambda change: (change.after > change.before, distance(change)), default=None)


def _times(training: Training, begin: float, end: float) -> Times:
    total, last = max(0.0, end - begin), training.last
    if training.first_time is None:
        return Times(total=total, waiting=None, useful=None, lost=None, other=None)
    since = max(begin, training.first_time - training.first_seconds)  # the first step began
    wall = max(0.0, last["time"] - since)
    useful, lost = number(last.get("useful_seconds")), number(last.get("lost_seconds"))
    known = useful is not None and lost is not None
    return Times(
        total=round(total, 3),
        waiting=round(max(0.0, since - begin), 3),
        useful=useful,
        lost=lost,
        other=round(max(0.0, wall - (useful or 0) - (lost or 0)), 3) if known else None,
    )


def _money(job: JobView, paid: Paid) -> tuple[Money, ...]:
    """Prices of a job's machines do not differ by much, so money goes with machine time."""
    spent, on_demand = job.usd_spent, job.usd_on_demand
    if spent is None or on_demand is None:
        return ()
    shares = [(at, seconds / (paid.total or 1.0)) for at, seconds in paid.corners]
    return tuple(
        Money(seconds=round(at, 3), usd_spent=round(spent * share, 6), usd_on_demand=round(on_demand * share, 6))
        for at, share in shares
    )


def _notes(job: JobView, training: Training) -> list[str]:
    notes = []
    if training.unreadable:
        notes.append(f"{training.unreadable} metric lines were cut off or could not be read; they are left out.")
    if training.not_numbers:
        notes.append(f"In {training.not_numbers} of {training.lines} lines the loss is not a number; the curve has gaps there.")
    if training.changes_left_out:
        notes.append(f"{training.changes_left_out} short changes of the membership are left out.")
    if len(job.history) >= HISTORY_LENGTH:
        notes.append(f"The platform keeps the last {HISTORY_LENGTH} events of a job; earlier ones are not in the table.")
    return notes


@dataclass(frozen=True, kw_only=True)
class RunOfSweep:
    """One run: the job's name, what was varied for it, and the command that starts it again alone ("" if it is not known)."""

    job: str
    settings: str
    command: str
    report: RunReport
    last_loss: float | None = None  # of its last line, or what the platform last saw: client/sweep/results.py
    value: float | None = None  # the metric by which the runs are compared
    step: int | None = None

    @property
    def median_rate(self) -> float | None:
        known = sorted(point.samples_per_second.mean for point in self.report.points if point.samples_per_second)
        return known[len(known) // 2] if known else self.report.job.samples_per_second


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """All runs, in the order of their settings. `best`: the job with the best metric, "" while none has one."""

    name: str
    namespace: str
    best: str
    runs: tuple[RunOfSweep, ...]
    metric: str = "loss"
    mode: str = "min"

    @property
    def source(self) -> str:
        return "; ".join(dict.fromkeys(run.report.source for run in self.runs))

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the runs, each with its run."""
        return tuple(f"{run.job}: {note}" for run in self.runs for note in run.report.notes)


def sweep_report(name: str, namespace: str, runs: Sequence[RunOfSweep], metric: SweepMetric | None = None) -> SweepReport:
    metric = metric or SweepMetric()
    best = best_of({run.job: run.value for run in runs}, metric)
    return SweepReport(name=name, namespace=namespace, best=best, runs=tuple(runs), metric=metric.name, mode=metric.mode)
