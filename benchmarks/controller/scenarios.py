"""What is measured: each scenario starts a controller afresh, loads it in a namespace of its own, and clears everything away.

    figures = await create(bench, contender); ...      # name -> value, None where the cap came first

create   20 jobs of 64 workers                    many    500 jobs of 4, with the controller's memory
replace  30 running workers deleted at once       nodes   machines whose Node object vanishes, and that fall silent
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar

from benchmarks.controller.contenders import Contender, running
from benchmarks.controller.figures import Figures, rate, spread
from benchmarks.controller.fleet import GROUP_LABEL, Fleet, Machine
from benchmarks.controller.plane import Plane
from benchmarks.controller.pods import Life, Pods
from benchmarks.controller.processes import BenchmarkError, Process, eventually
from local.commands import say
from workloads.kube import NAMESPACES, PODS, SERVICES, NotFound, Object

Item = TypeVar("Item")

AT_ONCE = 32  # requests of the benchmark itself
READY_SECONDS = 120.0
CREATE_CAP_SECONDS = 900.0
REPLACE_CAP_SECONDS = 120.0
CLEAR_SECONDS = 300.0
SETTLE_SECONDS = 5.0  # for status writes after the last pod, and for memory that is not used any more
STAGGER_SECONDS = 2.0  # so that machines die at different moments of the controllers' own clocks
WORKERS = 4  # of a job whose machine dies, each on its own machine


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything."""

    jobs: int = 20
    workers: int = 64
    many_jobs: int = 500
    many_workers: int = 4
    lost: int = 30
    rounds: int = 5
    machines: int = 5  # that vanish, and as many that fall silent

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
        )


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What every scenario is given."""

    plane: Plane
    fleet: Fleet
    checkout: Path
    sizes: Sizes
    cap_seconds: float  # how long a dead machine is waited for


async def create(bench: Bench, contender: Contender) -> Figures:
    sizes = bench.sizes
    async with _running(bench, contender, "create") as run:
        return await _created(run, sizes.jobs, sizes.workers)


async def many(bench: Bench, contender: Contender) -> Figures:
    sizes = bench.sizes
    async with _running(bench, contender, "many") as run:
        await asyncio.sleep(SETTLE_SECONDS)
        idle, jobs = run.process.memory(), sizes.many_jobs
        figures = await _created(run, jobs, sizes.many_workers)
        await asyncio.sleep(SETTLE_SECONDS)
        loaded = run.process.memory()
        await run.clear()
        await asyncio.sleep(SETTLE_SECONDS)
        return figures | {
            f"rss_mb_{jobs}_jobs": round(loaded.peak, 1),
            f"rss_mb_{jobs}_jobs_steady": round(loaded.now, 1),
            "rss_mb_idle": round(idle.now, 1),
            f"rss_mb_after_{jobs}_jobs": round(run.process.memory().now, 1),
        }


async def replace(bench: Bench, contender: Contender) -> Figures:
    """Workers deleted without grace, as the last step of any reclaim does it: every controller replaces a pod that is gone."""
    sizes, jobs, workers = bench.sizes, 4, 32
    async with _running(bench, contender, "replace") as run:
        await run.submit(jobs, workers)
        await run.until_running(jobs * workers)
        seconds: list[float] = []
        calls = 0
        for number in range(sizes.rounds):
            await asyncio.sleep(SETTLE_SECONDS)
            mark = await bench.plane.mark()
            chosen = random.Random(number).sample(run.pods.present, sizes.lost)  # noqa: S311 - the same for all
            seconds += await run.lose(chosen)
            await run.until_running(jobs * workers)
            await asyncio.sleep(SETTLE_SECONDS)
            calls += (await bench.plane.calls_since(mark, contender.name)).total()
        say(f"{contender.name}: {len(seconds)} workers replaced, {spread(seconds)}")
        name = f"replace_{sizes.lost}"
        return {
            f"{name}_p50_seconds": rate(seconds, 50),
            f"{name}_p99_seconds": rate(seconds, 99),
            f"{name}_max_seconds": rate(seconds, 100),
            "calls_per_recovery": round(calls / (sizes.lost * sizes.rounds), 2),
        }


async def nodes(bench: Bench, contender: Contender) -> Figures:
    """From the death of a machine to the creation of the pod that takes its worker's place."""
    rounds = range(bench.sizes.machines)
    groups = [_group(f"{kind}-{number}", doomed=kind == "silent") for kind in ("vanish", "silent") for number in rounds]
    every = [machine for group in groups for machine in group]
    try:
        await bench.fleet.add(every)
        async with _running(bench, contender, "nodes") as run:
            for group in groups:
                await run.submit(1, WORKERS, group=group[0].group)
            await run.until_running(len(groups) * WORKERS)
            for group in groups:
                await bench.fleet.open(group[-1].name)
            vanished = await run.lose_machines([group[0] for group in groups[: len(rounds)]], bench.fleet.vanish)
            # The controllers' own picture of who is alive must be complete before somebody falls silent.
            await bench.fleet.beats([group[0].name for group in groups[len(rounds) :]])

            async def silence(name: str) -> None:
                bench.fleet.silence(name)

            silent = await run.lose_machines([group[0] for group in groups[len(rounds) :]], silence)
        return _waited("vanished", vanished, bench.cap_seconds) | _waited("silent", silent, bench.cap_seconds)
    finally:
        await bench.fleet.remove(every)


def _group(name: str, *, doomed: bool) -> list[Machine]:
    """One machine for each worker of a job, the first of which will die, and a spare one that is closed until then."""
    first = Machine(name=f"{name}-0", group=name, doomed=doomed)
    others = [Machine(name=f"{name}-{index}", group=name) for index in range(1, WORKERS)]
    return [first, *others, Machine(name=f"{name}-spare", group=name, closed=True)]


def _waited(name: str, seconds: Sequence[float | None], cap_seconds: float) -> Figures:
    """Median and worst; None with what is known instead, where a machine was not replaced before the cap."""
    known = [value for value in seconds if value is not None]
    if len(known) < len(seconds):
        return {f"{name}_seconds": None, f"{name}_max_seconds": None, f"{name}_at_least_seconds": cap_seconds}
    return {f"{name}_seconds": rate(known, 50), f"{name}_max_seconds": rate(known, 100)}


class _Run:
    """One contender under one load."""

    def __init__(self, bench: Bench, contender: Contender, namespace: str, process: Process, pods: Pods) -> None:
        self.bench, self.contender, self.process, self.pods = bench, contender, process, pods
        self._namespace, self._numbers = namespace, count()
        self._kube = bench.plane.kube

    async def submit(self, jobs: int, workers: int, group: str = "main") -> None:
        """Create jobs, many at once."""
        names = [f"job-{next(self._numbers)}" for _ in range(jobs)]
        bodies = [self.contender.job(name, workers=workers, pod=_pod(name, group)) for name in names]
        await _all(lambda body: self._kube.create(self.contender.resource, self._namespace, body), bodies)

    async def until_running(self, wanted: int) -> None:
        """Raises BenchmarkError when that takes too long."""
        if not await self.pods.until(lambda: self.pods.num_running >= wanted, CREATE_CAP_SECONDS):
            self.process.check()
            raise BenchmarkError(
                f"{self.contender.title}: {self.pods.num_running} of {wanted} workers run after {CREATE_CAP_SECONDS:.0f} s; "
                f"the end of {self.process.log}:\n{self.process.last_words}"
            )

    async def lose(self, chosen: Sequence[Life]) -> list[float]:
        """Delete these pods at once; returns seconds from each one's end to its replacement's creation."""
        lost = list(chosen)
        await _all(self._delete, lost, at_once=len(lost))
        if not await self.pods.until(lambda: all(map(self.pods.replacement, lost)), REPLACE_CAP_SECONDS):
            raise BenchmarkError(f"{self.contender.title}: workers were not replaced within {REPLACE_CAP_SECONDS:.0f} s")
        pairs = [(life.gone, self.pods.replacement(life)) for life in lost]
        return [after.created - gone for gone, after in pairs if after is not None and gone is not None]

    async def lose_machines(self, machines: Sequence[Machine], end: Callable[[str], Awaitable[None]]) -> list[float | None]:
        """End machines one after the other; returns how long each one's worker was missing, None for longer than the cap."""

        async def one(number: int, machine: Machine) -> float | None:
            (lost,) = [life for life in self.pods.present if life.node == machine.name]
            await asyncio.sleep(number * STAGGER_SECONDS)
            died = time.monotonic()
            await end(machine.name)
            await self.pods.until(lambda: self.pods.replacement(lost) is not None, self.bench.cap_seconds)
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
        if not await self.pods.until(lambda: not self.pods.present, CLEAR_SECONDS):
            raise BenchmarkError(f"{len(self.pods.present)} pods are left {CLEAR_SECONDS:.0f} s after their jobs were deleted")

        async def empty() -> bool:
            return not await kube.list(SERVICES, namespace)

        await eventually(empty, CLEAR_SECONDS, lambda: f"Services are left in {namespace} after their jobs were deleted")

    async def _delete(self, life: Life) -> None:
        with suppress(NotFound):
            await self._kube.delete(PODS, self._namespace, life.name, uid=life.uid, grace_seconds=0)


async def _created(run: _Run, jobs: int, workers: int) -> Figures:
    """Submit, and wait for pods to be there and to run."""
    total, plane, used = jobs * workers, run.bench.plane, run.process.cpu_seconds()
    before, mark, spent = run.pods.num_created, await plane.mark(), plane.cpu_seconds()
    began = time.monotonic()
    ticker = asyncio.create_task(_tell(run, total))
    try:
        await run.submit(jobs, workers)
        await run.until_running(total)
    finally:
        ticker.cancel()
    made, ran = (moment - began for moment in (run.pods.created_by(before + total), run.pods.running_by(before + total)))
    name = f"{jobs}_jobs" if workers == Sizes.many_workers else str(total)
    say(f"{run.contender.name}: {jobs} jobs of {workers}: created after {made:.2f} s, running after {ran:.2f} s")
    await asyncio.sleep(SETTLE_SECONDS)
    cost = {name: seconds - spent[name] for name, seconds in plane.cpu_seconds().items()}
    say(f"{run.contender.name}: processor time: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in cost.items()))
    calls = await plane.calls_since(mark, run.contender.name)
    say(f"{run.contender.name}: requests: " + ", ".join(f"{number} {what}" for what, number in calls.most_common()))
    return {
        f"create_{name}_seconds": round(made, 2),
        f"running_{name}_seconds": round(ran, 2),
        f"calls_{name}": calls.total(),
        f"cpu_seconds_{name}": round(run.process.cpu_seconds() - used, 2),
        f"control_plane_cpu_seconds_{name}": round(sum(cost.values()), 2),
    }


async def _tell(run: _Run, total: int) -> None:
    while True:
        await asyncio.sleep(5)
        placed = sum(bool(life.node) for life in run.pods.present)
        created, runs = len(run.pods.present), run.pods.num_running
        say(f"{run.contender.name}: of {total} workers {created} are created, {placed} placed, {runs} run")


@asynccontextmanager
async def _running(bench: Bench, contender: Contender, scenario: str) -> AsyncIterator[_Run]:
    """The contender is ready: it made a first job's pod, and that job is gone again."""
    namespace = f"{contender.name}-{scenario}"
    say(f"{contender.title}: {scenario}")
    await bench.plane.namespace(namespace)
    async with Pods.watched(bench.plane.kube, namespace) as pods, running(contender, bench.plane, bench.checkout) as process:
        run = _Run(bench, contender, namespace, process, pods)
        await run.submit(1, 1)
        if not await pods.until(lambda: pods.num_running > 0, READY_SECONDS):
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
