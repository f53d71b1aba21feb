"""Looks before `pulumi up` whether the stack can come up: one line per finding, with what to do about it. It changes nothing.

    python -m infra.account.preflight -s dev

What is looked at is the cloud's (infra/clouds/<cloud>/preflight.py): quotas, what exists and what would clash. Each check
runs by itself, so that one that fails hides no other.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from infra import commands, config
from infra.account import costs
from infra.config import Stack

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"
HELP = """\
ok    as it should be
warn  `pulumi up` would work, but something is worth knowing (a quota below a group's max, a newer version)
fail  `pulumi up`, or the first job, would not work; the line below says what to do
Then the cost table of the stack and advice on storage (python -m infra.account.costs alone needs no account).
"""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check has found. `fix`: a command, a key of the stack's file, or where to ask."""

    level: Literal["ok", "warn", "fail"]
    text: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question. `look` may raise CannotLook, after which no other check makes sense."""

    what: str
    look: Callable[[], Iterable[Finding]]


def ok(text: str) -> Finding:
    return Finding(level=OK, text=text)


def warn(text: str, fix: str = "") -> Finding:
    return Finding(level=WARN, text=text, fix=fix)


def fail(text: str, fix: str = "") -> Finding:
    return Finding(level=FAIL, text=text, fix=fix)


def run(checks: Sequence[Check], say: Callable[[str], None]) -> list[Finding]:
    """All findings, told as they come. Raises CannotLook."""
    found: list[Finding] = []
    for number, check in enumerate(checks, 1):
        say(f"[{number}/{len(checks)}] {check.what}")
        for one in check.look():
            found.append(one)
            say(f"  {one.level:4}  {one.text}")
            if one.fix:
                say(f"        -> {one.fix}")
    return found


def summary(found: Sequence[Finding]) -> dict[str, object]:
    """The outcome, for programs."""
    counts = {level: sum(one.level == level for one in found) for level in (OK, WARN, FAIL)}
    return {**counts, "failed": [one.text for one in found if one.level == FAIL]}


def main(arguments: Sequence[str] | None = None) -> int:
    codes = commands.EXIT_CODES.format(good="nothing stands against `pulumi up`", bad="something does")
    what = "Look before `pulumi up` whether the stack can come up: quotas, names, versions, what must exist."
    given = commands.parser("infra.account.preflight", what, f"{HELP}\n{codes}").parse_args(arguments)
    return commands.run(lambda: _look(given.stack))


def _look(name: str) -> int:
    stack = config.read(name)
    module = commands.half(stack.cloud, "preflight")
    if module is None:
        commands.say(
            f"stack {name}: its cloud, {stack.cloud!r}, has no account to look at; `pulumi preview` shows what would be made"
        )
        commands.conclude({"stack": name, **summary([])})
        return commands.EXIT_GOOD
    return conclude(name, stack, module.checks(name, stack))


def conclude(name: str, stack: Stack, checks: Sequence[Check]) -> int:
    """Run the checks, then say what the stack costs."""
    found = run(checks, commands.say)
    sheet = costs.sheet(stack)
    for line in ["", *costs.text(sheet)] if sheet else []:
        commands.say(line)
    result = summary(found)
    commands.say()
    commands.say(f"{result[OK]} ok, {result[WARN]} to know, {result[FAIL]} to fix before `pulumi up -s {name}`")
    commands.conclude({"stack": name, **result, **(costs.summary(sheet) if sheet else {})})
    return commands.EXIT_BAD if result[FAIL] else commands.EXIT_GOOD


if __name__ == "__main__":
    sys.exit(main())
