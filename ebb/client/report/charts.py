"""The plots of a report, each with its summary in words: a run's, and those that compare the runs of a sweep. Pure.

    for chart in run_charts(run): html += figure(chart)
    for chart in sweep_charts(sweep): html += figure(chart)

There is a plot only of what there are figures for. All plots of a run against time have the same axis, so that a dent in one is
found in the others, with a mark for each worker that was lost.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from operator import attrgetter
from typing import TypeVar

from ebb.client.report.chart import (
    COLOURS,
    XY,
    Axis,
    Chart,
    Curve,
    Mark,
    Strip,
    axis,
    duration,
    log_axis,
    percent,
    short,
    usd,
)
from ebb.client.report.data import Point, RunReport, SweepReport, Value

T = TypeVar("T")

WORKERS = "Workers and zones"
ROWS = 12  # of the numbers under a plot
NOTCHES = 300  # a pause shorter than this part of the time is too narrow to be drawn
LOG_FROM = 100.0  # losses that differ by more than this factor are shown by their logarithm
NAMED = 2 * COLOURS  # runs of a sweep: eight have a colour each, eight the same ones dashed, the others are thin
POINTS = 100  # of each run of a sweep, so that a thousand runs still make a page


def run_charts(run: RunReport) -> list[Chart]:
    loss, rate = _loss_in_words(run), _rate_in_words(run)
    own = dict.fromkeys(name for point in run.points for name in point.figures)
    found = [_curve(run, "Loss", "loss", attrgetter("loss"), over_time=each, says=loss) for each in (True, False)]
    found += [
        _curve(run, "Rate", "samples/s", attrgetter("samples_per_second"), over_time=each, says=rate, colour=4, from_zero=True)
        for each in (True, False)
    ]
    found += [_own_figure(run, name) for name in own]
    found += [_workers(run), _goodput(run), _money(run)]
    drawn = [each for each in found if each is not None]
    if len(drawn) % 2:  # no hole in the second column
        drawn = [replace(each, wide=each.title == WORKERS) for each in drawn]
    return drawn


def sweep_charts(sweep: SweepReport) -> list[Chart]:
    batches = all(run.report.global_batch for run in sweep.runs if run.report.points)
    found = [_losses(sweep, "samples" if batches else "steps"), _losses(sweep, "time"), _workers_of_all(sweep)]
    drawn = [chart for chart in found if chart is not None]
    return [replace(drawn[0], wide=True), *drawn[1:]] if len(drawn) % 2 else drawn


def _curve(
    run: RunReport,
    title: str,
    name: str,
    value: Callable[[Point], Value | None],
    *,
    over_time: bool,
    says: str,
    colour: int = 0,
    from_zero: bool = False,
    log: bool = True,
) -> Chart | None:
    """One number against time, or against samples, without the steps that were done again."""
    unit = "time" if over_time else "samples" if run.global_batch else "steps"
    placed = [(_place(point, unit), value(point)) for point in run.points if over_time or not point.redone]
    known = [(at, each) for at, each in placed if each is not None]
    if not known:
        return None
    y = _value_axis([each for _, each in known], from_zero=from_zero, log=log)
    spread = any(each.high > each.low for _, each in known)
    more = " The band is from the least to the greatest of the lines that share a point." if spread else ""
    return Chart(
        title=f"{title} against {unit}",
        says=says + more,
        x=_time_axis(run) if over_time else axis(0.0, max(_place(point, unit) for point in run.points), exact=True),
        y=y,
        x_name={"time": "since submission", "samples": "samples trained on", "steps": "steps"}[unit],
        y_name=f"{name}, logarithmic" if y.log else name,
        lines=(
            Curve(
                name=name,
                points=[(at, each.mean if each else None) for at, each in placed],
                band=[(at, max(each.low, y.low), min(each.high, y.high)) for at, each in known] if spread else (),
                colour=colour,
            ),
        ),
        marks=_marks(run) if over_time else (),
        head=(unit.capitalize(), name),
        rows=[(duration(at) if over_time else short(at), short(each.mean)) for at, each in sampled(known, ROWS)],
    )


def _own_figure(run: RunReport, name: str) -> Chart | None:
    """One of the program's own figures, such as an accuracy."""
    last = next((point.figures[name] for point in reversed(run.points) if name in point.figures and not point.redone), None)
    says = f"The program's own figure {name}" + (f": {short(last.mean)} at the end." if last else ".")
    return _curve(run, name, name, lambda point: point.figures.get(name), over_time=False, says=says, colour=5, log=False)


def _loss_in_words(run: RunReport) -> str:
    known = [(point.step, point.loss.mean) for point in run.points if point.loss]
    return f"From {short(known[0][1])} to {short(known[-1][1])} in {short(known[-1][0])} steps." if known else ""


def _rate_in_words(run: RunReport) -> str:
    known = sorted(point.samples_per_second.mean for point in run.points if point.samples_per_second)
    return f"The median is {short(known[len(known) // 2])} samples/s, all workers together." if known else ""


def _workers(run: RunReport) -> Chart | None:
    """White notches are the seconds without a step, where they are wide enough to be seen."""
    if not run.stretches:
        return None
    across, points = _time_axis(run), list[XY]([(0.0, 0.0)])
    narrow = (across.high - across.low) / NOTCHES
    for each, later in zip_longest(run.stretches, run.stretches[1:]):
        points.append((each.seconds, float(each.workers)))
        if later is None or later.seconds - each.until > narrow:
            points.append((each.until, 0.0))
    most = max(each.workers for each in run.stretches)
    zones = list(dict.fromkeys(each.zone for each in run.stretches if each.zone))
    strips = list[Strip]()
    for each in run.stretches:  # neighbouring ones in one zone are one piece
        text, colour = each.zone or "zone not known", zones.index(each.zone) if each.zone else COLOURS - 1
        start, until = max(each.seconds, across.low), min(each.until, across.high)
        if strips and strips[-1].text == text:
            strips[-1] = replace(strips[-1], until=until)
        elif until >= start:
            strips.append(Strip(x=start, until=until, text=text, colour=colour))
    lost = max(run.job.reclaims, sum(event.loss for event in run.events))  # the history may have forgotten some
    where = f"in {', then '.join(zones)}" if zones else "in a zone that is not known"
    changes = len(run.stretches) - 1
    return Chart(
        title=WORKERS,
        says=f"At most {most} trained together, {where}. Who trains together changed {_times(changes)}; "
        f"{_times(lost)} a worker was lost.",
        x=across,
        y=axis(0.0, max(1, most, run.job.max_workers if run.job.max_workers <= 2 * most else most), whole=True),
        x_name="since submission",
        y_name="workers that train",
        lines=(Curve(name="workers", points=points, colour=2, steps=True, filled=True),),
        marks=_marks(run),
        strips=strips,
        head=("From", "Until", "Workers", "Zone", "Generation"),
        rows=[
            (duration(each.seconds), duration(each.until), str(each.workers), each.zone or "-", str(each.generation))
            for each in sampled(run.stretches, ROWS)
        ],
    )


def _goodput(run: RunReport) -> Chart | None:
    points = [(point.seconds, point.goodput) for point in run.points]
    known = [(x, y) for x, y in points if y is not None]
    if not known or run.goodput is None:
        return None
    return Chart(
        title="Goodput",
        says=f"{percent(run.goodput)} of the paid machine time went into steps that count; the rest into starting, meeting "
        "anew after reclaims, steps done again, checkpoints and evaluations.",
        x=_time_axis(run),
        y=axis(0.0, 1.0, kind="percent"),
        x_name="since submission",
        y_name="share of the paid machine time until then",
        lines=(Curve(name="goodput", points=points, colour=3),),
        marks=_marks(run),
        head=("Time", "Goodput"),
        rows=[(duration(x), percent(y)) for x, y in sampled(known, ROWS)],
    )


def _money(run: RunReport) -> Chart | None:
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
        y=axis(0.0, max(last.usd_on_demand, last.usd_spent), kind="usd"),
        x_name="since submission",
        y_name="US dollars",
        lines=(
            Curve(name="on demand", points=[(each.seconds, each.usd_on_demand) for each in run.money], colour=1),
            Curve(name="spent", points=[(each.seconds, each.usd_spent) for each in run.money], colour=2),
        ),
        legend=True,
        head=("Time", "Spent", "On demand"),
        rows=[(duration(each.seconds), usd(each.usd_spent), usd(each.usd_on_demand)) for each in sampled(run.money, ROWS)],
    )


def _losses(sweep: SweepReport, unit: str) -> Chart | None:
    """All runs in one picture, against time, samples or steps."""
    kept = {
        run.job: [(point, point.loss) for point in run.report.points if point.loss and (unit == "time" or not point.redone)]
        for run in sweep.runs
    }
    ranked = sorted(
        (run for run in sweep.runs if kept[run.job]), key=lambda run: math.inf if run.last_loss is None else run.last_loss
    )
    if not ranked:
        return None
    best, shown = ranked[0], {run.job for run in ranked[:NAMED]}
    colours = {job: index for index, job in enumerate(run.job for run in sweep.runs if run.job in shown)}
    lines = [
        Curve(
            name=run.settings,
            points=[(_place(point, unit), loss.mean) for point, loss in sampled(kept[run.job], POINTS)],
            colour=colours.get(run.job, COLOURS - 1),
            faint=run.job not in colours,
        )
        for run in reversed(ranked)  # the best is drawn last, on top
    ]
    rest = f"; {len(ranked) - NAMED} more are thin" if len(ranked) > NAMED else ""
    most = max(_place(points[-1][0], unit) for points in kept.values() if points)
    y = _value_axis([loss for points in kept.values() for _, loss in points])
    return Chart(
        title=f"Loss against {unit}",
        says=f"The last loss is least with {best.settings}: {short(best.last_loss)}{rest}." if best.last_loss is not None else "",
        x=axis(0.0, most, kind="seconds" if unit == "time" else "number", exact=True),
        y=y,
        x_name="since each run's submission" if unit == "time" else unit,
        y_name="loss, logarithmic" if y.log else "loss",
        lines=sorted(lines, key=lambda line: not line.faint),
        legend=True,
    )


def _workers_of_all(sweep: SweepReport) -> Chart | None:
    """Workers that trained at once, over all runs."""
    trained = [run for run in sweep.runs if run.report.stretches]
    if not trained:
        return None
    first = min(run.report.begin_seconds for run in trained)
    begins = {run.job: run.report.begin_seconds - first for run in trained}
    moves = [(begins[run.job] + each.seconds, each.workers) for run in trained for each in run.report.stretches]
    moves += [(begins[run.job] + each.until, -each.workers) for run in trained for each in run.report.stretches]
    points = list[XY]([(0.0, 0.0)])
    held = most = 0
    for at, change in sorted(moves):
        held += change
        most = max(most, held)
        points.append((at, float(held)))
    return Chart(
        title="Workers of all runs",
        says=f"At most {most} trained at once.",
        x=axis(0.0, points[-1][0], kind="seconds", exact=True),
        y=axis(0.0, max(1, most), whole=True),
        x_name="since the first run's submission",
        y_name="workers that train",
        lines=(Curve(name="workers", points=points, colour=2, steps=True, filled=True),),
        head=("Run", "First step after", "Until", "Most workers"),
        rows=[
            (
                run.settings,
                duration(begins[run.job] + run.report.stretches[0].seconds),
                duration(begins[run.job] + run.report.stretches[-1].until),
                str(max(each.workers for each in run.report.stretches)),
            )
            for run in trained
        ],
    )


def _place(point: Point, unit: str) -> float:
    """The point's place on an axis of time, samples or steps."""
    return point.seconds if unit == "time" else float(point.samples or 0 if unit == "samples" else point.step)


def _time_axis(run: RunReport) -> Axis:
    """From submission to the end. A long wait at the beginning is left out."""
    end = max([run.times.total, *(point.seconds for point in run.points[-1:])])
    waited = run.times.waiting or 0.0
    return axis(waited - 0.05 * (end - waited) if waited > end / 2 else 0.0, end, kind="seconds", exact=True)


def _value_axis(values: Sequence[Value], *, from_zero: bool = False, log: bool = True) -> Axis:
    """Fits the means; a band may be cut, so that one wild step does not flatten the curve."""
    low, high = min(value.mean for value in values), max(value.mean for value in values)
    if from_zero:
        return axis(0.0, max(high, 0.0))
    if log and low > 0 and high / low > LOG_FROM:
        return log_axis(low, high)
    return axis(0.0 if 0 <= low < high / 3 else low, high)


def _marks(run: RunReport) -> list[Mark]:
    """The losses of workers, as far as the time axis goes."""
    across = _time_axis(run)
    lost = [event for event in run.events if event.loss and across.low <= event.seconds <= across.high]
    return [Mark(x=event.seconds, text=event.sentence) for event in lost]


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def sampled(items: Sequence[T], most: int) -> Sequence[T]:
    """At most so many of them, the last among them."""
    if len(items) <= most:
        return items
    return [items[index * (len(items) - 1) // (most - 1)] for index in range(most)]
