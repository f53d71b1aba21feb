"""What makes pods run where there is no Kubernetes node: a scheduler, kubelets and their heartbeats, as far as others see them.

Made by machines.py, which says what tests do with it. It looks at a pod whenever the API server tells of a change in it, and does
what is next: give it a machine, start its program, end it when it is told to leave.
"""

import asyncio
import itertools
import logging
import os
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.template import worker_container
from ebb.kube import LEASES, NODES, PODS, STRATEGIC, Conflict, Invalid, Kube, KubeError, NotFound, Resource
from tests.apiserver.plane import Made, ended, gone

Object = dict[str, Any]
LEASES_OF_NODES = "kube-node-lease"
# A kubelet renews every 10 s a Lease of 40 s; a test that looks for silence should not have to wait for several of those.
HEARTBEAT_SECONDS, LEASE_SECONDS, BEATS_AT_ONCE = 2.0, 8, 20
log = logging.getLogger(__name__)
_addresses = itertools.count(1)


@dataclass
class Machine:
    """One of them. `lost`: nobody is there any more, or nobody can be asked."""

    name: str
    labels: dict[str, str]
    up: bool = False
    lost: bool = False
    doomed: bool = False  # it runs, and nothing new is placed on it
    beats: bool = True
    holds: str = ""  # the UID of the pod that has it


@dataclass
class Program:
    """What runs in a worker's container."""

    pod: str
    uid: str
    job_uid: str
    index: str
    machine: Machine
    address: str
    alive: bool = True
    told: bool = False  # its pod's status says that it runs


@dataclass
class Kubelets:
    """Of one namespace. See the module's docstring."""

    made: Made
    namespace: str
    boots: bool = True  # pods get machines and start
    starts: bool = True  # containers of pods that have a machine do
    leaves: bool = True  # pods that are told to leave do
    leave_seconds: float = 0.0
    exit_code: int = names.EXIT_RECLAIMED  # of a program that is told to stop
    zone: str = "local-a"
    extra: dict[str, str] = field(default_factory=dict)  # labels of all of them
    most: int = 1000  # machines that the cloud has, of each zone where `zones` does not say
    zones: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)  # the same for spot and on-demand ones
    all: dict[str, Machine] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    served: set[str] = field(default_factory=set)
    told: dict[str, tuple[float, int]] = field(default_factory=dict)  # pod's UID -> when it was told to leave, with what grace

    def __post_init__(self) -> None:
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()
        self._held: set[str] = set()
        self.open = True

    @property
    def kube(self) -> Kube:
        return self.made.kube

    async def bind(self, pod: Object, machine: Machine) -> None:
        """What the scheduler does."""
        machine.holds, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": machine.name}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self.kube.request("POST", PODS.path(self.namespace, name, "binding"), body=body)

    async def condition(self, machine: Machine, kind: str, status: str, reason: str = "", message: str = "") -> None:
        now = stamp(time.time())
        one = {
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now, "lastHeartbeatTime": now,
        }  # fmt: skip
        await self.kube.patch(NODES, None, machine.name, {"status": {"conditions": [one]}}, subresource="status", kind=STRATEGIC)

    async def pod_condition(self, pod: str, **condition: str) -> None:
        await self._patch(PODS, pod, {"status": {"conditions": [condition]}}, "status")

    def alive(self, pod: str) -> bool:
        """Whether a worker's program runs."""
        return any(program.alive for program in self.programs if program.pod == pod)

    async def heartbeats(self) -> None:
        """Never returns."""
        while True:
            due = [one for one in self.all.values() if one.up and one.beats and one.name not in self._held]
            for first in range(0, len(due), BEATS_AT_ONCE):  # as many as that do not wait for each other
                await asyncio.gather(*(self._beat(one) for one in due[first : first + BEATS_AT_ONCE]), return_exceptions=True)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def listen(self, kind: Resource, old: Object | None, new: Object | None) -> None:
        value = new or old
        if kind is PODS and value is not None and value["metadata"]["namespace"] == self.namespace and self.open:
            self._spawn(value["metadata"]["name"])

    async def close(self) -> None:
        self.open = False
        for task in list(self._tasks):
            await ended(task)
        for machine in self.all.values():
            machine.beats = False
            await gone(self.kube.delete(NODES, None, machine.name))
            await gone(self.kube.delete(LEASES, LEASES_OF_NODES, machine.name))

    def _spawn(self, name: str) -> None:
        if not self.open:
            return
        task = asyncio.create_task(self._serve(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, name: str) -> None:
        async with self._locks[name]:
            while self.open:
                try:
                    await self._react(name)
                    return
                except (NotFound, Conflict, Invalid) as error:
                    log.debug("%s: %s", name, error)  # it has changed meanwhile, and that change is looked at next
                    return
                except KubeError:
                    await asyncio.sleep(0.3)

    async def _react(self, name: str) -> None:
        pod = self.made.seen.get(PODS, self.namespace, name)
        self._kill_orphans(name, pod)
        if pod is None:
            return
        leaving, node = "deletionTimestamp" in pod["metadata"], pod["spec"].get("nodeName")
        if node is None:
            if self._may_boot(name) and not leaving:
                await self._bind(pod)
            return
        machine = self.all.get(node)
        if machine is None or machine.lost:
            return
        if leaving:
            await self._leave(pod)
        elif self.starts and self._may_boot(name) and pod["status"]["phase"] == "Pending":
            await self._begin(pod, machine)

    def _free(self, wanted: dict[str, str]) -> Machine | None:
        pods = self.made.seen.all(PODS, self.namespace)
        present = {pod["metadata"]["uid"] for pod in pods if pod["status"].get("phase") in ("Pending", "Running")}
        for machine in self.all.values():
            usable = not machine.lost and not machine.doomed and machine.holds not in present
            if usable and wanted.items() <= machine.labels.items():
                return machine
        return None

    def _may_boot(self, name: str) -> bool:
        return self.boots or name in self.served

    def _kill_orphans(self, name: str, pod: Object | None) -> None:
        """A kubelet ends what has no pod any more."""
        for program in self.programs:
            if program.pod == name and program.alive and (pod is None or pod["metadata"]["uid"] != program.uid):
                program.alive = program.machine.lost

    async def _bind(self, pod: Object) -> None:
        wanted = pod["spec"].get("nodeSelector") or {}
        uid = pod["metadata"]["uid"]
        # One that it was given already, which this look at the pod is too old to know of: it must not hold two.
        given = next((one for one in self.all.values() if one.holds == uid and one.up and not one.lost), None)
        machine = given or self._free(wanted) or (self._new(wanted) if self._to_be_had(wanted) else None)
        if machine is None:
            await self._unschedulable(pod)
            return
        machine.holds = uid
        if not machine.up:
            await self._boot(machine)
        await self.bind(pod, machine)

    def _to_be_had(self, wanted: dict[str, str]) -> bool:
        zone, kind = wanted.get(names.LABEL_ZONE, self.zone), wanted.get(names.LABEL_CAPACITY, "")
        there = sum(not one.lost and one.labels[names.LABEL_ZONE] == zone for one in self.all.values())
        return there < self.zones.get(zone, self.most) and self.kinds.get(kind, 1) > 0

    async def _unschedulable(self, pod: Object) -> None:
        """The scheduler has nothing for it, and tries again when that may have changed."""
        words = f"0/{len(self.all)} nodes are available: {len(self.all)} Insufficient nvidia.com/gpu."
        if words not in str(pod["status"].get("conditions")):
            said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
            await self.pod_condition(pod["metadata"]["name"], **said)
        asyncio.get_running_loop().call_later(0.3, self._spawn, pod["metadata"]["name"])

    def _new(self, labels: dict[str, str]) -> Machine:
        machine = Machine(f"{self.namespace}-{next(self._numbers)}", {names.LABEL_ZONE: self.zone, **self.extra, **labels})
        self.all[machine.name] = machine
        return machine

    async def _boot(self, machine: Machine) -> None:
        metadata = {"name": machine.name, "labels": machine.labels}
        await self.kube.create(NODES, None, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        await self._beat(machine)
        await self.condition(machine, "Ready", "True", "KubeletReady", "kubelet is posting ready status")
        await self.kube.patch(NODES, None, machine.name, {"spec": {"taints": None}})  # a new Node has not-ready
        machine.up = True

    async def _begin(self, pod: Object, machine: Machine) -> None:
        uid = pod["metadata"]["uid"]
        program = next((one for one in self.programs if one.uid == uid), None) or self._start(pod, machine)
        if program.alive and not program.told:  # a status that was refused is written again
            running = {"running": {"startedAt": stamp(time.time())}}
            await self._write_status(pod, running, "Running", podIP=program.address, podIPs=[{"ip": program.address}])
            program.told = True

    def _start(self, pod: Object, machine: Machine) -> Program:
        metadata, number = pod["metadata"], next(_addresses)
        program = Program(
            metadata["name"], metadata["uid"], metadata["ownerReferences"][0]["uid"], metadata["labels"][names.LABEL_INDEX],
            machine, f"127.{20 + os.getpid() % 200}.{number // 250}.{1 + number % 250}",
        )  # fmt: skip
        for other in self.programs:
            if other.alive and (other.job_uid, other.index) == (program.job_uid, program.index) and not other.machine.lost:
                self.doubles.append(f"{program.pod}: {other.uid} still ran on {other.machine.name} when {program.uid} began")
        self.programs.append(program)
        return program

    async def _leave(self, pod: Object) -> None:
        metadata, name = pod["metadata"], pod["metadata"]["name"]
        self.told.setdefault(metadata["uid"], (time.time(), metadata.get("deletionGracePeriodSeconds", 0)))
        if not self.leaves:
            return
        if self.leave_seconds and self.alive(name):
            await asyncio.sleep(self.leave_seconds)
        if self.alive(name):
            self._die(name)
            with suppress(NotFound, Conflict):
                await self._write_status(pod, terminated(self.exit_code), "Failed" if self.exit_code else "Succeeded")
        await gone(self.kube.delete(PODS, self.namespace, name, grace_seconds=0, uid=metadata["uid"]))

    def _die(self, pod: str) -> None:
        for program in self.programs:
            if program.pod == pod:
                program.alive = False

    def _pod(self, name: str) -> Object:
        pod = self.made.seen.get(PODS, self.namespace, name)
        assert pod is not None, f"there is no pod {self.namespace}/{name}"
        return pod

    async def _write_status(self, pod: Object, state: Object, phase: str, **more: object) -> None:
        """A pod's status as its kubelet writes it: `state` of the container that trains, the others alike."""
        main = worker_container(pod["spec"]["containers"])["name"]
        other = {"running": {"startedAt": stamp(time.time())}} if phase == "Running" else state
        statuses = [
            {
                "name": one["name"], "image": one["image"], "imageID": "", "restartCount": 0,
                "ready": phase == "Running", "state": state if one["name"] == main else other,
            }
            for one in pod["spec"]["containers"]
        ]  # fmt: skip
        # By its UID: what is said late must not be taken for what has its name now.
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": phase, "containerStatuses": statuses, **more}}
        await self._patch(PODS, pod["metadata"]["name"], body, "status")

    async def _patch(self, kind: Resource, name: str, body: Object, subresource: str) -> None:
        await self.kube.patch(kind, self.namespace, name, body, subresource=subresource, kind=STRATEGIC)

    async def _beat(self, machine: Machine) -> None:
        spec = {"holderIdentity": machine.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": stamp(time.time(), digits=6)}
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": machine.name}, "spec": spec}
        await self.kube.apply(LEASES, LEASES_OF_NODES, lease, manager="kubelet")


def terminated(code: int, reason: str = "", message: str = "", lived: float = 3600.0) -> Object:
    """Stories play hours in seconds: a program that ends ran for an hour, unless a test says otherwise."""
    now = time.time()
    ended_with: Object = {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "startedAt": stamp(now - lived),
        "finishedAt": stamp(now),
    }
    return {"terminated": {**ended_with, **({"message": message} if message else {})}}
