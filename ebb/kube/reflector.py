"""A local copy of all objects of one kind, and a callback for every change: list, then watch, for ever.

    pods = Reflector(api, PODS, labels="group-name=elastic.pytorch.org", on_change=changed)
    task = asyncio.create_task(pods.run()); await pods.synced.wait(); pods.objects[("ns", "name")]

Used by the controller and by the devcluster. A watch that ends, breaks or goes silent is taken up again where it stopped, and
one that a busy server refuses when that server said; after 410 Gone everything is listed again and only differences are told.
`observe` puts the answer to one's own write into the copy, so that the next decision knows of it although the watch is later.
The objects are shared: nobody may change one.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ebb.kube import Denied, Gone, KubeError, NotFound, Resource, Unreachable

Object = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for none), name
Changed = Callable[[Object | None, Object | None], None]  # old, new; None: did not exist, does no longer exist

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.2, 10.0
REFUSED_RETRY_SECONDS = 60.0  # for a kind that one may do without: whoever grants it later need not wait long
# How long the server keeps one watch; spread, so that reconnections are. A short watch that ends in order is the sign of a quiet
# cluster rather than of a dead connection: bookmarks come every minute, but the first only after up to two (measured, 1.35).
SERVER_SECONDS = 60
LIST_AFTER = 8  # failures of a busy server in a row, within about a minute
LATE_SECONDS = 10.0  # an end that is this late will not come
LASTING_SECONDS = 5.0
PAGE = 500  # objects per answer, as client-go: a list in one piece would be in memory three times over
log = logging.getLogger(__name__)


class WatchSource(Protocol):
    """The calls that a reflector needs of an API client; ebb.kube.Kube is one."""

    async def list_page(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        limit: int = 0,
        token: str = "",
    ) -> tuple[list[Object], str, str]: ...

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


def without_managers(value: Object) -> Object:
    """The least that is left out of every copy: half of an object's size, and nothing here reads it."""
    value["metadata"].pop("managedFields", None)
    return value


@dataclass(frozen=True, kw_only=True)
class Habits:
    """Options of the copy of one kind.

    `trim` leaves out what nobody reads; an update that changes nothing of the rest is not told. `optional`: a server that does
    not give it is no trouble. `forgetful`: news are told and not kept, so all are new. `lively_seconds`: it never says nothing
    for this long while there are objects, so that a longer silence is a broken connection.
    """

    trim: Callable[[Object], Object] = without_managers
    optional: bool = False
    forgetful: bool = False
    lively_seconds: float | None = None


class Reflector:
    """See the module's docstring. `on_change` must not block and must not raise. `on_gap` is called when news may have been
    missed: at the end of every list, when a watch breaks, and with the first word after that."""

    def __init__(
        self,
        api: WatchSource,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        on_change: Changed = lambda old, new: None,
        on_gap: Callable[[], None] = lambda: None,
        habits: Habits = Habits(),
    ) -> None:
        self.objects: dict[Key, Object] = {}
        self.synced = asyncio.Event()  # set for good once the first list is in
        self.tried = asyncio.Event()  # set for good once the first list is in or has failed
        self.refused = False  # optional, and the server does not give it
        self.resource, self.habits = resource, habits
        selected = fields.partition("=")[2].partition(",")[0] if fields else ""
        self.name = "/".join(part for part in (resource.plural, namespace, selected) if part)
        self._api, self._namespace, self._on_change, self._on_gap = api, namespace, on_change, on_gap
        self._labels, self._fields = labels, fields
        self._version = ""
        self._broken = False
        self._failures = 0  # in a row
        self._heard: float | None = None

    @property
    def age_seconds(self) -> float:
        """Since when nothing came from the server; never much more than a minute on a healthy watch. 0 before the start."""
        return 0.0 if self._heard is None else asyncio.get_running_loop().time() - self._heard

    async def run(self) -> None:
        """Never returns. Every error of the API is logged and retried."""
        loop = asyncio.get_running_loop()
        self._hear()
        wait = FIRST_RETRY_SECONDS
        while True:
            began, asked = loop.time(), 0.0
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except KubeError as error:
                self._fail(error)
                asked = error.retry_seconds
            if loop.time() - began > LASTING_SECONDS:
                wait = FIRST_RETRY_SECONDS  # it did work for a while
                if not self.refused and not asked:
                    continue
            pause = REFUSED_RETRY_SECONDS if self.refused else wait
            spread = random.uniform(0.5, 1.5)  # noqa: S311 - spreads reconnections, guards nothing
            await asyncio.sleep(max(pause * spread, asked * max(1.0, spread)))
            wait = min(LAST_RETRY_SECONDS, wait * 2)

    def observe(self, value: Object) -> None:
        """Take in an object as the server returned it; ignored if the copy is at least as new."""
        version = int(value["metadata"]["resourceVersion"])
        held = self.objects.get(key_of(value))
        if version > int(self._version or 0) and (held is None or version > _version(held)):
            self._put(value)

    def _hear(self) -> None:
        self._heard = asyncio.get_running_loop().time()

    def _fail(self, error: KubeError) -> None:
        """Decide where to take up again: at the last word, unless the server itself refuses that."""
        self.tried.set()
        self._failures += 1
        # A list of everything is what a busy server can do with least. But one that only ever fails to watch may know why.
        if not isinstance(error, Unreachable) and not (error.busy and self._failures < LIST_AFTER):
            self._version = ""
        if self.habits.optional and isinstance(error, Denied | NotFound):
            if self.refused:
                return
            self.refused = True
            log.info("%s: %s; going on without", self.name, error)
        elif isinstance(error, Gone):
            log.info("%s: the watch is too old, listing again", self.name)
        else:
            log.warning("%s: %s; trying again", self.name, error)
        self._broken = True
        self._on_gap()

    async def _list(self) -> None:
        present: set[Key] = set()
        token, limit = "", PAGE
        while True:
            try:
                objects, version, token = await self._api.list_page(
                    self.resource, self._namespace, labels=self._labels, fields=self._fields, limit=limit, token=token
                )
            except Gone:
                if not token:
                    raise
                # Pages are of one moment, which the server may have to forget; a list in one piece is never too old.
                present, token, limit = set(), "", 0
                continue
            self._hear()
            for value in objects:
                present.add(key_of(value))
                self._renew(value)
            if not token:
                break
        for key in [key for key, held in self.objects.items() if key not in present and _version(held) <= int(version)]:
            self._drop(key)
        self._version, self._broken, self.refused, self._failures = version, False, False, 0
        self.synced.set()
        self.tried.set()
        self._on_gap()

    async def _watch(self) -> None:
        seconds = int(SERVER_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311
        patience, lively = seconds + LATE_SECONDS, self.habits.lively_seconds
        events = self._api.watch(
            self.resource,
            self._namespace,
            version=self._version,
            labels=self._labels,
            fields=self._fields,
            server_seconds=seconds,
            read_seconds=min(patience, lively) if lively and self.objects else patience,
        )
        async for kind, value in events:
            self._resume()
            self._version = value["metadata"]["resourceVersion"]
            if kind == "DELETED":
                self._end(value)
            elif kind != "BOOKMARK":
                self._renew(value)
        self._resume()

    def _resume(self) -> None:
        """The server spoke."""
        self._hear()
        self._failures = 0
        if self._broken:
            self._broken = False
            self._on_gap()

    def _renew(self, value: Object) -> None:
        held = self.objects.get(key_of(value))
        if held is None or _version(value) > _version(held):
            self._put(value)

    def _end(self, value: Object) -> None:
        """The object is gone; one of its name that was made since, and is known from the answer to that, is not."""
        held = self.objects.get(key_of(value))
        if held is not None and (_uid(held) == _uid(value) or _version(held) < _version(value)):
            self._drop(key_of(value))

    def _put(self, value: Object) -> None:
        value = self.habits.trim(value)
        if self.habits.forgetful:
            self._on_change(None, value)
            return
        old = self.objects.get(key_of(value))
        if old is not None and _same(old, value):
            old["metadata"]["resourceVersion"] = value["metadata"]["resourceVersion"]
            return
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


def _same(old: Object, new: Object) -> bool:
    """Return whether only the version differs."""
    metadata = {**new["metadata"], "resourceVersion": old["metadata"]["resourceVersion"]}
    return {**new, "metadata": metadata} == old
