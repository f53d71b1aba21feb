"""Reads the launchers' own pages of metrics: how busy their GPUs are, and which hold the machine of a program that failed.

    launchers = Launchers(fetch, cluster, changed, clock=time.time)
    task = asyncio.create_task(launchers.run())
    crashes = await launchers.crashes(("ns", "job"), job, pods);  gpus = launchers.gpus(("ns", "job"), pods)

A launcher that is going to hold its machine says so before its ending reaches the other workers. So a job of which a worker has
failed is asked at once: else the failures of the others, which come of it, would be counted and all started again. Only workers
that were told to serve such a page are asked; one that does not answer, as an older image does not, is left alone for a while.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ebb.api import contract as names
from ebb.api.parts import MOST_HOLD_SECONDS
from ebb.api.spec import Job
from ebb.api.status import GpuUse
from ebb.api.template import worker_container
from ebb.controller.metrics import samples
from ebb.controller.reconciler.containers import container_gpus
from ebb.controller.reconciler.worker_state import Crash
from ebb.controller.scraper import AT_ONCE, READS_PER_SECOND, Fetch, Key

Object = Mapping[str, Any]

EVERY_SECONDS = 5.0
TELL_SECONDS = 30.0  # between two looks at a job for the figures of its GPUs alone
SILENT_SECONDS = 30.0  # for which one is left alone that did not answer
FAILED = "Failed"


class Jobs(Protocol):
    """The jobs to ask: ebb.controller.cluster_cache.ClusterCache."""

    def training(self) -> Sequence[Key]: ...
    def running(self, key: Key) -> Sequence[Object]: ...
    def holds_machines(self, key: Key) -> bool: ...


@dataclass(frozen=True)
class _Known:
    """Of a worker, by its pod's uid."""

    gpus: tuple[GpuUse, ...] = ()
    crash: Crash | None = None
    silent_until: float = 0.0


class Launchers:
    """`changed` is told when a launcher begins to hold its machine, and now and then of its GPUs. `clock` is wall time."""

    def __init__(self, fetch: Fetch, jobs: Jobs, changed: Callable[[Key], None], *, clock: Callable[[], float]) -> None:
        self._fetch, self._jobs, self._changed, self._clock = fetch, jobs, changed, clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._known: dict[Key, dict[str, _Known]] = {}
        self._told: dict[Key, float] = {}

    async def run(self) -> None:
        """Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            asked = [(key, pod) for key in self._jobs.training() for pod in self._jobs.running(key) if self._is_due(key, pod)]
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
        return {uid: known.crash for uid, known in self._of(key, there).items() if known.crash}

    def gpus(self, key: Key, pods: Iterable[Object]) -> tuple[GpuUse, ...]:
        """As last read, of the workers that are there."""
        return tuple(use for known in self._of(key, pods).values() for use in known.gpus)

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self._known.pop(key, None)
        self._told.pop(key, None)

    def _of(self, key: Key, pods: Iterable[Object]) -> Mapping[str, _Known]:
        """Known facts of these pods; the others of that job are forgotten."""
        if key not in self._known:
            return {}
        present = {pod["metadata"]["uid"] for pod in pods}
        self._known[key] = {uid: known for uid, known in self._known[key].items() if uid in present}
        return self._known[key]

    def _is_due(self, key: Key, pod: Object) -> bool:
        """Return whether it serves a page that may be read now."""
        if self._jobs.holds_machines(key):
            return True
        known = self._known.get(key, {}).get(pod["metadata"]["uid"])
        if known and known.silent_until > self._clock():
            return False
        return container_gpus(worker_container(pod["spec"]["containers"])) > 0

    async def _look(self, key: Key, pod: Object) -> None:
        now = asyncio.get_running_loop().time()
        found = await self._read(key, pod)
        if found.crash or (found.gpus and now - self._told.get(key, float("-inf")) >= TELL_SECONDS):
            self._told[key] = now
            self._changed(key)

    async def _read(self, key: Key, pod: Object) -> _Known:
        """Of a machine that is held the first answer counts."""
        uid = pod["metadata"]["uid"]
        known = self._known.get(key, {}).get(uid)
        if known and known.crash:
            return known
        async with self._slots:
            text = await self._fetch(pod["status"]["podIP"])
        now = self._clock()
        if text is None:
            found = _Known(silent_until=now + SILENT_SECONDS)
        else:
            found = _Known(read_gpus(text, int(pod["metadata"]["labels"][names.LABEL_INDEX])), read_crash(text, now))
        self._known.setdefault(key, {})[uid] = found
        return found


def read_crash(text: str, now: float) -> Crash | None:
    """The end of a program, out of the page of its launcher; None while it runs. A page that makes no sense is none."""
    for labels, seconds in samples(text, names.METRIC_HELD_SECONDS):
        code = labels.get("exit_code", "")
        if code.isdigit() and 0 < int(code) < 256 and 0 < seconds <= MOST_HOLD_SECONDS:
            return Crash(exit_code=int(code), message=labels.get("message", ""), until=now + seconds)
    return None


MOST_OF_A_MACHINE = 64  # GPUs that are believed
_MOST_BYTES = 2.0**50


def read_gpus(text: str, worker: int) -> tuple[GpuUse, ...]:
    """The GPUs of a worker, out of the page of its launcher; figures that make no sense are left out."""
    busy, idle = _by_gpu(text, names.METRIC_GPU_UTILIZATION, 1.0), _by_gpu(text, names.METRIC_GPU_IDLE_SECONDS, 10.0**9)
    used = _by_gpu(text, names.METRIC_GPU_MEMORY_USED, _MOST_BYTES)
    total = _by_gpu(text, names.METRIC_GPU_MEMORY_TOTAL, _MOST_BYTES)
    return tuple(
        GpuUse(
            worker=worker,
            gpu=gpu,
            ranks=ranks,
            utilization=round(100 * busy[gpu, ranks]) if (gpu, ranks) in busy else None,
            memory_used_bytes=int(used[gpu, ranks]) if (gpu, ranks) in used else None,
            memory_total_bytes=int(total[gpu, ranks]) if (gpu, ranks) in total else None,
            idle_seconds=int(idle.get((gpu, ranks), 0)),
        )
        for gpu, ranks in sorted(busy.keys() | used.keys())
    )


def _by_gpu(text: str, name: str, most: float) -> dict[tuple[int, tuple[int, ...]], float]:
    found = {}
    for labels, value in samples(text, name):
        gpu, ranks = labels.get("gpu", ""), [word for word in labels.get("rank", "").split(",") if word]
        believed = gpu.isdecimal() and len(gpu) <= 2 and int(gpu) < MOST_OF_A_MACHINE and 0 <= value <= most
        if believed and all(word.isdecimal() and len(word) <= 6 for word in ranks[:MOST_OF_A_MACHINE]):
            found[int(gpu), tuple(map(int, ranks[:MOST_OF_A_MACHINE]))] = value
    return found
