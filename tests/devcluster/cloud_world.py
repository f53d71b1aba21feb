"""A working fake of what the devcluster's daemon stands on: an API server in memory and machines that are only names.

    world = CloudWorld(tmp_path); world.put(group_object(...)); await world.tick()

The clock is moved by hand. `restart()` is a kill -9 of the daemon: everything in memory goes, files, objects and machines stay.
"""

import asyncio
import copy
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from devcluster.cloud.charges import Charge, Charges, read_charges
from devcluster.cloud.cluster import Attempts, ClusterWriter, View
from devcluster.cloud.daemon import Daemon
from devcluster.cloud.fleet import Fleet, Leaving
from devcluster.cloud.network_policies import Enforcer
from devcluster.cloud.verbs import Knobs
from devcluster.cloud.volumes import Provisioner
from devcluster.machines.lifecycle import MachineRecord, MachineSpec
from devcluster.settings import BoxError
from ebb.kube import EVENTS, NODE_GROUPS, NODES, PODS, Conflict, Kube, KubeError, NotFound, Object, Resource

KINDS = {"NodeGroup": NODE_GROUPS, "Node": NODES, "Pod": PODS}


class FakeApi:
    """Objects by resource, namespace and name; merge patches as RFC 7386; `down` makes every request fail."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Resource, str, str], Object] = {}
        self.evicted: list[tuple[str, int | None]] = []
        self.down = False
        self._versions = itertools.count(1)

    def of(self, resource: Resource) -> Sequence[Object]:
        return [item for (kind, _, _), item in self.objects.items() if kind == resource]

    def put(self, resource: Resource, item: Object) -> None:
        item = copy.deepcopy(item)
        meta = item["metadata"]
        meta.setdefault("uid", f"uid-{meta['name']}")
        meta["resourceVersion"] = str(next(self._versions))
        self.objects[resource, meta.get("namespace", ""), meta["name"]] = {**item, "apiVersion": "v1", "kind": resource.kind}

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        self._check()
        try:
            return self.objects[resource, namespace or "", name]
        except KeyError:
            raise NotFound(f"{resource.plural} {name} not found", 404) from None

    async def create(self, resource: Resource, namespace: str | None, body: Object) -> Object:
        self._check()
        if (resource, namespace or "", body["metadata"]["name"]) in self.objects:
            raise Conflict("it is there", 409, "AlreadyExists")
        self.put(resource, body)
        return body

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Object, **_: Any) -> Object:
        item = await self.get(resource, namespace, name)
        version = body.get("metadata", {}).get("resourceVersion")
        if version not in (None, item["metadata"]["resourceVersion"]):
            raise Conflict("changed meanwhile", 409, "Conflict")
        self.put(resource, _merge(item, body))
        return item

    async def apply(self, resource: Resource, namespace: str | None, body: Object, *, manager: str) -> Object:
        self._check()
        self.put(resource, body)
        return body

    async def delete(self, resource: Resource, namespace: str | None, name: str) -> None:
        await self.get(resource, namespace, name)
        del self.objects[resource, namespace or "", name]

    async def evict(self, namespace: str, name: str, grace_seconds: int | None) -> None:
        pod = await self.get(PODS, namespace, name)
        if pod["metadata"].get("labels", {}).get("budget"):
            raise KubeError("Cannot evict pod as it would violate the pod's disruption budget.", 429)
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.evicted.append((name, grace_seconds))

    def _check(self) -> None:
        if self.down:
            raise KubeError("no answer")


class FakeMachines:
    """Machines whose node is there as soon as they are booted."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self.alive: dict[str, bool] = {}
        self.history: list[str] = []
        self.fails = False

    async def boot(self, spec: MachineSpec) -> None:
        await asyncio.sleep(0)
        if self.fails:
            raise BoxError("no room on this computer")
        self.history.append(f"boot {spec.name}")
        self.alive[spec.name] = True
        amounts = {"cpu": str(spec.cpu), "memory": f"{spec.memory_gib}Gi", "pods": "110"}
        status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": amounts, "allocatable": amounts}
        meta = {"name": spec.name, "labels": {**spec.labels}}
        self._api.put(NODES, {"metadata": meta, "spec": {"taints": [*spec.taints]}, "status": status})

    async def kill(self, name: str) -> None:
        await asyncio.sleep(0)
        self.history.append(f"kill {name}")
        self.alive.pop(name, None)

    def list(self) -> Sequence[MachineRecord]:
        spec = cast(MachineSpec, None)  # the daemon reads only name and alive
        return [MachineRecord(name, spec, number, alive) for number, (name, alive) in enumerate(self.alive.items(), 1)]


class CloudWorld:
    """A box without processes: the fakes, a daemon over them, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1000.0
        self.api = FakeApi()
        self.machines = FakeMachines(self.api)
        self.rules: dict[str, str] = {}
        self.restart()

    def restart(self) -> None:
        """A new daemon, as after a kill -9 of the old one."""
        cluster, attempt = ClusterWriter(cast(Kube, self.api)), Attempts()
        self.fleet = Fleet(self.machines, Charges(self.folder / "machines.jsonl"), cluster, lambda: self.now, lambda: None)
        self.daemon = Daemon(
            view=cast(View, self.api),
            cluster=cluster,
            fleet=self.fleet,
            leaving=Leaving(cluster, self.fleet, attempt),
            provisioner=Provisioner(cluster, attempt, self.folder / "volumes", self.folder / "environment"),
            enforcer=Enforcer(self.filter, lambda index: f"10.210.{index}.0/24"),
            attempt=attempt,
            knobs=Knobs(self.folder, attempt),
            host={},
        )

    async def tick(self, seconds: float = 0) -> float:
        """Move the clock, run one tick and everything that it started."""
        self.now += seconds
        wake = await self.daemon.tick(self.now)
        while tasks := self.fleet.running():
            await asyncio.wait(tasks)
            await asyncio.sleep(0)
        return wake

    async def filter(self, machine: str, rules: str) -> bool:
        self.rules[machine] = rules
        return True

    @property
    def charges(self) -> list[Charge]:
        return read_charges(self.folder / "machines.jsonl")

    @property
    def nodes(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.api.of(NODES)]

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(item["reason"], item["message"]) for item in self.api.of(EVENTS)]

    def node(self, name: str) -> Object:
        return self.api.objects[NODES, "", name]

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        del self.api.objects[resource, namespace, name]


def group_object(name: str = "t4-a", **spec: Any) -> Object:
    """A spot group of one-GPU machines that boot in 10 s."""
    defaults = {"zone": "local-a", "instanceType": "g4dn", "gpuType": "T4", "gpus": 1, "cpu": 4, "memoryGiB": 16}
    limits = {"capacityType": "spot", "min": 0, "max": 2, "bootSeconds": 10, "pricePerHour": 0.36, "noticeSeconds": 30}
    return {"metadata": {"name": name}, "spec": defaults | limits | spec}


def pod_object(name: str = "w0", *, node: str = "", **meta: Any) -> Object:
    """A pod that needs a GPU: waiting for a machine, or running on `node`."""
    container = {"resources": {"requests": {"nvidia.com/gpu": "1"}}}
    waiting = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    return {
        "metadata": {"name": name, "namespace": "jobs", **meta},
        "spec": spec,
        "status": {"phase": "Running"} if node else waiting,
    }


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
