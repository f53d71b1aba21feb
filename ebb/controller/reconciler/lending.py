"""Quotas of GPUs that teams lend one another. Pure.

    pool = QuotaPool.of(platform)               # None: no team may borrow, and the ResourceQuotas alone say what a team gets
    pool.room(namespace, gpus)                  # workers of so many GPUs for which a team has room beside all that was taken
    found = borrowers(claims, pool)             # of the jobs that have machines or wait: those beyond their team's quota
    whose_turn(claims, found, pool)             # the job beyond its team's quota for which owners wait, too
    most_of(job, observed, now)                 # workers that a job may have beside the others; None: no limit

The quotas (`gpus`) of all teams that have one are a pool. A team's jobs may have what is in its own quota at any time, and up to
`borrow` GPUs more that other teams leave of theirs. Nobody writes down which of its jobs borrow: in the order of rank those that
fit into the team's quota are its own, and the others borrow. So of a team the job of the lowest priority, and of these the
newest, borrows first, and a job stops to borrow as soon as its team has room for it.

To the line (queue.py) a job that borrows is on loan. One that waits and is within its team's quota goes before all that borrow,
whatever the priorities, as if those were not there. It is placed at its first look. Where there is no room for both, as few as
will do of those that borrow stop with a checkpoint: of the lowest priority first, of these the newest. So an owner waits for the
grace of some workers, and no longer. Those that wait to borrow take turns as all jobs do, and none makes another one stop that
borrows already, unless its priority is higher.

A job that needs more than its team's whole quota has no right to the rest, and would wait for as long as the others use their
own. So one such job at a time has a turn: the first whose owner has had no machine for a day (fair_share.py). It goes before all
that wait, owners too, and nobody who is within its quota stops for it. What becomes free is kept for it, on loan to all others
until it starts, so owners still begin at their first look. Then it keeps its place for TURN_SECONDS, in which owners wait for
what it has of theirs. After these it is a job that borrows, and has no other turn for a day.

Workers beyond minReplicas never stand in the way of anybody's first ones. What is left is theirs: first each team's own part,
then the rest, both in the order of rank. Jobs in queues of Kueue's have their part, and lend and borrow by Kueue's rules alone.

ResourceQuotas hold each team to `gpus` + `borrow` in any case.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ebb.api import contract as names
from ebb.api.platform import Platform, Team
from ebb.api.spec import Job
from ebb.controller.reconciler.capacity import OVERDUE, Claim, Key, claim
from ebb.controller.reconciler.types import JobView, Observed

LARGER = "It is larger than its team's quota: what becomes free is kept for it when it has waited for a day without any machine."


class QuotaPool:
    """The GPUs of all teams with a quota, by namespace, and what was taken of them."""

    def __init__(self, teams: Mapping[str, Team]) -> None:
        self.teams = teams
        self.size = sum(map(_quota, teams.values()))
        self.used: Counter[str] = Counter()
        self._taken = 0

    @classmethod
    def of(cls, platform: Platform | None) -> "QuotaPool | None":
        """None: nobody may borrow."""
        known = platform.teams if platform else ()
        if not any(team.borrow for team in known):
            return None
        return cls({team.namespace: team for team in known if team.gpus is not None})

    @property
    def to_lend(self) -> int:
        """GPUs that no team has."""
        return max(0, self.size - self._taken)

    def has(self, one: Claim) -> bool:
        """Return whether the job's GPUs are of the pool."""
        return one.key[0] in self.teams and one.wish.needs.gpus > 0

    def beyond(self, one: Claim) -> bool:
        """Return whether a job needs more than it could ever have."""
        team = self.teams.get(one.key[0])
        return team is not None and base(one) > min(_quota(team) + team.borrow, self.size)

    def left(self, namespace: str) -> int:
        """GPUs of the team's own quota that nobody of it has."""
        return _quota(self.teams[namespace]) - self.used[namespace]

    def gpus(self, namespace: str) -> int:
        """GPUs that the team may take."""
        return max(0, min(self.left(namespace) + self.teams[namespace].borrow, self.to_lend))

    def take(self, namespace: str, gpus: int) -> None:
        """Also where it is more than there is."""
        if namespace in self.teams:
            self.used[namespace] += gpus
            self._taken += gpus

    def copy(self) -> "QuotaPool":
        """As it is now, whatever is taken of this one later."""
        copied = QuotaPool.__new__(QuotaPool)
        copied.teams, copied.size, copied.used, copied._taken = self.teams, self.size, self.used.copy(), self._taken
        return copied

    def lenders(self, namespace: str, gpus: int) -> Iterator[str]:
        """Names of the teams that leave the next so many GPUs: who leaves most comes first."""
        others = sorted((-self.left(one), team.name) for one, team in self.teams.items() if one != namespace)
        begin = sum(max(0, -self.left(one)) for one in self.teams)  # GPUs that are lent already
        end = begin + gpus
        for left, name in others:
            if begin < -left and end > 0:
                yield name
            begin, end = max(0, begin + min(left, 0)), end + min(left, 0)

    def refusal(self, one: Claim) -> str:
        """The reason why there is no room for a job's first workers, in a sentence."""
        team, used, need = self.teams[one.key[0]], self.used[one.key[0]], base(one)
        quota = (
            f"the quota of team {team.name!r} is {_quota(team)} GPUs: its jobs have {used}, minReplicas {one.least} needs {need}"
        )
        if used + need > _quota(team) + team.borrow:
            return f"{quota}, and the team may borrow {team.borrow}."
        refused = f"{quota}, and other teams have {self.to_lend} to lend."
        return f"{refused} {LARGER}" if need > _quota(team) else refused


@dataclass(frozen=True, kw_only=True)
class Loan:
    """GPUs beyond the quota of a job's team, and the names of the teams that leave them."""

    gpus: int
    lenders: tuple[str, ...]


def teams(names_of: Iterable[str]) -> str:
    """Names of teams in a sentence."""
    found = list(names_of)
    return f"team{'s' * (len(found) > 1)} {' and '.join(found)}"


def borrowers(claims: Iterable[Claim], pool: QuotaPool) -> dict[Key, int]:
    """The jobs beyond their team's quota, and how many GPUs beyond it each has or would have."""
    ours = [one for one in claims if pool.has(one)]
    own, found = QuotaPool(pool.teams), dict[Key, int]()
    used: Counter[str] = Counter()  # by those that borrow, too
    located = sorted((one for one in ours if one.located), key=lambda one: one.rank)
    waiting = sorted((one for one in ours if not one.located), key=lambda one: one.order)
    for one in (*located, *waiting):
        name, gpus = one.key[0], base(one)
        if one.elsewhere or gpus <= own.left(name):
            own.take(name, gpus)
        else:
            found[one.key] = min(gpus, used[name] + gpus - _quota(pool.teams[name]))
        used[name] += gpus if one.located or one.key not in found else 0
    return found


def whose_turn(claims: Iterable[Claim], borrowing: Mapping[Key, int], pool: QuotaPool) -> Key | None:
    """The one job beyond its team's quota that goes before all that wait; None: no such job has waited for long enough."""
    ours = [one for one in claims if one.key in borrowing]
    having = [one for one in ours if one.turn]
    if having:
        return min(having, key=lambda one: (not one.located, one.rank)).key
    due = [
        one
        for one in ours
        if one.rested and one.share == OVERDUE and not one.located and not one.refused
        if base(one) > _quota(pool.teams[one.key[0]]) and not pool.beyond(one)
    ]
    return min(due, key=lambda one: one.order).key if due else None


def verdict(view: JobView, me: Claim) -> tuple[str, str] | None:
    """The reason why a job can never have its first workers; None: it can."""
    pool = QuotaPool.of(view.observed.platform)
    if pool is None or me.located or not pool.has(me) or not pool.beyond(me):
        return None
    team = pool.teams[me.key[0]]
    return names.WAITING_QUOTA_TOO_SMALL, (
        f"the quota of team {team.name!r} is {_quota(team)} GPUs, it may borrow {team.borrow}, and all teams have {pool.size}: "
        f"minReplicas {me.least} needs {base(me)}. Lower minReplicas, or have the quota raised."
    )


def most_of(job: Job, observed: Observed, now: float) -> int | None:
    """Workers that a job of a team may have, minReplicas at least."""
    pool = QuotaPool.of(observed.platform)
    if pool is None or job.namespace not in pool.teams:
        return None
    me = claim(job, observed.priorities, now)
    if not pool.has(me):
        return None
    # As if it were placed, so that it knows with how many workers to begin.
    others = (one for one in observed.cluster_capacity.claims if one.located and one.key != me.key and pool.has(one))
    return me.least + _elastic(replace(me, located=True), [*others, me], pool)


def _elastic(me: Claim, located: list[Claim], pool: QuotaPool) -> int:
    """Workers beyond minReplicas for which there is room, when those that go first have theirs."""
    for one in located:
        pool.take(one.key[0], base(one))
    granted: Counter[Key] = Counter()
    for beyond_quota in (False, True):
        for one in sorted(located, key=lambda one: one.rank):
            name, each = one.key[0], one.wish.needs.gpus
            room = pool.gpus(name) if beyond_quota else min(pool.gpus(name), max(0, pool.left(name)))
            workers = room // each
            if one.key != me.key:
                asked = one.pods if one.automatic or one.elsewhere else max(one.wanted, one.pods)
                workers = max(0, min(asked - one.least - granted[one.key], workers))
            granted[one.key] += workers
            pool.take(name, workers * each)
    return granted[me.key]


def base(one: Claim) -> int:
    """GPUs of a job's first workers."""
    return one.least * one.wish.needs.gpus


def _quota(team: Team) -> int:
    return team.gpus or 0
