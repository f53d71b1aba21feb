"""Plots of a job's report, each with its summary in words: `RunReport` -> `Chart`s. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeVar

from ebb.client.report.chart import (
    XY,
    Axis,
    Chart,
    Curve,
    Mark,
    Strip,
    axis,
    count_axis,
    duration,
    log_axis,
    percent,
    seconds_axis,
    short,
    usd,
    whole_axis,
)
from ebb.client.report.data import Point, RunReport, Value

T = TypeVar("T")

WORKERS = "Workers and zones"
ROWS = 12  # of the numbers under a plot
NOTCHES = 300  # a pause shorter than this part of the time is too narrow to be drawn
LOG_FROM = 100.0  # losses that differ by more than this factor are shown by their logarithm


def charts(run: RunReport) -> list[Chart]:
    """Those that there are figures for."""
    found = [loss_over_time(run), loss_over_samples(run), rate_over_time(run), rate_over_samples(run)]
    found += [figure_over_samples(run, name) for name in _figure_names(run)]
    found += [workers(run), goodput(run), money(run)]
    drawn = [each for each in found if each is not None]
    if len(drawn) % 2:  # no hole in the second column
        drawn = [replace(each, wide=each.title == WORKERS) for each in drawn]
    return drawn


def loss_over_time(run: RunReport) -> Chart | None:
    return _curve("Loss against time", "loss", [(point, point.loss) for point in run.points], _time(run), says=_says_loss(run))


def loss_over_samples(run: RunReport) -> Chart | None:
    kept = [(point, point.loss) for point in run.points if not point.redone]
    return _curve("Loss against samples", "loss", kept, _samples(run), says=_says_loss(run))


def rate_over_time(run: RunReport) -> Chart | None:
    pairs = [(point, point.samples_per_second) for point in run.points]
    return _curve("Rate against time", "samples/s", pairs, _time(run), says=_says_rate(run), colour=4, from_zero=True)


def rate_over_samples(run: RunReport) -> Chart | None:
    kept = [(point, point.samples_per_second) for point in run.points if not point.redone]
    return _curve("Rate against samples", "samples/s", kept, _samples(run), says=_says_rate(run), colour=4, from_zero=True)


def figure_over_samples(run: RunReport, name: str) -> Chart | None:
    """One of the program's own figures, such as an accuracy."""
    kept = [(point, point.figures.get(name)) for point in run.points if not point.redone]
    last = next((value for _, value in reversed(kept) if value), None)
    says = f"The program's own figure {name}" + (f": {short(last.mean)} at the end." if last else ".")
    return _curve(f"{name} against samples", name, kept, _samples(run), says=says, colour=5, log=False)


def workers(run: RunReport) -> Chart | None:
    """White notches are the seconds without a step, where they are wide enough to be seen."""
    if not run.stretches:
        return None
    axis, points = _time_axis(run), list[XY]([(0.0, 0.0)])
    narrow = (axis.high - axis.low) / NOTCHES
    for each, later in zip_longest(run.stretches, run.stretches[1:]):
        points.append((each.seconds, float(each.workers)))
        if later is None or later.seconds - each.until > narrow:
            points.append((each.until, 0.0))
    most = max(each.workers for each in run.stretches)
    zones = list(dict.fromkeys(each.zone for each in run.stretches if each.zone))
    lost = max(run.job.reclaims, sum(event.loss for event in run.events))  # the history may have forgotten some
    where = f"in {', then '.join(zones)}" if zones else "in a zone that is not known"
    changes = len(run.stretches) - 1
    return Chart(
        title=WORKERS,
        says=f"At most {most} trained together, {where}. Who trains together changed {times(changes)}; "
        f"{times(lost)} a worker was lost.",
        x=axis,
        y=whole_axis(max(most, run.job.max_workers if run.job.max_workers <= 2 * most else most)),
        x_name="since submission",
        y_name="workers that train",
        lines=(Curve(name="workers", points=points, colour=2, steps=True, filled=True),),
        marks=_marks(run),
        strips=_strips(run, zones),
        head=("From", "Until", "Workers", "Zone", "Generation"),
        rows=[
            (duration(each.seconds), duration(each.until), str(each.workers), each.zone or "-", str(each.generation))
            for each in sampled(run.stretches)
        ],
    )


def goodput(run: RunReport) -> Chart | None:
    points = [(point.seconds, point.goodput) for point in run.points]
    if run.goodput is None:
        return None
    return Chart(
        title="Goodput",
        says=f"{percent(run.goodput)} of the paid machine time went into steps that count; the rest into starting, meeting "
        "anew after reclaims, steps done again, checkpoints and evaluations.",
        x=_time_axis(run),
        y=axis(0.0, 1.0, write=percent, kind="percent"),
        x_name="since submission",
        y_name="share of the paid machine time until then",
        lines=(Curve(name="goodput", points=points, colour=3),),
        marks=_marks(run),
        head=("Time", "Goodput"),
        rows=[(duration(x), percent(y)) for x, y in sampled([(x, y) for x, y in points if y is not None])],
    )


def money(run: RunReport) -> Chart | None:
    if not run.money:
        return None
    last = run.money[-1]
    saved = last.usd_on_demand - last.usd_spent
    share = f", {percent(saved / last.usd_on_demand)} less" if last.usd_on_demand else ""
    return Chart(
        title="Money against on-demand",
        says=f"{usd(last.usd_spent)} spent; the same machines cost {usd(last.usd_on_demand)} on demand{share}. Spot prices are "
        "assumed; between start and end the sums are spread by machine time.",
        x=_time_axis(run),
        y=axis(0.0, max(last.usd_on_demand, last.usd_spent), write=usd, kind="usd"),
        x_name="since submission",
        y_name="US dollars",
        lines=(
            Curve(name="on demand", points=[(each.seconds, each.usd_on_demand) for each in run.money], colour=1),
            Curve(name="spent", points=[(each.seconds, each.usd_spent) for each in run.money], colour=2),
        ),
        legend=True,
        head=("Time", "Spent", "On demand"),
        rows=[(duration(each.seconds), usd(each.usd_spent), usd(each.usd_on_demand)) for each in sampled(run.money)],
    )


def times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def sampled(items: Sequence[T]) -> list[T]:
    """At most ROWS of them, the last among them."""
    if len(items) <= ROWS:
        return list(items)
    return [items[index * (len(items) - 1) // (ROWS - 1)] for index in range(ROWS)]


def value_axis(values: Sequence[Value], *, from_zero: bool = False, log: bool = True) -> Axis:
    """Fits the means; a band may be cut, so that one wild step does not flatten the curve."""
    low, high = min(value.mean for value in values), max(value.mean for value in values)
    if from_zero:
        return axis(0.0, max(high, 0.0))
    if log and low > 0 and high / low > LOG_FROM:
        return log_axis(low, high)
    return axis(0.0 if 0 <= low < high / 3 else low, high)


@dataclass(frozen=True, kw_only=True)
class _Across:
    """The x axis of a curve."""

    axis: Axis
    name: str
    unit: str
    write: Callable[[float], str]
    where: Callable[[Point], float]
    marks: Sequence[Mark] = ()


def _time(run: RunReport) -> _Across:
    return _Across(
        axis=_time_axis(run),
        name="since submission",
        unit="time",
        write=duration,
        where=lambda point: point.seconds,
        marks=_marks(run),
    )


def _samples(run: RunReport) -> _Across:
    """Against steps where the global batch is not known."""
    unit = "samples" if run.global_batch else "steps"
    most = max((point.step if point.samples is None else point.samples for point in run.points), default=0)
    return _Across(
        axis=count_axis(0.0, float(most)),
        name=f"{unit} trained on" if run.global_batch else unit,
        unit=unit,
        write=short,
        where=lambda point: float(point.step if point.samples is None else point.samples),
    )


def _curve(
    title: str,
    name: str,
    pairs: Sequence[tuple[Point, Value | None]],
    across: _Across,
    *,
    says: str,
    colour: int = 0,
    from_zero: bool = False,
    log: bool = True,
) -> Chart | None:
    placed = [(across.where(point), value) for point, value in pairs]
    known = [(at, value) for at, value in placed if value is not None]
    if not known:
        return None
    y = value_axis([value for _, value in known], from_zero=from_zero, log=log)
    spread = any(value.high > value.low for _, value in known)
    band = [(at, max(value.low, y.low), min(value.high, y.high)) for at, value in known] if spread else ()
    more = " The band is from the least to the greatest of the lines that share a point." if spread else ""
    points = [(at, value.mean if value else None) for at, value in placed]
    return Chart(
        title=title.replace("against samples", f"against {across.unit}"),
        says=says + more,
        x=across.axis,
        y=y,
        x_name=across.name,
        y_name=f"{name}, logarithmic" if y.log else name,
        lines=(Curve(name=name, points=points, band=band, colour=colour),),
        marks=across.marks,
        head=(across.unit.capitalize(), name),
        rows=[(across.write(at), short(value.mean)) for at, value in sampled(known)],
    )


def _time_axis(run: RunReport) -> Axis:
    """All plots of time have the same, so that a dent in one is found in the others. A long wait at the beginning is left out."""
    end = max([run.times.total, *(point.seconds for point in run.points[-1:])])
    waited = run.times.waiting or 0.0
    return seconds_axis(waited - 0.05 * (end - waited) if waited > end / 2 else 0.0, end)


def _marks(run: RunReport) -> list[Mark]:
    axis = _time_axis(run)
    return [
        Mark(x=event.seconds, text=event.sentence)
        for event in run.events
        if event.loss and axis.low <= event.seconds <= axis.high
    ]


def _strips(run: RunReport, zones: list[str]) -> list[Strip]:
    """Neighbouring stretches in one zone are one piece."""
    axis, found = _time_axis(run), list[Strip]()
    for each in run.stretches:
        text, colour = each.zone or "zone not known", zones.index(each.zone) if each.zone else 7
        start, until = max(each.seconds, axis.low), min(each.until, axis.high)
        if found and found[-1].text == text:
            found[-1] = Strip(x=found[-1].x, until=until, text=text, colour=colour)
        elif until >= start:
            found.append(Strip(x=start, until=until, text=text, colour=colour))
    return found


def _figure_names(run: RunReport) -> list[str]:
    return list(dict.fromkeys(name for point in run.points for name in point.figures))


def _says_loss(run: RunReport) -> str:
    known = [point for point in run.points if point.loss]
    if not known or not known[0].loss or not known[-1].loss:
        return ""
    return f"From {short(known[0].loss.mean)} to {short(known[-1].loss.mean)} in {short(known[-1].step)} steps."


def _says_rate(run: RunReport) -> str:
    known = sorted(point.samples_per_second.mean for point in run.points if point.samples_per_second)
    return f"The median is {short(known[len(known) // 2])} samples/s, all workers together." if known else ""
