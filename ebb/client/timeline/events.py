"""A job's timeline from the cluster: once, or as it goes on.

for entry in await events(ebb, "digits"): ...
async for entry in follow_events(ebb, "digits"): ...      # the past first, then what comes, until the job is over
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from ebb.api.contract import LABEL_JOB
from ebb.client.errors import Missing
from ebb.client.jobs.nodes import Nodes
from ebb.client.jobs.reclaims import losses, starts
from ebb.client.jobs.view import OVER, own_pods, view
from ebb.client.jobs.watch import Board, ignore, states
from ebb.client.platform.connection import Ebb, read_job
from ebb.client.timeline.timeline import Entry, is_about, timeline
from ebb.kube import EVENTS, PODS, Object

TICK_SECONDS = 1.0
"""Seconds between updates: what happens to several workers at once is one line then."""
LOUDER = 2  # what is said again and again is told again when it was said twice as often
AFTER_SECONDS = 3.0  # events of a job's end are written after the end


async def events(ebb: Ebb, name: str) -> tuple[Entry, ...]:
    """Return what is known now, the oldest first. Raises Missing."""
    job = await read_job(ebb.kube, ebb.namespace, name)
    pods, told, nodes = await asyncio.gather(
        ebb.kube.list(PODS, ebb.namespace, labels=f"{LABEL_JOB}={name}"),
        ebb.kube.list(EVENTS, ebb.namespace),
        Nodes.read(ebb.kube),
    )
    return job_timeline(job, pods, told, nodes)


async def follow_events(ebb: Ebb, name: str, on_trouble: Callable[[str], None] = ignore) -> AsyncGenerator[Entry, None]:
    """Entries as they come; one that grew (more workers, the time that a reclaim cost) comes again. Ends with the job; raises
    Missing if it is not there or is deleted."""
    await read_job(ebb.kube, ebb.namespace, name)
    async with Board(ebb.kube, ebb.namespace, name, on_trouble=on_trouble) as board, _events(ebb) as current:
        told: dict[tuple[str, str, str], Entry] = {}
        nodes, ended = await Nodes.read(ebb.kube), False
        while board.job is not None:
            nodes = await nodes.with_those_of(board.pods, ebb.kube)
            for entry in job_timeline(board.job, board.pods, current(), nodes):
                key = (entry.at, entry.reason, entry.text)  # workers that are lost together share the first two
                if _is_news(entry, told.get(key)):
                    told[key] = entry
                    yield entry
            if ended:
                return
            ended = view(board.job).state in OVER
            await (asyncio.sleep(AFTER_SECONDS) if ended else board.change(TICK_SECONDS))
    raise Missing(f"{name} was deleted.")


def job_timeline(job: Object, pods: list[Object], told: list[Object], nodes: Nodes) -> tuple[Entry, ...]:
    """The timeline out of what was read; `told`: events, of the whole namespace or about the job. Pure."""
    about = [event for event in told if is_about(event, job)]
    reclaims = losses(job, own_pods(job, pods), nodes.zones, starts(about, job["metadata"]["name"]))
    return timeline(job, about, reclaims)


def _is_news(entry: Entry, told: Entry | None) -> bool:
    return told is None or entry.count >= LOUDER * told.count


@asynccontextmanager
async def _events(ebb: Ebb) -> AsyncIterator[Callable[[], list[Object]]]:
    """The namespace's events, kept current while the block runs; calling what it gives raises what ended that."""
    current: dict[str, Object] = {}
    read = asyncio.Event()

    async def keep() -> None:
        async for found in states(ebb.kube, EVENTS, ebb.namespace):
            current.clear()
            current.update(found)
            read.set()

    def known() -> list[Object]:
        if task.done():
            task.result()
        return list(current.values())

    task = asyncio.create_task(keep())
    first = asyncio.create_task(read.wait())
    try:
        await asyncio.wait({task, first}, return_when=asyncio.FIRST_COMPLETED)
        yield known
    finally:
        first.cancel()
        task.cancel()
        await asyncio.gather(first, task, return_exceptions=True)
