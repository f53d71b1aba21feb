"""Readers of the stack's buckets: jobs without a team read those that name no team, a team reads those that name it.

by_reader(settings.storage.buckets)       # {"": [...], "vision": [...]}: an identity of its own for each
yield from check("aws.storage.buckets", settings.storage.buckets, stack)
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from infra.config.model import Stack
from infra.config.section import Problem


class Named(Protocol):
    """A bucket of the stack's file."""

    @property
    def name(self) -> str: ...
    @property
    def teams(self) -> tuple[str, ...]: ...


B = TypeVar("B", bound=Named)


def by_reader(buckets: Sequence[B]) -> dict[str, list[B]]:
    found: dict[str, list[B]] = {}
    for one in buckets:
        for team in dict.fromkeys(one.teams) or ("",):
            found.setdefault(team, []).append(one)
    return found


def check(where: str, buckets: Sequence[Named], stack: Stack) -> Iterator[Problem]:
    for index, one in enumerate(buckets):
        for team in dict.fromkeys(one.teams):
            if team not in stack.teams:
                allowed = f"allowed are {', '.join(sorted(stack.teams))}" if stack.teams else "the stack has no teams"
                text = f"{team!r} is no team of this stack; {allowed}: add it under teams, or take it out here"
                yield Problem(f"{where}[{index}].teams", text, ("teams",))
