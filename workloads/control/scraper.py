"""Reads how far the trainings are from the metrics of their workers, beside the controller's loop and never inside it.

    scraper = Scraper(fetch, targets, changed, clock=time.time)
    task = asyncio.create_task(scraper.run());  scraper.latest.get(("ns", "job"))

Any worker can answer for its job, so the first that does is believed. A worker that cannot be reached costs its time-out and
nothing else: progress is for people, no decision depends on it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp

from workloads.contract import METRICS_PORT
from workloads.control.metrics import read_progress
from workloads.job.status import Progress

Key = tuple[str, str]
Fetch = Callable[[str], Awaitable[str | None]]
"""Address of a worker -> text of its metrics; None if it does not answer."""

EVERY_SECONDS = 3.0
TIMEOUT_SECONDS = 2.0
AT_ONCE = 32
LONGEST_BYTES = 2**20  # a page of metrics is some kilobytes; a worker must not fill the controller's memory


class Scraper:
    """`targets` gives the addresses of the running workers of each job; `changed` is told when a job's figures moved."""

    def __init__(
        self,
        fetch: Fetch,
        targets: Callable[[], Mapping[Key, Sequence[str]]],
        changed: Callable[[Key], None],
        *,
        clock: Callable[[], float],
    ) -> None:
        self.latest: dict[Key, Progress] = {}
        self._fetch, self._targets, self._changed, self._clock = fetch, targets, changed, clock
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Never returns."""
        while True:
            targets = self._targets()
            await asyncio.gather(*(self._read(key, addresses) for key, addresses in targets.items()))
            await asyncio.sleep(EVERY_SECONDS)

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self.latest.pop(key, None)

    async def _read(self, key: Key, addresses: Sequence[str]) -> None:
        for address in addresses:
            async with self._slots:
                text = await self._fetch(address)
            progress = read_progress(text, self._clock()) if text else None
            if progress is not None:
                old, self.latest[key] = self.latest.get(key), progress
                if old is None or (old.step, old.generation) != (progress.step, progress.generation):
                    self._changed(key)
                return


@asynccontextmanager
async def http_fetch() -> AsyncIterator[Fetch]:
    """The real Fetch."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:

        async def fetch(address: str) -> str | None:
            host = f"[{address}]" if ":" in address else address
            try:
                async with session.get(f"http://{host}:{METRICS_PORT}/metrics") as answer:
                    raw = await answer.content.read(LONGEST_BYTES)
            except (aiohttp.ClientError, TimeoutError, OSError):
                return None
            return raw.decode(errors="replace") if answer.status == 200 else None

        yield fetch
