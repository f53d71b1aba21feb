"""Keeps a local copy of all objects of one kind, and tells who asked about every change: list, then watch, for ever.

    pods = Reflector(api, PODS, labels="group-name=elastic.pytorch.org", on_change=changed)
    task = asyncio.create_task(pods.run()); await pods.synced.wait(); pods.objects[("ns", "name")]

Used by the controller and by the cloud in a box. A watch that ends, breaks or goes silent is taken up again where it stopped;
after 410 Gone everything is listed again and only differences are told. `observe` puts the answer to one's own write into the
copy, so that the next decision knows of it although the watch is later. The objects are shared: nobody may change one.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from workloads.kube import Gone, KubeError, Resource, Unreachable

Object = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for none), name
Changed = Callable[[Object | None, Object | None], None]  # old, new; None: did not exist, does no longer exist

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.2, 10.0
# How long the server keeps one watch; spread, so that reconnections are. The end in order of a short watch is what tells a quiet
# cluster from a dead connection: bookmarks come every minute, but the first only after up to two (measured, 1.35).
SERVER_SECONDS = 60
LATE_SECONDS = 10.0  # an end that is this late will not come
LASTING_SECONDS = 5.0
log = logging.getLogger(__name__)


class Source(Protocol):
    """What a reflector needs of an API client; workloads.kube.Kube is one."""

    async def list_with_version(
        self, resource: Resource, namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> tuple[list[Object], str]: ...

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        version: str,
        labels: str | None = None,
        fields: str | None = None,
        server_seconds: int = 300,
        read_seconds: float = 70,
    ) -> AsyncIterator[tuple[str, Object]]: ...


class Reflector:
    """See the module's docstring. `on_change` must not block and must not raise."""

    def __init__(
        self,
        api: Source,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        on_change: Changed = lambda old, new: None,
    ) -> None:
        self.objects: dict[Key, Object] = {}
        self.synced = asyncio.Event()  # set for good once the first list is in
        self.resource = resource
        self._api, self._namespace, self._on_change = api, namespace, on_change
        self._labels, self._fields = labels, fields
        self._version = ""
        self._heard = 0.0

    @property
    def age_seconds(self) -> float:
        """Since when nothing came from the server; never much more than a minute on a healthy watch."""
        return asyncio.get_running_loop().time() - self._heard

    async def run(self) -> None:
        """Never returns. Every error of the API is logged and retried."""
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        wait = FIRST_RETRY_SECONDS
        while True:
            began = loop.time()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone:
                log.info("%s: the watch is too old, listing again", self.resource.plural)
                self._version = ""
            except KubeError as error:
                log.warning("%s: %s; trying again", self.resource.plural, error)
                if not isinstance(error, Unreachable):
                    self._version = ""
            if loop.time() - began > LASTING_SECONDS:
                wait = FIRST_RETRY_SECONDS  # it did work for a while
                continue
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 - spreads reconnections, guards nothing
            wait = min(LAST_RETRY_SECONDS, wait * 2)

    def observe(self, value: Object) -> None:
        """Take in an object as the server returned it; ignored if the copy is at least as new."""
        version = int(value["metadata"]["resourceVersion"])
        held = self.objects.get(key_of(value))
        if version > int(self._version or 0) and (held is None or version > _version(held)):
            self._put(value)

    async def _list(self) -> None:
        objects, version = await self._api.list_with_version(
            self.resource, self._namespace, labels=self._labels, fields=self._fields
        )
        self._heard = asyncio.get_running_loop().time()
        present = {key_of(value) for value in objects}
        for key in [key for key in self.objects if key not in present]:
            self._drop(key)
        for value in objects:
            held = self.objects.get(key_of(value))
            if held is None or _version(held) != _version(value):
                self._put(value)
        self._version = version
        self.synced.set()

    async def _watch(self) -> None:
        seconds = int(SERVER_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311
        events = self._api.watch(
            self.resource,
            self._namespace,
            version=self._version,
            labels=self._labels,
            fields=self._fields,
            server_seconds=seconds,
            read_seconds=seconds + LATE_SECONDS,
        )
        async for kind, value in events:
            self._heard = asyncio.get_running_loop().time()
            self._version = value["metadata"]["resourceVersion"]
            if kind == "DELETED":
                self._drop(key_of(value))
            elif kind != "BOOKMARK":
                held = self.objects.get(key_of(value))
                if held is None or _version(value) > _version(held) or _uid(held) != _uid(value):
                    self._put(value)
        self._heard = asyncio.get_running_loop().time()

    def _put(self, value: Object) -> None:
        value["metadata"].pop("managedFields", None)  # half of the object's size, and nobody here reads it
        old = self.objects.get(key_of(value))
        self.objects[key_of(value)] = value
        if old is not None and _uid(old) != _uid(value):
            self._on_change(old, None)
            old = None
        self._on_change(old, value)

    def _drop(self, key: Key) -> None:
        old = self.objects.pop(key, None)
        if old is not None:
            self._on_change(old, None)


def key_of(value: Object) -> Key:
    """Namespace and name of an object."""
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]


def _version(value: Object) -> int:
    # Versions of one kind are ordered numbers: Kubernetes promises it since 1.35, and etcd kept it before.
    return int(value["metadata"]["resourceVersion"])


def _uid(value: Object) -> str:
    return str(value["metadata"].get("uid", ""))
