"""The log of one pod as the API server has it: what there is now, and what comes, through as many connections as it takes."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from ebb.client.jobs.view import worker_container
from ebb.client.jobs.watch import Board
from ebb.client.logs.lines import Line, parse
from ebb.client.logs.replay import Replay
from ebb.kube import PODS, Kube, KubeError, NotFound, Object

DRAIN_SECONDS = 3.0
"""Seconds for the last lines of a pod that is gone to arrive; its connection may also hang, as its machine may be dead."""
RECHECK_SECONDS = 1.0
SILENCE_SECONDS = 60.0  # then the log is asked for anew, which costs little and shows nothing twice
TRIES_AT_END = 3  # for the last lines of a pod that has ended; its machine may be gone already


async def lines_now(kube: Kube, namespace: str, pod: Object, replay: Replay, tail: int | None = None) -> list[Line]:
    """Return what a pod has written so far; nothing from one that cannot be read now."""
    name, container = pod["metadata"]["name"], worker_container(pod)[0]
    found: list[Line] = []
    try:
        async for line in _lines(kube, namespace, name, container, replay, tail=tail):
            if (fresh := replay.new(line)) is not None:
                found.append(fresh)
    except KubeError:  # the machine is gone, or the container has not begun
        pass
    return found


class PodTail:
    """Follows one pod's log to its end. `show` gets each line once."""

    def __init__(self, board: Board, pod: Object, replay: Replay, show: Callable[[Line], None]) -> None:
        self._board, self._replay, self._show = board, replay, show
        self._name, self._uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
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
            except KubeError:  # a lost connection; the board reports those that last
                refused += ended
            await asyncio.sleep(RECHECK_SECONDS)

    async def _read_once(self) -> bool:
        """Show until the connection ends; False if what came was another pod's log. Raises KubeError, TimeoutError."""
        known = False
        lines = _lines(self._board.kube, self._board.namespace, self._name, self._container, self._replay, follow=True)
        async with aclosing(lines):
            while (line := await _next(lines)) is not None:
                # The log is asked for by name: a new pod may have taken the name since. If ours is there now, it was there then.
                known = known or await self._is_ours()
                if not known:
                    return False
                if (fresh := self._replay.new(line)) is not None:
                    self._show(fresh)
        return True

    async def _is_ours(self) -> bool:
        try:
            found = await self._board.kube.get(PODS, self._board.namespace, self._name)
        except NotFound:  # going, and nobody has taken its name
            return True
        return str(found["metadata"]["uid"]) == self._uid

    def _pod(self) -> Object | None:
        return next((pod for pod in self._board.pods if str(pod["metadata"]["uid"]) == self._uid), None)


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
