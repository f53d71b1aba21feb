"""A working API server in memory, as far as the controller can tell: versions, watches, selectors, preconditions, grace, owners.

No kubelet: tests say what becomes of pods by `pod_runs`, `pod_ends`, `lose_node`. Its misfortunes are in fake_faults.py.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

from jsonschema import Draft202012Validator

from ebb.api.clock import stamp
from ebb.api.schema import schema_of
from ebb.api.status import Status
from ebb.kube import ELASTIC_JOBS, NODES, PODS, SERVICES, Conflict, Gone, Invalid, NotFound, Resource, Unreachable
from tests.fake_faults import Faults

Object = dict[str, Any]
Key = tuple[str, str]

STATUS = Draft202012Validator(schema_of(Status, ""))


class FakeKube(Faults):
    """Implements ebb.controller.executor.Api and ebb.controller.election.Store. `clock` is wall time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.calls: list[tuple[str, str, str]] = []  # (verb, plural, name) of all writes
        self.max_pods = 0  # the most pods that existed at once, those on their way out included
        self._objects: dict[str, dict[Key, Object]] = {}
        self._log: dict[str, list[tuple[str, Object]]] = {}
        self._version = 100
        self.takes_seconds = 0.0  # to create something
        self.collects = True  # its garbage collector is there
        self._oldest = 0

    # --- What the controller calls ---

    async def get(self, resource: Resource, namespace: str | None, name: str, subresource: str | None = None) -> Object:
        self._trip("get", resource)
        return copy.deepcopy(self._held(resource, namespace, name))

    async def list_page(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        limit: int = 0,
        token: str = "",
    ) -> tuple[list[Object], str, str]:
        self._trip("next page" if token else "list", resource)
        if resource.plural in self._hanging:
            await asyncio.sleep(1e6)
        await asyncio.sleep(0)
        found = [copy.deepcopy(item) for item in self.all(resource) if _matches(item, namespace, labels, fields)]
        start = int(token or 0)
        rest = str(start + limit) if limit and start + limit < len(found) else ""
        return found[start : start + limit if limit else None], str(self._version), rest

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        version: str,
        labels: str | None = None,
        fields: str | None = None,
        server_seconds: int = 300,
        read_seconds: float = 70,
    ) -> AsyncIterator[tuple[str, Object]]:
        self._trip("watch", resource)
        if int(version) < self._oldest:
            raise Gone("too old resource version", status=410)
        seen, ends, patience = int(version), asyncio.get_running_loop().time() + server_seconds, read_seconds
        while True:
            for kind, value in list(self._log.get(resource.plural, [])):
                number = int(value["metadata"]["resourceVersion"])
                if number <= seen or resource.plural in self._muted:
                    continue
                seen = number
                if _matches(value, namespace, labels, fields):
                    yield kind, copy.deepcopy(value)
                    patience = read_seconds
            if self._missed(resource, seen):
                continue
            began = asyncio.get_running_loop().time()
            orderly = ends - began <= patience and resource.plural not in self._muted
            try:
                async with asyncio.timeout(ends - began if orderly else patience):
                    await self._news.wait()
            except TimeoutError:
                if orderly:
                    return
                raise Unreachable("nothing came") from None
            patience -= asyncio.get_running_loop().time() - began
            if resource.plural in self._cut:
                raise self._cut[resource.plural]

    def _missed(self, resource: Resource, seen: int) -> bool:
        log = self._log.get(resource.plural, [])
        return resource.plural not in self._muted and any(int(value["metadata"]["resourceVersion"]) > seen for _, value in log)

    async def create(self, resource: Resource, namespace: str | None, body: Object, *, dry_run: bool = False) -> Object:
        self._trip("create", resource)
        await asyncio.sleep(self.takes_seconds)
        name = body["metadata"]["name"]
        if (namespace or "", name) in self._kind(resource):
            raise Conflict(f"{resource.plural} {name!r} already exists", status=409, reason="AlreadyExists")
        self.calls.append(("create", resource.plural, name))
        self._version += 1
        value = copy.deepcopy(body)
        value["metadata"] |= {"uid": f"{resource.plural}-{self._version}", "creationTimestamp": stamp(self.clock())}
        if namespace:
            value["metadata"]["namespace"] = namespace
        if resource == PODS:
            value["spec"].setdefault("terminationGracePeriodSeconds", 30)
            value["status"] = {"phase": "Pending"}
        self._store(resource, value, "ADDED")
        self.max_pods = max(self.max_pods, len(self._kind(PODS)))
        return copy.deepcopy(value)

    async def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Object, subresource: str | None = None
    ) -> Object:
        self._trip("replace", resource)
        await asyncio.sleep(0)
        held = self._held(resource, namespace, name)
        if body["metadata"].get("resourceVersion", "") != held["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", status=409, reason="Conflict")
        if resource == ELASTIC_JOBS and subresource and (wrong := next(STATUS.iter_errors(body["status"]), None)):
            raise Invalid(f"{wrong.json_path.replace('$', 'status')}: {wrong.message}", status=422, reason="Invalid")
        self.calls.append(("status" if subresource else "replace", resource.plural, name))
        changed = copy.deepcopy(held)
        changed |= {"status": copy.deepcopy(body["status"])} if subresource else copy.deepcopy(body)
        self._store(resource, changed, "MODIFIED")
        return copy.deepcopy(changed)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        grace_seconds: int | None = None,
        uid: str | None = None,
        propagation: str = "Background",
    ) -> None:
        self._trip("delete", resource)
        await asyncio.sleep(0)
        held = self._held(resource, namespace, name)
        if uid is not None and held["metadata"]["uid"] != uid:
            raise Conflict("the UID in the precondition does not match", status=409, reason="Conflict")
        self.calls.append(("delete", resource.plural, name))
        if resource == PODS and self._lingers(held, grace_seconds):
            grace = held["spec"]["terminationGracePeriodSeconds"] if grace_seconds is None else grace_seconds
            self.change(PODS, name, lambda pod: _mark_deleted(pod, self.clock() + grace, grace))
        else:
            self.remove(resource, name, namespace or "")

    # --- What tests call ---

    def all(self, resource: Resource) -> list[Object]:
        """The objects themselves, sorted by name."""
        return [value for _, value in sorted(self._kind(resource).items())]

    def names(self, resource: Resource) -> list[str]:
        return [value["metadata"]["name"] for value in self.all(resource)]

    def put(self, resource: Resource, value: Object) -> None:
        """Create or replace an object as somebody else would."""
        value = copy.deepcopy(value)
        kind = "MODIFIED" if _key(value) in self._kind(resource) else "ADDED"
        self._store(resource, value, kind)

    def change(self, resource: Resource, name: str, edit: Callable[[Object], Any]) -> None:
        """Edit an object in place as somebody else would."""
        value = copy.deepcopy(next(item for item in self.all(resource) if item["metadata"]["name"] == name))
        edit(value)
        self._store(resource, value, "MODIFIED")

    def remove(self, resource: Resource, name: str, namespace: str = "elastic-job") -> None:
        """Make an object vanish, and what it owns with it."""
        value = self._kind(resource).pop((namespace if resource.namespaced else "", name), None)
        if value is None:
            return
        self._version += 1
        value["metadata"]["resourceVersion"] = str(self._version)
        self._tell(resource, "DELETED", value)
        if resource == ELASTIC_JOBS and self.collects:
            for kind in (PODS, SERVICES):
                for child in self.all(kind):
                    if any(owner["uid"] == value["metadata"]["uid"] for owner in child["metadata"].get("ownerReferences", ())):
                        self.remove(kind, child["metadata"]["name"])

    def pod_runs(self, name: str, node: str) -> None:
        """Schedule and start a pod."""

        def edit(pod: Object) -> None:
            container = pod["spec"]["containers"][0]["name"]
            pod["spec"]["nodeName"] = node
            states = [{"name": container, "state": {"running": {"startedAt": stamp(self.clock())}}}]
            pod["status"] = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": states}

        self.change(PODS, name, edit)

    def pod_ends(self, name: str, exit_code: int, message: str = "") -> None:
        """The training container exits, with these last lines; if the pod was being deleted, that is done."""
        pod = next(item for item in self.all(PODS) if item["metadata"]["name"] == name)
        if "deletionTimestamp" in pod["metadata"]:
            self.remove(PODS, name)
            return

        def edit(pod: Object) -> None:
            ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": stamp(self.clock())}
            ran = pod["status"]["containerStatuses"][0]["state"].get("running") or {}
            ended |= {"startedAt": ran["startedAt"]} if "startedAt" in ran else {}
            pod["status"]["containerStatuses"][0]["state"] = {
                "terminated": {**ended, **({"message": message} if message else {})}
            }
            pod["status"]["phase"] = "Failed" if exit_code else "Succeeded"

        self.change(PODS, name, edit)

    def lose_node(self, name: str) -> None:
        """The machine is killed and its Node deleted: its pods stay as they are, nobody is there to end them."""
        self.remove(NODES, name)

    def forget_history(self) -> None:
        """Compaction: watches from older versions get 410."""
        self._oldest = self._version
        self._log.clear()

    def _lingers(self, pod: Object, grace_seconds: int | None) -> bool:
        """A pod with processes stays until they are gone, except when it is deleted with force."""
        return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] == "Running" and grace_seconds != 0

    def _kind(self, resource: Resource) -> dict[Key, Object]:
        return self._objects.setdefault(resource.plural, {})

    def _held(self, resource: Resource, namespace: str | None, name: str) -> Object:
        value = self._kind(resource).get((namespace or "", name))
        if value is None:
            raise NotFound(f"{resource.plural} {name!r} not found", status=404, reason="NotFound")
        return value

    def _store(self, resource: Resource, value: Object, kind: str) -> None:
        self._version += 1
        value["metadata"]["resourceVersion"] = str(self._version)
        self._kind(resource)[_key(value)] = value
        self._tell(resource, kind, value)

    def _tell(self, resource: Resource, kind: str, value: Object) -> None:
        self._log.setdefault(resource.plural, []).append((kind, copy.deepcopy(value)))
        self._ring()


def _mark_deleted(pod: Object, until: float, grace: int) -> None:
    pod["metadata"] |= {"deletionTimestamp": stamp(until), "deletionGracePeriodSeconds": grace}


def _key(value: Object) -> Key:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]


def _matches(value: Object, namespace: str | None, labels: str | None, fields: str | None) -> bool:
    metadata = value["metadata"]
    if namespace and metadata.get("namespace") != namespace:
        return False
    if not all(_field(value, *term.split("=")) for term in (fields or "").split(",") if term):
        return False
    held = metadata.get("labels") or {}
    return all(held.get(term.partition("=")[0]) == term.partition("=")[2] for term in (labels or "").split(",") if term)


def _field(value: Object, path: str, wanted: str) -> bool:
    if path == "source":  # of an event: its component, or else its reporting controller (pkg/registry/core/event/strategy.go)
        return bool(((value.get("source") or {}).get("component") or value.get("reportingController")) == wanted)
    found: Any = value
    for key in path.split("."):
        found = (found or {}).get(key)
    return bool(found == wanted)
