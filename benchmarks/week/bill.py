"""The real cost of every job's workers, by our own clock: the bill that status.cost is held against.

    bill = Bill(outages=lambda: [(since, until), ...]); pods.listeners.append(bill.pod); nodes.listeners.append(bill.node)
    wrong = bill.objection(job_uid, usd=0.12)       # "" when the controller's figure is near enough

A worker costs its share of its machine from its placement there until it has ended or is gone, or the machine is. While no
controller acts, nobody sees that change: such a time counts at the rates of its beginning, which is the controller's promise.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.week.groups import WORKERS_PER_MACHINE, groups
from benchmarks.week.seen import Object, worker

NEAR = 0.05  # of the bill; in 60 jobs whose controller stayed it was 1 %, at most 3 %
LATE_SECONDS = 3.0  # per worker: the watch, the controller's round and ours
HOUR = 3600.0

Outages = Sequence[tuple[float, float]]


@dataclass
class Page:
    """One job. `open`: its workers that cost now, and their dollars per second; `rates`: the sum of these, each since when;
    `spare`: what it may be off for all of its workers."""

    open: dict[str, float] = field(default_factory=dict)
    rates: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])
    spare: float = 0.0

    def changed(self) -> None:
        self.rates.append((time.monotonic(), sum(self.open.values())))

    def pieces(self, ends: float) -> Iterator[tuple[float, float, float]]:
        """(since, until, rate), one after the other."""
        for (since, rate), (until, _) in pairwise([*self.rates, (ends, 0.0)]):
            yield since, until, rate

    def between(self, since: float, until: float) -> list[float]:
        """The rates that there were in that time."""
        return [rate for begins, ends, rate in self.pieces(max(until, self.rates[-1][0])) if begins <= until and ends >= since]

    def usd(self, ends: float) -> float:
        return sum((until - since) * rate for since, until, rate in self.pieces(ends))


class Bill:
    """`outages()`: the times (monotonic) in which perhaps no controller acted, none within another."""

    def __init__(self, outages: Callable[[], Outages]) -> None:
        self._outages = outages
        self._pages: dict[str, Page] = {}
        self._on: dict[str, set[tuple[str, str]]] = {}  # machine -> (job, worker)
        self._price = {one.name: one.usd_per_hour / WORKERS_PER_MACHINE / HOUR for one in groups()}

    def pod(self, old: Object | None, new: Object | None) -> None:
        """A listener of pods."""
        one = worker(new or old or {})
        if one is None or not one.node:
            return
        page = self._pages.setdefault(one.job_uid, Page())
        if new is None or one.finished:
            self._close(page, one.uid)
        elif one.uid not in page.open and (one.job_uid, one.uid) not in self._on.setdefault(one.node, set()):
            self._on[one.node].add((one.job_uid, one.uid))
            price = self._price[one.node.rpartition("-")[0]]
            page.open[one.uid] = price
            page.spare += LATE_SECONDS * price
            page.changed()

    def node(self, old: Object | None, new: Object | None) -> None:
        """A listener of nodes: nothing on a machine that is gone costs anything."""
        if new is None and old is not None:
            for job_uid, uid in self._on.get(old["metadata"]["name"], ()):
                self._close(self._pages[job_uid], uid)

    def _close(self, page: Page, uid: str) -> None:
        if page.open.pop(uid, None) is not None:
            page.changed()

    def usd(self, job_uid: str) -> float:
        """Until now."""
        return self._pages.get(job_uid, Page()).usd(time.monotonic())

    def limits(self, job_uid: str) -> tuple[float, float]:
        """The least and the most that the controller may say. When exactly it acted again nobody knows, so in an outage the rates
        of its beginning and those that there were both count."""
        page, now = self._pages.get(job_uid, Page()), time.monotonic()
        least = most = page.usd(now)
        for since, until in self._outages():
            # What changed just before an outage was perhaps not written down.
            frozen = page.between(since - LATE_SECONDS, since)
            for begins, ends, rate in _within(page.pieces(now), since, min(until, now)):
                least += (ends - begins) * min(0.0, min(frozen) - rate)
                most += (ends - begins) * max(0.0, max(frozen) - rate)
        return least - NEAR * least - page.spare, most + NEAR * most + page.spare

    def objection(self, job_uid: str, usd: float) -> str:
        """The objection to a job's own figure, "" if there is none."""
        least, most = self.limits(job_uid)
        if least <= usd <= most:
            return ""
        may = f"by our clock it is {self.usd(job_uid):.4f} and may be {max(0.0, least):.4f} to {most:.4f}"
        return f"status.cost says {usd:.4f} USD, {may}"


def _within(pieces: Iterable[tuple[float, float, float]], since: float, until: float) -> Iterator[tuple[float, float, float]]:
    """Those parts of the pieces that are between two times."""
    for begins, ends, rate in pieces:
        if max(begins, since) < min(ends, until):
            yield max(begins, since), min(ends, until), rate
