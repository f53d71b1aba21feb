"""The shares by which jobs of one priority take turns: what their owners used, against what they are owed. Pure.

    shares = divide(used, claims, now)      # for all jobs, from one moment; the same figures give the same order
    shares.of(claim)                        # (the team's, the user's): 1.0 has used what it is owed, who used less goes first

Used are the GPU-seconds that a user's jobs held, halved every 7 days (ebb/api/usage.py keeps the sums). Owed is an equal part:
to each team of all, and to each user of the team. Teams are compared first, then the users of one team, as Slurm's Fair Tree
does, so that a team does not get more by having more users: https://slurm.schedmd.com/fair_tree.html. Slurm divides the owed
by the used; this is the inverse of that, which needs no special case for who has used nothing.

By shares alone, whoever used much waits until all others did: for days, if they had nothing before. So one job of an owner who
has no machines at all goes before all of its priority once it has waited for a day.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ebb.api.queue import Borrowing, Waiting
from ebb.api.usage import Owner
from ebb.controller.reconciler.capacity import OVERDUE, OVERDUE_SECONDS, Claim, Key, Share
from ebb.controller.reconciler.lending import Loan

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The shares of all owners at one moment."""

    teams: Mapping[str, float] = field(default_factory=dict)
    users: Mapping[Owner, float] = field(default_factory=dict)
    overdue: frozenset[Key] = frozenset()

    def of(self, claim: Claim) -> Share:
        """Return (the team's, the user's); an owner that is not known has used nothing."""
        if claim.key in self.overdue:
            return OVERDUE
        return self.teams.get(claim.owner[0], 0.0), self.users.get(claim.owner, 0.0)


def divide(used: Mapping[Owner, float], claims: Iterable[Claim], now: float) -> Shares:
    """Of all who used something lately, have machines, or wait for some."""
    known = tuple(claims)
    owners = {one.owner for one in known} | used.keys()
    by_team: defaultdict[str, dict[Owner, float]] = defaultdict(dict)
    for owner in sorted(owners):  # sums of floating point depend on the order
        by_team[owner[0]][owner] = used.get(owner, 0.0)
    teams = _ratios({team: sum(members.values()) for team, members in by_team.items()})
    users = {owner: ratio for members in by_team.values() for owner, ratio in _ratios(members).items()}
    return Shares(teams=teams, users=users, overdue=_overdue(known, now))


def describe_line(line: Iterable[tuple[Claim, str, Loan | None]], turn: Key | None = None) -> Iterator[Waiting]:
    """The jobs that wait as people see them; `line` has them in their order, each with its reason. `turn`: of those that borrow
    the one that goes before owners (lending.py)."""
    of_priority, overdue, of_share, last, owners, first = 0, 0, 0, None, 0, 0
    for place, (one, why, loan) in enumerate(line):
        mine = one.key == turn
        if loan and not owners and not mine:  # it, and all behind it, borrow
            owners, last = place - first, None
        number = place - first - owners
        if last is None or last.priority != one.priority:
            of_priority, overdue, of_share = number, 0, number
        elif last.share != one.share:
            of_share = number
        if last is not None and last.priority == one.priority and last.share == OVERDUE != one.share:
            overdue = number - of_priority
        late, last, first = one.share == OVERDUE, None if mine else one, first + mine
        yield Waiting(
            namespace=one.key[0],
            job=one.key[1],
            user=one.owner[1],
            workers=one.least,
            gpus=one.least * one.wish.needs.gpus,
            why=why,
            priority=of_priority,
            overdue=overdue,
            share=of_share - of_priority - overdue,
            older=number - of_share,
            team_used=None if late else one.share[0],
            user_used=None if late else one.share[1],
            quota=owners,
            turn=first - mine,
            has_turn=mine,
            borrows=loan.gpus if loan else 0,
            lenders=loan.lenders if loan else (),
        )


def describe_loans(loans: Iterable[tuple[Claim, Loan]]) -> Iterator[Borrowing]:
    """The jobs that borrow, as people see them."""
    for one, loan in loans:
        yield Borrowing(namespace=one.key[0], job=one.key[1], user=one.owner[1], gpus=loan.gpus, lenders=loan.lenders)


def _ratios(used: Mapping[T, float]) -> dict[T, float]:
    """Of each what it used against an equal part of the sum."""
    whole = sum(used.values())
    # Rounded, so that figures that differ by what a look takes do not reorder the line of all jobs.
    return {one: round(amount * len(used) / whole, 4) if whole else 0.0 for one, amount in used.items()}


def _overdue(claims: tuple[Claim, ...], now: float) -> frozenset[Key]:
    """The first job of each owner who has no machines, if it has waited for too long. One that could not start does not count."""
    served = {one.owner for one in claims if one.located}
    first: dict[Owner, Claim] = {}
    for one in sorted(claims, key=lambda one: one.rank):
        if one.owner not in served and (not one.refused or one.quota is not None):
            first.setdefault(one.owner, one)
    return frozenset(one.key for one in first.values() if now - one.created >= OVERDUE_SECONDS)
