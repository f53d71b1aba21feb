"""The logs of a job as one stream: all workers merged, across lost and new pods and lost connections, each line once.

    await print_logs(kube, namespace, "digits", sink)                 # what there is now, in the order of time
    job = await follow_logs(kube, namespace, "digits", sink)          # until the job is over

What the API server can no longer give (pods that are gone, files that the kubelet rotated away at 10 MiB) is not here.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from workloads.client.errors import Missing
from workloads.client.live import Board
from workloads.client.replay import Line, Replay, merged, parse
from workloads.client.view import OVER, RUNNING_STATE, JobView, view, worker_container, worker_index
from workloads.client.words import happening
from workloads.contract import LABEL_INDEX, LABEL_JOB
from workloads.kube import PODS, Kube, KubeError, NotFound, Object

DRAIN_SECONDS = 3.0
"""How long the last lines of a pod that is gone may take to arrive; its connection may also hang, as its machine may be dead."""
RECHECK_SECONDS = 1.0
SILENCE_SECONDS = 60.0  # then the log is asked for anew, which costs little and shows nothing twice
TRIES_AT_END = 3  # for the last lines of a pod that has ended; its machine may be gone already


class Sink(Protocol):
    """Where lines and notes go."""

    def line(self, worker: int, line: Line) -> None:
        """One line of one worker's."""

    def note(self, text: str) -> None:
        """What happens to the job meanwhile."""


async def print_logs(
    kube: Kube, namespace: str, job: str, sink: Sink, *, worker: int | None = None, tail: int | None = None
) -> None:
    """Print what the workers' pods have written. Raises Missing if no pod that has started is there."""
    pods = await kube.list(PODS, namespace, labels=_selector(job, worker))
    started = [pod for pod in pods if _started(pod)]
    if not started:
        which = "no worker" if worker is None else f"no worker {worker}"
        raise Missing(
            f"{job} has {which} whose log can be read: it has not started yet, or left together with its machine. "
            f"`ebb status {job}` says which; -f waits for those that come."
        )
    logs = await asyncio.gather(*(_lines_now(kube, namespace, pod, Replay(), tail) for pod in started))
    for index, line in merged(zip(map(worker_index, started), logs, strict=True)):
        sink.line(index, line)


async def follow_logs(
    kube: Kube, namespace: str, job: str, sink: Sink, *, worker: int | None = None, tail: int | None = None
) -> JobView:
    """Print lines as they come until the job is over; returns it as it ended. Raises KubeError if it cannot be watched at all."""
    async with Board(kube, namespace, job, on_trouble=sink.note) as board:
        follower = _Follower(board, sink, worker)
        await follower.catch_up(tail)
        return await follower.run()


class _Follower:
    """One task per pod that has started, as long as the job lives."""

    def __init__(self, board: Board, sink: Sink, worker: int | None) -> None:
        self._board, self._sink, self._worker = board, sink, worker
        self._replays: dict[str, Replay] = {}
        self._tails: dict[str, asyncio.Task[None]] = {}
        self._told = set(view(board.job).history) if board.job else set()
        self._waiting = ""

    async def catch_up(self, tail: int | None) -> None:
        """What was written so far, in the order of time; the tails begin after it."""
        kube, namespace, pods = self._board.kube, self._board.namespace, self._followed(self._board.pods)
        self._replays = {_uid(pod): Replay() for pod in pods}
        logs = await asyncio.gather(*(_lines_now(kube, namespace, pod, self._replays[_uid(pod)], tail) for pod in pods))
        for worker, line in merged(zip(map(worker_index, pods), logs, strict=True)):
            self._sink.line(worker, line)

    async def run(self) -> JobView:
        """The job as it ended. Raises Missing when it is deleted."""
        try:
            while (job := self._board.job) is not None:
                self._tell(job)
                self._start_tails(self._board.pods)
                seen = view(job)
                if seen.state in OVER and not self._busy() and await self._nothing_new():
                    return seen
                await self._board.change(RECHECK_SECONDS)
            if self._tails:
                await asyncio.wait(self._tails.values(), timeout=DRAIN_SECONDS)
            raise Missing(f"{self._board.name} was deleted.")
        finally:
            for task in self._tails.values():
                task.cancel()
            await asyncio.gather(*self._tails.values(), return_exceptions=True)

    def _followed(self, pods: list[Object]) -> list[Object]:
        return [pod for pod in pods if _started(pod) and self._worker in (None, worker_index(pod))]

    def _start_tails(self, pods: list[Object]) -> None:
        for pod in self._followed(pods):
            if _uid(pod) not in self._tails:
                replay = self._replays.setdefault(_uid(pod), Replay())
                self._tails[_uid(pod)] = asyncio.create_task(_Tail(self._board, self._sink, pod, replay).run())

    def _busy(self) -> bool:
        """Whether lines may still come. A tail that ended in an error is a bug, and nobody else waits for it: raise it here."""
        for task in self._tails.values():
            if task.done():
                task.result()
        return not all(task.done() for task in self._tails.values())

    async def _nothing_new(self) -> bool:
        """The board may know of the job's end before it knows of its last pods: ask."""
        before = len(self._tails)
        await self._board.refresh_pods()
        self._start_tails(self._board.pods)
        return len(self._tails) == before

    def _tell(self, job: Object) -> None:
        """Notes about what happens to the job, so that a silent log explains itself."""
        seen = view(job)
        for item in seen.history:
            if item not in self._told:
                self._told.add(item)
                self._sink.note(happening(item))
        waiting = "" if seen.state == RUNNING_STATE else f"{seen.name} is {seen.state}{f': {seen.detail}' if seen.detail else ''}"
        if waiting not in ("", self._waiting) and seen.state not in OVER:
            self._sink.note(waiting)
        self._waiting = waiting


class _Tail:
    """Follows one pod's log to its end, through as many connections as it takes."""

    def __init__(self, board: Board, sink: Sink, pod: Object, replay: Replay) -> None:
        self._board, self._sink, self._replay = board, sink, replay
        self._name, self._uid, self._worker = str(pod["metadata"]["name"]), _uid(pod), worker_index(pod)
        self._container = worker_container(pod)[0]

    async def run(self) -> None:
        """Until all was read, or the pod is gone and what was under way had its time to arrive."""
        reading = asyncio.create_task(self._read())
        try:
            while not reading.done() and self._pod() is not None:
                await asyncio.wait({reading}, timeout=RECHECK_SECONDS)
            await asyncio.wait({reading}, timeout=DRAIN_SECONDS)
            if reading.done():
                reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> None:
        refused = 0
        while (pod := self._pod()) is not None and refused < TRIES_AT_END:
            ended = "terminated" in (worker_container(pod)[1].get("state") or {})  # looked at first: then all was written
            try:
                if await self._read_once() and ended:
                    return
            except TimeoutError:
                continue  # nothing for long: the connection may have died without a word
            except KubeError:  # a lost connection; the board tells the user of those that last
                refused += ended
            await asyncio.sleep(RECHECK_SECONDS)

    async def _read_once(self) -> bool:
        """Print until the connection ends; False if what came was another pod's log. Raises KubeError, TimeoutError."""
        known = False
        lines = _lines(self._board.kube, self._board.namespace, self._name, self._container, self._replay, follow=True)
        async with aclosing(lines):
            while (line := await _next(lines)) is not None:
                # The log is asked for by name: a new pod may have taken the name since. If ours is there now, it was there then.
                known = known or await self._is_ours()
                if not known:
                    return False
                if (fresh := self._replay.new(line)) is not None:
                    self._sink.line(self._worker, fresh)
        return True

    async def _is_ours(self) -> bool:
        try:
            return _uid(await self._board.kube.get(PODS, self._board.namespace, self._name)) == self._uid
        except NotFound:  # going, and nobody has taken its name
            return True

    def _pod(self) -> Object | None:
        return next((pod for pod in self._board.pods if _uid(pod) == self._uid), None)


async def _next(lines: AsyncGenerator[Line, None]) -> Line | None:
    """The next line, None after the last. Raises TimeoutError when there was none for long."""
    async with asyncio.timeout(SILENCE_SECONDS):
        return await anext(lines, None)


async def _lines(
    kube: Kube, namespace: str, pod: str, container: str, replay: Replay, *, follow: bool = False, tail: int | None = None
) -> AsyncGenerator[Line, None]:
    """One connection to a pod's log, from where `replay` stands."""
    raw = kube.logs(
        namespace, pod, container=container, follow=follow, timestamps=True, since_time=replay.connect(), tail_lines=tail
    )
    async for text in raw:
        if (line := parse(text)) is not None:
            yield line


async def _lines_now(kube: Kube, namespace: str, pod: Object, replay: Replay, tail: int | None) -> list[Line]:
    """What a pod has written so far; nothing from one that cannot be read now."""
    name, container = pod["metadata"]["name"], worker_container(pod)[0]
    found: list[Line] = []
    try:
        async for line in _lines(kube, namespace, name, container, replay, tail=tail):
            if (fresh := replay.new(line)) is not None:
                found.append(fresh)
    except KubeError:  # the machine is gone, or the container has not begun
        pass
    return found


def _selector(job: str, worker: int | None) -> str:
    return f"{LABEL_JOB}={job}" + ("" if worker is None else f",{LABEL_INDEX}={worker}")


def _started(pod: Object) -> bool:
    state = worker_container(pod)[1].get("state") or {}
    return "running" in state or "terminated" in state


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])
