"""Workers that were asked to leave do so after a moment, where their machine's kubelet lives: the other half of kubelets.py.

    exits = Exits(kube, sight, namespace, rng); await exits.run()

kwok could do it, but deletes by name alone, now and then a second time: what it hits is then the next pod of that name. A real
kubelet names the UID.
"""

import asyncio
import random
from contextlib import suppress

from benchmarks.week.cloud import Sight
from benchmarks.week.groups import ALIVE
from benchmarks.week.seen import Worker
from ebb.kube import PODS, Conflict, Kube, NotFound

TICK_SECONDS = 0.1
LEAVE_SECONDS = (0.05, 2.0)


class Exits:
    """See the module's docstring."""

    def __init__(self, kube: Kube, sight: Sight, namespace: str, rng: random.Random) -> None:
        self._kube, self._sight, self._namespace, self._rng = kube, sight, namespace, rng
        self._begun: set[str] = set()

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self.look(tasks)
                await asyncio.sleep(TICK_SECONDS)

    def look(self, tasks: asyncio.TaskGroup) -> None:
        """Begin what has not begun."""
        workers = self._sight.crowd.workers
        self._begun &= workers.keys()
        for one in workers.values():
            if one.leaving and one.node and one.uid not in self._begun:
                self._begun.add(one.uid)
                tasks.create_task(self._leave(one))

    async def _leave(self, one: Worker) -> None:
        await asyncio.sleep(self._rng.uniform(*LEAVE_SECONDS))
        if one.node in self._alive():
            with suppress(NotFound, Conflict):
                await self._kube.delete(PODS, self._namespace, one.name, uid=one.uid, grace_seconds=0)

    def _alive(self) -> set[str]:
        nodes = (node["metadata"] for node in self._sight.nodes.objects.values())
        return {metadata["name"] for metadata in nodes if ALIVE in (metadata.get("labels") or {})}
