"""The page of `ebb bench scaling`: how much faster an epoch is on more GPUs, and what it costs there. Pure.

html = scaling_html(report, made="2026-11-26T12:00:00Z")
"""

from collections.abc import Callable, Sequence
from html import escape

from ebb.client.report.chart import Axis, Chart, Curve, axis, duration, figure, log_axis, percent, short, table, usd
from ebb.client.report.page import Tile, html_page, notes_list, page_head, section, tile_list
from ebb.client.scaling.figures import ScalingReport, SizeFigures, extremes, gpus_text

OWN, IDEAL = 0, 15  # colours of page.css; the second is dashed
EXPLAINED = (
    "An epoch's time is that of its steps: machines that boot, the start of the program, its validation and what a reclaim "
    "costs are not in it. The cost is the job's whole bill, in which they are. The global batch grows with the number of GPUs "
    "where the program is one of Ebb's presets."
)


def scaling_html(report: ScalingReport, *, made: str) -> str:
    """`made`: when, RFC 3339."""
    missing = [f"{gpus_text(size.gpus)}: {size.state}" for size in report.sizes if size.epoch_seconds is None]
    body = [
        page_head(report.name, "", about(report), ""),
        notes_list([*missing, *report.notes]),
        tile_list(_tiles(report)),
        section("By number of GPUs", f'<div class="charts">{"".join(map(figure, _charts(report)))}</div>'),
        section("All figures", table(_HEAD, [_row(size) for size in report.sizes])),
        section("How it was measured", f"<p>{escape(EXPLAINED)}</p>"),
    ]
    moment = f"{made[:10]} {made[11:16]} UTC"
    footer = f"Made by <code>ebb bench scaling</code> from the jobs in {escape(report.namespace)}, {escape(moment)}."
    return html_page(f"{report.name}: scaling", filter(None, body), footer)


def about(report: ScalingReport) -> str:
    """The program and the machines, in a sentence."""
    first = next(iter(report.measured), None)
    where = ", ".join(filter(None, (first.gpu_type, first.capacity, first.network or "TCP", first.zone))) if first else ""
    return f"One epoch of {report.program} at each size{f'; {where}' if where else ''}."


def _tiles(report: ScalingReport) -> list[Tile]:
    ends = extremes(report)
    if ends is None:
        return []
    first, last = ends
    tiles = [
        (f"An epoch on {gpus_text(size.gpus)}", duration(size.epoch_seconds or 0), _bill(size)) for size in dict.fromkeys(ends)
    ]
    if first != last and last.speed_up and last.efficiency:
        tiles.append(
            ("Faster", f"{last.speed_up:.1f} times", f"on {gpus_text(last.gpus)} than on {first.gpus}; ideal {last.ideal:g}")
        )
        tiles.append(("Efficiency", percent(last.efficiency), f"of {gpus_text(last.gpus)}"))
    return tiles


def _bill(size: SizeFigures) -> str:
    return "its cost is not known" if size.usd is None else f"{usd(size.usd)} for the job"


def gpu_axis(sizes: Sequence[int]) -> Axis:
    """Logarithmic, with a tick for each size."""
    low, high = min(sizes), max(*sizes, min(sizes) * 2)
    return Axis(low=low, high=high, ticks=[(gpus, str(gpus)) for gpus in sizes], log=True)


def _charts(report: ScalingReport) -> list[Chart]:
    measured = report.measured
    if not measured:
        return []
    gpus, first, last = [size.gpus for size in report.sizes], measured[0], measured[-1]
    x = gpu_axis([size for size in gpus if size >= first.gpus])
    ideal = max(last.ideal, 2.0)
    speed = Chart(
        title="Speed-up",
        says=f"How much faster an epoch is than on {gpus_text(first.gpus)}. Both axes are logarithmic; the ideal is a line.",
        x=x, y=log_axis(min(1.0, *(size.speed_up or 1.0 for size in measured)), ideal), x_name="GPUs", y_name="times as fast",
        lines=(
            _line(measured, "measured", lambda size: size.speed_up),
            Curve(name="ideal", points=[(first.gpus, 1.0), (first.gpus * ideal, ideal)], colour=IDEAL),
        ),
        legend=True,
    )  # fmt: skip
    efficiency = Chart(
        title="Efficiency",
        says="Speed-up through the ideal one.",
        x=x, y=axis(0.0, max(1.0, *(size.efficiency or 0.0 for size in measured)), kind="percent"),
        x_name="GPUs", y_name="of the ideal",
        lines=(_line(measured, "measured", lambda size: size.efficiency),),
    )  # fmt: skip
    time = Chart(
        title="Time of an epoch",
        says="The steps alone.",
        x=x, y=axis(0.0, max(size.epoch_seconds or 0.0 for size in measured), kind="seconds"), x_name="GPUs", y_name="time",
        lines=(_line(measured, "an epoch", lambda size: size.epoch_seconds),),
    )  # fmt: skip
    paid = [size.usd for size in measured if size.usd is not None]
    compared = [size.usd_on_demand for size in measured if size.usd_on_demand is not None]
    cost = Chart(
        title="Cost of an epoch",
        says="The whole bill of its job, boot and validation included, and the same machines on demand.",
        x=x, y=axis(0.0, max([*paid, *compared, 0.01]), kind="usd"), x_name="GPUs", y_name="USD",
        lines=(
            _line(measured, "paid", lambda size: size.usd),
            Curve(name="on demand", points=[(size.gpus, size.usd_on_demand) for size in measured], colour=IDEAL),
        ),
        legend=True,
    )  # fmt: skip
    return [speed, efficiency, time, *([cost] if paid else [])]


def _line(sizes: Sequence[SizeFigures], name: str, value: Callable[[SizeFigures], float | None]) -> Curve:
    return Curve(name=name, points=[(size.gpus, value(size)) for size in sizes], colour=OWN)


_HEAD = ("GPUs", "workers", "epoch", "samples/s", "speed-up", "ideal", "efficiency", "reclaims", "paid", "on demand", "job")


def _row(size: SizeFigures) -> tuple[str, ...]:
    if size.epoch_seconds is None:
        return (str(size.gpus), *([""] * 9), f"{size.job} ({size.state})")
    return (
        str(size.gpus), str(size.workers), duration(size.epoch_seconds), _or_dash(size.samples_per_second, short),
        _or_dash(size.speed_up, short), short(size.ideal), _or_dash(size.efficiency, percent), str(size.reclaims),
        _or_dash(size.usd, usd), _or_dash(size.usd_on_demand, usd), size.job,
    )  # fmt: skip


def _or_dash(value: float | None, write: Callable[[float], str]) -> str:
    return "-" if value is None else write(value)
