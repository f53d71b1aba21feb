"""Looks after `pulumi destroy` for what is still there and costs money: by tag and by name. It removes nothing.

    python -m infra.account.leftovers -s dev

What is looked for is the cloud's (Cloud.leftovers). Each thing comes with the command that removes it, in an
order in which the commands work. What destroy keeps on purpose (data) is listed apart and does not count.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from infra import clouds, commands, config
from infra.account.records import Left, Seen

HELP = """\
Run it after `pulumi destroy`; while the stack is up it lists the stack. It looks by tag and by name pattern, so it finds also
what no state knows: network interfaces, volumes, log groups that the cloud or Kubernetes made. The commands are for you to run.
"""


def search(searches: Mapping[str, Callable[[], Iterable[Left]]], say: Callable[[str], None]) -> Seen:
    """Everything that the searches find, by name, with progress. One that is refused hides no other. Raises CannotLook."""
    things: list[Left] = []
    blind: list[str] = []
    for name, look in searches.items():
        say(f"  {name}")
        try:
            things += look()
        except commands.CannotLook:
            raise
        except commands.RequestRefused as error:
            blind.append(f"{name}: {error}")
    return Seen(things=tuple(things), blind=tuple(blind))


def text(seen: Seen) -> list[str]:
    """The listing, for a person."""
    unexpected, kept = _parted(seen.things)
    lines = []
    if unexpected:
        lines += ["left over", *commands.table([_row(one) for one in unexpected], right=(2,)), "", "to remove it, in this order"]
        lines += [f"  {one.remove}" for one in unexpected if one.remove]
    if kept:
        lines += [*([""] if lines else []), "kept on purpose"]
        lines += [
            f"{row}: {one.kept}" for row, one in zip(commands.table([_row(one) for one in kept], right=(2,)), kept, strict=True)
        ]
        lines += [f"  {one.remove}" for one in kept if one.remove]
    lines += [*(["", "could not be looked at"] if seen.blind else []), *(f"  {one}" for one in seen.blind)]
    return lines or ["nothing is left"]


def summary(seen: Seen) -> dict[str, object]:
    """The outcome, for programs."""
    unexpected, kept = _parted(seen.things)
    return {
        "left": [{"kind": one.kind, "name": one.name} for one in unexpected],
        "kept": [{"kind": one.kind, "name": one.name} for one in kept],
        "usdPerMonth": round(sum(one.usd_per_month or 0.0 for one in unexpected), 2),
        "notLookedAt": list(seen.blind),
    }


def _parted(things: Iterable[Left]) -> tuple[list[Left], list[Left]]:
    listed = list(things)
    return [one for one in listed if not one.kept], [one for one in listed if one.kept]


def _row(one: Left) -> list[str]:
    money = "" if not one.usd_per_month else f"{one.usd_per_month:,.2f} USD/month"
    return [one.kind, one.name, "? USD/month" if one.usd_per_month is None else money, one.note]


def main(arguments: Sequence[str] | None = None) -> int:
    codes = commands.EXIT_CODES.format(
        good="nothing is left but what was kept on purpose", bad="something is left, or was not looked at"
    )
    what = "Look after `pulumi destroy` for what is still there, what it costs, and how to remove it."
    given = commands.parser("infra.account.leftovers", what, f"{HELP}\n{codes}").parse_args(arguments)
    return commands.run(lambda: _look(given.stack))


def _look(name: str) -> int:
    stack = config.read(name)
    seen = clouds.named(stack.cloud).leftovers(name, stack, commands.say)
    if seen is None:
        commands.say(f"stack {name}: its cloud, {stack.cloud!r}, has no account in which something could be left")
        commands.conclude({"stack": name, **summary(Seen(things=()))})
        return commands.EXIT_GOOD
    return conclude(name, seen)


def conclude(name: str, seen: Seen) -> int:
    """Print it. A refused search counts as something left: nobody knows."""
    for line in text(seen):
        commands.say(line)
    result = summary(seen)
    commands.conclude({"stack": name, **result})
    return commands.EXIT_BAD if result["left"] or seen.blind else commands.EXIT_GOOD


if __name__ == "__main__":
    sys.exit(main())
