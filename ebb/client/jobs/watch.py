"""Jobs now, until all of them run or are over, and as they change.

    await list_jobs(ebb); await status(ebb, "digits")
    done = await wait_for(ebb, ["a", "b"], "finished", timeout_seconds=3600)
    async for jobs in states(kube, ELASTIC_JOBS, namespace, on_trouble=print):
        ...                                         # {uid: object}, first as it is, then after every change

A stream of states outlives lost connections: it never gives up on an API server that answers no more; the user's Ctrl-C does. The
controller's reflector is made for thousands of objects and other promises, hence not used here.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ebb.api.contract import COPY_SUFFIX, LABEL_JOB, RUNNING, WAITING_FOR_DATA
from ebb.client.errors import BadRequest, Missing, TimedOut
from ebb.client.jobs.nodes import Nodes
from ebb.client.jobs.reclaims import Reclaim, Start, losses, starts
from ebb.client.jobs.view import OVER, RUNNING_STATE, JobView, WorkerView, held_machine, own_pods, view, worker_view
from ebb.client.platform.connection import Ebb, read_job
from ebb.client.timeline.timeline import is_about
from ebb.kube import ELASTIC_JOBS, EVENTS, PODS, Denied, Gone, Invalid, Kube, KubeError, NotFound, Object, Resource

RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 5.0)  # a restarting API server is back in 5 to 20 s
PATIENCE = 6
"""Refusals in a row put down to an API server that has just started: rights and kinds load after it listens."""


def ignore(_: str) -> None:
    """For callers that tell nobody."""


async def states(
    kube: Kube,
    resource: Resource,
    namespace: str,
    *,
    labels: str | None = None,
    name: str | None = None,
    on_trouble: Callable[[str], None] = ignore,
) -> AsyncGenerator[dict[str, Object], None]:
    """Yield {uid: object} now and after each change, for ever. Raises KubeError if the first answer is one, or refusals last."""
    fields = f"metadata.name={name}" if name else None
    seen, failures = False, 0
    while True:
        try:
            items, version = await kube.list_with_version(resource, namespace, labels=labels, fields=fields)
            current = {item["metadata"]["uid"]: item for item in items}
            seen, failures = True, 0
            yield dict(current)
            async for kind, item in kube.watch(resource, namespace, version=version, labels=labels, fields=fields):
                if kind == "BOOKMARK":
                    continue
                if kind == "DELETED":
                    current.pop(item["metadata"]["uid"], None)
                else:
                    current[item["metadata"]["uid"]] = item
                yield dict(current)
        except Gone:
            continue
        except KubeError as error:
            failures += 1
            if not seen or (isinstance(error, Denied | NotFound | Invalid) and failures > PATIENCE):
                raise
            if failures == 2:  # one break is every load balancer's habit
                on_trouble(f"{error}; trying again")
            await asyncio.sleep(max(error.retry_seconds, RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1]))


class Board:
    """The newest state of one job and its pods, kept current while the block runs.

    async with Board(kube, namespace, "digits") as board:      # both are read when the block begins
        while not over(board.job):
            await board.change(timeout_seconds=1)
    """

    def __init__(self, kube: Kube, namespace: str, job: str, on_trouble: Callable[[str], None] = ignore) -> None:
        self.kube, self.namespace, self.name = kube, namespace, job
        self.job: Object | None = None
        self._labels = f"{LABEL_JOB}={job}"
        self._pods: dict[str, Object] = {}
        self.trouble = ""  # why this may be old; "" while the API server answers
        self._on_trouble = on_trouble
        self._bell = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pods(self) -> list[Object]:
        """The job's own pods by name; not those of an earlier job of that name that are still going."""
        uid = self.job["metadata"]["uid"] if self.job else None
        return self.pods_of(uid)

    def pods_of(self, uid: str | None) -> list[Object]:
        """Those of the job with that uid, which may be deleted already; None: all that carry the name."""
        own = (pod for pod in self._pods.values() if uid in (None, _owner(pod)))
        return sorted(own, key=lambda pod: str(pod["metadata"]["name"]))

    async def change(self, timeout_seconds: float | None = None) -> None:
        """Return at the next change or after the time-out. Raises KubeError if the watching has ended in one."""
        waiting = asyncio.ensure_future(self._bell.wait())
        try:
            await asyncio.wait({waiting, *self._tasks}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        for task in self._tasks:
            if task.done():
                task.result()

    async def refresh_pods(self) -> None:
        """Read the pods now; if that fails, what the board knows stands."""
        with suppress(KubeError):
            pods = await self.kube.list(PODS, self.namespace, labels=self._labels)
            self._pods = {pod["metadata"]["uid"]: pod for pod in pods}

    async def __aenter__(self) -> "Board":
        loads = [asyncio.Event(), asyncio.Event()]
        self._tasks = [asyncio.create_task(self._follow_job(loads[0])), asyncio.create_task(self._follow_pods(loads[1]))]
        try:
            while not all(load.is_set() for load in loads):
                await self.change()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow_job(self, loaded: asyncio.Event) -> None:
        async for jobs in states(self.kube, ELASTIC_JOBS, self.namespace, name=self.name, on_trouble=self._trouble):
            self.job = next(iter(jobs.values()), None)
            loaded.set()
            self._ring()

    async def _follow_pods(self, loaded: asyncio.Event) -> None:
        async for pods in states(self.kube, PODS, self.namespace, labels=self._labels):
            self._pods = pods
            loaded.set()
            self._ring()

    def _trouble(self, text: str) -> None:
        self.trouble = text
        self._on_trouble(text)

    def _ring(self) -> None:
        """Wake everybody who waits now; who comes later waits for the next change."""
        self.trouble = ""
        self._bell.set()
        self._bell = asyncio.Event()


def _owner(pod: Object) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job and its workers at one moment, in the order of their numbers."""

    job: JobView
    workers: tuple[WorkerView, ...]
    reclaims: tuple[Reclaim, ...] = ()  # those that the job's history remembers
    dashboards: dict[str, str] = field(default_factory=dict)  # where its figures are over time, by name


async def list_jobs(ebb: Ebb) -> tuple[JobView, ...]:
    """All jobs of the namespace, newest first."""
    jobs = [view(job) for job in await ebb.kube.list(ELASTIC_JOBS, ebb.namespace)]
    return tuple(sorted(jobs, key=lambda job: job.created, reverse=True))


async def status(ebb: Ebb, name: str) -> JobStatus:
    """One job as it is now. Raises Missing."""
    job = await read_job(ebb.kube, ebb.namespace, name)
    pods, nodes = await asyncio.gather(ebb.kube.list(PODS, ebb.namespace, labels=f"{LABEL_JOB}={name}"), Nodes.read(ebb.kube))
    found = see(job, pods, nodes)
    found = replace(await with_copy(ebb.kube, job, found), dashboards=ebb.platform.dashboards_of(ebb.namespace, name))
    if all(loss.back for loss in found.reclaims):
        return found
    # Some worker was lost twice: only the events, which are many, know when it was back in between.
    told = await ebb.kube.list(EVENTS, ebb.namespace, fields="reason=Started")
    begun = starts((event for event in told if is_about(event, job)), name)
    return replace(see(job, pods, nodes, begun), dashboards=found.dashboards)


async def with_copy(kube: Kube, job: Object, found: JobStatus) -> JobStatus:
    """The same with how far the copy of its bucket is: the last line of the pod that copies, where it has one."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    if not any((one["type"], one.get("reason")) == (RUNNING, WAITING_FOR_DATA) for one in conditions):
        return found
    metadata, lines = job["metadata"], list[str]()
    with suppress(KubeError):  # it has not begun, or is gone
        lines = [line async for line in kube.logs(metadata["namespace"], f"{metadata['name']}{COPY_SUFFIX}", tail_lines=1)]
    return replace(found, job=replace(found.job, detail=f"{found.job.detail} So far: {lines[-1]}.")) if lines else found


def see(job: Object, pods: Iterable[Object], nodes: Nodes, began: Iterable[Start] = ()) -> JobStatus:
    """A job, its pods and its machines as they are now."""
    own = own_pods(job, pods)
    found = (_on_machine(worker_view(pod, held_machine(job)), nodes) for pod in own)
    workers = sorted(found, key=lambda item: item.worker)
    reclaims = losses(job, own, nodes.zones, began)
    return JobStatus(job=view(job, datetime.now(UTC).timestamp()), workers=tuple(workers), reclaims=reclaims)


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


TICK_SECONDS = 1.0
NOTE_SECONDS = 10.0  # no wait is silent for longer
GOALS: Mapping[str, frozenset[str]] = {"finished": OVER, "running": OVER | {RUNNING_STATE}}
"""Goals of a wait, and the states that end it: a job that is over will not run any more."""


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
        raise BadRequest(f"for {goal!r} is not something to wait for: use {' or '.join(GOALS)}.")
    wanted = list(dict.fromkeys(names))
    uids = {name: (await read_job(ebb.kube, ebb.namespace, name))["metadata"]["uid"] for name in wanted}
    current: dict[str, JobView] = {}
    try:
        async with asyncio.timeout(timeout_seconds), aclosing(_ticking(ebb, note)) as looks:
            said = _News(say)
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


class _News:
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
