"""Events of the pods of one namespace, on this process's own monotonic clock: a creationTimestamp has whole seconds.

    async with Pods.watched(kube, "ours-create") as pods: await pods.until(lambda: pods.num_created >= 64, 60.0)

One watch for all contenders and all measurements: what it is late by, it is late by for each of them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ebb.kube import PODS, Kube, KubeError, Object


@dataclass
class Life:
    """One pod object. Times are of time.monotonic(), None: not yet."""

    name: str
    uid: str
    created: float
    place: str  # the worker's: its pod's name, or what a Job makes its pods' names from
    node: str = ""
    running: float | None = None
    leaving: float | None = None  # somebody asked for its deletion
    ended: float | None = None  # it failed, or is gone: a Job's pod is kept until the Job has counted it
    gone: float | None = None


class Pods:
    """Made by `watched`."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}  # UID -> life
        self.num_running = 0  # now
        self._by_place: dict[str, list[Life]] = {}
        self._changed = asyncio.Event()
        self._problem: KubeError | None = None

    @classmethod
    @asynccontextmanager
    async def watched(cls, kube: Kube, namespace: str) -> AsyncIterator["Pods"]:
        """From now on; the namespace has no pods yet."""
        pods = cls()
        _, version = await kube.list_with_version(PODS, namespace)
        task = asyncio.create_task(pods._follow(kube, namespace, version))
        try:
            yield pods
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def num_created(self) -> int:
        return len(self.lives)

    @property
    def present(self) -> list[Life]:
        return [life for life in self.lives.values() if life.gone is None]

    def created_by(self, count: int) -> float:
        """When the count-th pod was created."""
        return sorted(life.created for life in self.lives.values())[count - 1]

    def running_by(self, count: int) -> float:
        """When the count-th pod ran."""
        return sorted(life.running for life in self.lives.values() if life.running is not None)[count - 1]

    def replacement(self, lost: Life) -> Life | None:
        """The first pod of the same worker after that one."""
        same = self._by_place[lost.place]
        position = same.index(lost) + 1
        return same[position] if position < len(same) else None

    async def until(self, reached: Callable[[], bool], cap_seconds: float) -> bool:
        """Wait for a condition on the pods; False when it did not hold after `cap_seconds`. Raises KubeError."""
        try:
            async with asyncio.timeout(cap_seconds):
                while not reached():
                    if self._problem:
                        raise self._problem
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _follow(self, kube: Kube, namespace: str, version: str) -> None:
        try:
            while True:  # the server ends a watch that cannot keep up for a moment: nothing is missed by going on where it ended
                async for kind, pod in kube.watch(PODS, namespace, version=version):
                    version = pod["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self.saw(kind, pod, time.monotonic())
                        self._changed.set()
        except KubeError as error:
            self._problem = error
            self._changed.set()

    def saw(self, kind: str, pod: Object, now: float) -> None:
        """Take in one event of the watch."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        life = self.lives.get(metadata["uid"])
        if life is None:
            name = metadata["name"]
            life = Life(name=name, uid=metadata["uid"], created=now, place=metadata.get("generateName", name))
            self.lives[life.uid] = life
            self._by_place.setdefault(life.place, []).append(life)
        life.node = pod["spec"].get("nodeName", "")
        if status.get("phase") == "Running" and life.running is None:
            life.running = now
            self.num_running += 1
        if "deletionTimestamp" in metadata and life.leaving is None:
            life.leaving = now
        if life.ended is None and (kind == "DELETED" or status.get("phase") == "Failed"):
            life.ended = now
            self.num_running -= life.running is not None
        if kind == "DELETED" and life.gone is None:
            life.gone = now
