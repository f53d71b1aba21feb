"""What every job's workers really cost, by our own clock: the bill that status.cost is held against.

    bill = Bill(away=lambda since, until: 0.0); pods.listeners.append(bill.pod); nodes.listeners.append(bill.node)
    wrong = bill.objection(job_uid, usd=0.12)       # "" when the controller's figure is near enough

A worker costs its share of its machine from its placement there until it has ended or is gone, or the machine is.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.week.groups import USD_PER_HOUR, WORKERS_PER_MACHINE, groups
from benchmarks.week.seen import Object, worker

NEAR = 0.1  # of the bill
LATE_SECONDS = 3.0  # per worker: the watch, the controller's round and ours
HOUR = 3600.0


@dataclass
class Page:
    """One job. `open`: its workers that cost now, with the time since when and their dollars per second."""

    usd: float = 0.0
    workers: int = 0
    most: int = 0
    began: float = 0.0
    ended: float = 0.0
    open: dict[str, tuple[float, float]] = field(default_factory=dict)


class Bill:
    """`away(since, until)`: seconds between these in which no controller looked. It counts those at the rates before."""

    def __init__(self, away: Callable[[float, float], float]) -> None:
        self._away = away
        self._pages: dict[str, Page] = {}
        self._on: dict[str, set[tuple[str, str]]] = {}  # machine -> (job, worker)
        self._price = {one.name: one.usd_per_hour / WORKERS_PER_MACHINE / HOUR for one in groups()}

    def pod(self, old: Object | None, new: Object | None) -> None:
        """A listener of pods."""
        one = worker(new or old or {})
        if one is None or not one.node:
            return
        page = self._pages.setdefault(one.job_uid, Page(began=time.monotonic()))
        if new is None or one.finished:
            self._close(page, one.uid)
        elif one.uid not in page.open and (one.job_uid, one.uid) not in self._on.setdefault(one.node, set()):
            self._on[one.node].add((one.job_uid, one.uid))
            page.open[one.uid] = (time.monotonic(), self._price[one.node.rpartition("-")[0]])
            page.workers += 1
            page.most = max(page.most, len(page.open))

    def node(self, old: Object | None, new: Object | None) -> None:
        """A listener of nodes: nothing on a machine that is gone costs anything."""
        if new is None and old is not None:
            for job_uid, uid in self._on.get(old["metadata"]["name"], ()):
                self._close(self._pages[job_uid], uid)

    def _close(self, page: Page, uid: str) -> None:
        since, price = page.open.pop(uid, (0.0, 0.0))
        if price:
            page.ended = time.monotonic()
            page.usd += (page.ended - since) * price

    def usd(self, job_uid: str) -> float:
        """Until now."""
        page = self._pages.get(job_uid, Page())
        return page.usd + sum((time.monotonic() - since) * price for since, price in page.open.values())

    def objection(self, job_uid: str, usd: float) -> str:
        """What is wrong with a job's own figure, "" if nothing."""
        page, own = self._pages.get(job_uid, Page()), self.usd(job_uid)
        dearest = USD_PER_HOUR / WORKERS_PER_MACHINE / HOUR
        unseen = page.most * self._away(page.began, page.ended) + LATE_SECONDS * page.workers
        off = abs(usd - own)
        return "" if off <= NEAR * own + dearest * unseen else f"status.cost says {usd:.4f} USD, by our clock it is {own:.4f}"
