"""The daemon's connection to its cluster: a view that watches it, and writes that are safe to repeat. Decides nothing.

    view = View(kube); task = asyncio.create_task(view.follow()); await view.synced()
    view.changed.clear(); view.of(PODS) ...; await view.changed.wait()
    attempt, cluster = Attempts(), Cluster(kube)
    if await attempt("node x: mark", cluster.mark(node_name, leave, now)): ...

Writes raise KubeError as ebb.kube says; an attempt logs it, once, and the daemon comes back at its next tick. Objects of the
view are the API server's JSON and must not be changed by the reader.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from devcluster.cloud import reclaim
from devcluster.cloud.reclaim import Leave
from devcluster.cloud.records import GPU, Object, Pod
from devcluster.cloud.scaling import CONFIG_MAP, NAMESPACE
from devcluster.settings import BoxError
from ebb.api import clock
from ebb.kube import (
    CLAIMS,
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    NETWORK_POLICIES,
    NODE_GROUPS,
    NODES,
    PODS,
    STRATEGIC,
    VOLUMES,
    Conflict,
    Kube,
    KubeError,
    NotFound,
    Resource,
)
from ebb.kube.reflector import Reflector

MANAGER = "ebb-box"
AUTOSCALER = "cluster-autoscaler"
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
ATTEMPTS = 5  # a node's object changes a few times while it boots; five lost races in a row are something else


class ClusterWriter:
    """The writing half of a connection."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def tell(self, about: Object, reason: str, message: str, now: float, *, kind: str = "Normal") -> None:
        """Record an event about an object, as cluster-autoscaler would."""
        meta = about["metadata"]
        namespace, time = meta.get("namespace") or "default", clock.stamp(now)
        reference = {"apiVersion": about["apiVersion"], "kind": about["kind"]}
        reference |= {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion") if meta.get(key)}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": reference,
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": AUTOSCALER},
            "reportingComponent": AUTOSCALER,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }
        await self._kube.create(EVENTS, namespace, event)

    async def mark(self, node: str, leave: Leave, now: float) -> None:
        """Note on the node that it leaves, keep new pods off it, and for a reclaim with notice say when."""
        await self._change_node(node, lambda item: reclaim.marks(leave, item))
        if leave.why == reclaim.WITH_NOTICE:
            status = dict(reclaim.condition(leave, now))
            await self._kube.patch(NODES, None, node, status, subresource="status", kind=STRATEGIC)

    async def unmark(self, node: str) -> None:
        """Take all marks and wishes off."""
        await self._change_node(node, reclaim.unmarks)

    async def evict(self, pod: Pod, grace_seconds: int) -> None:
        """Evict; one that is gone is evicted. KubeError with status 429: a PodDisruptionBudget does not allow it now."""
        try:
            await self._kube.evict(pod.namespace, pod.name, grace_seconds)
        except NotFound:
            return

    async def give_gpus(self, node: str, number: int) -> None:
        """Advertise GPUs, as a device plugin would; the kubelet leaves resources alone that it does not know."""
        amount = {GPU: str(number)}
        await self._kube.patch(NODES, None, node, {"status": {"capacity": amount, "allocatable": amount}}, subresource="status")

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete a cluster-scoped object; one that is gone is deleted."""
        try:
            await self._kube.delete(resource, None, name)
        except NotFound:
            return

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> None:
        """Create a cluster-scoped object; one that is there is left alone."""
        try:
            await self._kube.create(resource, None, dict(body))
        except Conflict:
            return

    async def free_volume(self, name: str) -> None:
        """Let a released volume be bound again."""
        await self._kube.patch(VOLUMES, None, name, {"spec": {"claimRef": None}})

    async def write_group_status(self, name: str, status: Mapping[str, Any]) -> None:
        """Status of a NodeGroup; one that is gone needs none."""
        try:
            await self._kube.patch(NODE_GROUPS, None, name, {"status": dict(status)}, subresource="status")
        except NotFound:
            return

    async def write_status_text(self, text: str, now: float) -> None:
        """ConfigMap kube-system/cluster-autoscaler-status."""
        annotations = {"cluster-autoscaler.kubernetes.io/last-updated": clock.stamp(now)}
        meta = {"name": CONFIG_MAP, "namespace": NAMESPACE, "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"status": text}}
        await self._kube.apply(CONFIG_MAPS, NAMESPACE, body, manager=MANAGER)

    async def _change_node(self, name: str, change: Any) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            item = await self._kube.get(NODES, None, name)
            try:
                await self._kube.patch(NODES, None, name, change(item))
                return
            except Conflict:
                if attempt == ATTEMPTS:
                    raise


WATCHED = (NODE_GROUPS, NODES, PODS, CLAIMS, VOLUMES, NETWORK_POLICIES, NAMESPACES)


class View:
    """The kinds in WATCHED as they are now, each in a reflector. `changed` is set at every change."""

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


log = logging.getLogger("box")


class Attempts:
    """Things that may fail and are tried again at the next tick anyway: remembers the last error of each, to log it once."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    async def __call__(self, what: str, work: Awaitable[object]) -> bool:
        """True if it worked. Errors of the devcluster, the cluster and the disk are logged; any other is a bug and goes up."""
        try:
            await work
        except (KubeError, BoxError, OSError) as error:
            self.say(what, f"{type(error).__name__}: {error}; trying again")
            return False
        if self._said.pop(what, None):
            log.info("%s: works again", what)
        return True

    def say(self, what: str, message: str) -> None:
        """Log, unless this was the last thing said about it."""
        if self._said.get(what) != message:
            self._said[what] = message
            log.warning("%s: %s", what, message)
