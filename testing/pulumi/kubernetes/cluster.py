"""The acts of the stand-in on Kubernetes: look kinds up, write objects, wait until they are ready or gone. One asyncio loop.

    cluster = Cluster(kube, say)
    live = await cluster.write(resource, namespace, body)
    live = await cluster.until_ready(resource, live, seconds=600)

`say(message)` shows progress; it may be called often with the same words. Nothing here knows of Pulumi's state.

    ProviderError               root of the stand-in's errors; the text is one sentence for the user that says what to do
    ├── UnknownKind             the API server does not serve the kind
    ├── Taken                   an object of that name exists and is not this stack's
    ├── NotReady                the object is there, but does not become ready: carries it, so that the state can keep it
    ├── NotGone                 the object stays although it was deleted
    └── ForeignState            the stack's state was written by another plugin
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ebb.kube import PODS, Gone, Kube, KubeError, NotFound, Object, Resource, Unreachable
from testing.pulumi.kubernetes import readiness
from testing.pulumi.kubernetes.objects import PROPAGATION, Kind, annotation, identity, metadata

Say = Callable[[str], None]
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)

LOOK_SECONDS = 2.0  # a workload's pods are read this often while we wait for it; the object itself is watched
SERVED_SECONDS = 15.0  # a CRD is served about a second after it is established; discovery may lag behind on a busy server
STUCK_SECONDS = 90.0  # a wrong image or a crashing program gets this long to heal
SLOW_DELETE_SECONDS = 10.0


class ProviderError(Exception):
    """Root."""


class UnknownKind(ProviderError):
    """No such kind."""


class Taken(ProviderError):
    """Somebody else's object has the name."""


class NotReady(ProviderError):
    """The object was written and does not become ready."""

    def __init__(self, message: str, live: Object) -> None:
        super().__init__(message)
        self.live = live


class NotGone(ProviderError):
    """Deletion does not come to its end."""


class ForeignState(ProviderError):
    """Not our state."""


class Cluster:
    """One API server, with what it said about its kinds."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.cancelled = asyncio.Event()
        self._kinds: dict[str, dict[str, Resource]] = {}

    async def resource(self, kind: Kind, say: Say, *, patient: bool) -> Resource:
        """The API of a kind. `patient`: its CRD may have come a moment ago. Raises UnknownKind."""
        deadline = time.monotonic() + (SERVED_SECONDS if patient else 0.0)
        while True:
            kinds = await self._discover(kind)
            if kind.name in kinds:
                return kinds[kind.name]
            if time.monotonic() >= deadline or self.cancelled.is_set():
                raise UnknownKind(
                    f"the API server at {self.kube.server} serves no {kind}: check apiVersion and kind; if a custom resource "
                    "definition or an operator brings it, let this resource depend on that."
                )
            say(f"waiting until {kind} is served")
            self._kinds.pop(kind.api_version, None)
            await self._pause(0.5)

    async def _discover(self, kind: Kind) -> dict[str, Resource]:
        if kind.api_version not in self._kinds:
            path = Resource(kind.group, kind.version, "", kind.name, namespaced=False).path()
            try:
                answer = await self.kube.request("GET", path)
            except NotFound:
                answer = {}
            found = [item for item in answer.get("resources") or [] if "/" not in item["name"]]
            self._kinds[kind.api_version] = {
                item["kind"]: Resource(kind.group, kind.version, item["name"], item["kind"], item["namespaced"]) for item in found
            }
        return self._kinds[kind.api_version]

    async def create(
        self, resource: Resource, namespace: str | None, body: Object, say: Say, *, manager: str, take_over: bool
    ) -> Object:
        """Write a new object. What an interrupted update left (same manager) is taken over; others if wanted. Raises Taken."""
        name = metadata(body).get("name")
        if not name:
            return await self.kube.create(resource, namespace, body)  # generateName
        with contextlib.suppress(NotFound):
            there = await self.kube.get(resource, namespace, name)
            if metadata(there).get("deletionTimestamp"):
                await self.until_gone(resource, there, say, seconds=300.0)
            elif not take_over and not _is_managed(there, manager):
                raise Taken(
                    f"{resource.kind} {identity(there)} exists already and is not this resource's: delete it, give yours another "
                    f"name, or take it over with the resource option import_={identity(there)!r} for one update. If it is this "
                    "stack's own and was only renamed in the program, give it the option aliases."
                )
        return await self.write(resource, namespace, body, manager=manager)

    async def write(self, resource: Resource, namespace: str | None, body: Object, *, manager: str) -> Object:
        """Server-side apply: the fields in `body` become ours, those that were ours and are not in it go."""
        return await self.kube.apply(resource, namespace, body, manager=manager)

    async def until_ready(self, resource: Resource, live: Object, say: Say, *, seconds: float) -> Object:
        """Wait until the object is ready and return it as it is then. Raises NotReady with the reason of its pods."""
        if await self._waits_for_pod(live):
            return live
        deadline, stuck_since, verdict = time.monotonic() + seconds, None, readiness.judge(live)
        async with self._looks(resource, live) as looks:
            async for now in looks:
                if now is None:
                    raise NotReady(f"{resource.kind} {identity(live)} was deleted while we waited for it", live)
                live, verdict = now, readiness.judge(now, await self._pods(now))
                if verdict.state == "ready":
                    return live
                stuck_since = (stuck_since or time.monotonic()) if verdict.stuck else None
                stuck = stuck_since is not None and time.monotonic() - stuck_since > STUCK_SECONDS
                if verdict.state == "failed" or stuck or time.monotonic() > deadline or self.cancelled.is_set():
                    break
                say(verdict.message)
        raise NotReady(f"{resource.kind} {identity(live)} is not ready: {verdict.message}", live)

    async def _waits_for_pod(self, live: Object) -> bool:
        """A claim whose storage class makes volumes only when a pod asks: to wait for it before the pod would be for ever."""
        name = (live.get("spec") or {}).get("storageClassName")
        if live["kind"] != "PersistentVolumeClaim" or not name:
            return False
        with contextlib.suppress(NotFound):
            return bool((await self.kube.get(STORAGE_CLASSES, None, name)).get("volumeBindingMode") == "WaitForFirstConsumer")
        return False

    async def _pods(self, live: Object) -> list[Object]:
        selector = readiness.pod_selector(live)
        if selector is None:
            return []
        return await self.kube.list(PODS, metadata(live).get("namespace"), labels=selector)

    async def delete(self, resource: Resource, live: Object, say: Say, *, seconds: float) -> None:
        """Delete an object, with what belongs to it, and wait until it is gone. Raises NotGone."""
        meta = metadata(live)
        policy = annotation(live, PROPAGATION) or ("foreground" if _has_dependents(resource) else "background")
        with contextlib.suppress(NotFound):
            await self.kube.delete(
                resource, meta.get("namespace"), meta["name"], uid=meta["uid"], propagation=policy.capitalize()
            )
            await self.until_gone(resource, live, say, seconds=seconds)

    async def until_gone(self, resource: Resource, live: Object, say: Say, *, seconds: float) -> None:
        """Wait until this very object (not its name) is gone."""
        started, uid, now = time.monotonic(), metadata(live)["uid"], live
        async with self._looks(resource, live) as looks:
            async for found in looks:
                if found is None or metadata(found)["uid"] != uid:
                    return
                now = found
                waited = time.monotonic() - started
                if waited > seconds or self.cancelled.is_set():
                    break
                say(f"waiting until it is gone{await self._remains(now) if waited > SLOW_DELETE_SECONDS else ''}")
        raise NotGone(
            f"{resource.kind} {identity(live)} is still there {time.monotonic() - started:.0f} s after it was deleted"
            f"{await self._remains(now)}. Remove what holds it and run the command again."
        )

    async def _remains(self, live: Object) -> str:
        """The reasons that hold a deleted object, as far as it says."""
        holders = ", ".join(metadata(live).get("finalizers") or [])
        conditions = [one for one in (live.get("status") or {}).get("conditions") or [] if one.get("status") == "True"]
        words = "; ".join(one["message"] for one in conditions if live["kind"] == "Namespace" and one.get("message"))
        pods = await self._pods(live)
        left = f"{len(pods)} pods end" if pods else ""
        said = "; ".join(part for part in (f"finalizers {holders}" if holders else "", words, left) if part)
        return f" ({said})" if said else ""

    @asynccontextmanager
    async def _looks(self, resource: Resource, live: Object) -> AsyncIterator[AsyncIterator[Object | None]]:
        """Yields the object whenever it changes and at least every LOOK_SECONDS; None once it is gone."""
        changed = asyncio.Event()
        watcher = asyncio.create_task(self._watch(resource, live, changed))
        try:
            yield self._look(resource, live, changed)
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def _look(self, resource: Resource, live: Object, changed: asyncio.Event) -> AsyncIterator[Object | None]:
        namespace, name = metadata(live).get("namespace"), metadata(live)["name"]
        while True:
            changed.clear()
            try:
                yield await self.kube.get(resource, namespace, name)
            except NotFound:
                yield None
                return
            waits = [asyncio.create_task(event.wait()) for event in (changed, self.cancelled)]
            await asyncio.wait(waits, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    async def _watch(self, resource: Resource, live: Object, changed: asyncio.Event) -> None:
        """Set `changed` on every event. A watch that ends early costs nothing: there is a look every LOOK_SECONDS."""
        meta = metadata(live)
        with contextlib.suppress(Gone, Unreachable, KubeError):
            events = self.kube.watch(
                resource, meta.get("namespace"), version=meta["resourceVersion"], fields=f"metadata.name={meta['name']}"
            )
            async for _ in events:
                changed.set()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.cancelled.wait(), seconds)


def _is_managed(live: Object, manager: str) -> bool:
    return any(entry.get("manager") == manager for entry in metadata(live).get("managedFields") or [])


def _has_dependents(resource: Resource) -> bool:
    """Others belong to objects of such kinds, and shall be gone when we say so; the rest needs no garbage collector."""
    custom = "." in resource.group and not resource.group.endswith(".k8s.io")
    return custom or resource.group in ("apps", "batch")
