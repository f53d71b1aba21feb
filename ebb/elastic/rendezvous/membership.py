"""The rules by which machines become generations. Pure: no I/O, no clock, no randomness.

    decide(view, me, now, rules) -> Wait | Form | Closed    # for one that waits for a generation
    assess(view, me, number, now, rules) -> Verdict          # for one that is in a generation and trains
    whole_without(view, after, rules) -> Record | Wait | None   # for one that could get ready beside a generation
    to_ask(view, me, unreached)                              # the others that this machine should try to reach

Machines may all reach etcd and not each other. So each says in its key which others do not answer it, and no two of whom one says
that of the other are in a generation together: those that reach most of the others go on, the rest waits outside. Nobody asks
while all is well; when a generation ends by a loss and yet all its machines are there, they ask each other before the next one.

What makes it safe is the transaction of `formation`, not the clock: `now` (this machine's own, monotonic) only decides when to
try. The key `generation` says all there is of the present one, so there is never more than one; a machine is in it by its id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ebb.compat import dataclass
from ebb.elastic.rendezvous.state import Entry, MemberInfo, MemberRecord, Record, View
from ebb.elastic.rendezvous.wire import Compare, Delete, Op, Put, Transaction

# etcd takes 128 compares in a transaction. Beyond that a member that vanished is found out a moment later, by the others' watch.
_MAX_COMPARES = 120
# The others try to form a generation so much later than the first, and each other: it may be dead.
_TURN_SECONDS = 0.5
# Machines that may be apart wait so long for each to have asked the others, which takes a second (peer_liveness.answers). While
# one has not said whom it does not reach, the wrong ones would go on, or ones that do not reach each other.
_ASKING_SECONDS = 6.0


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The same for all machines of a job. Sizes are numbers of machines."""

    min_size: int
    max_size: int
    last_call_seconds: float = 5.0
    """At a first start: so long after the newest came, when not all that are planned have come."""
    join_batch_seconds: float = 2.0
    """A running generation is stopped for newcomers when all planned ones are there, or the first has waited so long."""
    straggler_seconds: float = 120.0
    """A live member of a broken generation that does not stop its workers for so long is left behind. Longer than any
    worker is given to save and end (100 s by launch/agent.py, 30 s by torchrun)."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """For another view, or for this time. `holdouts` are who stands in the way: in a whole generation, all its members."""

    until: float | None
    holdouts: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Form:
    record: Record


@dataclass(frozen=True)
class Closed:
    reason: str


def decide(view: View, me: str, now: float, rules: Rules) -> Wait | Form | Closed:
    """The next action of a machine that waits for a generation."""
    if view.closed is not None:
        return Closed(view.closed)
    places = _candidates(view, rules)[: rules.max_size]
    turn = next((number for number, entry in enumerate(places) if entry.id == me), None)
    due = _due(view, len(places), rules)
    if turn is None or due is None:
        return Wait(until=None, holdouts=view.holdouts)
    due = max(due, view.changed_at) + turn * _TURN_SECONDS
    if now < due:
        return Wait(until=due, holdouts=view.holdouts)
    return Form(_record(view, places))


def _candidates(view: View, rules: Rules) -> tuple[Entry, ...]:
    """Newcomers wait where a member says so, unless there are too few without them."""
    members = _in_touch(entry for entry in view.ready if view.includes(entry.id))
    if any(entry.words.members_only for entry in members) and len(members) >= rules.min_size:
        return members
    return members + _in_touch(entry for entry in view.newcomers if not _is_apart(entry, members))


def _in_touch(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Without those that reach the fewest of the others, the last ones first, until all reach each other."""
    left = list(entries)
    while any(entry.words.unreached for entry in left):
        apart = [sum(_is_apart(entry, [other]) for other in left) for entry in left]
        if not any(apart):
            break
        del left[max(range(len(left)), key=lambda number: (apart[number], number))]
    return tuple(left)


def _is_apart(entry: Entry, others: Iterable[Entry]) -> bool:
    """True if it does not reach one of them, or that one does not reach it."""
    pulse, unreached = entry.words.pulse, entry.words.unreached
    return any(other.words.pulse in unreached or pulse in other.words.unreached for other in others)


def may_be_apart(view: View) -> bool:
    """True if the generation ended by a loss, and yet all its machines are there."""
    if view.record is None or not view.is_broken or not all(member in view.by_id for member in view.record.ids):
        return False
    words = [entry.words for entry in view.ready if view.includes(entry.id)]
    return any(each.failed for each in words) and not any(each.by_itself for each in words)


def to_ask(view: View, me: str, unreached: Collection[str]) -> set[str]:
    """The pulses that should answer this machine: the members', where it waits outside or they may be apart; always those that
    have not answered before."""
    if view.closed is not None:
        return set()
    asks = not view.includes(me) or may_be_apart(view)
    others = [entry for entry in view.entries if entry.id != me]
    return {entry.words.pulse for entry in others if entry.words.pulse in unreached or (asks and view.includes(entry.id))} - {""}


def answers_of(view: View, me: str, *, unreached: tuple[str, ...], asked: int) -> Transaction | None:
    """Says which machines do not answer this one, and changes nothing else of its key; None if the key says so already."""
    entry = view.by_id.get(me)
    if entry is None or (entry.words.unreached, entry.words.asked) == (unreached, asked):
        return None
    key = view.key_of(me)
    return Transaction(
        compares=[Compare(key, "mod_revision", entry.mod_revision)],
        operations=[Put(key, replace(entry.words, unreached=unreached, asked=asked).json(), entry.lease)],
    )


def planned_size(view: View, rules: Rules) -> int:
    """As the newest machine was told: the controller may have changed its mind since the others started."""
    told = view.entries[-1].words.planned if view.entries else 0
    return min(max(told or rules.max_size, rules.min_size), rules.max_size)


def _due(view: View, size: int, rules: Rules) -> float | None:
    """From when on the ready ones should form a generation; None: not before something changes."""
    if size < rules.min_size:
        return None
    if view.holdouts:
        # a whole generation trains: its members see who waits, and stop first
        return None if view.broken_at is None else view.broken_at + rules.straggler_seconds
    if may_be_apart(view) and view.broken_at is not None:
        members = [entry for entry in view.ready if view.includes(entry.id)]
        asked = all(entry.words.asked == view.number for entry in members)
        return view.changed_at if asked else view.broken_at + _ASKING_SECONDS
    survives = view.includes(view.ready[0].id)
    if survives or size >= planned_size(view, rules):
        return view.changed_at
    return max(entry.since for entry in view.ready) + rules.last_call_seconds


def _record(view: View, places: Sequence[Entry]) -> Record:
    highest = max([view.number, *(max(entry.words.floor, entry.words.after) for entry in view.entries)])
    members = tuple(MemberRecord(id=entry.id, address=entry.words.address, processes=entry.words.processes) for entry in places)
    return Record(number=highest + 1, members=members, store=places[0].words.store)


def formation(view: View, record: Record, lease: int) -> Transaction:
    """Makes it the present generation, if all that it is founded on is still so; members left behind lose their keys.

    Ids are never used again: after a loss of etcd's data, when revisions begin anew, the compares cannot hold by chance.
    """
    concerned = [*record.ids, *(entry.id for entry in view.holdouts)]
    compares = [
        Compare(view.key_of_generation, "mod_revision", view.record_revision),
        Compare(view.key_of_end, "version", 0),
        *(Compare(view.key_of(member), "mod_revision", view.by_id[member].mod_revision) for member in concerned),
    ]
    operations: list[Op] = [Put(view.key_of_generation, record.json(), lease)]
    operations += [Delete(view.key_of(entry.id)) for entry in view.holdouts]
    return Transaction(compares=compares[:_MAX_COMPARES], operations=operations[:_MAX_COMPARES])


def removal(view: View, entry: Entry) -> Transaction:
    """Takes a machine that has been found dead off the list, if it has said nothing since."""
    key = view.key_of(entry.id)
    return Transaction(compares=[Compare(key, "mod_revision", entry.mod_revision)], operations=[Delete(key)])


def readiness(view: View, me: str, words: MemberInfo, lease: int) -> Transaction:
    """A member of the present generation says that it has left it, if it is still the present one and it a live member."""
    return Transaction(
        compares=[
            Compare(view.key_of_generation, "mod_revision", view.record_revision),
            Compare(view.key_of(me), "mod_revision", view.by_id[me].mod_revision),
        ],
        operations=[Put(view.key_of(me), replace(words, after=view.number).json(), lease)],
    )


@dataclass(frozen=True)
class Verdict:
    """`waiting` above 0: this generation should end. `lost`: a peer, or this machine itself, will come to no step boundary.
    `cause`: and not because this machine's own workers ended first."""

    waiting: int = 0
    lost: bool = False
    cause: bool = False


def assess(view: View, me: str, number: int, now: float, rules: Rules) -> Verdict:
    """The state of this machine's generation."""
    record = view.record
    if view.closed is not None:
        return Verdict()  # the others have finished; so will this one, or its workers fail
    if record is None or record.number != number or me not in record.ids or me not in view.by_id:
        return Verdict(1, lost=True, cause=True)
    if view.is_broken:
        gone = any(member not in view.by_id and member not in view.left for member in record.ids)
        others = [entry.words for entry in view.ready if view.includes(entry.id)]
        lost, cause = any(words.failed for words in others), any(words.by_itself for words in others)
        return Verdict(max(1, len(view.newcomers)), lost=gone or lost, cause=gone or cause)
    members = [view.by_id[member] for member in record.ids]
    fitting = [entry for entry in view.newcomers if not _is_apart(entry, members)][: rules.max_size - len(record.ids)]
    complete = len(record.ids) + len(fitting) >= planned_size(view, rules)
    if fitting and (complete or now - min(entry.since for entry in fitting) >= rules.join_batch_seconds):
        return Verdict(len(fitting))
    return Verdict()


def whole_without(view: View, after: int, rules: Rules) -> Record | Wait | None:
    """The generation of the others, if it has room for this machine, whose own last one was `after`; Wait while they form one;
    None if they will not form one without it."""
    record = view.record
    if view.closed is not None or record is None:
        return None
    if sum(view.includes(entry.id) for entry in view.entries) < rules.min_size:
        return None
    if view.is_broken or record.number <= after:
        return Wait(until=None)
    return record if len(record.ids) < rules.max_size else None
