"""What was really done to each job, moment by moment: the books that the controller's own counts are held against.

    ledger.doomed("spot-week-a-3", "gone"); pods.listeners.append(ledger.pod); ledger.failed(job_uid)

Losses are known here before anything else can know of them: the cloud says which machine goes before it goes.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.week.cloud import IDLE
from benchmarks.week.seen import Crowd, Object, Worker, worker


@dataclass
class Loss:
    """A running worker whose machine was taken back. `plain`: nothing else happened to the job until it was replaced."""

    job_uid: str
    index: int
    attempt: int
    uid: str
    how: str
    at: float  # monotonic
    plain: bool = True
    replaced: float | None = None


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
        self._crowd, self._steady = crowd, steady
        self.accounts: defaultdict[str, Account] = defaultdict(Account)
        self.losses: list[Loss] = []
        self._open: dict[tuple[str, int], Loss] = {}
        self.machines: dict[str, str] = {}  # machines that go or are gone -> how

    def doomed(self, machine: str, how: str) -> None:
        """A machine goes from now on."""
        self.machines[machine] = how
        for one in self._crowd.on(machine):
            self._lose(one)
            if one.trains and how != IDLE:
                loss = Loss(one.job_uid, one.index, one.attempt, one.uid, how, time.monotonic(), plain=self._steady())
                self.losses.append(loss)
                self._open[one.job_uid, one.index] = loss

    def disturbed(self, job_uid: str) -> None:
        """Something else happens to the job: how long its replacements take says nothing from here on."""
        for (uid, _), loss in list(self._open.items()):
            if uid == job_uid:
                loss.plain = False

    def pod(self, old: Object | None, new: Object | None) -> None:
        """A listener of pods."""
        one = worker(new) if new else None
        if one is None:
            return
        account = self.accounts[one.job_uid]
        account.most = max(account.most, len(self._crowd.of(one.job_uid)))
        if one.node in self.machines or one.disrupted:
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
        loss.plain = loss.plain and loss.attempt == one.attempt and self._steady()

    def seconds(self, *ways: str) -> list[float]:
        """From loss to replacement, sorted, of workers whose machine was lost in one of these ways."""
        plain = [loss for loss in self.losses if loss.plain and loss.how in ways]
        return sorted(loss.replaced - loss.at for loss in plain if loss.replaced is not None)

    def sure(self, job_uid: str) -> int:
        """Losses that the controller must have counted: plain ones that it replaced."""
        return sum(1 for loss in self.losses if loss.job_uid == job_uid and loss.plain and loss.replaced)


def percentile(values: list[float], part: float) -> float | None:
    """Of sorted values, by nearest rank; None of none."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else None
