"""`ebb list --queue`: the jobs of the platform that wait for their turn, and why. Reads what the controller wrote down."""

from dataclasses import dataclass

from ebb.api import queue as line
from ebb.api.queue import Borrowing, Waiting
from ebb.api.usage import NAME, NAMESPACE
from ebb.client.errors import Missing
from ebb.client.platform.connection import Ebb
from ebb.kube import CONFIG_MAPS, Denied, NotFound


@dataclass(frozen=True, kw_only=True)
class QueuePlace:
    """A job that waits. `used`: what its team, and its user, used against an equal part; None: it goes before all shares."""

    place: int
    name: str
    namespace: str
    user: str
    gpus: int  # that it needs to start
    workers: int
    reason: str
    team_used: float | None
    user_used: float | None


@dataclass(frozen=True, kw_only=True)
class QueueLoan:
    """A job that runs with GPUs of other teams' quotas."""

    name: str
    namespace: str
    user: str
    gpus: int  # that it borrows
    lenders: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class QueueReport:
    """The jobs that wait, the next one first, and those that borrow. `waiting`: the number of all that wait, of which the first
    are shown; `at`: as of then."""

    queue: tuple[QueuePlace, ...]
    borrowing: tuple[QueueLoan, ...]
    waiting: int
    at: str


async def queue(ebb: Ebb) -> QueueReport:
    """Raises Missing where no controller wrote it down."""
    try:
        found = await ebb.kube.get(CONFIG_MAPS, NAMESPACE, NAME)
    except (NotFound, Denied):
        found = {}
    told = line.read(found.get("data") or {})
    if told is None:
        raise Missing(
            "the platform says nothing about jobs that wait: its controller is older than this `ebb`, has not started, or this "
            "user may not read it. `ebb status JOB` says for what a job waits; `pulumi up` brings the platform up to date."
        )
    places = tuple(_place(number, one) for number, one in enumerate(told.jobs, 1))
    loans = tuple(_loan(one) for one in told.loans)
    return QueueReport(queue=places, borrowing=loans, waiting=told.waiting, at=told.at)


def _place(number: int, one: Waiting) -> QueuePlace:
    return QueuePlace(
        place=number,
        name=one.job,
        namespace=one.namespace,
        user=one.user,
        gpus=one.gpus,
        workers=one.workers,
        reason=reason(one),
        team_used=one.team_used,
        user_used=one.user_used,
    )


def _loan(one: Borrowing) -> QueueLoan:
    needed = "that needs" if len(one.lenders) == 1 else "those need"
    return QueueLoan(
        name=one.job,
        namespace=one.namespace,
        user=one.user,
        gpus=one.gpus,
        lenders=one.lenders,
        reason=f"runs and borrows {_count(one.gpus, 'GPU')} of {_teams(one.lenders)}; stops with a checkpoint when {needed} them",
    )


def _teams(names: tuple[str, ...]) -> str:
    return f"team{'s' * (len(names) > 1)} {_joined(list(names))}" if names else "other teams"


def reason(one: Waiting) -> str:
    """Why it waits, in a sentence."""
    machines = _count(one.gpus, "GPU") if one.gpus else f"machines for {_count(one.workers, 'worker')}"
    told = {
        line.NEXT: f"gets {machines} now" + (f", and borrows {one.borrows} of {_teams(one.lenders)}" if one.borrows else ""),
        line.GROUP: "waits for a run of its sweep to end",
        line.REFUSED: "cannot start: `ebb status` says why",
        line.NOWHERE: f"needs {machines} of a kind that the platform does not have",
    }
    said = told.get(one.why)
    beyond = f", {one.borrows} of them beyond its team's quota" if one.borrows else ""
    before = "what becomes free is kept for it, since it has waited for a day" if one.has_turn else _before(one)
    return said or f"waits for {machines}{beyond}; {before}"


def _before(one: Waiting) -> str:
    parts = [
        f"{_count(one.turn, 'job')} larger than {'its' if one.turn == 1 else 'their'} team's quota that waited for a day"
        if one.turn
        else "",
        f"{_count(one.quota, 'job')} that {'borrows' if one.quota == 1 else 'borrow'} no GPUs" if one.quota else "",
        f"{_count(one.priority, 'job')} of higher priority" if one.priority else "",
        f"{_count(one.overdue, 'job')} that waited for a day without any machine" if one.overdue else "",
        f"{_count(one.share, 'job')} of people who used less of their share" if one.share else "",
        f"{_count(one.older, 'older job')}" if one.older else "",
    ]
    known = list(filter(None, parts))
    if not known:
        return "it is the first"
    number = one.turn + one.quota + one.priority + one.overdue + one.share + one.older
    return f"{_joined(known)} {'is' if number == 1 else 'are'} before it"


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
