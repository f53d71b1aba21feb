"""A stack and how to ask Azure about it, for the checks of preflight and the search for leftovers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.account import preflight
from infra.clouds.azure import names
from infra.clouds.azure.rest import Arm, Refused

GROUPS_VERSION, RESOURCES_VERSION = "2021-04-01", "2021-04-01"


@dataclass(frozen=True, kw_only=True)
class Look(preflight.Look):
    """A stack and its subscription."""

    arm: Arm
    address: Callable[[], str] = lambda: preflight.public_address("https://api.ipify.org")

    def is_ours(self, tags: Mapping[str, str] | None) -> bool:
        """True if something has the stack's tag."""
        return (tags or {}).get(names.STACK) == self.stack_name


def find(arm: Arm, path: str, version: str) -> dict[str, Any] | None:
    """The resource there, or None. Raises Refused."""
    try:
        return arm.get(path, version)
    except Refused as error:
        if error.absent:
            return None
        raise
