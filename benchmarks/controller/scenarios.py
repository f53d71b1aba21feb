"""The measurements: each scenario starts a controller afresh, loads it in a namespace of its own, and clears everything away.

    figures = await create(bench, contender); ...      # name -> value, None where the cap came first

create   20 jobs of 64 workers                    many    500 jobs of 4, with the controller's memory
replace  30 running workers deleted at once       nodes   machines whose Node object vanishes, and that fall silent
full     200 jobs of 50 workers, of which 30 are lost    wide  one job of 1,000, of which 30 are lost
waiting  5,000 jobs that wait, while workers of one that runs are lost
"""

import asyncio
import random
import time
from collections.abc import Sequence

from benchmarks.controller.contenders import Contender
from benchmarks.controller.figures import Figures, rate, spread
from benchmarks.controller.fleet import Machine
from benchmarks.controller.load import Bench, Run, Sizes, running
from devcluster.commands import say

SETTLE_SECONDS = 5.0  # for status writes after the last pod, and for memory that is not used any more
WORKERS = 4  # of a job whose machine dies, each on its own machine
WATCHED_SECONDS = 40.0  # in which each job that waits is looked at once


async def create(bench: Bench, contender: Contender) -> Figures:
    sizes = bench.sizes
    async with running(bench, contender, "create") as run:
        return await _created(run, sizes.jobs, sizes.workers)


async def many(bench: Bench, contender: Contender) -> Figures:
    sizes = bench.sizes
    async with running(bench, contender, "many") as run:
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


async def full(bench: Bench, contender: Contender) -> Figures:
    sizes = bench.sizes
    async with running(bench, contender, "full") as run:
        return await _created_and_lost(run, sizes.full_jobs, sizes.full_workers)


async def wide(bench: Bench, contender: Contender) -> Figures:
    async with running(bench, contender, "wide") as run:
        return await _created_and_lost(run, 1, bench.sizes.widest)


async def waiting(bench: Bench, contender: Contender) -> Figures:
    """One job runs and loses its workers while thousands wait; ours look at one another meanwhile."""
    sizes = bench.sizes
    async with running(bench, contender, "waiting") as run:
        await run.submit(1, WORKERS)
        await run.until_running(WORKERS)
        used, began = run.process.cpu_seconds(), time.monotonic()
        await run.submit(sizes.waiting, WORKERS, waiting=True)
        if contender.is_ours:
            await run.until_running(2 * WORKERS)  # the first of the sweep
        await asyncio.sleep(WATCHED_SECONDS)
        say(f"{contender.name}: {sizes.waiting} jobs wait after {time.monotonic() - began:.0f} s")
        arrived, began = run.process.cpu_seconds(), time.monotonic()
        seconds, _ = await _replaced(run, sizes.rounds, lost=1)
        name = f"{sizes.waiting}_waiting"
        cores = (run.process.cpu_seconds() - arrived) / (time.monotonic() - began)
        return {
            f"cpu_seconds_{name}": round(arrived - used, 2),
            f"cores_{name}": round(cores, 3),
            f"replace_p99_{name}_seconds": rate(seconds, 99),
            f"rss_mb_{name}": round(run.process.memory().peak, 1),
        }


async def replace(bench: Bench, contender: Contender) -> Figures:
    """Workers deleted without grace, as the last step of any reclaim does it: every controller replaces a pod that is gone."""
    sizes, jobs, workers = bench.sizes, 4, 32
    async with running(bench, contender, "replace") as run:
        await run.submit(jobs, workers)
        await run.until_running(jobs * workers)
        seconds, calls = await _replaced(run, sizes.rounds, lost=sizes.lost)
        name = f"replace_{sizes.lost}"
        return {
            f"{name}_p50_seconds": rate(seconds, 50),
            f"{name}_p99_seconds": rate(seconds, 99),
            f"{name}_max_seconds": rate(seconds, 100),
            f"{name}_calls_per_worker": calls,
        }


async def nodes(bench: Bench, contender: Contender) -> Figures:
    """From the death of a machine to the creation of the pod that takes its worker's place."""
    rounds = range(bench.sizes.machines)
    groups = [_group(f"{kind}-{number}", doomed=kind == "silent") for kind in ("vanish", "silent") for number in rounds]
    every = [machine for group in groups for machine in group]
    try:
        await bench.fleet.add(every)
        async with running(bench, contender, "nodes") as run:
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


async def _created_and_lost(run: Run, jobs: int, workers: int) -> Figures:
    """Many workers, and then some of them are lost once."""
    figures = await _created(run, jobs, workers)
    seconds, calls = await _replaced(run, 1, lost=min(Sizes.lost, jobs * workers))
    name = f"at_{jobs * workers}"
    return figures | {
        f"replace_{name}_p99_seconds": rate(seconds, 99),
        f"replace_{name}_calls_per_worker": calls,
        f"rss_mb_{name}": round(run.process.memory().peak, 1),
    }


async def _replaced(run: Run, rounds: int, *, lost: int) -> tuple[list[float], float]:
    """Lose so many of the workers at once, some times; seconds until each one's replacement, and API calls for each."""
    total, plane = run.pods.num_running, run.bench.plane
    seconds: list[float] = []
    calls = 0
    for number in range(rounds):
        await asyncio.sleep(SETTLE_SECONDS)
        mark = await plane.mark()
        chosen = random.Random(number).sample(run.pods.present, lost)  # noqa: S311 - the same for all
        seconds += await run.lose(chosen)
        await run.until_running(total)
        await asyncio.sleep(SETTLE_SECONDS)
        calls += (await plane.calls_since(mark, run.contender.name)).total()
    say(f"{run.contender.name}: {len(seconds)} workers replaced, {spread(seconds)}")
    return seconds, round(calls / (lost * rounds), 2)


async def _created(run: Run, jobs: int, workers: int) -> Figures:
    """Submit, and wait for pods to be there and to run."""
    total, plane, used = jobs * workers, run.bench.plane, run.process.cpu_seconds()
    before, mark, spent = run.pods.num_created, await plane.mark(), plane.cpu_seconds()
    began = time.monotonic()
    ticker = asyncio.create_task(run.tell(total))
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
