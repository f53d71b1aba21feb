"""A cloud for the controller in fake time: machines boot for pods that wait, are reclaimed, idle and go, and it keeps the bill.

    cloud = Cloud(world.api, rng); cloud.open()
    await cloud.run(3600)                       # seconds of fake time
    cloud.seconds(begun, until)                 # of machines, by node group: the truth

What it bills is what it did, and not what anybody saw of it.
"""

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.kube import CONFIG_MAPS, NODES, PODS
from tests.builders import make_node
from tests.fake_kube import FakeKube

Object = dict[str, Any]
LEAVE = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
TICK, BOOT, READY, IDLE, DRAIN, NOTICE = 1.0, 45.0, 20.0, 90.0, 6.0, 30.0  # seconds
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


def group(name: str, zone: str, gpus: int, price: float) -> Object:
    """A spot group as infra writes it."""
    return {
        "name": name, "zone": zone, "instanceType": f"box.t4x{gpus}", "gpuType": "T4", "gpusPerNode": gpus, "cpu": 16,
        "memoryGiB": 64, "capacityType": "spot", "min": 0, "max": 8, "pricePerHourOnDemand": price, "spotDiscount": 0.7,
        "provisionSeconds": 120,
    }  # fmt: skip


GROUPS = (group("one-a", "local-a", 1, 1.0), group("two-b", "local-b", 2, 3.0))


@dataclass
class Machine:
    """One of the bill."""

    name: str
    group: Object
    registers: float
    busy: float  # when something last ran there
    gone: float | None = None
    ends: float | None = None  # it was told to leave


class Cloud:
    """See the module's docstring. `rng`: which machine is reclaimed."""

    def __init__(self, api: FakeKube, rng: random.Random) -> None:
        self.api, self.rng = api, rng
        self.machines: dict[str, Machine] = {}
        self._count = 0

    def open(self, **facts: Any) -> None:
        """Write ebb-platform; `facts` are further ones."""
        platform = {
            "cloud": "local", "region": "local", "stack": "test", "trainerImage": "trainer", "jobsNamespace": "elastic-job",
            "etcdEndpoint": "etcd-service:2379", "volumes": [], "nodeGroups": list(GROUPS), "dashboards": {}, **facts,
        }  # fmt: skip
        data = {"schema": "1", "platform.json": json.dumps(platform)}
        metadata = {"name": "ebb-platform", "namespace": "ebb-system", "uid": "platform"}
        self.api.put(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    def boots_at_once(self, name: str) -> Object:
        """The Node of another machine of the first group."""
        machine = Machine(name=name, group=GROUPS[0], registers=self.api.clock(), busy=self.api.clock())
        return self._node(machine, ready=True)

    async def run(self, seconds: float) -> None:
        end = self.api.clock() + seconds
        while self.api.clock() < end:
            self._tick(self.api.clock())
            await asyncio.sleep(TICK * self.rng.uniform(0.5, 1.5))

    def reclaim(self, *, notice: bool) -> None:
        """The cloud takes one back."""
        there = [machine for machine in self._alive() if machine.ends is None]
        if there:
            machine = self.rng.choice(there)
            if notice:
                machine.ends = self.api.clock() + NOTICE
                self._mark(machine, {"key": names.TAINT_RECLAIM, "effect": "NoSchedule"})
            else:
                self._remove(machine)

    def seconds(self, begun: float, until: float) -> Counter[str]:
        """Of machines, by node group, from a Node's registration until it was gone."""
        bill: Counter[str] = Counter()
        for machine in self.machines.values():
            span = min(machine.gone or until, until) - max(machine.registers, begun)
            bill[machine.group["name"]] += max(0.0, span)  # type: ignore[assignment]
        return bill

    def _tick(self, now: float) -> None:
        pods = self.api.all(PODS)
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"] and self.rng.random() < 0.2:
                self.api.pod_ends(pod["metadata"]["name"], 138)
        for machine in self._alive():
            self._step(machine, [pod for pod in pods if pod["spec"].get("nodeName") == machine.name], now)
        waiting = [pod for pod in self.api.all(PODS) if not pod["spec"].get("nodeName")]
        self._boot([pod for pod in waiting if not self._placed(pod)], now)

    def _step(self, machine: Machine, pods: list[Object], now: float) -> None:
        """What becomes of a machine: ready, idle, told to go, gone."""
        if machine.name not in self.api.names(NODES):
            self.api.put(NODES, self._node(machine, ready=False))
        elif now >= machine.registers + READY and machine.ends is None and not self._is_ready(machine):
            self.api.put(NODES, self._node(machine, ready=True))
        if any(pod["status"]["phase"] == "Running" for pod in pods):
            machine.busy = now
        elif machine.ends is None and now - machine.busy > IDLE:
            machine.ends = now + DRAIN
            self._mark(machine, LEAVE)
        if machine.ends is not None and now >= machine.ends:
            self._remove(machine)

    def _alive(self) -> list[Machine]:
        now = self.api.clock()
        return [machine for machine in self.machines.values() if machine.gone is None and machine.registers <= now]

    def _placed(self, pod: Object) -> bool:
        """Give a pod a machine, if there is one."""
        now, zone = self.api.clock(), (pod["spec"].get("nodeSelector") or {}).get(names.LABEL_ZONE)
        for machine in self._alive():
            taken = sum(other["spec"].get("nodeName") == machine.name for other in self.api.all(PODS))
            ready = now >= machine.registers + READY + 2 * TICK and machine.ends is None
            if ready and machine.group["zone"] == (zone or machine.group["zone"]) and taken < machine.group["gpusPerNode"]:
                machine.busy = now
                self.api.pod_runs(pod["metadata"]["name"], machine.name)
                return True
        return False

    def _boot(self, waiting: list[Object], now: float) -> None:
        for one in GROUPS:
            wanted = sum((pod["spec"].get("nodeSelector") or {}).get(names.LABEL_ZONE) == one["zone"] for pod in waiting)
            there = [machine for machine in self.machines.values() if machine.gone is None and machine.group is one]
            coming = sum(now < machine.registers + READY + 2 * TICK for machine in there)
            if wanted > coming * one["gpusPerNode"] and len(there) < one["max"]:
                self._count += 1
                name, at = f"m{self._count}", now + BOOT * self.rng.uniform(0.5, 1.5)
                self.machines[name] = Machine(name=name, group=one, registers=at, busy=at)

    def _node(self, machine: Machine, *, ready: bool) -> Object:
        # It registers at the first look after its time: that is what is billed.
        if machine.name not in self.api.names(NODES):
            machine.registers = self.api.clock()
        node = make_node(machine.name, ready=str(ready))
        node["metadata"] |= {"creationTimestamp": stamp(machine.registers), "uid": f"uid-{machine.name}"}
        node["metadata"]["labels"] = {names.LABEL_NODE_GROUP: machine.group["name"], names.LABEL_ZONE: machine.group["zone"]}
        return node

    def _is_ready(self, machine: Machine) -> bool:
        node = next(item for item in self.api.all(NODES) if item["metadata"]["name"] == machine.name)
        return bool(node["status"]["conditions"][0]["status"] == "True")

    def _mark(self, machine: Machine, taint: Object) -> None:
        self.api.change(NODES, machine.name, lambda node: node["spec"].update(taints=[taint]))

    def _remove(self, machine: Machine) -> None:
        machine.gone = self.api.clock()
        self.api.remove(NODES, machine.name)
