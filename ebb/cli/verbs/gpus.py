"""`ebb gpus`."""

from datetime import datetime
from typing import Any

import typer

from ebb.cli.options import Format, Namespace, Output, record, show
from ebb.cli.render import age, hanging, make_console, now_local, span, table
from ebb.client.gpus import GpuGroup, GpuReport
from ebb.client.gpus import gpus as look

HEADERS = ("GPU", "GPUS", "ZONE", "CAPACITY", "MACHINE", "FREE", "NOW", "MAX", "$/GPU/H")


def gpus(ctx: typer.Context, namespace: Namespace = None, output: Format = Output.TEXT) -> None:
    """GPUs on the platform: which are free, where, and at what price."""
    show(ctx, namespace, look, output, json=gpu_record, text=_text)


def _text(report: GpuReport) -> None:
    console = make_console()
    console.print(table(HEADERS, map(_row, report.groups), console.width))
    for line in gpu_lines(report, now_local()):
        console.print(*hanging("", line, console.width), sep="\n")


def gpu_record(report: GpuReport) -> dict[str, Any]:
    """Each group's facts and its figures in one object."""
    whole = record(report)
    whole["groups"] = [{**group.pop("group"), **group} for group in whole["groups"]]
    return whole


def _row(one: GpuGroup) -> tuple[str, ...]:
    group = one.group
    return (
        group.gpu_type,
        str(group.gpus_per_node),
        group.zone,
        group.capacity_type,
        group.instance_type,
        "?" if one.gpus_free is None else str(one.gpus_free),
        "?" if one.gpus_now is None else str(one.gpus_now),
        str(group.max * group.gpus_per_node),
        f"{one.usd_per_gpu_hour:.2f}",
    )


def gpu_lines(report: GpuReport, now: datetime) -> list[str]:
    """Return what the table does not hold."""
    lines = []
    if any(one.price_assumed for one in report.groups):
        lines.append("Spot prices are assumed: on-demand less the group's discount.")
    if report.groups:
        boot = max(one.boot_seconds for one in report.groups)
        lines.append(f"FREE can start at once; up to MAX machines boot when a job needs them, within {span(boot)} each.")
    fast = [one.group for one in report.groups if one.group.network]
    for network, gpu_type in dict.fromkeys((group.network.name, group.gpu_type) for group in fast if group.network):
        lines.append(f"{network} connects workers that take whole machines with {gpu_type}.")
    for zone in report.reclaims:
        where = zone.zone or "zones that are not known any more"
        lines.append(f"Reclaims in the last day: {zone.count} in {where}, the last {age(zone.last, now)} ago.")
    for dry in report.dry:
        what = " ".join(filter(None, (dry.gpu_type, dry.capacity)))
        said = f": {dry.message}" if dry.message else ""
        lines.append(f"No {what} to be had in {dry.zone}, tried {age(dry.at, now)} ago{said}")
    return lines
