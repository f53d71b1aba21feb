"""One controller under one load: started, told to run jobs, deprived of workers and machines, cleared away.

    async with running(bench, contender, "create") as run: await run.submit(20, 64); await run.until_running(1280)

What is submitted, and how long is waited, is the same for every contender.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar

from benchmarks.controller import contenders
from benchmarks.controller.contenders import Contender
from benchmarks.controller.fleet import GROUP_LABEL, Fleet, Machine
from benchmarks.controller.plane import Plane
from benchmarks.controller.pods import Life, Pods
from benchmarks.controller.processes import BenchmarkError, Process, eventually
from devcluster.commands import say
from ebb.kube import NAMESPACES, PODS, SERVICES, Conflict, NotFound, Object

Item = TypeVar("Item")

AT_ONCE = 32  # requests of the benchmark itself
READY_SECONDS = 120.0
CREATE_CAP_SECONDS = 900.0
REPLACE_CAP_SECONDS = 200.0  # a Job's fifth loss of the same index waits for 160 s
CLEAR_SECONDS = 300.0
TELL_SECONDS = 5.0
STAGGER_SECONDS = 2.0  # so that machines die at different moments of the controllers' own clocks


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of jobs, workers and machines."""

    jobs: int = 20
    workers: int = 64
    many_jobs: int = 500
    many_workers: int = 4
    lost: int = 30
    rounds: int = 5
    machines: int = 5  # that vanish, and as many that fall silent
    full_jobs: int = 200
    full_workers: int = 50
    widest: int = 1000  # workers of one job
    waiting: int = 5000  # jobs

    @classmethod
    def scaled(cls, jobs: int) -> "Sizes":
        """For a trial: `jobs` of 64 instead of 20, and all else in proportion."""
        full = cls()
        part = jobs / full.jobs
        return cls(
            jobs=jobs,
            many_jobs=max(1, round(full.many_jobs * part)),
            lost=max(1, round(full.lost * part)),
            rounds=full.rounds if part >= 1 else 2,
            machines=full.machines if part >= 1 else 2,
            full_jobs=max(1, round(full.full_jobs * part)),
            widest=max(2, round(full.widest * part)),
            waiting=max(2, round(full.waiting * part)),
        )


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Arguments that every scenario takes."""

    plane: Plane
    fleet: Fleet
    checkout: Path
    sizes: Sizes
    cap_seconds: float  # how long a dead machine is waited for


class Run:
    """Made by `running`."""

    def __init__(self, bench: Bench, contender: Contender, namespace: str, process: Process, pods: Pods) -> None:
        self.bench, self.contender, self.process, self.pods = bench, contender, process, pods
        self._namespace, self._numbers = namespace, count()
        self._kube = bench.plane.kube

    async def submit(self, jobs: int, workers: int, group: str = "main", *, waiting: bool = False) -> None:
        """Create jobs, many at once. `waiting`: they are not to start."""
        names = [f"job-{next(self._numbers)}" for _ in range(jobs)]
        bodies = [self.contender.job(name, workers=workers, pod=_pod(name, group), waiting=waiting) for name in names]
        await _all(lambda body: self._kube.create(self.contender.resource, self._namespace, body), bodies)

    async def until_running(self, wanted: int) -> None:
        """Raises BenchmarkError when that takes too long."""
        if not await self.until(lambda: self.pods.num_running >= wanted, CREATE_CAP_SECONDS):
            raise BenchmarkError(
                f"{self.contender.title}: {self.pods.num_running} of {wanted} workers run after {CREATE_CAP_SECONDS:.0f} s; "
                f"the end of {self.process.log}:\n{self.process.last_words}"
            )

    async def lose(self, chosen: Sequence[Life]) -> list[float]:
        """Delete these pods at once; returns seconds from each one's end to its replacement's creation."""
        lost = list(chosen)
        await _all(self._delete, lost, at_once=len(lost))
        if not await self.until(lambda: all(map(self.pods.replacement, lost)), REPLACE_CAP_SECONDS):
            raise BenchmarkError(f"{self.contender.title}: workers were not replaced within {REPLACE_CAP_SECONDS:.0f} s")
        pairs = [(life.ended, self.pods.replacement(life)) for life in lost]
        return [after.created - ended for ended, after in pairs if after is not None and ended is not None]

    async def lose_machines(self, machines: Sequence[Machine], end: Callable[[str], Awaitable[None]]) -> list[float | None]:
        """End machines one after the other; returns how long each one's worker was missing, None for longer than the cap."""

        async def one(number: int, machine: Machine) -> float | None:
            (lost,) = [life for life in self.pods.present if life.node == machine.name]
            await asyncio.sleep(number * STAGGER_SECONDS)
            died = time.monotonic()
            await end(machine.name)
            await self.until(lambda: self.pods.replacement(lost) is not None, self.bench.cap_seconds)
            after = self.pods.replacement(lost)
            say(f"{self.contender.name}: {machine.name}: " + (f"{after.created - died:.2f} s" if after else "not replaced"))
            return round(after.created - died, 3) if after else None

        return await asyncio.gather(*(one(number, machine) for number, machine in enumerate(machines)))

    async def clear(self) -> None:
        """Delete all jobs, and wait until nothing of them is left."""
        kube, namespace, resource = self._kube, self._namespace, self.contender.resource
        jobs = [job["metadata"]["name"] for job in await kube.list(resource, namespace)]
        await _all(lambda name: kube.delete(resource, namespace, name), jobs)
        stuck = [life for life in self.pods.present if life.node.startswith(("vanish", "silent"))]
        await _all(self._delete, stuck)  # nobody is left on those machines to confirm an end
        if not await self.until(lambda: not self.pods.present, CLEAR_SECONDS):
            raise BenchmarkError(f"{len(self.pods.present)} pods are left {CLEAR_SECONDS:.0f} s after their jobs were deleted")

        async def empty() -> bool:
            return not await kube.list(SERVICES, namespace)

        await eventually(empty, CLEAR_SECONDS, lambda: f"Services are left in {namespace} after their jobs were deleted")

    async def until(self, reached: Callable[[], bool], cap_seconds: float) -> bool:
        """Pods.until, but it raises BenchmarkError at once when the controller ends: nobody would do what is waited for."""
        waiting, ended = asyncio.create_task(self.pods.until(reached, cap_seconds)), asyncio.create_task(self.process.ended())
        try:
            await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self.process.check()
            return await waiting
        finally:
            waiting.cancel()
            ended.cancel()

    async def _delete(self, life: Life) -> None:
        # Conflict: kwok was faster, and the next pod of that name is there already.
        with suppress(NotFound, Conflict):
            await self._kube.delete(PODS, self._namespace, life.name, uid=life.uid, grace_seconds=0)

    async def tell(self, total: int) -> None:
        """Say for ever how far it is."""
        while True:
            await asyncio.sleep(TELL_SECONDS)
            placed = sum(bool(life.node) for life in self.pods.present)
            created, runs = len(self.pods.present), self.pods.num_running
            say(f"{self.contender.name}: of {total} workers {created} are created, {placed} placed, {runs} run")


@asynccontextmanager
async def running(bench: Bench, contender: Contender, scenario: str) -> AsyncIterator[Run]:
    """The contender is ready: it made a first job's pod, and that job is gone again."""
    namespace = f"{contender.name}-{scenario}"
    say(f"{contender.title}: {scenario}")
    await bench.plane.namespace(namespace)
    async with (
        Pods.watched(bench.plane.kube, namespace) as pods,
        contenders.running(contender, bench.plane, bench.checkout) as process,
    ):
        run = Run(bench, contender, namespace, process, pods)
        await run.submit(1, 1)
        if not await run.until(lambda: pods.num_running > 0, READY_SECONDS):
            raise BenchmarkError(f"{contender.title} is not ready after {READY_SECONDS:.0f} s:\n{process.last_words}")
        await run.clear()
        yield run
        await run.clear()
    await bench.plane.kube.delete(NAMESPACES, None, namespace)


def _pod(job: str, group: str) -> Object:
    """A worker's template: one small container, on the machines of one group; each on its own but in the big group."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"benchmark.ebb.dev/job": job}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    requests = {"cpu": "100m", "memory": "64Mi"}
    return {
        "metadata": {"labels": {"benchmark.ebb.dev/job": job}},
        "spec": {
            "nodeSelector": {GROUP_LABEL: group},
            **({} if group == "main" else {"affinity": affinity}),
            "containers": [
                {
                    "name": "worker",
                    "image": "registry.invalid/train:1",
                    "command": ["torchrun", "train.py"],
                    "resources": {"requests": requests},
                }
            ],
        },
    }


async def _all(do: Callable[[Item], Awaitable[object]], items: Sequence[Item], at_once: int = AT_ONCE) -> None:
    """Do it for all items, so many at a time."""
    slots = asyncio.Semaphore(at_once)

    async def one(item: Item) -> None:
        async with slots:
            await do(item)

    await asyncio.gather(*map(one, items))
