"""Reads the launchers' own pages of metrics: which of them hold the machine of a program that failed.

    launchers = Launchers(fetch, cluster, changed, clock=time.time)
    task = asyncio.create_task(launchers.run())
    crashes = await launchers.crashes(("ns", "job"), job, pods)

A launcher that is going to hold its machine says so before its ending reaches the other workers. So a job of which a worker has
failed is asked at once: else the failures of the others, which come of it, would be counted and all started again. Only jobs
with spec.holdOnFailureSeconds are asked, and those that just run now and then.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ebb.api import contract as names
from ebb.api.parts import MOST_HOLD_SECONDS
from ebb.api.spec import Job
from ebb.controller.metrics import samples
from ebb.controller.reconciler.worker_state import Crash
from ebb.controller.scraper import AT_ONCE, READS_PER_SECOND, Fetch, Key

Object = Mapping[str, Any]

EVERY_SECONDS = 5.0
FAILED = "Failed"


class Jobs(Protocol):
    """The jobs to ask: ebb.controller.cluster_cache.ClusterCache."""

    def training(self) -> Sequence[Key]: ...
    def running(self, key: Key) -> Sequence[Object]: ...
    def holds_machines(self, key: Key) -> bool: ...


class Launchers:
    """`changed` is told when a launcher begins to hold its machine. `clock` is wall time."""

    def __init__(self, fetch: Fetch, jobs: Jobs, changed: Callable[[Key], None], *, clock: Callable[[], float]) -> None:
        self._fetch, self._jobs, self._changed, self._clock = fetch, jobs, changed, clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._crashes: dict[Key, dict[str, Crash]] = {}

    async def run(self) -> None:
        """Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            asked = [
                (key, pod) for key in self._jobs.training() if self._jobs.holds_machines(key) for pod in self._jobs.running(key)
            ]
            ends = loop.time() + max(EVERY_SECONDS, len(asked) / READS_PER_SECOND)
            async with asyncio.TaskGroup() as reads:
                for done, (key, pod) in enumerate(asked):
                    reads.create_task(self._look(key, pod))
                    await asyncio.sleep(max(0.0, ends - loop.time()) / (len(asked) - done))
                await asyncio.sleep(max(0.0, ends - loop.time()))

    async def crashes(self, key: Key, job: Job, pods: Iterable[Object]) -> Mapping[str, Crash]:
        """UID of a pod -> the end of its program; asked for now if a worker has failed and the others may not know why."""
        if job.spec.hold_on_failure_seconds is None or job.status.ended:
            return {}
        there = tuple(pods)
        failed = any((pod.get("status") or {}).get("phase") == FAILED for pod in there)
        if failed and not job.status.hold:
            await asyncio.gather(*(self._read(key, pod) for pod in self._jobs.running(key)))
        present = {pod["metadata"]["uid"] for pod in there}
        return {uid: crash for uid, crash in self._crashes.get(key, {}).items() if uid in present}

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self._crashes.pop(key, None)

    async def _look(self, key: Key, pod: Object) -> None:
        if await self._read(key, pod):
            self._changed(key)

    async def _read(self, key: Key, pod: Object) -> bool:
        """True if its launcher has begun to hold its machine."""
        uid, known = pod["metadata"]["uid"], self._crashes.setdefault(key, {})
        if uid in known:
            return False
        async with self._slots:
            text = await self._fetch(pod["status"]["podIP"])
        crash = read_crash(text or "", self._clock())
        if crash is not None:
            known[uid] = crash
        return crash is not None


def read_crash(text: str, now: float) -> Crash | None:
    """The end of a program, out of the page of its launcher; None while it runs. A page that makes no sense is none."""
    for labels, seconds in samples(text, names.METRIC_HELD_SECONDS):
        code = labels.get("exit_code", "")
        if code.isdigit() and 0 < int(code) < 256 and 0 < seconds <= MOST_HOLD_SECONDS:
            return Crash(exit_code=int(code), message=labels.get("message", ""), until=now + seconds)
    return None
