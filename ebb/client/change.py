"""Changing a job that is there: scale, stop, resume, delete. Each reads it, decides by pure code and sends once."""

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ebb.api import contract as names
from ebb.client.errors import BadRequest, ClientError
from ebb.client.jobs.view import OVER, JobView, condition, gpus_per_worker, view
from ebb.client.jobs.watch import Board, ignore
from ebb.client.platform.connection import Ebb, read_job
from ebb.kube import ELASTIC_JOBS, NotFound, Object

NOTE_SECONDS = 5.0  # no wait is silent for longer
RAISES = {  # why the controller holds a job -> the field that lets it go on, and the flag that changes it
    names.REASON_BUDGET: ("its budget is spent", "--max-cost"),
    names.REASON_TIME_UP: ("its deadline has passed", "--deadline"),
}
SWEEPS = (names.REASON_SWEEP_WORST, names.REASON_SWEEP_PAUSED)


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """Result of `scale`: workers wanted before and from now on."""

    job: JobView
    before: int
    workers: int


async def scale(ebb: Ebb, name: str, gpus: int) -> Scaled:
    """Let a job train on `gpus` GPUs from now on. Raises Missing, BadRequest, ClientError for a job that is over."""
    job = await read_job(ebb.kube, ebb.namespace, name)
    before, wanted = view(job), workers_for(job, gpus)
    if wanted != before.wanted_workers:
        job = await _patch(ebb, name, {"replicaSpecs": {"Worker": {"replicas": wanted}}})
    return Scaled(job=view(job), before=before.wanted_workers, workers=wanted)


async def stop(ebb: Ebb, jobs: Iterable[str], *, wait: bool = True, note: Callable[[str], None] = ignore) -> tuple[JobView, ...]:
    """Let jobs write a checkpoint and give their machines back; they stay, and `resume` goes on from it.

    Raises Missing (then none was stopped), ClientError for a job that is over, BadRequest for none.
    """
    found = await _all(ebb, jobs)
    for job in found:
        _check_goes_on(view(job), "stopped")
    stopped = [await _patch(ebb, job["metadata"]["name"], {"suspend": True}) for job in found]
    if wait:
        await asyncio.gather(*(_workers_gone(ebb, job, note) for job in stopped))
    return tuple(view(job) for job in stopped)


async def resume(ebb: Ebb, name: str, *, max_usd: float | None = None, deadline: str | None = None) -> JobView:
    """Let a stopped job go on; one that the controller holds needs a larger budget (USD) or a later deadline (RFC 3339).

    Raises Missing, BadRequest, ClientError for a job that is over.
    """
    job = await read_job(ebb.kube, ebb.namespace, name)
    _check_goes_on(view(job), "resumed")
    _check_limits_raised(job, max_usd, deadline)
    changes: Object = {"suspend": False}
    if max_usd is not None:
        changes["budget"] = {"maxUSD": max_usd}
    if deadline is not None:
        changes["deadline"] = deadline
    if ((job.get("status") or {}).get("hold") or {}).get("reason") in SWEEPS:
        changes["group"] = {"halving": None}  # it is compared with the other runs no more
    elif _held_for_other(job):  # only a change of the spec ends a hold, and nothing of it is to change
        await _patch(ebb, name, {"suspend": True})
    return view(await _patch(ebb, name, changes))


async def delete(ebb: Ebb, jobs: Iterable[str], *, wait: bool = True, note: Callable[[str], None] = ignore) -> tuple[str, ...]:
    """Remove jobs; all must be there, or none goes. With `wait` until their workers have left. Raises Missing."""
    found = await _all(ebb, jobs)
    for job in found:
        try:
            await ebb.kube.delete(ELASTIC_JOBS, ebb.namespace, job["metadata"]["name"], uid=job["metadata"]["uid"])
        except NotFound:
            continue  # somebody else was faster
    if wait:
        await asyncio.gather(*(_gone(ebb, job, note) for job in found))
    return tuple(str(job["metadata"]["name"]) for job in found)


def workers_for(job: Object, gpus: int) -> int:
    """Return how many workers `gpus` GPUs are for this job. Raises BadRequest, or ClientError for a job that is over."""
    found, size = view(job), gpus_per_worker(job) or 1
    _check_goes_on(found, "scaled")
    low, high = found.min_workers * size, found.max_workers * size
    if not low <= gpus <= high or gpus % size:
        steps = f", in steps of {size}" if size > 1 else ""
        raise BadRequest(
            f"gpus {gpus} is outside of what {found.name} was submitted for: use {low} to {high}{steps}, "
            "or submit it again with other --min and --max."
        )
    return gpus // size


def _check_goes_on(job: JobView, done: str) -> None:
    if job.state in OVER:
        raise ClientError(f"{job.name} is {job.state}: only a job that has not ended can be {done}. Submit it again.")


def _check_limits_raised(job: Object, max_usd: float | None, deadline: str | None) -> None:
    """A job whose budget is spent would be held again at once."""
    spent = view(job).usd_spent or 0.0
    if max_usd is not None and max_usd <= spent:
        raise BadRequest(f"max-cost {max_usd:g} is not more than the ${spent:.2f} that it has cost: give more.")
    if max_usd is None and spent >= ((job["spec"].get("budget") or {}).get("maxUSD") or math.inf):
        raise BadRequest(f"the budget of {job['metadata']['name']} is spent (${spent:.2f}): say a new one with --max-cost.")
    why, flag = RAISES.get(_hold(job), ("", ""))
    given = {"--max-cost": max_usd, "--deadline": deadline}
    if why and given[flag] is None:
        raise BadRequest(f"{job['metadata']['name']} was stopped because {why}: say a new one with {flag}.")


def _hold(job: Object) -> str:
    """The controller's reason for holding the job, "" if it was stopped by its user or not at all."""
    found = condition(job, names.SUSPENDED) or {}
    reason = str(found.get("reason") or "")
    return "" if reason == names.REASON_SUSPENDED or job["spec"].get("suspend") else reason


def _held_for_other(job: Object) -> bool:
    return _hold(job) not in ("", *RAISES)


async def _all(ebb: Ebb, jobs: Iterable[str]) -> list[Object]:
    named = list(dict.fromkeys(jobs))
    if not named:
        raise BadRequest("no job is named: give one or more names, as `ebb list` shows them.")
    return [await read_job(ebb.kube, ebb.namespace, name) for name in named]


async def _patch(ebb: Ebb, name: str, spec: Object) -> Object:
    return await ebb.kube.patch(ELASTIC_JOBS, ebb.namespace, name, {"spec": spec})


async def _workers_gone(ebb: Ebb, job: Object, note: Callable[[str], None]) -> None:
    await _until_empty(ebb, job, note, lambda board: False)


async def _gone(ebb: Ebb, job: Object, note: Callable[[str], None]) -> None:
    uid = job["metadata"]["uid"]
    await _until_empty(ebb, job, note, lambda board: bool(board.job and board.job["metadata"]["uid"] == uid))


async def _until_empty(ebb: Ebb, job: Object, note: Callable[[str], None], more: Callable[[Board], bool]) -> None:
    """Wait until the job has no workers and `more` says no, saying so from time to time."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    loop = asyncio.get_running_loop()
    async with Board(ebb.kube, ebb.namespace, name, on_trouble=note) as board:
        noted, last = loop.time(), -1
        while (left := len(board.pods_of(uid))) or more(board):
            if left and (left != last or loop.time() - noted >= NOTE_SECONDS):
                note(f"{name}: {left} {'worker has' if left == 1 else 'workers have'} still to leave")
                noted, last = loop.time(), left
            await board.change(NOTE_SECONDS)
