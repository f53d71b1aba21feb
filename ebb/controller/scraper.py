"""Reads how far the trainings are from the metrics of their workers, beside the controller's loop and never inside it.

    scraper = Scraper(fetch, world, changed, clock=time.time)
    task = asyncio.create_task(scraper.run());  scraper.latest.get(("ns", "job"))

Any worker can answer for its job, so the first that does is believed, and asked first the next time. A worker that cannot be
reached costs its time-out and nothing else: progress is for people and for slow decisions. With few jobs each is read every few
seconds, with many as often as READS_PER_SECOND lets them, and one that does not answer ever less often; reads are spread over
the time between two of them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from ebb.api.contract import METRICS_PORT
from ebb.api.status import Progress
from ebb.controller.cautious_http import ask, cautious_session
from ebb.controller.metrics import read_progress

Key = tuple[str, str]
Fetch = Callable[[str], Awaitable[str | None]]
"""Address of a worker -> text of its metrics; None if it does not answer."""

EVERY_SECONDS = 3.0
READS_PER_SECOND = 20.0  # each about a millisecond of this process: 500 jobs are read every 25 s, for 2 % of a core
TELL_SECONDS = 10.0  # between two looks at a job for its progress alone
PATIENT_ROUNDS = 5  # in which nobody answers and all are asked again: programs take a while to start
LAST_RETRY_SECONDS = 30.0  # then ever less often; doubles from EVERY_SECONDS
TIMEOUT_SECONDS = 2.0
AT_ONCE = 32
ATTEMPTS = 2  # workers asked in one round
LONGEST_BYTES = 2**20  # a page of metrics is some kilobytes; a worker must not fill the controller's memory


@dataclass(frozen=True)
class _Mute:
    """Workers of whom none answered for some rounds, and until when they are left alone."""

    rounds: int
    until: float
    addresses: tuple[str, ...]


class Jobs(Protocol):
    """The jobs to ask: ebb.controller.cluster_cache.ClusterCache."""

    def training(self) -> Sequence[Key]:
        """The jobs whose workers may train."""

    def addresses(self, key: Key) -> Sequence[str]:
        """Of the running workers of a job, worker 0 first."""


class Scraper:
    """`changed` is told, now and then, when a job moved. `clock` is wall time."""

    def __init__(self, fetch: Fetch, jobs: Jobs, changed: Callable[[Key], None], *, clock: Callable[[], float]) -> None:
        self.latest: dict[Key, Progress] = {}
        self._fetch, self._jobs, self._changed, self._clock = fetch, jobs, changed, clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._first: dict[Key, int] = {}  # which of a job's workers to ask first
        self._mute: dict[Key, _Mute] = {}
        self._told: dict[Key, tuple[float, Progress]] = {}

    async def run(self) -> None:
        """Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            keys = self._jobs.training()
            ends = now + max(EVERY_SECONDS, len(keys) / READS_PER_SECOND)
            async with asyncio.TaskGroup() as reads:
                for done, key in enumerate(keys):
                    addresses = self._jobs.addresses(key)
                    if addresses and self._due(key, addresses):
                        reads.create_task(self._read(key, addresses))
                    await asyncio.sleep(max(0.0, ends - loop.time()) / (len(keys) - done))
                await asyncio.sleep(max(0.0, ends - loop.time()))

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self.latest.pop(key, None)
        self._first.pop(key, None)
        self._mute.pop(key, None)
        self._told.pop(key, None)

    async def _read(self, key: Key, addresses: Sequence[str]) -> None:
        start = self._first.get(key, 0)
        for index in range(start, start + min(ATTEMPTS, len(addresses))):
            async with self._slots:
                text = await self._fetch(addresses[index % len(addresses)])
            progress = _progress(text, self._clock()) if text else None
            if progress is not None:
                self._first[key], self.latest[key] = index % len(addresses), progress
                self._mute.pop(key, None)
                self._report(key, progress)
                return
        self._first[key] = (start + ATTEMPTS) % len(addresses)
        rounds = self._mute[key].rounds + 1 if key in self._mute else 1
        pause = (
            min(LAST_RETRY_SECONDS, EVERY_SECONDS * 2.0 ** min(rounds - PATIENT_ROUNDS, 10)) if rounds > PATIENT_ROUNDS else 0.0
        )
        self._mute[key] = _Mute(rounds, asyncio.get_running_loop().time() + pause, tuple(addresses))

    def _due(self, key: Key, addresses: Sequence[str]) -> bool:
        """Return whether to ask; other workers than those that did not answer are asked at once."""
        mute = self._mute.get(key)
        if mute is not None and mute.addresses != tuple(addresses):
            del self._mute[key]
            return True
        return mute is None or mute.until <= asyncio.get_running_loop().time()

    def _report(self, key: Key, progress: Progress) -> None:
        now = asyncio.get_running_loop().time()
        at, old = self._told.get(key, (float("-inf"), None))
        if now - at >= TELL_SECONDS and (old is None or _marks(old) != _marks(progress)):
            self._told[key] = now, progress
            self._changed(key)


def _marks(progress: Progress) -> tuple[int | None, ...]:
    return progress.step, progress.generation, progress.checkpoint_step


def _progress(text: str, now: float) -> Progress | None:
    """None also for a page whose figures are none: what a worker's program writes must not stop a controller."""
    try:
        return read_progress(text, now)
    except (ValueError, OverflowError):
        return None


@asynccontextmanager
async def http_fetch(port: int | None = None) -> AsyncIterator[Fetch]:
    """The real Fetch."""
    async with cautious_session(TIMEOUT_SECONDS) as session:

        async def fetch(address: str) -> str | None:
            host = f"[{address}]" if ":" in address else address
            page = f"http://{host}:{port or METRICS_PORT}/metrics"
            try:
                status, raw = await ask(session, "GET", page, longest_bytes=LONGEST_BYTES)
            except (aiohttp.ClientError, TimeoutError, OSError):
                return None
            return raw.decode(errors="replace") if status == 200 else None

        yield fetch
