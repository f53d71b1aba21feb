"""Watches etcd's alarms for the people whose jobs meet there: a metric for whoever runs the platform, an event on every job.

    alarm = EtcdAlarm(ask, jobs=controller.unfinished, emit_events=controller.emit_events)
    alarm.show(metrics);  asyncio.create_task(alarm.run())

Only the controller that leads runs it. It repairs nothing: CronJob etcd-maintenance does, on its schedule or when somebody starts
it, as the event says.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ebb.api import contract as names
from ebb.controller.cautious_http import ask, cautious_session
from ebb.controller.metrics import Metrics
from ebb.controller.reconciler.types import Event

Object = dict[str, Any]
Ask = Callable[[], Awaitable[str | None]]
"""What etcd says at /health; None if it does not answer."""

EVERY_SECONDS = 30.0
TIMEOUT_SECONDS = 5.0
LONGEST_BYTES = 4096
FIX = "kubectl -n ebb-system create job --from=cronjob/etcd-maintenance etcd-fix"
STOPPED = (
    "refuses writes through its v3 API: jobs that meet there cannot start, nor take workers in or replace them, while training "
    "that runs goes on. Fix:"
)
MEANINGS = {
    "NOSPACE": f"etcd is full (alarm NOSPACE) and {STOPPED} {FIX}",
    "CORRUPT": f"etcd found its data damaged (alarm CORRUPT) and {STOPPED} an empty volume, docs/operations.md says how.",
}
RECOVERED = "etcd takes writes again."
log = logging.getLogger(__name__)


class EtcdAlarm:
    """`jobs` are those that may need etcd now; `tell` sends events about one of them, best effort."""

    def __init__(
        self,
        ask: Ask,
        *,
        jobs: Callable[[], Iterable[Object]],
        emit_events: Callable[[Object, tuple[Event, ...]], Awaitable[None]],
    ) -> None:
        self._ask, self._jobs, self._emit_events = ask, jobs, emit_events
        self._answers: bool | None = None  # None: not asked yet
        self._raised: str | None = None  # the alarm; etcd's /health names only the first of several
        self._told: set[str] = set()  # UIDs of jobs that were told of it

    def show(self, metrics: Metrics) -> None:
        """Add two gauges. Both are empty until etcd was asked, so always on a controller that does not lead."""
        metrics.gauge("ebb_etcd_up", "1 while etcd answers.", self._up)
        metrics.gauge("ebb_etcd_alarm", "1 under this alarm of etcd's.", self._alarms)

    def _up(self) -> Mapping[str, float]:
        return {} if self._answers is None else {"": float(self._answers)}

    def _alarms(self) -> Mapping[str, float]:
        return {f'alarm="{name}"': float(name == self._raised) for name in MEANINGS} if self._answers else {}

    async def run(self) -> None:
        """Never returns; raises what `tell` raises."""
        while True:
            await self._check()
            await asyncio.sleep(EVERY_SECONDS)

    async def _check(self) -> None:
        said = await self._ask()
        if said is None:
            if self._answers is not False:
                log.warning("etcd does not answer: jobs cannot meet there; kubectl -n ebb-system get pods")
            self._answers = False
            return
        self._answers, raised = True, read_alarm(said)
        if raised != self._raised:
            await self._changed(raised)
        if raised is not None:
            await self._tell_jobs(Event(names.REASON_ETCD_ALARM, MEANINGS[raised], warning=True))

    async def _changed(self, raised: str | None) -> None:
        log.warning("%s", MEANINGS[raised]) if raised else log.info(RECOVERED)
        for job in self._jobs():
            if raised is None and job["metadata"]["uid"] in self._told:
                await self._emit_events(job, (Event(names.REASON_ETCD_CURED, RECOVERED),))
        self._raised = raised
        self._told.clear()

    async def _tell_jobs(self, event: Event) -> None:
        """Once per job and alarm, also to jobs that are submitted while it lasts."""
        for job in self._jobs():
            uid = job["metadata"]["uid"]
            if uid not in self._told:
                self._told.add(uid)
                await self._emit_events(job, (event,))


def read_alarm(said: str) -> str | None:
    """The alarm in an answer of /health, such as {"health":"false","reason":"ALARM NOSPACE"}; None for none that is known."""
    try:
        reason = str(json.loads(said)["reason"])
    except (ValueError, LookupError, TypeError):
        return None
    return next((name for name in MEANINGS if reason == f"ALARM {name}"), None)


@asynccontextmanager
async def http_ask(address: str) -> AsyncIterator[Ask]:
    """The real Ask. etcd answers 503 under an alarm, with the same JSON."""
    async with cautious_session(TIMEOUT_SECONDS) as session:

        async def ask_health() -> str | None:
            try:
                _, raw = await ask(session, "GET", f"{address}/health", longest_bytes=LONGEST_BYTES)
            except (aiohttp.ClientError, TimeoutError, OSError):
                return None
            return raw.decode(errors="replace")

        yield ask_health
