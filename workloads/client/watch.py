"""Looking at jobs: all of them, one, and one until it is over."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from workloads.client.ebb import Ebb
from workloads.client.errors import Missing, TimedOut
from workloads.client.live import Board, ignore
from workloads.client.reach import read_job
from workloads.client.view import OVER, JobView, WorkerView, view, worker_view
from workloads.contract import LABEL_JOB
from workloads.kube import ELASTIC_JOBS, PODS

TICK_SECONDS = 1.0
NOTE_SECONDS = 10.0  # no wait is silent for longer


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A job and its workers at one moment, in the order of their numbers."""

    job: JobView
    workers: tuple[WorkerView, ...]


async def list_jobs(ebb: Ebb) -> tuple[JobView, ...]:
    """All jobs of the namespace, newest first."""
    jobs = [view(job) for job in await ebb.kube.list(ELASTIC_JOBS, ebb.namespace)]
    return tuple(sorted(jobs, key=lambda job: job.created, reverse=True))


async def status(ebb: Ebb, name: str) -> Seen:
    """One job as it is now. Raises Missing."""
    job = await read_job(ebb.kube, ebb.namespace, name)
    pods = await ebb.kube.list(PODS, ebb.namespace, labels=f"{LABEL_JOB}={name}")
    workers = sorted((worker_view(pod) for pod in pods), key=lambda item: item.worker)
    return Seen(job=view(job, datetime.now(UTC).timestamp()), workers=tuple(workers))


async def wait(
    ebb: Ebb,
    name: str,
    *,
    timeout_seconds: float | None = None,
    say: Callable[[JobView], None] = lambda _: None,
    note: Callable[[str], None] = ignore,
) -> JobView:
    """The job as it ended. Raises TimedOut, Missing if it is not there or is deleted meanwhile."""
    await read_job(ebb.kube, ebb.namespace, name)
    async with Board(ebb.kube, ebb.namespace, name, on_trouble=note) as board:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await until_over(board, say)
        except TimeoutError as error:
            raise TimedOut(f"{name} is not over after {timeout_seconds:g} s; it goes on.") from error


async def until_over(board: Board, say: Callable[[JobView], None]) -> JobView:
    """Say what changes, and something every few seconds, until the job is over. Raises Missing when it is deleted."""
    loop = asyncio.get_running_loop()
    said, at = "", 0.0
    while board.job is not None:
        job = view(board.job)
        news = f"{job.state} {job.workers} {job.wanted_workers} {job.reclaims} {job.detail}"
        if news != said or loop.time() - at >= NOTE_SECONDS:
            say(job)
            said, at = news, loop.time()
        if job.state in OVER:
            return job
        await board.change(TICK_SECONDS)
    raise Missing(f"{board.name} was deleted.")
