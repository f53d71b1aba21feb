"""Watches etcd's alarms for the people whose jobs meet there: a metric for whoever runs the platform, an event on every job.

    alarms = EtcdAlarms(address, ask, teams=..., jobs=controller.unfinished, emit_events=controller.emit_events)
    alarms.show(metrics);  asyncio.create_task(alarms.run())

A team has an etcd of its own: its alarms are told to its jobs alone.

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
Ask = Callable[[str], Awaitable[str | None]]
"""The answer of the etcd at an address to /health; None if there is none."""
Jobs = Callable[[], Iterable[Object]]
EmitEvents = Callable[[Object, tuple[Event, ...]], Awaitable[None]]

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


class EtcdAlarms:
    """`address` is that of the stack's etcd, `teams` the names of teams; `jobs` are those that may need an etcd now, and
    `emit_events` sends events about one of them, best effort."""

    def __init__(
        self, address: str, ask: Ask, *, teams: Callable[[], Iterable[str]], jobs: Jobs, emit_events: EmitEvents
    ) -> None:
        self._address, self._ask, self._teams, self._jobs, self._emit_events = address, ask, teams, jobs, emit_events
        self._alarms: dict[str, EtcdAlarm] = {}  # by team; "": the stack's

    def show(self, metrics: Metrics) -> None:
        """Add two gauges. Both are empty until an etcd was asked, so always on a controller that does not lead."""
        metrics.gauge("ebb_etcd_up", "1 while etcd answers.", lambda: self._figures(EtcdAlarm.up))
        metrics.gauge("ebb_etcd_alarm", "1 under this alarm of etcd's.", lambda: self._figures(EtcdAlarm.alarms))

    async def run(self) -> None:
        """Never returns; raises what `emit_events` raises."""
        while True:
            teams = ["", *self._teams()]
            self._alarms = {team: self._alarms.get(team) or self._new(team) for team in teams}
            await asyncio.gather(*(alarm.check() for alarm in self._alarms.values()))
            await asyncio.sleep(EVERY_SECONDS)

    def _new(self, team: str) -> "EtcdAlarm":
        scheme, _, place = self._address.partition("://")
        address = f"{scheme}://{names.TEAM_ETCD}{team}:{place.rpartition(':')[2]}" if team else self._address
        return EtcdAlarm(lambda: self._ask(address), team=team, jobs=lambda: self._jobs_of(team), emit_events=self._emit_events)

    def _jobs_of(self, team: str) -> Iterable[Object]:
        """Of a team, or of all that are in none."""
        of_teams = {f"{names.TEAM_PREFIX}{one}" for one in self._alarms if one}
        own = f"{names.TEAM_PREFIX}{team}"
        for job in self._jobs():
            namespace = job["metadata"]["namespace"]
            if namespace == own if team else namespace not in of_teams:
                yield job

    def _figures(self, read: Callable[["EtcdAlarm"], Mapping[str, float]]) -> Mapping[str, float]:
        return {labels: value for alarm in self._alarms.values() for labels, value in read(alarm).items()}


class EtcdAlarm:
    """Of one etcd. `team`: whose it is; "": of jobs without a team."""

    def __init__(self, ask: Callable[[], Awaitable[str | None]], *, team: str = "", jobs: Jobs, emit_events: EmitEvents) -> None:
        self._ask, self._jobs, self._emit_events, self._label = ask, jobs, emit_events, f'team="{team}"' if team else ""
        self._of = f" of team {team}" if team else ""
        self._answers: bool | None = None  # None: not asked yet
        self._raised: str | None = None  # the alarm; etcd's /health names only the first of several
        self._told: set[str] = set()  # UIDs of jobs that were told of it

    def up(self) -> Mapping[str, float]:
        """By Prometheus labels."""
        return {} if self._answers is None else {self._label: float(self._answers)}

    def alarms(self) -> Mapping[str, float]:
        """By Prometheus labels."""
        more = f",{self._label}" if self._label else ""
        return {f'alarm="{name}"{more}': float(name == self._raised) for name in MEANINGS} if self._answers else {}

    async def check(self) -> None:
        """Ask, and tell people of a change. Raises what `emit_events` raises."""
        said = await self._ask()
        if said is None:
            if self._answers is not False:
                log.warning("etcd%s does not answer: jobs cannot meet there; kubectl -n ebb-system get pods", self._of)
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
async def http_ask() -> AsyncIterator[Ask]:
    """The real Ask. etcd answers 503 under an alarm, with the same JSON."""
    async with cautious_session(TIMEOUT_SECONDS) as session:

        async def ask_health(address: str) -> str | None:
            try:
                _, raw = await ask(session, "GET", f"{address}/health", longest_bytes=LONGEST_BYTES)
            except (aiohttp.ClientError, TimeoutError, OSError):
                return None
            return raw.decode(errors="replace")

        yield ask_health
