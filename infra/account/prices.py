"""Spot prices of a stack's machine types, read from the cloud and kept with their date: `python -m infra.account.prices -s dev`.

    offered = spot_types(stack)                     # the machine types that its node groups may have as spot machines
    clouds.named(stack.cloud).spot_prices(stack, offered)

Which requests that takes is the cloud's (Cloud.spot_prices). `make costs`, the CLI's estimates and the bills of jobs take them
from then on (infra/config/prices.py).
"""

import sys
from collections.abc import Mapping, Sequence

from infra import catalog, clouds, commands, config
from infra.account.records import Offered
from infra.config import Stack, prices
from workloads.cluster import SPOT, InstanceType

HELP = """\
It reads the prices of the machine types that the stack's node groups name, in the stack's region and zones, and writes them to
prices.<stack>.yaml. It changes nothing in the account, and needs its credentials where the cloud asks for them.
Types without a price keep the assumed discount of the catalog.
"""


def spot_types(stack: Stack) -> tuple[InstanceType, ...]:
    """Each once."""
    lines = [line for line in stack.node_groups if line.capacity == SPOT]
    return tuple({one.name: one for line in lines for one in catalog.machines(stack, line)}.values())


def rows(found: prices.SpotPrices, types: Sequence[InstanceType]) -> list[list[str]]:
    """For a person: what is paid, and what the catalog assumes."""
    made = [["USD per hour", "spot", "on-demand", "discount", "assumed"]]
    for one in types:
        zones, mean = sorted(found.usd_per_hour.get(one.name, {}).values()), found.mean(one.name)
        spread = " to ".join(f"{usd:.3f}" for usd in dict.fromkeys((zones[0], zones[-1]))) if zones else "no price"
        saved = "" if mean is None or not one.usd_per_hour else f"{1 - mean / one.usd_per_hour:.0%}"
        made.append([one.name, spread, f"{one.usd_per_hour:.3f}", saved, f"{one.spot_discount:.0%}"])
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    codes = commands.EXIT_CODES.format(good="prices are written", bad="there is no price of any of the types")
    what = "Read the spot prices of a stack's machine types, and keep them beside its file."
    given = commands.parser("infra.account.prices", what, f"{HELP}\n{codes}").parse_args(arguments)
    return commands.run(lambda: _read(given.stack))


def _read(name: str) -> int:
    stack = config.read(name)
    assumed: Mapping[str, InstanceType] = {one.name: one for one in catalog.types(stack.cloud, refused=True)}
    types = [assumed.get(one.name, one) for one in spot_types(stack)]
    commands.say(f"asking for {len(types)} machine types of stack {name}")
    offered = _asked(stack, types) if types else None
    if offered is None:
        why = f"its cloud, {stack.cloud!r}, sells no spot machines" if types else "none of its node groups is spot"
        commands.say(f"stack {name} has no spot prices: {why}")
        commands.conclude({"stack": name, "usdPerHour": {}})
        return commands.EXIT_GOOD
    found = prices.of_today(offered.source, offered.region, offered.usd_per_hour)
    for line in commands.table(rows(found, types), right=(1, 2, 3, 4)):
        commands.say(line)
    for line in offered.notes:
        commands.say(f"  - {line}")
    if offered.usd_per_hour:
        commands.say(f"written to {prices.write(name, found).name}")
    commands.conclude({"stack": name, "region": offered.region, "usdPerHour": offered.usd_per_hour})
    return commands.EXIT_GOOD if offered.usd_per_hour else commands.EXIT_BAD


def _asked(stack: Stack, types: Sequence[InstanceType]) -> Offered | None:
    try:
        return clouds.named(stack.cloud).spot_prices(stack, types)
    except commands.CannotLook:
        raise
    except commands.RequestRefused as error:
        raise commands.CannotLook(f"the prices were refused: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
