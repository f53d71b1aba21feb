"""What the checks of preflight and the search for leftovers have in common: the stack, and how to ask AWS about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from infra.account.preflight import Check, Finding, fail, ok, warn
from infra.cloud import NodeGroup
from infra.clouds.aws.account.calls import Calls, NoAccess, Refused
from infra.clouds.aws.settings import Settings
from infra.config import Stack

STACK_TAG = "ebb.dev/stack"
__all__ = ["STACK_TAG", "Look", "absent", "check", "fail", "ok", "tag", "warn"]


@dataclass(frozen=True, kw_only=True)
class Look:
    """A stack and its account. `which` and `address` look at this machine: the path of a program, its address on the internet."""

    stack_name: str
    stack: Stack
    groups: Sequence[NodeGroup]
    calls: Calls
    which: Callable[[str], str | None]
    address: Callable[[], str]

    @property
    def name(self) -> str:
        """The cluster's name, and the prefix of every name in AWS."""
        return f"ebb-{self.stack_name}"

    @property
    def settings(self) -> Settings:
        made: Settings = self.stack.settings
        return made

    def is_ours(self, tags: Any) -> bool:
        """Whether a resource has the stack's tag, however its service writes tags."""
        return tag(tags, STACK_TAG) == self.stack_name


def tag(tags: Any, key: str) -> str | None:
    """The value of a tag: services give a map, or a list of pairs with keys of either case."""
    if isinstance(tags, Mapping):
        return tags.get(key)
    pairs = {one.get("Key", one.get("key")): one.get("Value", one.get("value")) for one in tags or []}
    return pairs.get(key)


def check(what: str, function: Callable[[Look], Iterable[Finding]], look: Look) -> Check:
    """A check that reports a refused request as a finding: the others still run."""
    return Check(what=what, look=partial(_guarded, function, look))


def _guarded(function: Callable[[Look], Iterable[Finding]], look: Look) -> Iterable[Finding]:
    try:
        yield from function(look)
    except NoAccess:
        raise
    except Refused as error:
        fix = "give this identity the right to read it, or ask who has it" if error.denied else ""
        yield warn(f"not checked: {error}", fix)


def absent(error: Refused) -> bool:
    """Whether AWS says that a thing is not there. Services have many words for it."""
    return error.code.endswith((".NotFound", "NotFoundException", "NotFound")) or error.code in {
        "NoSuchEntity", "NoSuchBucket", "NoSuchResourceException", "FileSystemNotFound", "404", "ResourceNotFound",
        "InvalidReservationID.NotFound", "InvalidCapacityReservationId.NotFound",
    }  # fmt: skip
