"""Looks before `pulumi up` whether the stack can come up: one line per finding, with what to do about it. It changes nothing.

    python -m infra.account.preflight -s dev

What is looked at is the cloud's (Cloud.preflight): quotas, what exists and what would clash. Each check
runs by itself, so that one that fails hides no other.
"""

import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from ipaddress import ip_address, ip_network
from typing import Any, TypeVar

from infra import clouds, commands, config
from infra.account import costs
from infra.account.records import FAIL, OK, WARN, Check, Finding, fail, ok, warn
from infra.config import Stack
from workloads.cluster import NodeGroup

HELP = """\
ok    as it should be
warn  `pulumi up` would work, but something is worth knowing (a quota below a group's max, a newer version)
fail  `pulumi up`, or the first job, would not work; the line below says what to do
Then the cost table of the stack and advice on storage (python -m infra.account.costs alone needs no account).
"""


@dataclass(frozen=True, kw_only=True)
class Look:
    """A stack, and this machine: `which` gives the path of a program, `address` its address on the internet. A cloud adds how to
    ask its account, and where it asks for the address."""

    stack_name: str
    stack: Stack
    which: Callable[[str], str | None] = field(default_factory=lambda: shutil.which)
    address: Callable[[], str]

    @property
    def name(self) -> str:
        """The cluster's name, and the prefix of every name in the account."""
        return f"ebb-{self.stack_name}"

    @cached_property
    def groups(self) -> Sequence[NodeGroup]:
        """The manager's groups and those for jobs."""
        return costs.groups_of(self.stack)

    @property
    def settings(self) -> Any:
        """The cloud's own section of the stack's file."""
        return self.stack.settings


AnyLook = TypeVar("AnyLook", bound=Look)


def checks(functions: Mapping[str, Callable[[AnyLook], Iterable[Finding]]], look: AnyLook) -> list[Check]:
    """One check for each function. One that is refused reports that as a finding: the others still run."""
    return [Check(what=what, look=partial(_guarded, function, look)) for what, function in functions.items()]


def _guarded(function: Callable[[AnyLook], Iterable[Finding]], look: AnyLook) -> Iterable[Finding]:
    try:
        yield from function(look)
    except commands.CannotLook:
        raise
    except commands.RequestRefused as error:
        if not error.known:
            fix = "give this identity the right to read it, or ask who has it" if error.denied else ""
            yield warn(f"not checked: {error}", fix)


def programs(look: Look, needed: Mapping[str, str]) -> Iterator[Finding]:
    """The programs that `up` runs on this machine. `needed`: program -> what needs it."""
    for program, why in needed.items():
        path = look.which(program)
        yield ok(f"{program}: {path}") if path else fail(f"{program} is not on PATH: {why}", f"install {program}")


def reach(look: Look, key: str, ranges: Sequence[str]) -> Iterator[Finding]:
    """`up` makes objects in the cluster: this machine has to reach its API server. `key`: the setting that has the ranges."""
    try:
        address = ip_address(look.address())
    except (OSError, ValueError) as error:
        yield warn(f"this machine's address on the internet is not known ({error}): is it in {key.rpartition('.')[2]}?")
        return
    if any(address in ip_network(cidr) for cidr in ranges):
        yield ok(f"this machine ({address}) is in {key}")
    else:
        yield fail(f"this machine ({address}) is not in {key} ({', '.join(ranges)})", f"add {address}/32")


def public_address(url: str) -> str:
    """This machine's address on the internet, as a service that sees it reports it. Raises OSError."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - a cloud's constant
            return str(answer.read(64).decode("ascii", "replace").strip())
    except urllib.error.URLError as error:
        raise OSError(f"{url}: {error.reason}") from error


def digests(stack_name: str, stack: Stack) -> Iterator[Finding]:
    """The images of others that the stack builds on or runs."""
    images = sorted({*clouds.named(stack.cloud).upstream_images(stack, costs.groups_of(stack))})
    by_tag = [image for image in images if "@" not in image]
    if by_tag:
        yield warn(
            f"{len(by_tag)} of {len(images)} images of others are named by a tag, which their publisher can move: "
            + ", ".join(by_tag),
            f"make lock-images STACK={stack_name}",
        )
    elif images:
        yield ok(f"all {len(images)} images of others are named by digest")


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
    checks = clouds.named(stack.cloud).preflight(name, stack)
    if not checks:
        commands.say(
            f"stack {name}: its cloud, {stack.cloud!r}, has no account to look at; `pulumi preview` shows what would be made"
        )
        commands.conclude({"stack": name, **summary([])})
        return commands.EXIT_GOOD
    images = Check(what="images of others", look=partial(digests, name, stack))
    return conclude(name, stack, [*checks, images])


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
