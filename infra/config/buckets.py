"""Readers of the stack's buckets: jobs without a team read those that name no team, a team reads those that name it.

by_reader(settings.storage.buckets)       # {"": [...], "vision": [...]}: an identity of its own for each
mounted(settings.storage.buckets)          # those that jobs have as files; the others are copied
yield from check("aws.storage.buckets", settings.storage.buckets, stack, taken=VOLUMES)
yield from uncovered(stack)               # data sets in other buckets
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, TypeVar

from ebb.api.buckets import CREDENTIALS
from infra.config.model import Stack
from infra.config.section import Problem


class Named(Protocol):
    """A bucket of the stack's file."""

    @property
    def name(self) -> str: ...
    @property
    def teams(self) -> tuple[str, ...]: ...


class Located(Named, Protocol):
    """One that copies read."""

    @property
    def url(self) -> str: ...


class Moded(Named, Protocol):
    """One that a stack may have mounted or copied."""

    @property
    def mode(self) -> str: ...


B = TypeVar("B", bound=Named)
M = TypeVar("M", bound=Moded)


def mounted(buckets: Sequence[M]) -> tuple[M, ...]:
    return tuple(one for one in buckets if one.mode == "mount")


def by_reader(buckets: Sequence[B]) -> dict[str, list[B]]:
    found: dict[str, list[B]] = {}
    for one in buckets:
        for team in dict.fromkeys(one.teams) or ("",):
            found.setdefault(team, []).append(one)
    return found


def check(where: str, buckets: Sequence[Named], stack: Stack, *, taken: Collection[str]) -> Iterator[Problem]:
    """`taken`: names of the stack's volumes."""
    known = set(taken)
    for index, one in enumerate(buckets):
        if one.name in known:
            text = f"{one.name!r} is taken: rename it, as `--data` takes the name and a mounted one is at /mnt/<name>"
            yield Problem(f"{where}[{index}].name", text)
        known.add(one.name)
        for team in dict.fromkeys(one.teams):
            if team not in stack.teams:
                allowed = f"allowed are {', '.join(sorted(stack.teams))}" if stack.teams else "the stack has no teams"
                text = f"{team!r} is no team of this stack; {allowed}: add it under teams, or take it out here"
                yield Problem(f"{where}[{index}].teams", text, ("teams",))


def uncovered(stack: Stack) -> Iterator[Problem]:
    """Data sets in buckets that nobody may read."""
    where = f"{stack.cloud}.storage.buckets"
    buckets: Sequence[Located] | None = getattr(getattr(stack.settings, "storage", None), "copied", None)
    readable = [one.url.rstrip("/") for one in buckets or () if not one.teams]
    for index, one in enumerate(stack.datasets):
        has_credentials = one.secrets or one.environment  # a public bucket needs no secret, but a variable
        if one.url.startswith("https://") or has_credentials or any(f"{one.url}/".startswith(f"{url}/") for url in readable):
            continue
        variables = CREDENTIALS[one.url.partition("://")[0]]
        add = "" if buckets is None else f"add it to {where}, without teams, or "
        text = (
            f"nothing says with whose credentials {one.url} is read: {add}under secrets name those that become "
            f"{variables} (a secret a-b becomes A_B); docs/data.md has other ways, and public ones"
        )
        yield Problem(f"datasets[{index}].url", text, (where,))
