"""Waiting for jobs: until all of them run, or until all are over.

done = await wait_for(ebb, ["a", "b"], "finished", timeout_seconds=3600)
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing

from ebb.client.errors import BadRequest, Missing, TimedOut
from ebb.client.jobs.live import ignore, states
from ebb.client.jobs.view import OVER, RUNNING_STATE, JobView, view
from ebb.client.platform.ebb import Ebb
from ebb.client.platform.reach import read_job
from ebb.kube import ELASTIC_JOBS, Object

TICK_SECONDS = 1.0
NOTE_SECONDS = 10.0  # no wait is silent for longer
GOALS: Mapping[str, frozenset[str]] = {"finished": OVER, "running": OVER | {RUNNING_STATE}}
"""What may be waited for, and the states that end it: a job that is over will not run any more."""


async def wait_for(
    ebb: Ebb,
    names: Iterable[str],
    goal: str = "finished",
    *,
    timeout_seconds: float | None = None,
    say: Callable[[JobView], None] = lambda _: None,
    note: Callable[[str], None] = ignore,
) -> tuple[JobView, ...]:
    """The jobs as they then are, in the order of their names. Raises BadRequest, TimedOut, Missing if one is not there or is
    deleted meanwhile."""
    if goal not in GOALS:
        raise BadRequest(f"for {goal!r} is nothing to wait for: use {' or '.join(GOALS)}.")
    wanted = list(dict.fromkeys(names))
    uids = {name: (await read_job(ebb.kube, ebb.namespace, name))["metadata"]["uid"] for name in wanted}
    current: dict[str, JobView] = {}
    try:
        async with asyncio.timeout(timeout_seconds), aclosing(_ticking(ebb, note)) as looks:
            said = _Said(say)
            async for jobs in looks:
                current = {name: view(jobs[uid]) for name, uid in uids.items() if uid in jobs}
                if gone := [name for name in wanted if name not in current]:
                    raise Missing(f"{', '.join(gone)} {'was' if len(gone) == 1 else 'were'} deleted.")
                said.news(current.values())
                if all(job.state in GOALS[goal] for job in current.values()):
                    return tuple(current.values())
    except TimeoutError as error:
        late = [name for name in wanted if name not in current or current[name].state not in GOALS[goal]]
        raise TimedOut(_late(late, goal, timeout_seconds or 0)) from error
    raise AssertionError("a stream of states has no end")


class _Said:
    """Says what changes, and something of each job every few seconds."""

    def __init__(self, say: Callable[[JobView], None]) -> None:
        self._say = say
        self._last: dict[str, tuple[str, float]] = {}

    def news(self, jobs: Iterable[JobView]) -> None:
        now = asyncio.get_running_loop().time()
        for job in jobs:
            text = f"{job.state} {job.workers} {job.wanted_workers} {job.reclaims} {job.detail}"
            said, at = self._last.get(job.name, ("", 0.0))
            if text != said or (now - at >= NOTE_SECONDS and job.state not in OVER):
                self._say(job)
                self._last[job.name] = text, now


async def _ticking(ebb: Ebb, note: Callable[[str], None]) -> AsyncGenerator[dict[str, Object], None]:
    """All jobs by uid: now, at every change, and at least every TICK_SECONDS. Raises KubeError as `states` does."""
    async with aclosing(states(ebb.kube, ELASTIC_JOBS, ebb.namespace, on_trouble=note)) as stream:
        jobs = await anext(stream)
        coming = asyncio.ensure_future(anext(stream))
        try:
            while True:
                yield jobs
                await asyncio.wait({coming}, timeout=TICK_SECONDS)
                if coming.done():
                    jobs = coming.result()
                    coming = asyncio.ensure_future(anext(stream))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _late(names: list[str], goal: str, seconds: float) -> str:
    one = len(names) == 1
    verb = ("is not over" if one else "are not over") if goal == "finished" else ("does not run" if one else "do not run")
    return f"{', '.join(names)} {verb} after {seconds:g} s; {'it goes' if one else 'they go'} on."
