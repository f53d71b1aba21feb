"""The counting and the text of the machine usage record, away from the leader's loop: in a thread of its own.

    accounts = Accounts(aside=asyncio.to_thread)
    await accounts.begin(data, sightings, now)          # data: of the ConfigMap as last written; None: there is none
    news = await accounts.take_in(sightings)            # one Sighting for each change, as the loop saw it
    written = await accounts.settle(now, ...)           # counts until now, and writes the text

With ten thousand workers a sum over all machines and their text take tenths of a second, in which nobody would replace a worker.
What a thread works on is its own: sightings hold copies of lists, and objects of the cluster's copy, which nobody changes. Calls
come one at a time: the recorder awaits each.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ebb.api import queue
from ebb.api.clock import stamp, unix
from ebb.api.costs import group_of
from ebb.api.platform import Platform
from ebb.api.usage import MachineUsage, Standing, Who, read, write
from ebb.controller.claims import BUGS
from ebb.controller.reconciler.fair_share import describe_line, describe_loans
from ebb.controller.reconciler.queue import SharedLine
from ebb.controller.usage.machine_time import Meter, Sight, resume, standing

Object = dict[str, Any]
Aside = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function without holding up the loop, as asyncio.to_thread does."""

TRUNCATED_SECONDS = 1.5  # times of creation have no fractions: a Node that is so young was made just now
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A machine as it was at a moment; `node` None: it is gone."""

    machine: str
    at: float  # unix seconds
    node: Object | None
    workers: Sequence[Object] = ()  # the pods that are charged for it
    who: Mapping[str, Who]  # whose they are, by job
    platform: Platform | None


@dataclass(frozen=True, kw_only=True)
class Written:
    """The record up to a moment, and what others need of it."""

    data: dict[str, str]  # of the ConfigMap
    until: str
    is_empty: bool  # no machine is there, and nobody waits for one
    owners: Mapping[tuple[str, str], float]
    spent: Mapping[str, float]  # namespace -> USD in this month


class Accounts:
    """See the module's docstring."""

    def __init__(self, aside: Aside) -> None:
        self._aside = aside
        self._meter: Meter | None = None

    @property
    def have_begun(self) -> bool:
        """Return whether anything is counted."""
        return self._meter is not None

    async def read(self, data: Mapping[str, str]) -> MachineUsage:
        """Raises MachineUsageError."""
        usage: MachineUsage = await self._aside(partial(read, data))
        return usage

    async def begin(self, usage: MachineUsage | None, there: Iterable[Sighting], now: float) -> None:
        """Go on with a record that was written before; None: there is none."""
        await self._aside(partial(self._begin, usage, tuple(there), now))

    def forget(self) -> None:
        """Count nothing until it begins anew."""
        self._meter = None

    async def take_in(self, sightings: Sequence[Sighting]) -> bool:
        """Return whether one of them is news."""
        return bool(sightings) and bool(await self._aside(partial(self._take_in_all, sightings)))

    async def settle(
        self, now: float, *, line: SharedLine, platform: Platform | None, record_days: float, sightings: Sequence[Sighting]
    ) -> Written:
        """Bring the record up to now, and write it. `line`: of the jobs that wait."""
        written: Written = await self._aside(partial(self._settle, now, line, platform, record_days, sightings))
        return written

    def _begin(self, usage: MachineUsage | None, there: Sequence[Sighting], now: float) -> None:
        before = usage.open if usage else {}
        sights = {one.machine: sight for one in there if (sight := _sight(one, before.get(one.machine)))}
        if usage is None:
            log.info("machine usage record: begun")
        meter = resume(usage or MachineUsage(begun=now, until=now), sights, now)
        for one in there:
            meter.usage.who |= one.who
        self._meter = meter

    def _take_in_all(self, sightings: Sequence[Sighting]) -> bool:
        news = False
        for one in sightings:
            try:
                news |= self._take_in(one)
            except BUGS:
                log.exception("machine usage record: %s: the controller cannot tell how it stands", one.machine)
        return news

    def _take_in(self, one: Sighting) -> bool:
        meter = self._meter
        if meter is None:
            return False
        before = meter.usage.open.get(one.machine)
        sight = _sight(one, before)
        meter.usage.who |= one.who  # who is charged is known before the time is counted
        if sight is not None and before is None and sight.created < one.at:
            meter.find(one.machine, sight, one.at)
            return True
        return bool(sight or before) and meter.stand(one.machine, sight.standing if sight else None, one.at)

    def _settle(
        self, now: float, line: SharedLine, platform: Platform | None, record_days: float, sightings: Sequence[Sighting]
    ) -> Written:
        meter = self._meter
        assert meter is not None
        self._take_in_all(sightings)
        meter.usage.record_days = record_days
        meter.settle(now)
        waiting = tuple(describe_line(line.all(platform), line.turn(platform))) if platform else ()
        loans = tuple(describe_loans(line.loans(platform))) if platform else ()
        return Written(
            data={**write(meter.usage), queue.KEY: queue.write(waiting, meter.usage.until, loans)},
            until=stamp(meter.usage.until, digits=3),
            is_empty=not meter.usage.open and not waiting,
            owners=dict(meter.usage.owners),
            spent=meter.usage.spent_in(stamp(now)[:7]),
        )


def _sight(one: Sighting, before: Standing | None) -> Sight | None:
    """None for a machine that is gone or of no node group. While the platform cannot be read, a machine stands as it stood."""
    if one.node is None:
        return None
    group = group_of(one.node, one.platform)
    if group is None:
        return Sight(standing=before, created=one.at) if before else None
    created = unix(one.node["metadata"].get("creationTimestamp")) or one.at
    return Sight(
        standing=standing(one.node, one.workers, group, before),
        created=one.at if one.at - TRUNCATED_SECONDS < created else created,
    )
