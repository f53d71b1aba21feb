"""The jobs that wait for their turn, in their order: what the controller writes and `ebb list --queue` shows. Pure.

    data[KEY] = write(line, waiting=len(all_of_them), at=now)       # of the ConfigMap that holds the machine usage record
    line = read(data)                                               # None: an older controller wrote it

It stands beside the usage record (usage.py), so that it costs no call of its own: it is as old as that, a minute at most.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from ebb.api.clock import stamp

KEY = "queue.json"
T = TypeVar("T")
MOST = 500  # jobs that are told; how many wait in all is told too
# Why a job waits: its machines come now, not enough are free, its sweep runs as many as it may, a quota or a rendezvous keeps it
# out, or no node group has such machines.
NEXT, MACHINES, GROUP, REFUSED, NOWHERE = "next", "machines", "group", "refused", "nowhere"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A job that waits, and how many are before it for each reason."""

    namespace: str
    job: str
    user: str
    workers: int  # minReplicas
    gpus: int  # of them all
    why: str
    priority: int  # jobs before it of higher priority
    overdue: int  # that have waited for a day, of owners without machines
    share: int  # of owners that used less of what they are owed
    older: int
    team_used: float | None  # against what the team is owed; None: it goes first, as it has waited for a day
    user_used: float | None
    quota: int = 0  # jobs before it that borrow nothing, where it does: within the quota of their team, or without one
    turn: int = 0  # jobs before it that are larger than their team's quota and have their turn
    has_turn: bool = False  # it is such a job
    borrows: int = 0  # GPUs that it needs beyond its team's quota
    lenders: tuple[str, ...] = ()  # teams that have them to lend


@dataclass(frozen=True, kw_only=True)
class Borrowing:
    """A job that runs beyond the quota of its team."""

    namespace: str
    job: str
    user: str
    gpus: int  # that other teams lend it
    lenders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class WaitingLine:
    """The first that wait, and the number of all."""

    at: str
    waiting: int
    jobs: tuple[Waiting, ...]
    loans: tuple[Borrowing, ...] = ()


def write(jobs: Sequence[Waiting], at: float, loans: Sequence[Borrowing] = ()) -> str:
    """The text of the line."""
    told, lent = [asdict(one) for one in jobs[:MOST]], [asdict(one) for one in loans[:MOST]]
    root = {"at": stamp(at), "waiting": len(jobs), "jobs": told, **({"loans": lent} if lent else {})}
    return json.dumps(root, separators=(",", ":"))


def read(data: Mapping[str, str]) -> WaitingLine | None:
    """None where it is missing, or another version wrote it."""
    try:
        root = json.loads(data[KEY])
        return WaitingLine(
            at=root["at"],
            waiting=int(root["waiting"]),
            jobs=tuple(_known(Waiting, one) for one in root["jobs"]),
            loans=tuple(_known(Borrowing, one) for one in root.get("loans", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _known(kind: type[T], value: Mapping[str, Any]) -> T:
    """Without what only a newer version knows."""
    found = {one.name: value[one.name] for one in fields(kind) if one.name in value}  # type: ignore[arg-type]
    return kind(**{name: tuple(one) if isinstance(one, list) else one for name, one in found.items()})
