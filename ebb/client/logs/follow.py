"""Lines as they come until the job is over, across lost and new pods and lost connections, each line once."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from ebb.client.errors import ClientError, Missing
from ebb.client.jobs.view import OVER, RUNNING_STATE, JobView, describe, view, worker_index
from ebb.client.jobs.watch import Board
from ebb.client.logs.lines import ALL, Choice, Line
from ebb.client.logs.pod import PodTail
from ebb.client.logs.replay import Replay
from ebb.client.logs.sources import Sink, Sources, open_shelf, started, started_at, uid_of
from ebb.client.logs.volume import LOOK_SECONDS, FileTail, LogFiles, Reading, Shelf
from ebb.kube import Kube, KubeError, Object

DRAIN_SECONDS = 3.0  # for the last lines of a job that is deleted
RECHECK_SECONDS = 1.0
SETTLE_SECONDS = 3.0
"""Seconds for a new pod's file to appear on the volume; without one it is then followed through the API server."""
YOUNG_SECONDS = 30.0  # since the start of a pod that is new; clocks may differ by some of it


async def follow_logs(
    kube: Kube,
    namespace: str,
    job: str,
    sink: Sink,
    *,
    choice: Choice = ALL,
    files: LogFiles | None = None,
    on_change: Callable[[Object], None] = lambda job: None,
) -> JobView:
    """Print lines as they come until the job is over; returns it as it ended. `on_change` gets the job as it is, again and again.

    Raises KubeError if it cannot be watched at all.
    """
    async with Board(kube, namespace, job, on_trouble=sink.note) as board:
        shelf = await open_shelf(board.job, files, sink) if board.job else None
        follower = _Follower(board, sink, choice, shelf, on_change)
        await follower.catch_up()
        return await follower.run()


class _Follower:
    """One task per pod that has started, as long as the job lives."""

    def __init__(
        self, board: Board, sink: Sink, choice: Choice, shelf: Shelf | None, on_change: Callable[[Object], None]
    ) -> None:
        self._board, self._sink, self._choice, self._shelf, self._on_change = board, sink, choice, shelf, on_change
        self._sources = Sources(board.kube, board.namespace, shelf, choice)
        self._tails: dict[str, asyncio.Task[None]] = {}
        self._strangers: set[str] = set()  # pods that have a file, and that the board does not know
        self._told = set(view(board.job).history) if board.job else set()
        self._waiting = ""

    async def catch_up(self) -> None:
        """Print what was written so far, in chronological order; the tails begin after it."""
        now = time.time()
        self._sources.add([pod for pod in self._followed(self._board.pods) if self._is_settled(pod, now)])
        await self._sources.show(self._sink)
        self._start_tails(self._board.pods)

    def _is_settled(self, pod: Object, now: float) -> bool:
        """Not so new that its file may only not be there yet."""
        return self._shelf is None or uid_of(pod) in self._shelf.workers or now - started_at(pod) > YOUNG_SECONDS

    async def run(self) -> JobView:
        """The job as it ended. Raises Missing when it is deleted."""
        strangers = asyncio.create_task(self._look_for_strangers())
        try:
            while (job := self._board.job) is not None:
                self._tell(job)
                self._on_change(job)
                self._start_tails(self._board.pods)
                seen = view(job)
                if seen.state in OVER and not self._busy() and await self._nothing_new():
                    return seen
                await self._board.change(RECHECK_SECONDS)
            if self._tails:
                await asyncio.wait(self._tails.values(), timeout=DRAIN_SECONDS)
            raise Missing(f"{self._board.name} was deleted.")
        finally:
            tasks = [strangers, *self._tails.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _followed(self, pods: list[Object]) -> list[Object]:
        return [pod for pod in pods if started(pod) and self._choice.worker in (None, worker_index(pod))]

    def _start_tails(self, pods: list[Object]) -> None:
        for pod in self._followed(pods):
            if uid_of(pod) not in self._tails:
                self._tails[uid_of(pod)] = asyncio.create_task(self._follow(pod))

    async def _look_for_strangers(self) -> None:
        """Pods that came and went while nobody could watch: this machine slept, or the API server was away."""
        while self._shelf is not None:
            await asyncio.sleep(LOOK_SECONDS)
            await self._follow_strangers()

    async def _follow_strangers(self) -> None:
        """Those that were none before are given until the next look: the board may only be late."""
        assert self._shelf is not None
        with suppress(ClientError, KubeError):
            await self._shelf.look()
        known = {*self._sources.readings, *self._sources.replays, *self._tails, *(uid_of(pod) for pod in self._board.pods)}
        workers = {uid: worker for uid, worker in self._shelf.workers.items() if self._choice.worker in (None, worker)}
        strangers = workers.keys() - known
        for uid in strangers & self._strangers:
            self._tails[uid] = asyncio.create_task(self._follow_file(uid, workers[uid], self._sources.read_file(uid)))
        self._strangers = strangers

    async def _follow(self, pod: Object) -> None:
        """One pod, to its end."""
        uid, worker = uid_of(pod), worker_index(pod)
        reading = self._sources.readings.get(uid)
        if reading is None and uid not in self._sources.replays:
            reading = await self._settled(uid)
        if reading is not None:
            return await self._follow_file(uid, worker, reading)
        replay = self._sources.replays.setdefault(uid, Replay())
        await PodTail(self._board, pod, replay, lambda line: self._show(worker, line)).run()

    async def _follow_file(self, uid: str, worker: int, reading: Reading) -> None:
        assert self._shelf is not None
        if not await FileTail(self._board, self._shelf, uid, reading, lambda line: self._show(worker, line)).run():
            self._sink.note(f"worker {worker}: its last lines could not be read from the output volume; run `ebb logs` again")

    def _show(self, worker: int, line: Line) -> None:
        if self._choice.wants(line):
            self._sink.line(worker, line)

    async def _settled(self, uid: str) -> Reading | None:
        """The file of a new pod; None if it has none after a while."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_SECONDS
        while self._shelf is not None:
            try:
                await self._shelf.look()
            except (ClientError, KubeError):
                return None
            if uid in self._shelf.workers:
                return self._sources.read_file(uid)
            if loop.time() >= deadline:
                return None
            await asyncio.sleep(RECHECK_SECONDS)
        return None

    def _busy(self) -> bool:
        """Return whether lines may still come; raise the error of a tail that ended in one, as nobody else waits for it."""
        for task in self._tails.values():
            if task.done():
                task.result()
        return not all(task.done() for task in self._tails.values())

    async def _nothing_new(self) -> bool:
        """The board may know of the job's end before it knows of its last pods: ask."""
        before = len(self._tails)
        await self._board.refresh_pods()
        self._start_tails(self._board.pods)
        if self._shelf is not None:
            for _ in range(2):  # now nobody is only late
                await self._follow_strangers()
        return len(self._tails) == before

    def _tell(self, job: Object) -> None:
        """Notes about what happens to the job, so that a silent log explains itself."""
        seen = view(job)
        for item in seen.history:
            if item not in self._told:
                self._told.add(item)
                self._sink.note(describe(item))
        waiting = "" if seen.state == RUNNING_STATE else f"{seen.name} is {seen.state}{f': {seen.detail}' if seen.detail else ''}"
        if waiting not in ("", self._waiting) and seen.state not in OVER:
            self._sink.note(waiting)
        self._waiting = waiting
