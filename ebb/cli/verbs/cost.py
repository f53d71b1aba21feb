"""`ebb cost`."""

import math
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from ebb.api.costs import dollars
from ebb.cli.options import Format, Namespace, Output, call, print_json, record
from ebb.cli.render import facts, hanging, make_console, span, table
from ebb.client import costs as money
from ebb.client.costs import By, CostReport, CostRow, Estimate, Wanted
from ebb.client.errors import BadRequest
from ebb.client.times import seconds

ALL = "all"  # of --since
NOTHING = 5e-5  # USD: what sums of floating point may lack
FEW = 3  # zones have room in a line


def cost(
    ctx: typer.Context,
    *,
    by: Annotated[By, typer.Option(help="A line for each job, user or day.")] = By.JOB,
    since: Annotated[str, typer.Option(metavar="TIME", help="Start on the day this long ago: 12h, 7d, or all.")] = "7d",
    gpus: Annotated[int | None, typer.Option(metavar="N", help="Estimate instead: a job on this many GPUs.")] = None,
    gpu: Annotated[str | None, typer.Option(metavar="TYPE", help="Estimate: their type.")] = None,
    hours: Annotated[float | None, typer.Option(metavar="H", help="Estimate: for this long. Default: 1.")] = None,
    capacity: Annotated[str | None, typer.Option(metavar="KIND", help="Estimate: spot or on-demand. Default: all.")] = None,
    zone: Annotated[str | None, typer.Option(metavar="ZONE", help="Estimate: only there.")] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Costs by job, user or day; with --gpus, an estimate for a job."""
    if gpus is None:
        _refuse(gpu=gpu, hours=hours, capacity=capacity, zone=zone)
        back = math.inf if since == ALL else seconds(since, "since")
        report = call(ctx, namespace, lambda ebb: money.costs(ebb, by=by, since_seconds=back))
        print_json(record(report)) if output is Output.JSON else _show(report, make_console())
        return
    wanted = Wanted(gpus=gpus, gpu=gpu, hours=1.0 if hours is None else hours, capacity=capacity, zone=zone)
    found = call(ctx, namespace, lambda ebb: money.estimate(ebb, wanted))
    print_json(record(found)) if output is Output.JSON else _show_estimate(found, make_console())


def _refuse(**flags: object) -> None:
    """Flags that say nothing without --gpus."""
    given = [f"--{name}" for name, value in flags.items() if value is not None]
    if given:
        raise BadRequest(f"{', '.join(given)}: only for an estimate. Add --gpus, as in `ebb cost --gpus 8 --gpu T4 --hours 5`.")


def _show(report: CostReport, console: Console) -> None:
    since = "the beginning" if report.since.startswith("1970") else f"{report.since[:10]} 00:00 UTC"
    console.print(Text(f"Since {since}, until {report.until[11:16]} UTC", "bold"))
    if report.rows:
        headers, cells = _table(report)
        console.print(table(headers, cells, console.width))
    console.print(*facts(_sums(report), console.width), sep="\n")
    for note in report.notes:
        console.print(*hanging("", note, console.width), sep="\n")


def _table(report: CostReport) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    if report.by == By.DAY:
        headers: tuple[str, ...] = ("DAY (UTC)", "MACHINE-H", "GPU-H", "JOBS $", "IDLE $", "ALL $")
        return headers, [
            (
                row.name,
                _hours(row.machine_hours),
                _hours(row.gpu_hours),
                _usd(row.usd),
                _usd(row.idle_usd),
                _usd(row.machines_usd),
            )
            for row in report.rows
        ]
    if report.by == By.USER:
        headers = ("USER", "JOBS", "MACHINE-H", "GPU-H", "COST $", "SAVED $")
        return headers, [(row.name or "(nobody)", str(row.jobs), *_figures(row)) for row in report.rows]
    headers = ("JOB", "USER", "STATE", "MACHINE-H", "GPU-H", "COST $", "SAVED $")
    return headers, [(row.name + "~" * row.divided, row.user or "-", row.state or "-", *_figures(row)) for row in report.rows]


def _figures(row: CostRow) -> tuple[str, ...]:
    saved = None if row.usd_on_demand is None else row.usd_on_demand - row.usd
    return _hours(row.machine_hours), _hours(row.gpu_hours), _usd(row.usd), _usd(saved)


def _sums(report: CostReport) -> list[tuple[str, str]]:
    """jobs + idle + platform - unseen = machines."""
    lines = [("jobs", f"${_usd(report.jobs.usd)} for {_hours(report.jobs.hours)} machine hours")]
    if report.team:
        team = report.team
        limit = "" if team.usd_per_month is None else f" of the ${_usd(team.usd_per_month)} that it may spend"
        lines.append((f"team {team.name}", f"${_usd(team.usd)} in {team.month}{limit}"))
    if report.idle and report.platform and report.unseen and report.machines and report.difference_usd is not None:
        rest, own = report.idle, report.platform
        boot, idle, leaving = map(_hours, (rest.boot_hours, rest.idle_hours, rest.scale_down_hours))
        lines += [
            ("idle", f"${_usd(rest.usd)}: boot {boot} h, idle {idle} h, scale-down {leaving} h"),
            ("platform", f"${_usd(own.usd)}: {_hours(own.hours)} h of the machines that Ebb itself runs on"),
        ]
        if report.unseen.usd or report.unseen.hours:
            lines.append(("unseen", f"-${_usd(report.unseen.usd)}: charged to jobs for machines that had gone unnoticed"))
        share = abs(report.difference_usd) / report.machines.usd if report.machines.usd else 0.0
        apart = f"; the lines above differ from it by {share:.1%}" if share >= 0.001 else ""
        lines.append(("machines", f"${_usd(report.machines.usd)} for {_hours(report.machines.hours)} h{apart}"))
    return lines


def _show_estimate(found: Estimate, console: Console) -> None:
    headers = ("GPU", "CAPACITY", "MACHINES", "$/H", "COST $", "ZONES")
    cells = [
        (
            offer.gpu,
            offer.capacity,
            f"{offer.machines} x {'/'.join(offer.instance_types)}",
            f"{offer.usd_per_hour:.2f}",
            _usd(offer.usd),
            ", ".join(offer.zones) if len(offer.zones) < FEW else f"one of {len(offer.zones)}",
        )
        for offer in found.offers
    ]
    console.print(Text(f"{found.gpus} GPUs for {found.hours:g} h", "bold"))
    console.print(table(headers, cells, console.width))
    boot = span(max(offer.boot_seconds for offer in found.offers))
    said = [
        "Spot is assumed to cost on-demand less the group's discount." if any(offer.assumed for offer in found.offers) else "",
        f"Waiting for machines costs nothing. They boot within {boot} and are paid for from their start; work "
        "repeated after a reclaim is not included.",
    ]
    for note in filter(None, said):
        console.print(*hanging("", note, console.width), sep="\n")


def _usd(amount: float | None) -> str:
    return "-" if amount is None else dollars(0.0 if abs(amount) < NOTHING else amount)


def _hours(hours: float | None) -> str:
    return "-" if hours is None else f"{hours:.2f}" if hours < 100 else f"{hours:.0f}"
