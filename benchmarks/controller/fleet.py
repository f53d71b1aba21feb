"""Machines that only pretend, by kwok: pods bound to them become Running at once, and leave as soon as they are deleted.

    async with Fleet.started(plane) as fleet: await fleet.add(machines("main", 40)); await fleet.silence("silent-0-0")

Every machine renews its Lease as a kubelet does. One that is to fall silent has a kwok of its own, which is killed: nothing
about it changes any more, and nobody closes anything; its pods have no address, since a worker whose metrics answer is not dead.
All others have one, this host's, where a page of metrics answers as a training worker's does; the API server refuses loopback
addresses in EndpointSlices.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.controller.plane import Plane
from benchmarks.controller.processes import BenchmarkError, Process, eventually
from devcluster import tools
from ebb.api.clock import unix
from ebb.api.contract import METRIC_STEP, METRICS_PORT
from ebb.kube import LEASES, MERGE, NODES, NotFound, Object

KWOK = tools.Tool(
    name="kwok",
    module="sigs.k8s.io/kwok",
    packages=("sigs.k8s.io/kwok/cmd/kwok",),
    programs=("kwok",),
    modules=Path(__file__).parent,
)
LABEL = "benchmark.ebb.dev/fleet"
GROUP_LABEL = "benchmark.ebb.dev/group"
LEASE_SECONDS = 40  # a kubelet's default, renewed after a quarter of it: by kubelets and by kwok
NODE_LEASES = "kube-node-lease"
BEATS_SECONDS = 60.0
CONFIG, DOOMED = "kwok.yaml", "kwok-doomed.yaml"

PARALLEL = ("podPlayStageParallelism", "nodePlayStageParallelism", "nodeLeaseParallelism", "podsOnNodeSyncParallelism")
# What a kubelet would write; the address is ours, the rest is the least that Kubernetes' own controllers look at.
RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
ADDRESSES
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One fake node. `group` is what jobs select; `room` is how many pods fit; a `doomed` one can be silenced; a `closed` one
    takes no pods until `Fleet.open`."""

    name: str
    group: str
    room: int = 110  # a kubelet's default
    doomed: bool = False
    closed: bool = False


def machines(group: str, count: int) -> list[Machine]:
    """Ordinary ones."""
    return [Machine(name=f"{group}-{index}", group=group) for index in range(count)]


class Fleet:
    """Made by `started`."""

    def __init__(self, plane: Plane, opened: AsyncExitStack, kwok: Path, address: str) -> None:
        self._plane, self._opened, self._kwok, self._address = plane, opened, kwok, address
        self._kwoks: list[Process] = []
        self._beats: dict[str, Process] = {}  # those of the doomed machines

    @classmethod
    @asynccontextmanager
    async def started(cls, plane: Plane) -> AsyncIterator["Fleet"]:
        """No machines yet."""
        kwok, address = await tools.ensure(KWOK) / "kwok", host_address()
        for config, where in ((CONFIG, address), (DOOMED, "")):
            (plane.folder / config).write_text("\n---\n".join(json.dumps(part) for part in kwok_config(where)))
        async with AsyncExitStack() as opened:
            if address:
                await opened.enter_async_context(_metrics_page(address))
            fleet = cls(plane, opened, kwok, address)
            fleet._kwoks.append(await fleet._manage("kwok", f"--manage-nodes-with-label-selector={LABEL}=yes"))
            yield fleet

    async def add(self, wanted: Sequence[Machine]) -> None:
        """They are there, and their Leases are renewed, when this returns."""
        await asyncio.gather(*(self._add(machine) for machine in wanted))
        await self.beats([machine.name for machine in wanted])

    async def beats(self, names: Sequence[str]) -> None:
        """Wait until each of these machines has renewed its Lease after now. Raises BenchmarkError."""
        before = await self._renewals()

        async def beaten() -> bool:
            for process in (*self._kwoks, *(self._beats[name] for name in names if name in self._beats)):
                process.check()
            now = await self._renewals()
            return all(now.get(name, 0.0) > before.get(name, 0.0) for name in names)

        logs = self._plane.folder / "kwok*.log"
        await eventually(beaten, BEATS_SECONDS, lambda: f"kwok does not renew the Leases of all machines; see {logs}")

    async def open(self, name: str) -> None:
        """A closed machine takes pods from now on."""
        await self._plane.kube.patch(NODES, None, name, {"spec": {"unschedulable": None}}, kind=MERGE)

    async def vanish(self, name: str) -> None:
        """The machine is gone and the cloud says so: its Node object goes, its pods stay behind."""
        await self._plane.kube.delete(NODES, None, name)

    def silence(self, name: str) -> None:
        """The machine is gone and nobody says so."""
        self._beats[name].kill()

    async def remove(self, wanted: Sequence[Machine]) -> None:
        """Idempotent."""
        for machine in wanted:
            if machine.name in self._beats:
                await self._beats.pop(machine.name).stop()
            with suppress(NotFound):
                await self._plane.kube.delete(NODES, None, machine.name)

    async def _add(self, machine: Machine) -> None:
        await self._plane.kube.create(NODES, None, node(machine, self._address))
        if machine.doomed:
            which = f"--manage-single-node={machine.name}"
            self._beats[machine.name] = await self._manage(f"kwok-{machine.name}", which, config=DOOMED)

    async def _manage(self, name: str, which: str, *, config: str = CONFIG) -> Process:
        folder, kubeconfig = self._plane.folder, self._plane.kubeconfig
        lease = f"--node-lease-duration-seconds={LEASE_SECONDS}"
        args = [str(self._kwok), f"--kubeconfig={kubeconfig}", f"--config={folder}/{config}", lease, which]
        process = await Process.start(name, args, folder)
        self._opened.push_async_callback(process.stop)
        return process

    async def _renewals(self) -> dict[str, float]:
        """When each machine last renewed its Lease, in unix seconds."""
        leases = await self._plane.kube.list(LEASES, NODE_LEASES)
        return {lease["metadata"]["name"]: unix(lease["spec"].get("renewTime")) or 0.0 for lease in leases}


def node(machine: Machine, address: str) -> Object:
    """The Node object of a machine, as its kubelet would have made it."""
    amounts = {"cpu": "256", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": str(machine.room)}
    addresses = [{"type": "Hostname", "address": machine.name}]
    labels = {"kubernetes.io/hostname": machine.name, GROUP_LABEL: machine.group, LABEL: "no" if machine.doomed else "yes"}
    return {
        "metadata": {"name": machine.name, "labels": labels},
        "spec": {"unschedulable": True} if machine.closed else {},
        "status": {
            "addresses": [*addresses, *([{"type": "InternalIP", "address": address}] if address else [])],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kwok"}],
            "nodeInfo": {"kubeletVersion": "kwok"},
        },
    }


def kwok_config(address: str) -> list[Object]:
    """kwok's settings, the stages of a pod's life, and a machine's only one: without any, kwok renews no Leases."""
    known = f"hostIP: {address}\npodIP: {address}\npodIPs: [{{ip: {address}}}]" if address else ""
    booting: Object = {"key": ".status.phase", "operator": "NotIn", "values": ["Running"]}
    leaving: Object = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    held, free = ({"key": ".metadata.finalizers", "operator": operator} for operator in ("Exists", "DoesNotExist"))
    unfinished = {"key": ".status.phase", "operator": "NotIn", "values": ["Failed", "Succeeded"]}
    staying: list[Object] = [
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
    ]
    return [
        {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            # Its defaults do not count where a file has options. They are 4 at a time: pods would wait for kwok, and not for the
            # 40 kubelets that it stands for.
            "options": {"cidr": "10.64.0.0/10", **dict.fromkeys(PARALLEL, 40)},
        },
        _stage("machine-boots", [booting], {"statusTemplate": "phase: Running"}, kind="Node"),
        _stage("pod-runs", staying, {"statusTemplate": RUNNING.replace("ADDRESSES", known)}),
        # A Job's pod is held until the Job has counted it; what a kubelet has stopped is Failed meanwhile.
        _stage("pod-fails", [leaving, held, unfinished], {"statusTemplate": "phase: Failed"}),
        _stage("pod-leaves", [leaving, free], {"delete": True}),
    ]


def _stage(name: str, expressions: list[Object], then: Object, kind: str = "Pod") -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            "next": then,
        },
    }


def host_address() -> str:
    """An address of this host that is not loopback; "" without any: workers then have none, and nobody reads their metrics."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # a documentation address: nothing is sent by this
        return str(probe.getsockname()[0])
    return ""


@asynccontextmanager
async def _metrics_page(address: str) -> AsyncIterator[None]:
    page = f"{METRIC_STEP} 1\n".encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(page)}\r\nConnection: close\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head.encode() + page)
            await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, address, METRICS_PORT, backlog=1024)
    except OSError as error:
        message = f"cannot answer as a worker on {address}:{METRICS_PORT}: {error.strerror}; free that port for the benchmark"
        raise BenchmarkError(message) from error
    async with server:
        yield
