"""Limits on status writes and on retries of refused creations, so that many jobs do not flood an API server.

    limit = WriteLimit(); wait = limit.wait(key, job.status, decided, now); limit.wrote(key, now)
    retries = Retries(); words = retries.failed(key, message)
    refusals = Refusals(); seconds = refusals.refused(key, messages, now); refusals.resting(key, now)

While 64 workers start, most looks find other figures and nothing else, and of 30 that vanish, each look some more. Those are
written about once per second. Whatever must be
remembered before it is acted upon, and whatever people were told of, is written at once: the planner's rules in reconcile.py.
Pure: times are arguments, of a monotonic clock.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ebb.api import contract as names
from ebb.api.status import Condition, Member, Status
from ebb.controller.reconciler.types import CreatePod, CreateRun, CreateService, CreateWorkload, Plan

Key = tuple[str, str]

WRITE_SECONDS = 1.0
TOLD_FAILURES = 3  # in a row
FIRST_REFUSAL_SECONDS, LAST_REFUSAL_SECONDS = 5.0, 60.0  # of a quota or an admission rule: the world must change first


class WriteLimit:
    """Writes of statuses, by job."""

    def __init__(self) -> None:
        self._written: dict[Key, float] = {}

    def wait(self, key: Key, old: Status, decided: Plan, now: float) -> float:
        """Seconds for which this status need not be written yet; the look at the end of them finds it again. 0: write it."""
        due = self._written.get(key, float("-inf")) + WRITE_SECONDS
        return due - now if now < due and only_figures(old, decided) else 0.0

    def wrote(self, key: Key, now: float) -> None:
        """A status was written."""
        self._written[key] = now

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self._written.pop(key, None)


@dataclass(frozen=True)
class _Refusal:
    count: int
    until: float
    messages: tuple[str, ...]


class Refusals:
    """Creations that the API server refused for good reasons, by job."""

    def __init__(self) -> None:
        self._held: dict[Key, _Refusal] = {}

    def refused(self, key: Key, messages: Sequence[str], now: float) -> float:
        """Seconds after which to try again, doubling from 5 to 60."""
        count = self._held[key].count if key in self._held else 0
        wait = float(min(LAST_REFUSAL_SECONDS, FIRST_REFUSAL_SECONDS * 2.0 ** min(count, 20)))
        self._held[key] = _Refusal(count + 1, now + wait, tuple(messages))
        return wait

    def resting(self, key: Key, now: float) -> tuple[float, tuple[str, ...]]:
        """Seconds for which nothing is to be created, and why; (0, ()) if it may be."""
        held = self._held.get(key)
        return (held.until - now, held.messages) if held is not None and now < held.until else (0.0, ())

    def repeats(self, key: Key, messages: Sequence[str]) -> bool:
        """Return whether people were told the same the last time."""
        return key in self._held and self._held[key].messages[0] == messages[0]

    def forget(self, key: Key) -> None:
        """A creation succeeded, or the job is another one now."""
        self._held.pop(key, None)


class Retries:
    """Errors of the API server that are tried again, by job: of what passes at once nobody needs to hear."""

    def __init__(self) -> None:
        self._failures: dict[Key, tuple[int, str]] = {}

    def failed(self, key: Key, message: str) -> str:
        """Take in the next failure in a row; returns the words to tell people, "" for none yet.

        Words that differ in figures alone, such as a duration, stay as they were: each other one is a write and an event."""
        count, words = self._failures.get(key, (0, ""))
        if _without_figures(message) != _without_figures(words):
            words = message
        self._failures[key] = count + 1, words
        return self.words(key)

    def words(self, key: Key) -> str:
        """The same, without another failure."""
        count, words = self._failures.get(key, (0, ""))
        return words if count >= TOLD_FAILURES else ""

    def forget(self, key: Key) -> None:
        """A round succeeded, or the job is gone."""
        self._failures.pop(key, None)


def _without_figures(message: str) -> str:
    return re.sub(r"[0-9]+", "", message)


def without_creations(decided: Plan) -> Plan:
    """The same plan, creating no pods, Services and Workloads, and telling of none."""
    return replace(
        decided,
        actions=tuple(
            item for item in decided.actions if not isinstance(item, CreatePod | CreateRun | CreateService | CreateWorkload)
        ),
        events=tuple(event for event in decided.events if event.reason != names.REASON_POD_CREATED),
    )


def as_before(old: Status, decided: Plan) -> Plan:
    """The same plan after a condition was changed twice: what says the same as before keeps its times, and where nothing else
    changed but the time on the bill, nothing did."""
    before = {item.type: item for item in old.conditions}
    conditions = tuple(
        was
        if (was := before.get(item.type)) and (*_without_message(was), was.message) == (*_without_message(item), item.message)
        else item
        for item in decided.status.conditions
    )
    status = replace(decided.status, conditions=conditions)
    still = replace(status, cost=old.cost, last_reconcile_time=old.last_reconcile_time) == old
    return replace(decided, status=old if still else status)


def only_figures(old: Status, decided: Plan) -> bool:
    """Return whether a status differs from the written one only in what the next look finds again by itself: in figures, and in
    workers that vanished, which the written members show until then."""
    new, vanished = decided.status, bool(decided.happened)
    if not decided.can_wait or not _loses_nothing(old.members, new.members, or_vanished=vanished):
        return False
    if [_without_message(item) for item in old.conditions] != [_without_message(item) for item in new.conditions]:
        return False
    shown = replace(new, reclaims=old.reclaims, history=old.history) if vanished else new
    return old == replace(
        shown,
        conditions=old.conditions,
        cost=old.cost,
        last_reconcile_time=old.last_reconcile_time,
        members=old.members,
        progress=old.progress,
        gpus=old.gpus,
        ready=old.ready,
        replica_statuses=old.replica_statuses,
        replicas=old.replicas,
    )


def _without_message(condition: Condition) -> tuple[str, str, str]:
    """All but the sentence, in which the figures are."""
    return condition.type, condition.status, condition.reason


def _loses_nothing(old: Sequence[Member], new: Sequence[Member], *, or_vanished: bool) -> bool:
    """Return whether no outcome was settled: the status alone shows that a loss is counted, or was the controller's own doing."""
    after = {member.uid: member for member in new}
    for member in old:
        now = after.pop(member.uid, None)
        if now is None and not member.settled and member.node and not or_vanished:
            return False
        if now is not None and now.settled != member.settled:
            return False
    return not any(member.settled for member in after.values())
