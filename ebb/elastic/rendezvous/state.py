"""etcd's view of one job, as one machine has seen it at one revision: live machines, the present generation, the end. Pure.

    view = View.of(prefix, items, revision, now=now, before=view)

Each live machine has the key members/<id>, which its lease removes. `after` in it is the generation that it has left and is
ready to be followed by a new one; a newcomer says 0. Whoever is left behind or taken for dead loses the key and comes back with
a new id. So an entry is ready when it is in the present generation and says so, or was never in any.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import cached_property

from ebb.compat import dataclass
from ebb.elastic.rendezvous.wire import Item


@dataclass(frozen=True, kw_only=True)
class MemberInfo:
    """The words of a machine about itself, in its key. `store` is host:port of the TCPStore that is used if it becomes rank 0,
    `pulse` that of the port that its process holds (peer_liveness.py). `unreached` are the pulses that do not answer it."""

    address: str
    store: str
    pulse: str = ""
    processes: int | None = None
    planned: int = 0  # machines that the controller plans for the job, as this one was told; 0: it was told nothing
    floor: int = 0  # no generation of this job that it knows of, by itself or by the files, has a higher number
    after: int = 0
    failed: bool = False  # its workers did not end by agreement: nobody needs to wait for the others' to do so
    by_itself: bool = False  # and not because of another machine's: what others' workers are aborted for
    members_only: bool = False  # its workers are in the middle of what newcomers could not take part in
    unreached: tuple[str, ...] = ()
    asked: int = 0  # the last generation after whose end it has asked the others

    def json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A live machine. `since` is when this view's owner first saw it with these words."""

    id: str
    words: MemberInfo
    create_revision: int
    mod_revision: int
    since: float
    lease: int = 0


@dataclass(frozen=True, kw_only=True)
class MemberRecord:
    """A machine in a generation; its rank is its position."""

    id: str
    address: str
    processes: int | None


@dataclass(frozen=True, kw_only=True)
class Record:
    """A generation."""

    number: int
    members: tuple[MemberRecord, ...]
    store: str

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(place.id for place in self.members)

    def json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, value: bytes) -> Record:
        found = json.loads(value)
        members = tuple(MemberRecord(**place) for place in found["members"])
        return cls(number=found["number"], members=members, store=found["store"])


@dataclass(frozen=True, kw_only=True)
class View:
    """One job in etcd, at one revision, as one machine has seen it. `entries` are in the order in which they came."""

    prefix: str
    revision: int = 0
    entries: tuple[Entry, ...] = ()
    record: Record | None = None
    record_revision: int = 0
    record_lease: int = 0
    closed: str | None = None
    left: frozenset[str] = frozenset()
    """The machines that have left in order, within the last seconds."""
    changed_at: float = 0.0
    broken_at: float | None = None
    """Since when a member of the generation is gone or ready for another; None while it is whole."""

    @classmethod
    def of(cls, prefix: str, items: Iterable[Item], revision: int, *, now: float, before: View | None = None) -> View:
        """`prefix` ends with /. Keys of others, and values that nobody of us has written, are passed over."""
        known = {(entry.id, entry.mod_revision): entry for entry in before.entries} if before else {}
        entries, left, record, closed = [], set(), None, None
        record_revision = record_lease = 0
        for item in items:
            name = item.key.removeprefix(prefix)
            try:
                if name.startswith("members/"):
                    entry = _entry(name.removeprefix("members/"), item, now)
                    entries.append(known.get((entry.id, entry.mod_revision), entry))
                elif name.startswith("left/"):
                    left.add(name.removeprefix("left/"))
                elif name == "generation":
                    record_revision, record_lease = item.mod_revision, item.lease
                    record = Record.parse(item.value)
                elif name == "closed":
                    closed = item.value.decode(errors="replace")
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
        view = cls(
            prefix=prefix,
            revision=revision,
            entries=tuple(sorted(entries, key=lambda entry: (entry.create_revision, entry.id))),
            record=record,
            record_revision=record_revision,
            record_lease=record_lease,
            closed=closed,
            left=frozenset(left),
        )
        return view._dated(now, before)

    @cached_property
    def by_id(self) -> Mapping[str, Entry]:
        return {entry.id: entry for entry in self.entries}

    @property
    def number(self) -> int:
        return self.record.number if self.record else 0

    @property
    def key_of_generation(self) -> str:
        return f"{self.prefix}generation"

    @property
    def key_of_end(self) -> str:
        return f"{self.prefix}closed"

    def key_of(self, member: str) -> str:
        return f"{self.prefix}members/{member}"

    def includes(self, member: str) -> bool:
        return self.record is not None and member in self.record.ids

    def is_ready(self, entry: Entry) -> bool:
        return entry.words.after == (self.number if self.includes(entry.id) else 0)

    @cached_property
    def ready(self) -> tuple[Entry, ...]:
        """In the order of the ranks to be: members of the present generation first, then the longest there."""
        ready = [entry for entry in self.entries if self.is_ready(entry)]
        return tuple(sorted(ready, key=lambda entry: not self.includes(entry.id)))

    @cached_property
    def newcomers(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if not self.includes(entry.id) and self.is_ready(entry))

    @cached_property
    def holdouts(self) -> tuple[Entry, ...]:
        """Live members of the present generation that have not left it."""
        return tuple(entry for entry in self.entries if self.includes(entry.id) and not self.is_ready(entry))

    @property
    def is_broken(self) -> bool:
        return self.record is not None and len(self.holdouts) < len(self.record.members)

    def _dated(self, now: float, before: View | None) -> View:
        same = before is not None and (before.entries, before.record_revision) == (self.entries, self.record_revision)
        still = before is not None and before.is_broken and before.number == self.number
        return replace(
            self,
            changed_at=before.changed_at if before and same else now,
            broken_at=(before.broken_at if before and still else now) if self.is_broken else None,
        )


def _entry(member: str, item: Item, now: float) -> Entry:
    found = json.loads(item.value)
    words = MemberInfo(**{**found, "unreached": tuple(found.get("unreached", ()))})
    return Entry(
        id=member,
        words=words,
        create_revision=item.create_revision,
        mod_revision=item.mod_revision,
        since=now,
        lease=item.lease,
    )
