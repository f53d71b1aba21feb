"""The history of each job, moment by moment: the record that the controller's own counts are held against.

    ledger.doomed("spot-week-a-3", "gone"); pods.listeners.append(ledger.pod); ledger.failed(job_uid)

Losses are known here before anything else can know of them: the cloud says which machine goes before it goes.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.week.cloud import IDLE
from benchmarks.week.seen import Crowd, Object, Worker, worker
from devcluster.cloud.reclaim import LEAVE_TAINT

SURE_SECONDS = 45.0  # less than the minute after which a job that follows free capacity may want a worker again
MARKED_SECONDS = 3.0  # after the mark is off, a worker may come to be seen that was there before: it is another watch


@dataclass
class Loss:
    """A running worker whose machine was taken back. `plain`: nothing else happened to the job until it was replaced; `watched`:
    the controller that saw the loss is the one that replaced it. `others`: the workers that stayed."""

    job_uid: str
    index: int
    attempt: int
    uid: str
    how: str
    at: float  # monotonic
    zone: str
    others: frozenset[str]
    plain: bool = True
    watched: bool = True
    replaced: float | None = None
    alone: bool = False  # it alone was replaced, or with some: the job did not go elsewhere as a whole


@dataclass
class Account:
    """One job's page."""

    failures: int = 0  # moments at which its program failed
    doubtful: int = 0  # moments of which nobody can say whether the program failed or its machine went first
    lost: set[str] = field(default_factory=set)  # workers that somebody outside took away
    most: int = 0


class Ledger:
    """`steady()`: whether the controller runs now, and has for a while."""

    def __init__(self, crowd: Crowd, *, steady: Callable[[], bool]) -> None:
        self._crowd, self.steady = crowd, steady
        self.accounts: defaultdict[str, Account] = defaultdict(Account)
        self.losses: list[Loss] = []
        self._open: dict[tuple[str, int], Loss] = {}
        self.machines: dict[str, str] = {}  # machines that go or are gone -> how
        self.since: dict[str, float] = {}  # and since when, monotonic
        self._marked: dict[str, float] = {}  # machines that were marked to be given back -> until when

    def doomed(self, machine: str, how: str) -> None:
        """A machine goes from now on."""
        self.machines[machine] = how
        self.since[machine] = time.monotonic()
        for one in self._crowd.on(machine):
            self._lose(one)
            if one.trains and how != IDLE:
                others = frozenset(other.uid for other in self._crowd.of(one.job_uid) if other.node != machine)
                loss = Loss(
                    one.job_uid, one.index, one.attempt, one.uid, how, time.monotonic(), one.zone, others, plain=self.steady()
                )  # fmt: skip
                self.losses.append(loss)
                self._open[one.job_uid, one.index] = loss

    def disturbed(self, job_uid: str) -> None:
        """Something else happens to the job: how long its replacements take says nothing from here on."""
        for (uid, _), loss in list(self._open.items()):
            if uid == job_uid:
                loss.plain = False

    def unwatched(self) -> None:
        """The controller leaves: how long replacements take that are not done by now says how long it is away."""
        for loss in self._open.values():
            loss.watched = False

    def node(self, old: Object | None, new: Object | None) -> None:
        """A listener of nodes. A machine that is marked to be given back may lose a worker that came in the same moment, also
        when it stays for that worker's sake."""
        name = (new or old or {})["metadata"]["name"]
        if new is not None and any(taint["key"] == LEAVE_TAINT.key for taint in new["spec"].get("taints") or ()):
            self._marked[name] = float("inf")
            for one in self._crowd.on(name):
                self._lose(one)
        elif self._marked.get(name) == float("inf"):
            self._marked[name] = time.monotonic() + MARKED_SECONDS

    def pod(self, old: Object | None, new: Object | None) -> None:
        """A listener of pods."""
        one = worker(new) if new else None
        if one is None:
            return
        account = self.accounts[one.job_uid]
        account.most = max(account.most, len(self._crowd.of(one.job_uid)))
        if one.node in self.machines or one.disrupted or self._marked.get(one.node, 0.0) > time.monotonic():
            self._lose(one)
        if old is None:
            self._replaced(one)

    def left(self, one: Worker) -> None:
        """Its launcher left by itself, as on a reclaim."""
        self._lose(one)

    def _lose(self, one: Worker) -> None:
        self.accounts[one.job_uid].lost.add(one.uid)

    def _replaced(self, one: Worker) -> None:
        loss = self._open.pop((one.job_uid, one.index), None)
        if loss is None:
            return
        loss.replaced = time.monotonic()
        loss.plain = loss.plain and loss.attempt == one.attempt and self.steady()
        staying = {other.uid for other in self._crowd.of(one.job_uid) if not other.leaving}
        loss.alone = loss.zone == one.zone and (not loss.others or bool(loss.others & staying))

    def seconds(self, *ways: str) -> list[float]:
        """From loss to replacement, sorted, of workers whose machine was lost in one of these ways."""
        plain = [loss for loss in self.losses if loss.plain and loss.watched and loss.how in ways]
        return sorted(loss.replaced - loss.at for loss in plain if loss.replaced is not None)

    def sure(self, job_uid: str) -> int:
        """Losses that the controller must have counted: plain ones that it replaced soon, and for no other reason. What it stops
        itself, as when a job moves or wants fewer, it may stop in the moment in which the machine goes."""
        return sum(
            1
            for loss in self.losses
            if loss.job_uid == job_uid and loss.plain and loss.alone and loss.replaced and loss.replaced - loss.at < SURE_SECONDS
        )


def percentile(values: list[float], part: float) -> float | None:
    """Of sorted values, by nearest rank; None of none."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else None
