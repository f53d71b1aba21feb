"""One machine's next action, given the state it has seen: join, be ready, form a generation, be given up, leave.

    participant = Participant(etcd, settings, say=print)
    participant.open("10.1.2.3:41234")       # leaves its generation: this is its store for the next
    outcome = participant.step(view, now)    # a Record: it is in this generation; a number: look again after so many seconds
    participant.verdict(view, now)           # once in a generation
    participant.renew(); participant.leave()
    participant.ask(view, now)               # the others, where they may be cut off from this machine, which all reach etcd

member.py gives it threads and waits. It has no clock and starts nothing, so that a test can play thousands of lives.

For an etcd that has forgotten, the files of a job say what they know of its generations: checkpoints carry theirs in their names,
claims are files named by it (checkpoint/fence.py has the same). The next number is above all of them. A claim is made before its
generation is, so that a number is never given twice even when nothing was saved in between.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from ebb.compat import dataclass
from ebb.elastic.checkpoint.fence import highest_generation
from ebb.elastic.rendezvous.errors import EtcdError, LeaseGone
from ebb.elastic.rendezvous.membership import (
    Closed,
    Form,
    Rules,
    Verdict,
    Wait,
    answers_of,
    assess,
    decide,
    formation,
    may_be_apart,
    readiness,
    removal,
    to_ask,
    whole_without,
)
from ebb.elastic.rendezvous.peer_liveness import is_unreachable, refuses, unanswered
from ebb.elastic.rendezvous.state import Entry, MemberInfo, Record, View
from ebb.elastic.rendezvous.wire import Compare, Delete, Op, Put, Transaction

# What a job leaves in etcd is gone so long after its last machine. Longer than a job may be stopped and be gone on with.
KEPT_SECONDS = 7 * 24 * 3600
PATIENCE_SECONDS = 1.0  # between two looks when no news wake us: for what time alone decides
# Of a lease: who has not renewed it for so long has missed a renewal (member.py: one in each fifth).
_SILENCE_SHARE = 0.3
# A machine that did not answer, and is not on the list any more, may come back under another id within this time.
_REMEMBERED_SECONDS = 60.0
RETRY_SECONDS = 0.5  # while etcd is away, or a port is asked; also after an attempt at what another machine did first
LEFT_BEHIND = "the others went on without this machine, of which they had not heard in time; it joins them again"


class JobClosed(Exception):  # not an error: the job is over
    """Nobody meets for this job any more; the text is who said so."""


@dataclass(frozen=True, kw_only=True)
class RendezvousSettings:
    run_id: str
    address: str
    rules: Rules
    processes: int | None = None
    planned: int = 0
    lease_seconds: int = 10
    output: Path | None = None
    """The job's folder: its files know of generations that etcd may have forgotten."""

    @property
    def prefix(self) -> str:
        return f"/ebb/{quote(self.run_id, safe='')}/"


class Writer(Protocol):
    """The part of etcd.Etcd that is needed; its errors too."""

    def put(self, key: str, value: bytes, lease: int = 0) -> int: ...
    def transact(self, compares: Sequence[Compare], operations: Sequence[Op]) -> bool: ...
    def grant(self, ttl_seconds: int) -> int: ...
    def keep_alive(self, lease: int) -> int: ...
    def time_to_live(self, lease: int) -> tuple[int, int]: ...
    def revoke(self, lease: int) -> None: ...


class Participant:
    """renew, remove_dead and ask may each be called by another thread than the rest."""

    def __init__(
        self,
        etcd: Writer,
        settings: RendezvousSettings,
        *,
        say: Callable[[str], None],
        refuses: Callable[[str], bool] = refuses,
        is_unreachable: Callable[[str], bool] = is_unreachable,
        unanswered: Callable[[Collection[str]], set[str]] = unanswered,
    ) -> None:
        self._etcd, self._settings, self._say = etcd, settings, say
        self._refuses, self._is_unreachable, self._unanswered = refuses, is_unreachable, unanswered
        self._unreached: dict[str, float] = {}  # with the time at which it was last on the list
        self._answered: set[str] = set()  # since this machine has waited outside
        self._asked = 0  # the last generation after whose end it has asked the others
        self._words = MemberInfo(address=settings.address, store="")
        self._next_id = ""
        self._lease = 0
        self._put_revision = 0
        self._registered_in: View | None = None
        self._gone = False
        self.id = ""
        self.number = 0  # the last generation that this machine was in

    def open(
        self, store: str, *, liveness: str = "", failed: bool = False, by_itself: bool = False, members_only: bool = False
    ) -> None:
        """Leave the present generation; the next has these."""
        settings = self._settings
        self._words = MemberInfo(
            address=settings.address,
            store=store,
            pulse=liveness,
            processes=settings.processes,
            planned=settings.planned,
            failed=failed,
            by_itself=by_itself,
            members_only=members_only,
        )

    def step(self, view: View, now: float) -> Record | float:
        """Raises JobClosed, EtcdError; after Unreachable the same step is right again."""
        if self._gone:
            self._forget()
        if view.closed is not None:
            raise JobClosed(view.closed)
        try:
            if not self.id:
                return self._register(view, now)
            if view.record and view.includes(self.id) and view.number > self.number:
                self.number = view.number
                return view.record
            return self._take_part(view, now)
        except LeaseGone:
            return self._forget()

    def verdict(self, view: View, now: float) -> Verdict:
        """The state of this machine's generation, as far as is known."""
        if self._gone:
            return Verdict(1, lost=True, cause=True)
        return assess(view, self.id, self.number, now, self._settings.rules) if self.number and self.id else Verdict()

    def whole_without(self, view: View) -> Record | Wait | None:
        """See membership.py."""
        return whole_without(view, self.number, self._settings.rules)

    def next_peer(self, view: View) -> Entry | None:
        """The member that this machine attends to while both are in the generation: the one after it, in a ring."""
        if view.closed is not None or view.number != self.number or not view.includes(self.id) or view.record is None:
            return None
        ids = view.record.ids
        peer = ids[(ids.index(self.id) + 1) % len(ids)]
        return view.by_id.get(peer) if peer != self.id else None

    def ask(self, view: View, now: float) -> None:
        """Find out which of the others answer, where that is in question, and say so in its key. Raises EtcdError and
        NotAsked."""
        self._ask(view, now)
        if (told := answers_of(view, self.id, unreached=self._list_unreached(), asked=self._asked)) is not None:
            self._transact(told)

    def _ask(self, view: View, now: float) -> None:
        member = view.includes(self.id)
        if member:
            self._answered = set()
        asked = to_ask(view, self.id, self._unreached) - self._answered
        silent = self._unanswered(asked)
        if not member:
            self._answered |= asked - silent
        listed = {entry.words.pulse for entry in view.entries}
        known = {pulse: now if pulse in listed else seen for pulse, seen in self._unreached.items() if pulse not in asked}
        kept = {pulse: seen for pulse, seen in known.items() if now - seen < _REMEMBERED_SECONDS}
        self._unreached = kept | dict.fromkeys(silent, now)
        if member and may_be_apart(view):
            self._asked = view.number

    def remove_dead(self, view: View, entry: Entry) -> bool:
        """Its process is gone: take it off the list, if it has said nothing since. Raises EtcdError."""
        return self._transact(removal(view, entry))

    def renew(self) -> bool:
        """False when this machine has just learned that it was taken for dead: it was paused, or cut off from etcd."""
        lease = self._lease
        if not lease or self._etcd.keep_alive(lease) or lease != self._lease:
            return True
        self._gone = True
        return False

    def leave(self, *, orderly: bool = False) -> None:
        """The key goes at once. It may come back, as a newcomer.

        `orderly`: its workers have ended by agreement with the others', who may still be saving. The word that says so goes
        with the lease, in seconds.
        """
        lease, member = self._lease, self.id
        self._lease, self.id, self._next_id = 0, "", ""
        if not lease:
            return
        with contextlib.suppress(EtcdError):
            if orderly and member:
                prefix = self._settings.prefix
                self._etcd.transact([], [Delete(f"{prefix}members/{member}"), Put(f"{prefix}left/{member}", b"", lease)])
            else:
                self._etcd.revoke(lease)

    def _take_part(self, view: View, now: float) -> float:
        entry = view.by_id.get(self.id)
        if entry is None:  # not in the list yet, or no longer
            looked = view is not self._registered_in and view.revision >= self._put_revision
            return self._forget() if looked else PATIENCE_SECONDS
        says_so = entry.words.store == self._words.store
        if not says_so and view.includes(self.id):
            words = replace(self._words, unreached=self._list_unreached(), asked=self._asked)
            self._transact(readiness(view, self.id, words, self._lease))
            return PATIENCE_SECONDS
        if not says_so or not view.is_ready(entry):
            return self._forget()  # the others have gone on without it
        decision = decide(view, self.id, now, self._settings.rules)
        if isinstance(decision, Closed):
            raise JobClosed(decision.reason)
        if isinstance(decision, Form):
            return PATIENCE_SECONDS if self._form(view, decision.record) else RETRY_SECONDS
        if self._remove_dead(view, decision.holdouts):
            return PATIENCE_SECONDS
        limit = RETRY_SECONDS if decision.holdouts else PATIENCE_SECONDS
        return limit if decision.until is None else min(max(decision.until - now, 0.0), limit)

    def _form(self, view: View, record: Record) -> bool:
        claim_generation(self._settings.output, record.number, self._say)
        return self._transact(formation(view, record, self._kept_lease(view)))

    def _remove_dead(self, view: View, holdouts: tuple[Entry, ...]) -> bool:
        """Nobody needs to wait for the lease of a machine whose process is gone: its port refuses. True when there were such.

        A machine that is off or cut off does not refuse. Its peers, whose connections to it have failed, need not wait for the
        end of its lease either: it has missed a renewal, and nothing answers there. One that stands still answers. A newcomer
        may also be behind a wall that refuses in place of a machine that lives, so it asks the lease too; and one member that
        is there is enough for it, which finds out about the others by itself.
        """
        member, found = view.includes(self.id), False
        for entry in holdouts:
            if entry.id == self.id:
                continue
            if self._refuses(entry.words.pulse) and (member or self._is_silent(entry)):
                found = self.remove_dead(view, entry) or found
            elif not member:
                break
            elif self._is_silent(entry) and self._is_unreachable(entry.words.pulse):
                found = self.remove_dead(view, entry) or found
        return found

    def _is_silent(self, entry: Entry) -> bool:
        left, granted = self._etcd.time_to_live(entry.lease)
        return granted - left - 1 >= _SILENCE_SHARE * granted  # what is left is rounded down

    def _list_unreached(self) -> tuple[str, ...]:
        return tuple(sorted(self._unreached))

    def _register(self, view: View, now: float) -> float:
        """As a newcomer. Repeated as it is when no answer comes: it must not be there twice."""
        self._ask(view, now)  # before they stop for it
        if not self._lease:
            self._lease = self._etcd.grant(self._settings.lease_seconds)
        self._next_id = self._next_id or secrets.token_hex(8)
        key = f"{self._settings.prefix}members/{self._next_id}"
        # read now: whatever an etcd that has lost its data knew of was noted before this key is written
        floor = max(highest_generation_on_disk(self._settings.output), self.number)
        words = replace(self._words, floor=floor, unreached=self._list_unreached(), asked=self._asked)
        self._put_revision = self._etcd.put(key, words.json(), self._lease)
        self.id, self._next_id, self._registered_in = self._next_id, "", view
        return PATIENCE_SECONDS

    def _forget(self) -> float:
        """This id is used up; its key goes, if it is still there. It is a newcomer from the next step on."""
        if self.number:
            self._say(LEFT_BEHIND)
        self.leave()
        self._gone = False
        return 0.0

    def _transact(self, transaction: Transaction) -> bool:
        return self._etcd.transact(transaction.compares, transaction.operations)

    def _kept_lease(self, view: View) -> int:
        """One for the life of a job; a new one when it has expired, or etcd has lost its data."""
        if view.record_lease and self._etcd.keep_alive(view.record_lease):
            return view.record_lease
        return self._etcd.grant(KEPT_SECONDS)


def highest_generation_on_disk(output: Path | None) -> int:
    """The highest generation that left a trace; 0 when there is none, no folder, or it cannot be read."""
    if output is None:
        return 0
    try:
        return highest_generation(output)
    except OSError:
        return 0


def claim_generation(output: Path | None, number: int, say: Callable[[str], None]) -> None:
    """A folder that cannot be written is said and no more: etcd alone keeps the number then."""
    if output is None:
        return
    folder = output / "generations"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05}").touch()
        for path in folder.iterdir():
            if path.name.isdigit() and int(path.name) < number:
                path.unlink(missing_ok=True)  # only the highest claim decides
    except OSError as error:
        say(f"generation {number} could not be noted in {folder} ({error.strerror}): only etcd knows its number")
