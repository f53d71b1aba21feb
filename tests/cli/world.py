"""A working stand-in for an API server behind ebb/kube, and builders of what the CLI meets there.

FakeKube overrides the three ways in which `Kube` speaks to a server; paths, selectors and errors are the real class's own. It
has logs and broken connections; fake_kube.py has what the controller needs (versions, preconditions, grace).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ebb.cli.options import Session
from ebb.kube import PODS, Conflict, Invalid, Kube, NotFound, Object, Resource, Unreachable, kinds

NS = "elastic-job"
KINDS = {value.kind: value for value in vars(kinds).values() if isinstance(value, Resource)}
TAINTS = [
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "ebb.dev/capacity-type", "value": "spot", "effect": "NoSchedule"},
]


def node_group(name: str, zone: str, **changes: Any) -> Object:
    """A spot T4 group as infra writes it."""
    return {
        "name": name, "zone": zone, "instanceType": "g4dn.xlarge", "gpuType": "T4", "gpusPerNode": 1, "cpu": 4, "memoryGiB": 16,
        "capacityType": "spot", "min": 0, "max": 4, "taints": [dict(taint) for taint in TAINTS],
        "labels": {"ebb.dev/gpu-type": "T4"},
        "pricePerHourOnDemand": 0.526, "spotDiscount": 0.7, "noticeSeconds": 120, **changes,
    }  # fmt: skip


def platform_json(*extra_groups: Object) -> Object:
    """The platform of the local stack, and more groups if wanted."""
    return {
        "cloud": "local", "region": "local", "stack": "local", "trainerImage": "localhost/ebb/trainer:abc",
        "jobsNamespace": NS, "etcdEndpoint": "etcd-service:2379",
        "volumes": [
            {"name": "data", "claim": "ebb-data", "mountPath": "/mnt/data", "readOnly": False},
            {"name": "output", "claim": "ebb-output", "mountPath": "/mnt/output", "readOnly": False},
            {"name": "environment", "claim": "ebb-environment", "mountPath": "/opt/ebb/site-packages", "readOnly": True},
        ],
        "nodeGroups": [
            node_group("manager", "local-a", gpuType="", gpusPerNode=0, capacityType="on-demand", max=1, taints=[]),
            *(node_group(f"spot-t4-{zone}", zone) for zone in ("local-a", "local-b", "local-c")),
            *extra_groups,
        ],
        "copies": {"image": "localhost/ebb/controller:abc", "selector": {"ebb.dev/node-group": "manager"}},
        "dashboards": {},
    }  # fmt: skip


def platform_map(*extra_groups: Object) -> Object:
    """ConfigMap ebb-platform."""
    data = {"schema": "1", "platform.json": json.dumps(platform_json(*extra_groups))}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ebb-platform", "namespace": "ebb-system"},
        "data": data,
    }


def elastic_job(name: str = "digits", *, state: str = "Running", message: str = "", replicas: int = 2, **status: Any) -> Object:
    """A job as the controller reports it: from 1 to 4 workers with one T4 each."""
    container = {"name": "elasticjob-worker", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    conditions = [{"type": "Created", "status": "True", "reason": "ElasticJobCreated", "message": ""}]
    if state == "Waiting":
        conditions.append({"type": "Running", "status": "False", "reason": "WaitingForMachines", "message": message})
    else:
        conditions.append({"type": state, "status": "True", "reason": f"ElasticJob{state}", "message": message})
    return {
        "apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": NS, "uid": f"uid-{name}", "creationTimestamp": "2026-11-21T12:00:00Z"},
        "spec": {
            "rdzvEndpoint": "etcd-service:2379", "minReplicas": 1, "maxReplicas": 4,
            "placement": {"gpuType": "T4", "zone": "single"},
            "replicaSpecs": {"Worker": {"replicas": replicas, "template": {"spec": {"containers": [container]}}}},
        },
        "status": {"conditions": conditions, "startTime": "2026-11-21T12:00:10Z", **status},
    }  # fmt: skip


def worker_pod(
    index: int, *, job: str = "digits", uid: str = "", state: str = "running", node: str = "", code: int = 0
) -> Object:
    """A worker pod in one of the states waiting, running, terminated; waiting without a node is not placed yet."""
    states = {"waiting": {"reason": "ContainerCreating"}, "running": {"startedAt": ""}, "terminated": {"exitCode": code}}
    name = f"{job}-worker-{index}"
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": NS, "uid": uid or f"uid-{name}", "creationTimestamp": "2026-11-21T12:00:20Z",
            "labels": {"job-name": job, "replica-index": str(index)},
            "ownerReferences": [{"uid": f"uid-{job}", "controller": True}],
        },
        "spec": {"containers": [{"name": "elasticjob-worker"}], **({"nodeName": node} if node else {})},
        "status": {"containerStatuses": [{"name": "elasticjob-worker", "state": {state: states[state]}}]},
    }  # fmt: skip


def known_secret(name: str, **facts: str) -> Object:
    """The ConfigMap that says a secret is there."""
    told = {"kind": "value", "variable": "", "registry": "", "username": "", "set_by": "ada", "set_at": "2026-11-21T12:00:00Z"}
    return {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": f"ebb-secret-{name}", "namespace": NS, "uid": f"uid-{name}", "labels": {"ebb.dev/secret": name}},
        "data": {"about.json": json.dumps(told | facts)},
    }  # fmt: skip


class FakeKube(Kube):
    """Objects in a dict, a history of events for watches, logs by pod uid. `broken` makes every exchange fail."""

    def __init__(self, *objects: Object) -> None:
        self.server = "https://127.0.0.1:6443"
        self.broken = False
        self.sent: list[tuple[str, str]] = []
        self.log: dict[str, list[str]] = {}
        self.closed_logs: set[str] = set()
        self._objects: dict[str, Object] = {}
        self._events: list[tuple[str, Object]] = []
        self._floor = 0
        self._moved = asyncio.Event()
        for item in objects:
            self.put(item)

    # What a test does to the cluster.

    def put(self, item: Object) -> None:
        """Create or change an object."""
        path = _path(item)
        self._record("MODIFIED" if path in self._objects else "ADDED", item)
        self._objects[path] = item

    def remove(self, item: Object) -> None:
        """Delete an object."""
        self._objects.pop(_path(item), None)
        self._record("DELETED", item)

    def write(self, pod: Object, *lines: str) -> None:
        """A container writes lines, each with its time in front."""
        self.log.setdefault(pod["metadata"]["uid"], []).extend(lines)
        self._ring()

    def close_log(self, pod: Object) -> None:
        """A container has ended."""
        self.closed_logs.add(pod["metadata"]["uid"])
        self._ring()

    def break_connections(self, *, forget: bool = False) -> None:
        """All open watches and logs end in an error; with `forget`, old resource versions are gone too."""
        self.broken = True
        if forget:
            self._floor = len(self._events)
        self._ring()

    def heal(self) -> None:
        self.broken = False

    # What Kube does.

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        await asyncio.sleep(0)
        if self.broken:
            raise Unreachable("no answer")
        self.sent.append((method, path))
        if method == "POST":
            return self._create(path, body or {})
        if path in self._objects:
            return self._single(method, path, body)
        if method == "GET" and path.rsplit("/", 1)[-1] in {resource.plural for resource in KINDS.values()}:
            items = [item for key, item in self._objects.items() if key.startswith(f"{path}/") and _selected(item, query or {})]
            return {"items": items, "metadata": {"resourceVersion": str(len(self._events))}}
        raise NotFound(f"{path} not found", status=404)

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
        query = {"labelSelector": labels or "", "fieldSelector": fields or ""}
        position = int(version)
        while True:
            while position < len(self._events):
                kind, item = self._events[position]
                position += 1
                if item["kind"] == resource.kind and _selected(item, query):
                    yield kind, item
            await self._moved.wait()
            if self.broken:
                raise Unreachable("connection lost")

    async def logs(
        self,
        namespace: str,
        pod: str,
        *,
        container: str | None = None,
        follow: bool = False,
        timestamps: bool = False,
        since_time: str | None = None,
        tail_lines: int | None = None,
        previous: bool = False,
    ) -> AsyncIterator[str]:
        found = await self.get(PODS, namespace, pod)
        uid, position = found["metadata"]["uid"], 0
        if "waiting" in found["status"]["containerStatuses"][0]["state"]:
            raise Invalid("container is waiting to start", status=400)
        if tail_lines is not None:
            position = max(0, len(self.log.get(uid, [])) - tail_lines)
        while True:
            lines = self.log.get(uid, [])
            while position < len(lines):
                line = lines[position]
                position += 1
                if since_time is None or line.partition(" ")[0][:19] >= since_time[:19]:
                    yield line
            if not follow or uid in self.closed_logs:
                return
            await self._moved.wait()
            if self.broken:
                raise Unreachable("connection lost")

    def _create(self, path: str, body: Object) -> Object:
        uid = f"uid-{body['metadata']['name']}"
        made = {**body, "metadata": {**body["metadata"], "uid": uid, "creationTimestamp": "2026-11-21T12:00:00Z"}}
        if _path(made) in self._objects:
            raise Conflict("already exists", status=409, reason="AlreadyExists")
        assert _path(made).startswith(path), (path, made)
        self.put(made)
        return made

    def _single(self, method: str, path: str, body: Object | None) -> Object:
        if method == "DELETE":
            item = self._objects[path]
            self.remove(item)
            for pod in [other for other in self._objects.values() if _owner(other) == item["metadata"]["uid"]]:
                self.remove(pod)
        elif method == "PATCH":
            self.put(_merged(self._objects[path], body or {}))
        elif method == "PUT":
            replaced = body or {}
            kept = {key: self._objects[path]["metadata"].get(key) for key in ("uid", "creationTimestamp")}
            self.put({**replaced, "metadata": {**kept, **replaced["metadata"]}})
        return self._objects.get(path, {})

    def _record(self, kind: str, item: Object) -> None:
        self._events.append((kind, item))
        self._ring()

    def _ring(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


def session(kube: FakeKube) -> Session:
    """A session that reaches this cluster whatever the kubeconfig says."""

    @asynccontextmanager
    async def connect(kubeconfig: str | None, context: str | None) -> AsyncIterator[Kube]:
        yield kube

    return Session(kubeconfig=__file__, connect=connect)


def _path(item: Object) -> str:
    return KINDS[item["kind"]].path(item["metadata"].get("namespace"), item["metadata"]["name"])


def _selected(item: Object, query: Mapping[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    pairs = [pair.partition("=") for pair in query.get("labelSelector", "").split(",") if pair]
    field, _, wanted = query.get("fieldSelector", "").partition("=")
    found = item.get(field) if field == "reason" else item["metadata"]["name"]
    return all(labels.get(key) == value if equals else key in labels for key, equals, value in pairs) and wanted in ("", found)


def _owner(item: Object) -> str:
    return str((item["metadata"].get("ownerReferences") or [{"uid": ""}])[0]["uid"])


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    return {**old, **{key: _merged(old.get(key, {}), value) for key, value in patch.items()}}
