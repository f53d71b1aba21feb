"""Jobs that a ResourceQuota keeps below minReplicas: they hold nothing for long, so that one of them can start. Pure.

    status = noted(job, status, messages, now)      # after the API server refused creations
    waits = quotas.verdict(view, draft, me)         # (reason, sentence): the job is to have no workers now
    quotas.make_room(view, draft)                   # stops workers beyond minReplicas that keep another job's first ones out

A quota lets pods in one by one, so two jobs of a namespace may each get half of what both need. Of the jobs that a quota keeps
below minReplicas only the first in the order of all jobs keeps its workers, while those behind hold what it lacks; they give
theirs back after REFUSED_SECONDS, and try again when the ones before have their workers and the quota leaves room for all of
theirs. Newcomers behind a job that waits wait too, and nobody's elastic workers are made meanwhile; those that there are make
room, as they do for machines, where that is enough. A job that has minReplicas workers gives none of these.

As everywhere, what owners used decides who gets the next place and not who keeps one: among jobs that hold nothing the order is
that of the line (Claim.order), and where one of two holds workers it is that of priority and age (Claim.rank).

The room is reckoned from the API server's words and the other jobs' statuses. That the quota was changed, or what else it counts
went, nobody says: a trial every now and then finds out, and what it gets in vain is given back at once. A job whose minReplicas
is beyond what the quota allows at all waits for nobody and keeps nobody out.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.needs import Needs
from ebb.api.quantities import counted
from ebb.api.spec import Job
from ebb.api.status import Quota, Status
from ebb.controller.reconciler.capacity import Claim, claim
from ebb.controller.reconciler.failure_policy import stop
from ebb.controller.reconciler.scheduling import doubled
from ebb.controller.reconciler.types import JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Outcome

EXCEEDED = "exceeded quota"  # the words of Kubernetes' ResourceQuota admission
REFUSED_SECONDS = 60.0
FIRST_SECONDS = 300.0  # of the first in the order: those behind leave within their grace, and refusals rest for a minute
TRIAL_SECONDS, TRIAL_MAX_SECONDS = 120.0, 1800.0
_WORDS = re.compile(r'"[^"]*-worker-(\d+)" is forbidden: exceeded quota: (.+?), requested: (\S+), used: (\S+), limited: (\S+)')

Wait = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A refusal of one worker, about the resource of which the quota allows the fewest workers."""

    worker: int
    quota: str
    resource: str
    each: str  # of one worker, as the API server spells it
    used: float
    limit: str

    @classmethod
    def of(cls, message: str) -> "Refusal | None":
        """None: not the words of a quota about a worker."""
        match = _WORDS.search(message)
        if match is None:
            return None
        requested, used, limited = (_amounts(match[group]) for group in (3, 4, 5))
        known = [name for name, amount in requested.items() if counted(amount) and name in limited]
        if not known:
            return None
        name = min(known, key=lambda one: counted(limited[one]) / counted(requested[one]))
        used_now = counted(used.get(name))
        return cls(worker=int(match[1]), quota=match[2], resource=name, each=requested[name], used=used_now, limit=limited[name])

    def room_for(self, workers: int) -> bool:
        """Return whether the quota allows so many of its workers, when nothing else is there."""
        return workers * counted(self.each) <= counted(self.limit)


def _amounts(words: str) -> dict[str, str]:
    return {name: amount for name, _, amount in (pair.partition("=") for pair in words.split(","))}


def noted(job: Job, status: Status, messages: Sequence[str], now: float) -> Status:
    """Remember that a quota refused one of the first minReplicas workers; others are no reason to give anything back."""
    found = ((message, Refusal.of(message)) for message in messages)
    message, refusal = next(((text, one) for text, one in found if one and one.worker < job.min_replicas), ("", None))
    if refusal is None or status.is_true(names.RUNNING):
        return status
    old = status.quota or Quota(since=stamp(now, digits=3), generation=job.generation)
    too_small = not refusal.room_for(job.min_replicas)
    room = old.room if old.message == message else None
    return replace(status, quota=replace(old, message=message, too_small=too_small, room=room))


@dataclass(frozen=True, kw_only=True)
class _Short:
    """A job that a quota keeps below minReplicas, with the other jobs of its namespace."""

    me: Claim
    quota: Quota
    refusal: Refusal
    others: tuple[Claim, ...]

    @property
    def first(self) -> Claim | None:
        """The first before it that a quota keeps below minReplicas too."""
        return _first_of((one for one in self.others if one.quota is not None), self.me)

    def fits_beside(self, others: Iterable[Claim]) -> bool:
        """Return whether its minReplicas workers fit beside these jobs' workers."""
        return (self.quota.room or 0.0) - _taken(self.refusal, others) >= self.me.least * counted(self.refusal.each)


def verdict(view: JobView, draft: PlanBuilder, me: Claim) -> Wait | None:
    """The reason why the job is to have no workers now. Keeps status.quota up to date."""
    quota, capacity = draft.status.quota, view.observed.cluster_capacity
    alive = sum(verdict.outcome is Outcome.LIVES for _, verdict in view.workers) + view.finished(draft.status)
    if quota and (quota.generation != view.job.generation or (quota.at is None and alive >= me.least)):
        quota = None
        draft.status = replace(draft.status, quota=None)
    if quota is None:
        first = None if alive or draft.status.placement else _first_of(capacity.short_of_quota(me.key[0]), me)
        return (names.WAITING_FOR_QUOTA, f"{_title(first)} goes first within the namespace's quota.") if first else None
    refusal = Refusal.of(quota.message)
    if refusal is None:
        return None  # a trial whose outcome is not known yet
    others = tuple(one for one in capacity.claims if one.key[0] == me.key[0])
    if quota.room is None:
        quota = replace(quota, room=_room(view, refusal, others))
        draft.status = replace(draft.status, quota=quota)
    short = _Short(me=me, quota=quota, refusal=refusal, others=others)
    return _holds(view, draft, short) if quota.at is None else _waits(view, draft, short)


def _first_of(short: Iterable[Claim], me: Claim) -> Claim | None:
    """The first of these before this one."""
    before = [one for one in short if (one.rank < me.rank if one.located or me.located else one.order < me.order)]
    return _next(before)


def _next(short: Sequence[Claim]) -> Claim | None:
    """The one whose turn it is."""
    if any(one.located for one in short):
        return min(short, key=lambda one: one.rank)
    return min(short, key=lambda one: one.order, default=None)


def leaves_none_for_more(view: JobView) -> bool:
    """Return whether some job of the namespace lacks first workers for its quota, so that nobody's elastic ones are made."""
    return bool(view.observed.cluster_capacity.short_of_quota(view.job.namespace))


def make_room(view: JobView, draft: PlanBuilder) -> None:
    """Stop as many of the workers beyond minReplicas as the first job lacks that the quota keeps out; of several jobs that have
    such workers, those behind in the order give theirs first."""
    capacity = view.observed.cluster_capacity
    first = _next(capacity.short_of_quota(view.job.namespace))
    refusal = Refusal.of(first.quota.message) if first and first.quota else None
    if first is None or first.quota is None or first.quota.room is None or refusal is None:
        return
    me = claim(view.job, view.observed.priorities, view.now)
    others = [one for one in capacity.claims if one.key[0] == view.job.namespace and one is not first]
    holders = sorted((*others, me), key=lambda one: one.rank, reverse=True)
    lacks = first.least * counted(refusal.each) - (first.quota.room - _taken(refusal, holders))
    if lacks > sum(max(0, one.pods - one.least) * _share(refusal, one.wish.needs) for one in holders):
        return  # it could not start even so
    for one in holders:
        share = _share(refusal, one.wish.needs)
        gives = min(max(0, one.pods - one.least), ceil(lacks / share)) if share and lacks > 0 else 0
        lacks -= gives * share
        if one is me:
            _stop_last(view, draft, gives, first)


def _stop_last(view: JobView, draft: PlanBuilder, count: int, first: Claim) -> None:
    """Those that leave already are of the number."""
    living = [worker for worker, verdict in view.workers if verdict.outcome is Outcome.LIVES and not worker.leaving]
    leaving = sum(worker.leaving for worker, _ in view.workers)
    beyond = living[view.job.min_replicas :]
    goes = beyond[max(0, len(beyond) - max(0, count - leaving)) :]
    for worker in goes:
        stop(draft, worker)
    if goes:
        message = f"Stopped {len(goes)} of the workers beyond minReplicas: {_title(first)} needs the namespace's quota to start."
        draft.event(names.REASON_SCALED, message)


def _holds(view: JobView, draft: PlanBuilder, short: _Short) -> Wait | None:
    """Of a job that has some of its workers: how long it may keep them."""
    quota, me = short.quota, short.me
    # Those behind it that are short too give theirs back.
    free = short.fits_beside(one for one in short.others if one.quota is None or one.rank < me.rank)
    if free and not quota.too_small and not short.first:
        patience = FIRST_SECONDS
    else:
        patience = 0.0 if quota.too_small or quota.times else REFUSED_SECONDS
    due = (unix(quota.since) or view.now) + patience
    if view.now < due:
        draft.wakes.append(due)
        return None
    draft.status = replace(draft.status, quota=replace(quota, at=stamp(view.now, digits=3), times=quota.times + 1))
    return _sentence(view, short)


def _waits(view: JobView, draft: PlanBuilder, short: _Short) -> Wait | None:
    """Of a job that has given them back: until when."""
    quota = short.quota
    due = (unix(quota.at) or view.now) + doubled(TRIAL_SECONDS, quota.times - 1, TRIAL_MAX_SECONDS)
    behind = short.first is not None and not quota.too_small
    if behind or ((quota.too_small or not short.fits_beside(short.others)) and view.now < due):
        draft.wakes.append(max(due, view.now + REFUSED_SECONDS))
        return _sentence(view, short)
    trial = Quota(since=stamp(view.now, digits=3), generation=quota.generation, times=quota.times)
    draft.status = replace(draft.status, quota=trial)
    return None


def _sentence(view: JobView, short: _Short) -> Wait:
    refusal, least = short.refusal, short.me.least
    of_quota = f"ResourceQuota {refusal.quota!r} of namespace {view.job.namespace!r}"
    team = view.observed.platform.team_of(view.job.namespace) if view.observed.platform else None
    if team is not None:
        of_quota = f"the quota of team {team.name!r} ({of_quota})"
    need = f"{least} x {refusal.each} of {refusal.resource}"
    if short.quota.too_small:
        return names.WAITING_QUOTA_TOO_SMALL, (
            f"{of_quota} allows {refusal.limit} of {refusal.resource} in all, and minReplicas {least} needs {need}: lower "
            "minReplicas, or have the quota raised. The job holds no machines meanwhile."
        )
    first = short.first
    behind = f" Job {first.key[0]}/{first.key[1]} goes first." if first else ""
    return names.WAITING_FOR_QUOTA, (
        f"{of_quota} has no room for minReplicas {least} now ({need}, {refusal.limit} in all): the job holds no machines until "
        f"it has.{behind}"
    )


def _room(view: JobView, refusal: Refusal, others: Iterable[Claim]) -> float:
    """The amount that the quota leaves to the jobs of the namespace beside what else it counts."""
    own = sum(not worker.finished for worker, _ in view.workers) * counted(refusal.each)
    foreign = max(0.0, refusal.used - own - _taken(refusal, others))
    return counted(refusal.limit) - foreign


def _taken(refusal: Refusal, others: Iterable[Claim]) -> float:
    return sum(one.pods * _share(refusal, one.wish.needs) for one in others)


def _share(refusal: Refusal, needs: Needs) -> float:
    """The amount that one worker of another job takes; where that is not known, as much as one of this job."""
    kind = refusal.resource.removeprefix("requests.").removeprefix("limits.")
    known = {
        names.GPU_RESOURCE: float(needs.gpus),
        "cpu": needs.cpu,
        "memory": needs.memory_bytes,
        "pods": 1.0,
        "count/pods": 1.0,
    }
    return known.get(kind, counted(refusal.each))


def _title(other: Claim) -> str:
    return f"job {other.key[0]}/{other.key[1]}"
