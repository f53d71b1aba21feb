"""What the cluster looks like now: the node groups, nodes, pods, claims and volumes, each in a reflector.

    view = View(kube); task = asyncio.create_task(view.follow()); await view.synced()
    view.changed.clear(); view.of(PODS) ...; await view.changed.wait()

Objects are the API server's JSON and must not be changed by the reader.
"""

import asyncio
from collections.abc import Sequence

from ebb.kube import CLAIMS, NODE_GROUPS, NODES, PODS, VOLUMES, Kube, Object, Resource
from ebb.kube.reflector import Reflector

WATCHED = (NODE_GROUPS, NODES, PODS, CLAIMS, VOLUMES)


class View:
    """The kinds in WATCHED. `changed` is set at every change."""

    def __init__(self, kube: Kube) -> None:
        self.changed = asyncio.Event()
        self._reflectors = {kind: Reflector(kube, kind, on_change=lambda *_: self.changed.set()) for kind in WATCHED}

    def of(self, resource: Resource) -> Sequence[Object]:
        """All objects of a kind."""
        return list(self._reflectors[resource].objects.values())

    async def synced(self) -> None:
        """Return when every kind was listed once."""
        for reflector in self._reflectors.values():
            await reflector.synced.wait()

    async def follow(self) -> None:
        """Keep the copies up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())
