"""The plots of a sweep: all runs in one picture. Pure.

Up to eight runs have a colour each, the next eight the same ones dashed; of more, the best keep theirs and the others are thin.
"""

from collections.abc import Callable
from dataclasses import replace

from ebb.client.report.chart import COLOURS, XY, Axis, Chart, Curve, count_axis, duration, seconds_axis, short, whole_axis
from ebb.client.report.data import Point, SweepReport
from ebb.client.report.pictures import value_axis

NAMED = 2 * COLOURS
POINTS = 100  # of each run, so that a thousand runs still make a page


def charts(sweep: SweepReport) -> list[Chart]:
    """Those that there are figures for."""
    batches = all(run.report.global_batch for run in sweep.runs if run.report.points)
    unit = "samples" if batches else "steps"

    def done(point: Point) -> float:
        return float(point.samples or 0) if batches else float(point.step)

    found = [
        _losses(sweep, f"Loss against {unit}", unit, done, lambda most: count_axis(0.0, most), redone=False),
        _losses(
            sweep,
            "Loss against time",
            "since each run's submission",
            lambda point: point.seconds,
            lambda most: seconds_axis(0.0, most),
            redone=True,
        ),
        _together(sweep),
    ]
    drawn = [chart for chart in found if chart is not None]
    return [replace(drawn[0], wide=True), *drawn[1:]] if len(drawn) % 2 else drawn


def _losses(
    sweep: SweepReport, title: str, x_name: str, where: Callable[[Point], float], across: Callable[[float], Axis], *, redone: bool
) -> Chart | None:
    kept = {run.job: [point for point in run.report.points if point.loss and (redone or not point.redone)] for run in sweep.runs}
    values = [point.loss for points in kept.values() for point in points if point.loss]
    if not values:
        return None
    ranked = sorted((run for run in sweep.runs if kept[run.job]), key=lambda run: run.last_loss or 0.0)
    shown = [run.job for run in ranked[:NAMED]]
    colours = {run.job: index for index, run in enumerate(run for run in sweep.runs if run.job in shown)}
    lines = [
        Curve(
            name=run.settings,
            points=[(where(point), point.loss.mean if point.loss else None) for point in _thin(kept[run.job])],
            colour=colours.get(run.job, COLOURS - 1),
            faint=run.job not in colours,
        )
        for run in reversed(ranked)  # the best is drawn last, on top
    ]
    lines.sort(key=lambda line: not line.faint)
    best = ranked[0]
    rest = f"; {len(ranked) - NAMED} more are thin" if len(ranked) > NAMED else ""
    y = value_axis(values)
    return Chart(
        title=title,
        says=f"The last loss is least with {best.settings}: {short(best.last_loss or 0.0)}{rest}.",
        x=across(max(where(points[-1]) for points in kept.values() if points)),
        y=y,
        x_name=x_name,
        y_name="loss, logarithmic" if y.log else "loss",
        lines=lines,
        legend=True,
    )


def _together(sweep: SweepReport) -> Chart | None:
    """Return how many workers trained at once, over all runs."""
    begins = [run for run in sweep.runs if run.report.stretches]
    if not begins:
        return None
    first = min(run.report.begin_seconds for run in begins)
    moves: list[tuple[float, int]] = []
    for run in begins:
        for each in run.report.stretches:
            moves += [
                (run.report.begin_seconds - first + each.seconds, each.workers),
                (run.report.begin_seconds - first + each.until, -each.workers),
            ]
    held, points = 0, list[XY]([(0.0, 0.0)])
    for at, change in sorted(moves):
        held += change
        points.append((at, float(held)))
    most = int(max(y or 0 for _, y in points))
    return Chart(
        title="Workers of all runs",
        says=f"At most {most} trained at once.",
        x=seconds_axis(0.0, points[-1][0]),
        y=whole_axis(most),
        x_name="since the first run's submission",
        y_name="workers that train",
        lines=(Curve(name="workers", points=points, colour=2, steps=True, filled=True),),
        head=("Run", "First step after", "Until", "Most workers"),
        rows=[
            (
                run.settings,
                duration(run.report.begin_seconds - first + run.report.stretches[0].seconds),
                duration(run.report.begin_seconds - first + run.report.stretches[-1].until),
                str(max(each.workers for each in run.report.stretches)),
            )
            for run in begins
        ],
    )


def _thin(points: list[Point]) -> list[Point]:
    """Every so many-th, the last one among them."""
    if len(points) <= POINTS:
        return points
    return [points[index * (len(points) - 1) // (POINTS - 1)] for index in range(POINTS)]
