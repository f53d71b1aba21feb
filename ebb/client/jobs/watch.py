"""Looking at jobs: all of them, one, and one until it is over."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ebb.api.contract import LABEL_JOB
from ebb.client.errors import Missing
from ebb.client.jobs.live import Board, ignore
from ebb.client.jobs.nodes import Nodes
from ebb.client.jobs.reclaims import Reclaim, Start, losses, starts
from ebb.client.jobs.view import OVER, JobView, WorkerView, own_pods, view, worker_view
from ebb.client.jobs.waiting import NOTE_SECONDS, TICK_SECONDS, wait_for
from ebb.client.platform.ebb import Ebb
from ebb.client.platform.reach import read_job
from ebb.client.timeline.timeline import is_about
from ebb.kube import ELASTIC_JOBS, EVENTS, PODS, Object


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A job and its workers at one moment, in the order of their numbers."""

    job: JobView
    workers: tuple[WorkerView, ...]
    reclaims: tuple[Reclaim, ...] = ()  # those that the job's history remembers


async def list_jobs(ebb: Ebb) -> tuple[JobView, ...]:
    """All jobs of the namespace, newest first."""
    jobs = [view(job) for job in await ebb.kube.list(ELASTIC_JOBS, ebb.namespace)]
    return tuple(sorted(jobs, key=lambda job: job.created, reverse=True))


async def status(ebb: Ebb, name: str) -> Seen:
    """One job as it is now. Raises Missing."""
    job = await read_job(ebb.kube, ebb.namespace, name)
    pods, nodes = await asyncio.gather(ebb.kube.list(PODS, ebb.namespace, labels=f"{LABEL_JOB}={name}"), Nodes.read(ebb.kube))
    found = see(job, pods, nodes)
    if all(loss.back for loss in found.reclaims):
        return found
    # Some worker was lost twice: only the events, which are many, know when it was back in between.
    told = await ebb.kube.list(EVENTS, ebb.namespace, fields="reason=Started")
    return see(job, pods, nodes, starts((event for event in told if is_about(event, job)), name))


def see(job: Object, pods: Iterable[Object], nodes: Nodes, began: Iterable[Start] = ()) -> Seen:
    """A job, its pods and its machines as they are now."""
    own = own_pods(job, pods)
    workers = sorted((_on_machine(worker_view(pod), nodes) for pod in own), key=lambda item: item.worker)
    reclaims = losses(job, own, nodes.zones, began)
    return Seen(job=view(job, datetime.now(UTC).timestamp()), workers=tuple(workers), reclaims=reclaims)


def _on_machine(worker: WorkerView, nodes: Nodes) -> WorkerView:
    machine = nodes.of(worker.machine)
    return replace(worker, instance_type=machine.instance_type, zone=machine.zone, machine_since=machine.since)


async def wait(
    ebb: Ebb,
    name: str,
    *,
    timeout_seconds: float | None = None,
    say: Callable[[JobView], None] = lambda _: None,
    note: Callable[[str], None] = ignore,
) -> JobView:
    """The job as it ended. Raises TimedOut, Missing if it is not there or is deleted meanwhile."""
    (done,) = await wait_for(ebb, [name], timeout_seconds=timeout_seconds, say=say, note=note)
    return done


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
