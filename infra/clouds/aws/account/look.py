"""A stack and how to ask AWS about it, for the checks of preflight and the search for leftovers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.account import preflight
from infra.clouds.aws.account.calls import Calls, Refused

STACK_TAG = "ebb.dev/stack"


@dataclass(frozen=True, kw_only=True)
class Look(preflight.Look):
    """A stack and its account."""

    calls: Calls
    address: Callable[[], str] = lambda: preflight.public_address("https://checkip.amazonaws.com")

    def is_ours(self, tags: Any) -> bool:
        """True if a resource has the stack's tag, however its service writes tags."""
        return tag(tags, STACK_TAG) == self.stack_name


def tag(tags: Any, key: str) -> str | None:
    """The value of a tag: services give a map, or a list of pairs with keys of either case."""
    if isinstance(tags, Mapping):
        return tags.get(key)
    pairs = {one.get("Key", one.get("key")): one.get("Value", one.get("value")) for one in tags or []}
    return pairs.get(key)


def absent(error: Refused) -> bool:
    """True if AWS says that a thing is not there. Services have many words for it."""
    return error.code.endswith((".NotFound", "NotFoundException", "NotFound")) or error.code in {
        "NoSuchEntity", "NoSuchBucket", "NoSuchResourceException", "FileSystemNotFound", "404", "ResourceNotFound",
        "InvalidReservationID.NotFound", "InvalidCapacityReservationId.NotFound",
    }  # fmt: skip
