"""Costs of a stack, idle and with all its machines, from its settings and list prices; no account is needed.

    python -m infra.account.costs -s dev
    sheet(config.read("dev")).usd_per_hour_idle

Machines are priced by the catalog; the rest is the cloud's (Cloud.costs). An estimate: the bill is the cloud's.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from infra import clouds, commands, config
from infra.account.records import HOURS_PER_MONTH, Line, Sheet
from infra.config import Stack, prices
from infra.groups import job_groups, manager_groups
from workloads.cluster import NodeGroup

HELP = """\
idle is what the stack costs while no job runs, full with every node group at its max. Both per hour, and per month of 730 hours.
What is paid by use (reading data, traffic) is listed below the table with its unit,
then advice where something else is cheaper.
"""


class _NoNotice:
    """job_groups asks how long a cloud warns; money does not depend on it."""

    notice_seconds = 0


def groups_of(stack: Stack) -> list[NodeGroup]:
    """The manager's groups and those for jobs."""
    return [*manager_groups(stack), *job_groups(stack, _NoNotice())]


def sheet(stack: Stack) -> Sheet | None:
    """None when the stack's cloud costs nothing."""
    groups = groups_of(stack)
    own = clouds.named(stack.cloud).costs(stack, groups)
    return own and replace(own, lines=(*map(machines, groups), *own.lines))


def machines(group: NodeGroup) -> Line:
    """The machines of a group, without their disks."""
    each = f"{group.instance.name}, {group.capacity_type}"
    note = f"{group.min} to {group.max} {each} at {group.usd_per_hour:g}" if group.max > 1 or group.min != group.max else each
    return Line(
        what=f"machines: {group.name}", idle=group.min * group.usd_per_hour, full=group.max * group.usd_per_hour, note=note
    )


def text(found: Sheet) -> list[str]:
    """The table and what belongs to it, for a person."""
    total = Line(what="total per hour", idle=found.usd_per_hour_idle, full=found.usd_per_hour_full)
    month = Line(what="total per month", idle=total.idle * HOURS_PER_MONTH, full=total.full * HOURS_PER_MONTH)
    rows = [["USD per hour", "idle", "full", ""]]
    rows += [[line.what, f"{line.idle:.3f}", f"{line.full:.3f}", line.note] for line in (*found.lines, total)]
    rows += [[month.what, f"{month.idle:,.0f}", f"{month.full:,.0f}", ""]]
    lines = commands.table(rows, right=(1, 2))
    if found.uses:
        uses = [[use.what, f"{use.usd:.3f} USD", use.unit] for use in found.uses]
        lines += ["", "paid by use", *commands.table(uses, right=(1,))]
    lines += [*(["", "advice"] if found.advice else []), *(f"  - {one}" for one in found.advice)]
    return [*lines, *(["", "prices"] if found.basis else []), *(f"  - {one}" for one in found.basis)]


def summary(found: Sheet) -> dict[str, float]:
    """The figures, for programs."""
    return {
        "usdPerHourIdle": round(found.usd_per_hour_idle, 4),
        "usdPerHourFull": round(found.usd_per_hour_full, 4),
        "usdPerMonthIdle": round(found.usd_per_hour_idle * HOURS_PER_MONTH, 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    codes = commands.EXIT_CODES.format(good="the table is printed", bad="-")
    given = commands.parser(
        "infra.account.costs",
        "What a stack costs, idle and at full scale, from its settings; no account is needed.",
        f"{HELP}\n{codes}",
    ).parse_args(arguments)
    return commands.run(lambda: _show(given.stack))


def _show(name: str) -> int:
    stack = config.read(name)
    found = sheet(stack)
    if found is None:
        commands.say(f"stack {name} costs nothing: its cloud, {stack.cloud!r}, has no prices")
        commands.conclude({"stack": name, "usdPerHourIdle": 0.0, "usdPerHourFull": 0.0, "usdPerMonthIdle": 0.0})
        return commands.EXIT_GOOD
    read = prices.read(name)
    if read is not None:
        found = replace(found, basis=(*found.basis, f"{read.sentence(name)}; the others at the assumed discount"))
    for line in text(found):
        commands.say(line)
    commands.conclude({"stack": name, **summary(found)})
    return commands.EXIT_GOOD


if __name__ == "__main__":
    sys.exit(main())
