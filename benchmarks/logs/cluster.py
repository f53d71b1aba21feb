"""As much of an API server as `ebb logs` asks: one job, its pods with their logs, and watches of both.

A pod's log is kept as a container runtime does it, each line with the time at which it came from the pod's stdout.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from ebb.api.contract import ENV_OUTPUT_DIR, LABEL_INDEX, LABEL_JOB
from ebb.kube import ELASTIC_JOBS, PODS, Kube, NotFound, Object, Resource

NAMESPACE, JOB = "elastic-job", "prove"
POLL_SECONDS = 0.02


class Cluster(Kube):
    """Objects in a dict, and all that ever happened to them for watches."""

    def __init__(self, output: str) -> None:
        self.server = "memory"
        self._lock = threading.Lock()
        self._logs: dict[str, list[str]] = {}
        self._objects: dict[str, Object] = {}
        self._events: list[tuple[str, Object]] = []
        self.put(job(output, over=False))

    def put(self, item: Object) -> None:
        with self._lock:
            path = _path(item)
            self._events.append(("MODIFIED" if path in self._objects else "ADDED", item))
            self._objects[path] = item

    def remove(self, item: Object) -> None:
        with self._lock:
            self._events.append(("DELETED", self._objects.pop(_path(item))))

    def write(self, uid: str, line: str) -> None:
        """A line came out of a container."""
        now = time.time_ns()
        moment = datetime.fromtimestamp(now // 10**9, UTC)
        with self._lock:
            self._logs.setdefault(uid, []).append(f"{moment:%Y-%m-%dT%H:%M:%S}.{now % 10**9:09}Z {line}")

    def log(self, uid: str) -> list[str]:
        with self._lock:
            return list(self._logs.get(uid, ()))

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        assert method == "GET", "whoever reads logs changes nothing"
        with self._lock:
            if path in self._objects:
                return self._objects[path]
            items = [item for key, item in self._objects.items() if key.startswith(f"{path}/")]
            if not path.endswith((f"/{PODS.plural}", f"/{ELASTIC_JOBS.plural}")):
                raise NotFound(f"{path} not found", status=404)
            return {"items": items, "metadata": {"resourceVersion": str(len(self._events))}}

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
        position = int(version)
        while True:
            while position < len(self._events):
                kind, item = self._events[position]
                position += 1
                if item["kind"] == resource.kind:
                    yield kind, item
            await asyncio.sleep(POLL_SECONDS)  # other threads write

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
        while True:
            lines = self.log(uid)[position:]
            position += len(lines)
            for line in lines:
                if since_time is None or line[:19] >= since_time[:19]:
                    yield line
            current = self._objects.get(_path(found), {})
            if not follow or not current or "running" not in str(current["status"]) or current["metadata"]["uid"] != uid:
                return
            await asyncio.sleep(POLL_SECONDS)


def job(output: str, *, over: bool) -> Object:
    """The job; its author has chosen the output folder."""
    container = {"name": "elasticjob-worker", "env": [{"name": ENV_OUTPUT_DIR, "value": output}]}
    state = "Succeeded" if over else "Running"
    return {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "metadata": {"name": JOB, "namespace": NAMESPACE, "uid": "uid-prove", "creationTimestamp": "2026-11-22T12:00:00Z"},
        "spec": {
            "minReplicas": 1,
            "maxReplicas": 2,
            "replicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}}},
        },
        "status": {"conditions": [{"type": state, "status": "True", "reason": f"ElasticJob{state}", "message": ""}]},
    }


def pod(worker: int, uid: str, *, ended: bool = False) -> Object:
    """A worker's pod: running, or with a program that has ended well."""
    state = {"terminated": {"exitCode": 0}} if ended else {"running": {"startedAt": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}}
    return {
        "apiVersion": "v1",
        "kind": PODS.kind,
        "metadata": {
            "name": f"{JOB}-worker-{worker}",
            "namespace": NAMESPACE,
            "uid": uid,
            "creationTimestamp": "2026-11-22T12:00:00Z",
            "labels": {LABEL_JOB: JOB, LABEL_INDEX: str(worker)},
            "ownerReferences": [{"uid": "uid-prove", "controller": True}],
        },
        "spec": {"containers": [{"name": "elasticjob-worker"}]},
        "status": {"containerStatuses": [{"name": "elasticjob-worker", "state": state}]},
    }


def _path(item: Object) -> str:
    kinds = {resource.kind: resource for resource in (PODS, ELASTIC_JOBS)}
    return kinds[item["kind"]].path(item["metadata"]["namespace"], item["metadata"]["name"])
