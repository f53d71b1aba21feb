"""What the checks of preflight and the search for leftovers have in common: the stack, and how to ask Azure about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from infra.account.preflight import FAIL, OK, WARN, Check, Finding
from infra.cloud import NodeGroup
from infra.clouds.azure import names
from infra.clouds.azure.rest import Arm, NoAccess, Refused
from infra.clouds.azure.settings import Settings
from infra.config import Stack

GROUPS_VERSION, RESOURCES_VERSION = "2021-04-01", "2021-04-01"


@dataclass(frozen=True, kw_only=True)
class Look:
    """A stack and its subscription. `which` and `address` look at this machine: a program's path, its address on the internet."""

    stack_name: str
    stack: Stack
    groups: Sequence[NodeGroup]
    arm: Arm
    which: Callable[[str], str | None]
    address: Callable[[], str]

    @property
    def name(self) -> str:
        """The cluster's name, and the prefix of every name in Azure."""
        return f"ebb-{self.stack_name}"

    @property
    def settings(self) -> Settings:
        made: Settings = self.stack.settings
        return made

    def is_ours(self, tags: Mapping[str, str] | None) -> bool:
        """Whether something has the stack's tag."""
        return (tags or {}).get(names.STACK) == self.stack_name


def found(arm: Arm, path: str, version: str) -> dict[str, Any] | None:
    """What is there; None where nothing is. Raises Refused."""
    try:
        return arm.get(path, version)
    except Refused as error:
        if error.absent:
            return None
        raise


def check(what: str, function: Callable[[Look], Iterable[Finding]], look: Look) -> Check:
    """A check that reports a refused request as a finding: the others still run."""
    return Check(what=what, look=partial(_guarded, function, look))


def _guarded(function: Callable[[Look], Iterable[Finding]], look: Look) -> Iterable[Finding]:
    try:
        yield from function(look)
    except NoAccess:
        raise
    except Refused as error:
        yield warn(f"not checked: {error}", "give this identity the right to read it, or ask who has it" if error.denied else "")


def ok(text: str) -> Finding:
    return Finding(level=OK, text=text)


def warn(text: str, fix: str = "") -> Finding:
    return Finding(level=WARN, text=text, fix=fix)


def fail(text: str, fix: str = "") -> Finding:
    return Finding(level=FAIL, text=text, fix=fix)
