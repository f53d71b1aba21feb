"""The state of the API server, by our own list and watch: the newest of every object, and a signal at every change.

    pods = Watched(kube, PODS, "elastic-job", changed=changes.notify); pods.listeners.append(note); await pods.run()
    await changes.until(lambda: ..., seconds=30)

It shares the connection's code with the controller, and nothing of how the controller watches.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ebb.kube import Gone, Kube, Resource, Unreachable

Object = dict[str, Any]
Listener = Callable[[Object | None, Object | None], None]
AGAIN_SECONDS = 0.2


class ChangeSignal:
    """Lets many wait for conditions on what is seen."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Something changed: whoever waits looks again."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until it holds; False when it did not within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await self._event.wait()
        except TimeoutError:
            return False
        return True


class Watched:
    """The objects of one kind, by UID. Listeners are called with (old, new), either None; they must not block."""

    def __init__(self, kube: Kube, resource: Resource, namespace: str | None = None, *, changed: Callable[[], None]) -> None:
        self.objects: dict[str, Object] = {}
        self.listeners: list[Listener] = []
        self.listed = asyncio.Event()
        self._kube, self._resource, self._namespace, self._changed = kube, resource, namespace, changed

    async def run(self) -> None:
        """Never returns. Raises KubeError when the server refuses."""
        version = ""
        while True:
            try:
                version = version or await self._list()
                async for kind, value in self._kube.watch(self._resource, self._namespace, version=version):
                    version = value["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._take(value, present=kind != "DELETED")
            except Gone:
                version = ""
            except Unreachable:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _list(self) -> str:
        values, version = await self._kube.list_with_version(self._resource, self._namespace)
        present = {value["metadata"]["uid"] for value in values}
        for uid in [uid for uid in self.objects if uid not in present]:
            self._take(self.objects[uid], present=False)
        for value in values:
            self._take(value, present=True)
        self.listed.set()
        return version

    def _take(self, value: Object, *, present: bool) -> None:
        uid = value["metadata"]["uid"]
        value["metadata"].pop("managedFields", None)
        old = self.objects.pop(uid, None)
        if present:
            self.objects[uid] = value
        for listener in self.listeners:
            listener(old, value if present else None)
        self._changed()


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker's pod, as far as this program cares."""

    uid: str
    name: str
    job: str
    job_uid: str
    index: int
    attempt: int
    node: str
    zone: str  # where it was sent to, "" for anywhere
    address: str
    running: bool
    finished: bool
    leaving: bool
    disrupted: bool
    seen: float  # monotonic

    @property
    def trains(self) -> bool:
        """Its container runs and nobody asked it to stop."""
        return self.running and not self.leaving


def worker(pod: Object) -> Worker | None:
    """None for a pod of no ElasticJob."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("kind") == "ElasticJob"), None)
    if owner is None:
        return None
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    return Worker(
        uid=metadata["uid"],
        name=metadata["name"],
        job=owner["name"],
        job_uid=owner["uid"],
        index=int(metadata["labels"]["replica-index"]),
        attempt=int(metadata["annotations"].get("ebb.dev/attempt", 0)),
        node=spec.get("nodeName") or "",
        zone=(spec.get("nodeSelector") or {}).get("topology.kubernetes.io/zone", ""),
        address=status.get("podIP", ""),
        running=status.get("phase") == "Running" and any("running" in state for state in states),
        finished=status.get("phase") in ("Succeeded", "Failed"),
        leaving="deletionTimestamp" in metadata,
        disrupted=conditions.get("DisruptionTarget") == "True",
        seen=time.monotonic(),
    )


class Crowd:
    """The workers that exist, by UID, and by job."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self._jobs: dict[str, set[str]] = {}

    def note(self, old: Object | None, new: Object | None) -> None:
        """A listener of pods."""
        gone = worker(old) if old else None
        if gone is not None:
            self.workers.pop(gone.uid, None)
            self._jobs.get(gone.job_uid, set()).discard(gone.uid)
        come = worker(new) if new else None
        if come is not None:
            self.workers[come.uid] = come
            self._jobs.setdefault(come.job_uid, set()).add(come.uid)

    def of(self, job_uid: str) -> list[Worker]:
        """All pods of a job, by index."""
        return sorted((self.workers[uid] for uid in self._jobs.get(job_uid, ())), key=lambda one: (one.index, one.uid))

    def on(self, node: str) -> list[Worker]:
        """All pods on a machine."""
        return [one for one in self.workers.values() if one.node == node]
