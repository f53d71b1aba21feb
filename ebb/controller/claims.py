"""All jobs, each parsed once per version, and the machines that they claim from one another.

    claims = Claims(clock=time.time)
    effect = claims.put(key, value)             # value None: the job is gone
    claims.job(key); claims.cluster_capacity(but=key); claims.waiting(effect)

What one job claims changes when it is placed, ends, is suspended, held, scaled or deleted; only then may it matter to those
that wait. A decision counts for the others as soon as it is made (`decided`), before its status is written: two jobs that are
reconciled in the same moment must not both count on the same machines.
"""

import enum
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, overload

from ebb.api import contract as names
from ebb.api.platform import Platform
from ebb.api.spec import Job, SpecError
from ebb.api.status import Dry, Status
from ebb.api.usage import Owner
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity, Share, survey
from ebb.controller.reconciler.fair_share import Shares, divide
from ebb.controller.reconciler.queue import SharedCapacity, SharedLine

Object = dict[str, Any]
Key = tuple[str, str]

NOBODY: Key = ("", "")
REFRESH_SECONDS = 60.0  # how late a claim may forget a reclaim or a stockout that is no longer recent
# How late the others may learn of a new job that waits. Thousands that are submitted one after the other, each with a new walk of
# the line, cost the square of their number.
NEWCOMER_SECONDS = 1.0
# Reasons to wait that another job's change may end; the others end with a change of the job's own pods.
BEHIND_OTHERS = frozenset(
    {
        names.WAITING_BEHIND,
        names.WAITING_FOR_GROUP,
        names.WAITING_FOR_ZONE,
        names.WAITING_FOR_QUOTA,
        names.WAITING_QUOTA_TOO_SMALL,
        names.WAITING_TEAM_BUDGET,
        names.WAITING_DRY,
        names.WAITING_CLOUD_QUOTA,
        names.REASON_RELEASED,
    }
)

# What only a mistake of ours can raise, for one job: it must not stop the others.
BUGS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
log = logging.getLogger(__name__)


class Effect(enum.Enum):
    """Effect of a job's change on the others."""

    NONE = "none"
    SHRANK = "shrank"  # it has fewer machines beyond its first ones: more room for those that follow free capacity
    MOVED_ON = "moved on"  # it has its machines or its place, so the next in line may be it
    CAME = "came"  # it waits behind others now: those of lower priority may have to stop for it
    FREED = "freed"  # machines are free that it had or was to have


class Claims:
    """See the module's docstring. `clock` is wall time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._jobs: dict[Key, Job | SpecError] = {}
        self._shown: dict[Key, Job] = {}  # with the status that was decided last
        self._claims: dict[Key, Claim] = {}
        self._dry: dict[Key, tuple[Dry, ...]] = {}
        self._priorities: Mapping[str, int] = {}
        self._used: Mapping[Owner, float] = {}
        self._shares = Shares()
        self._fresh_at = 0.0
        self._index = _Index()
        self._line: SharedLine | None = None  # as long as none changes in what the line depends on
        self._line_until = math.inf  # when it is to know of the newcomers

    def put(self, key: Key, value: Object | None) -> Effect:
        """Take in a job's new version."""
        if value is None:
            self._jobs.pop(key, None)
            return self._survey(key, None)
        try:
            job = Job.of(value)
            effect = self._survey(key, job)
        except SpecError as error:
            self._jobs[key] = error
            return self._survey(key, None)
        except BUGS as error:
            # This is called by the watch: what one user writes must not end it for all others.
            log.exception("%s/%s: the controller cannot read this job", *key)
            self._jobs[key] = SpecError(f"the controller cannot read this job: {error!r}")
            return self._survey(key, None)
        self._jobs[key] = job
        return effect

    def decided(self, key: Key, status: Status) -> Effect:
        """Take in the status that is about to be written."""
        job = self._jobs.get(key)
        return self._survey(key, replace(job, status=status)) if isinstance(job, Job) else Effect.NONE

    def job(self, key: Key) -> Job:
        """Raises SpecError for one that cannot be understood, KeyError for one that is not there."""
        job = self._jobs[key]
        if isinstance(job, SpecError):
            raise job
        return job

    def cluster_capacity(self, *, but: Key) -> ClusterCapacity:
        """The market without the job that asks."""
        now = self._clock()
        if now - self._fresh_at >= REFRESH_SECONDS:
            self._refresh(now)
        # Thousands of jobs look at one another while they wait: each without a loop over the others.
        dry = chain.from_iterable(entries for key, entries in self._dry.items() if key != but)
        return _Others(claims=_AllBut(self._claims, but), dry=tuple(dry), line=self.standing(), me=but, index=self._index)

    def share(self, key: Key) -> Share:
        """By which a job takes its turn; as the others see it."""
        claim = self._claims.get(key)
        return claim.share if claim else (0.0, 0.0)

    def used(self, used: Mapping[Owner, float]) -> None:
        """Take in what owners used until now. The order follows when claims are refreshed, and stays in between; the first time,
        which is after a start, it follows at once."""
        first, self._used = not self._used and bool(used), used
        if first:
            self._refresh(self._clock())

    def standing(self) -> SharedLine:
        """The line as it is; what changes is in the next one."""
        if self._line is None or self._clock() >= self._line_until:
            self._line, self._line_until = SharedLine(self._claims.values()), math.inf
        return self._line

    def rank(self, priorities: Mapping[str, int]) -> None:
        """The values of the PriorityClasses changed."""
        self._priorities = priorities
        self._refresh(self._clock())

    def waiting(self, effect: Effect, platform: Platform | None = None) -> Iterator[Key]:
        """The jobs for which this may be what they wait for. Of thousands in a line only those are told whose turn it may be: the
        others look by themselves every half minute, for what they tell people."""
        urgent = self._index.most_urgent
        if urgent is not None and effect is not Effect.SHRANK:
            yield from [key for key, claim in self._claims.items() if claim.located and claim.priority < urgent]
        if effect is not Effect.SHRANK:  # what a team has lent may be wanted back
            yield from [key for key in self.standing().borrowing(platform) if self._claims[key].located]
        if effect is Effect.CAME:
            return
        if effect is not Effect.SHRANK:
            yield from [key for key, claim in self._claims.items() if claim.loan]
        stuck = self.standing().stuck(platform)
        for key, job in list(self._jobs.items()):
            if key not in stuck and isinstance(job, Job) and not job.spec.suspend and not job.status.ended:
                short = job.status.state in (names.WAITING, names.RESTARTING)
                told = job.automatic if effect is Effect.SHRANK else _behind(job)
                if told or (short and effect is Effect.FREED):
                    yield key

    def _refresh(self, now: float) -> None:
        self._fresh_at = now
        self._shares = divide(self._used, self._claims.values(), now)
        for key, job in list(self._shown.items()):
            self._survey(key, job)

    def _survey(self, key: Key, job: Job | None) -> Effect:
        old, new = self._claims.get(key), None
        self._dry.pop(key, None)
        self._shown.pop(key, None)
        if job is not None:
            self._shown[key] = job
            alone = survey((job,), self._priorities, self._clock(), but=NOBODY)
            new = next(iter(alone.claims), None)
            new = replace(new, share=self._shares.of(new)) if new else None
            if alone.dry:
                self._dry[key] = alone.dry
        if new is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = new
        self._index.change(old, new)
        if old is None and new is not None and not new.located:
            self._line_until = min(self._line_until, self._clock() + NEWCOMER_SECONDS)
        elif new is None or old is None or _in_line(new) != _in_line(old):
            self._line = None
        return _effect(old, new)


class _Index:
    """The few claims that jobs look for among all."""

    def __init__(self) -> None:
        self._behind: Counter[int] = Counter()  # priority -> jobs that have no place because others have the machines
        self.short: dict[str, dict[Key, Claim]] = {}  # namespace -> its jobs that a quota keeps below minReplicas

    @property
    def most_urgent(self) -> int | None:
        """The highest priority of a job that waits behind others; None: there is none."""
        return max(self._behind, default=None)

    def change(self, old: Claim | None, new: Claim | None) -> None:
        """Take in a claim's new version."""
        if old and old.waits_behind:
            self._behind[old.priority] -= 1
            if not self._behind[old.priority]:
                del self._behind[old.priority]
        if old and old.quota is not None:
            self.short[old.key[0]].pop(old.key)
        if new and new.waits_behind:
            self._behind[new.priority] += 1
        if new and new.quota is not None:
            self.short.setdefault(new.key[0], {})[new.key] = new


class _AllBut(Sequence[Claim]):
    """The claims of the others, for the few that go through them all."""

    def __init__(self, claims: Mapping[Key, Claim], me: Key) -> None:
        self._claims, self._me = claims, me

    def __iter__(self) -> Iterator[Claim]:
        return (claim for key, claim in self._claims.items() if key != self._me)

    def __len__(self) -> int:
        return len(self._claims) - (self._me in self._claims)

    @overload
    def __getitem__(self, place: int) -> Claim: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Claim]: ...
    def __getitem__(self, place: int | slice) -> Claim | Sequence[Claim]:
        return tuple(self)[place]


@dataclass(frozen=True, kw_only=True)
class _Others(SharedCapacity):
    """The others as one job sees them."""

    me: Key
    index: _Index

    def urgent(self, than: int) -> list[Claim]:
        most = self.index.most_urgent
        return super().urgent(than) if most is not None and most > than else []

    def short_of_quota(self, namespace: str) -> list[Claim]:
        return [one for key, one in self.index.short.get(namespace, {}).items() if key != self.me]


def _in_line(claim: Claim) -> Claim:
    """The claim without what leaves the line as it is: of thousands of jobs that wait, each one's first look changes that."""
    return replace(claim, waits_behind=False, gpu_hours=0, pods=0, quota=None)


def _behind(job: Job) -> bool:
    running = job.status.condition(names.RUNNING)
    blocked = running is not None and running.status != "True" and running.reason in BEHIND_OTHERS
    return job.status.placement is None or job.automatic or blocked


def _effect(old: Claim | None, new: Claim | None) -> Effect:
    if old is None:
        return Effect.CAME if new is not None and new.waits_behind else Effect.NONE
    if new is None or new.wanted < old.wanted or new.holds < old.holds or (old.zone and _site(new) != _site(old)):
        return Effect.FREED
    if new.wish != old.wish or new.group != old.group:
        return Effect.FREED  # what it kept from others, by what it asked for or by its sweep, may be something else now
    if (old.waits and not new.waits) or _site(new) != _site(old) or new.priority < old.priority:
        return Effect.MOVED_ON
    if new.waits_behind and (not old.waits_behind or new.priority > old.priority):
        return Effect.CAME
    return Effect.SHRANK if _taken(new) < _taken(old) else Effect.NONE


def _taken(claim: Claim) -> int:
    """Workers whose machines even an automatic job leaves alone (sizing.py)."""
    return max(claim.holds, claim.placed)


def _site(claim: Claim) -> tuple[str, str, str]:
    return claim.zone, claim.gpu_type, claim.capacity_type
