"""The process behind `python -m devcluster run --box NAME`: watches the cluster, decides, acts, once per tick until SIGTERM.

    exit_code = run(box)          # blocks; one daemon per devcluster, held by a lock in the devcluster's folder

A tick reads the world once, asks scaling, reclaim and volumes what to do, and does it; whatever fails is done by the next tick.
It may be killed at any moment: nothing that it must remember is in its memory alone.
Log: one line per thing done, on standard output. Exit codes: 0 after SIGTERM or SIGINT, 1 if it cannot serve: the log says why.
"""

import asyncio
import fcntl
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from devcluster.cloud.charges import Charges
from devcluster.cloud.cluster import STORAGE_CLASSES, Attempts, ClusterWriter, View
from devcluster.cloud.fleet import Fleet, Leaving
from devcluster.cloud.network_policies import Enforcer
from devcluster.cloud.records import GPU, PODS_PER_MACHINE, Node, NodeGroupObject, Object, Pod, RecordError, node, node_group, pod
from devcluster.cloud.scaling import NOT_TRIGGERED, Decision, World, decide, group_status, status_text
from devcluster.cloud.verbs import Knobs
from devcluster.cloud.volumes import STORAGE_CLASS, Provisioner, storage_class
from devcluster.machines import lifecycle, network
from devcluster.machines.lifecycle import MachineRecord, MachineSpec
from devcluster.settings import Box
from ebb.kube import CLAIMS, NAMESPACES, NETWORK_POLICIES, NODE_GROUPS, NODES, PODS, VOLUMES, Kube, KubeconfigError

log = logging.getLogger("box")

TICK_SECONDS = 1.0  # how late a machine that died by itself is noticed
GATHER_SECONDS = 0.02  # changes come in bursts; one tick serves a burst
CLOSE_SECONDS = 10.0
EXIT_STOPPED, EXIT_REFUSED = 0, 1


@dataclass(frozen=True)
class BoxMachines:
    """devcluster.machines for one devcluster."""

    box: Box

    async def boot(self, spec: MachineSpec) -> None:
        await lifecycle.boot(self.box, spec)

    async def kill(self, name: str) -> None:
        await lifecycle.kill(self.box, name)

    def list(self) -> Sequence[MachineRecord]:
        return lifecycle.list_machines(self.box)


@dataclass(kw_only=True)
class Daemon:
    """One tick after the other. What it holds between ticks may be lost: it only saves repeated events and writes."""

    view: View
    cluster: ClusterWriter
    fleet: Fleet
    leaving: Leaving
    provisioner: Provisioner
    enforcer: Enforcer
    attempt: Attempts
    knobs: Knobs
    host: Mapping[str, int]
    idle_since: Mapping[str, float] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)  # pod uid -> why no machine is booted for it
    written: dict[str, object] = field(default_factory=dict)

    async def tick(self, now: float) -> float:
        """Returns the seconds after which to come again if nothing changes."""
        await self._enforce()  # first: until then a new pod is let in nowhere
        groups = {group.name: group for group in self._groups()}
        nodes = {one.name: one for one in map(node, self.view.of(NODES))}
        pods = [pod(item) for item in self.view.of(PODS)]
        await self.attempt("machines", self.fleet.advance(groups, nodes))
        wake = await self.leaving.step(groups, nodes, pods, now)
        world = self._world(groups, nodes, pods, now)
        decision = decide(world)
        self.idle_since = decision.idle_since
        await self._carry_out(decision, world)
        await self._give_gpus(groups)
        await self.provisioner.step(self.view.of(CLAIMS), self.view.of(VOLUMES), now)
        await self._publish(replace(world, machines=self.fleet.machines(nodes), idle_since=decision.idle_since))
        return min(TICK_SECONDS, wake, decision.next_wake_seconds, self.fleet.next_wake_seconds(groups, now))

    async def _enforce(self) -> None:
        policies, namespaces, pods = map(self.view.of, (NETWORK_POLICIES, NAMESPACES, PODS))
        await self.enforcer.step(self.fleet.records(), policies, namespaces, pods)

    def _groups(self) -> Iterator[NodeGroupObject]:
        for item in self.view.of(NODE_GROUPS):
            if "deletionTimestamp" in item["metadata"]:
                continue
            try:
                yield node_group(item)
            except RecordError as error:
                self.attempt.say(f"node group {item['metadata']['name']}", str(error))

    def _world(self, groups: Mapping[str, NodeGroupObject], nodes: Mapping[str, Node], pods: list[Pod], now: float) -> World:
        return World(
            groups=list(groups.values()),
            machines=self.fleet.machines(nodes),
            nodes=nodes,
            pods=pods,
            exhausted=self.knobs.exhausted(),
            backoff=self.fleet.backoff,
            idle_since=self.idle_since,
            host=self.host,
            delay_seconds=self.knobs.scale_down_delay_seconds(),
            now=now,
        )

    async def _carry_out(self, decision: Decision, world: World) -> None:
        by_name = {group.name: group for group in world.groups}
        for name, number in decision.boot:
            self.fleet.ask(by_name[name], number, world.now)
        await self.leaving.remove(decision.remove, world.machines, world.now)
        items = {item["metadata"]["uid"]: item for item in self.view.of(PODS)}
        self.told = {uid: message for uid, message in self.told.items() if uid in items}
        for event in decision.events:
            if event.pod.uid not in items:
                continue  # it went during this tick
            if event.reason == NOT_TRIGGERED and self.told.get(event.pod.uid) == event.message:
                continue
            self.told[event.pod.uid] = event.message
            log.info("pod %s/%s: %s", event.pod.namespace, event.pod.name, event.message)
            tell = self.cluster.tell(items[event.pod.uid], event.reason, event.message, world.now)
            await self.attempt(f"event of pod {event.pod.name}", tell)

    async def _give_gpus(self, groups: Mapping[str, NodeGroupObject]) -> None:
        for item in self.view.of(NODES):
            group = groups.get(node(item).group)
            if group is not None and group.gpus and not _has_gpus(item, group.gpus):
                name = item["metadata"]["name"]
                await self.attempt(f"node {name}: GPUs", self.cluster.give_gpus(name, group.gpus))

    async def _publish(self, world: World) -> None:
        items = {item["metadata"]["name"]: item for item in self.view.of(NODE_GROUPS)}
        for group in world.groups:
            if group.name not in items:
                continue  # as above
            item, status = items[group.name], group_status(world, group)
            mine = (status, item["metadata"]["resourceVersion"])
            if item.get("status") == status or self.written.get(group.name) == mine:
                continue  # the second: written already, the watch has not brought it back yet
            if await self.attempt(f"status of {group.name}", self.cluster.write_group_status(group.name, status)):
                self.written[group.name] = mine
        text = status_text(world)
        if self.written.get("text") != text and await self.attempt("status", self.cluster.write_status_text(text, world.now)):
            self.written["text"] = text


def run(box: Box) -> int:
    """Serve the devcluster until SIGTERM; returns the exit code."""
    with _log_on(sys.stdout), _locked(box.folder / "cloud.lock") as holder:
        if holder:
            log.error("devcluster %s has a daemon already (pid %s)", box.name, holder)
            return EXIT_REFUSED
        try:
            asyncio.run(_serve(box))
        except (KubeconfigError, ValueError) as error:  # no kubeconfig yet, or a charge log that is not ours
            log.error("devcluster %s: %s", box.name, error)
            return EXIT_REFUSED
    return EXIT_STOPPED


async def _serve(box: Box) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Kube.connect(str(box.kubeconfig)) as kube:
        view, cluster, attempt = View(kube), ClusterWriter(kube), Attempts()
        fleet = Fleet(BoxMachines(box), Charges(box.folder / "machines.jsonl"), cluster, time.time, view.changed.set)
        daemon = Daemon(
            view=view,
            cluster=cluster,
            fleet=fleet,
            leaving=Leaving(cluster, fleet, attempt),
            provisioner=Provisioner(cluster, attempt, box.volumes, box.folder / "environment"),
            enforcer=Enforcer(
                lambda name, rules: attempt(f"machine {name}: network policies", network.filter_packets(box, name, rules)),
                lambda index: str(box.machine_pods(index)),
            ),
            attempt=attempt,
            knobs=Knobs(box.folder, attempt),
            host=host_resources(),
        )
        log.info("devcluster %s: the cloud is open", box.name)
        work = {asyncio.create_task(view.follow()), asyncio.create_task(_loop(daemon)), asyncio.create_task(stop.wait())}
        done, running = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await fleet.close(CLOSE_SECONDS)
        for task in done:
            task.result()  # a bug in a loop ends the daemon with its traceback in the log; it is started again
        log.info("devcluster %s: the cloud is closed, its machines run on", box.name)


async def _loop(daemon: Daemon) -> None:
    await daemon.view.synced()
    await daemon.attempt("storage class", daemon.cluster.create(STORAGE_CLASSES, storage_class()))
    log.info("storage class %s is there", STORAGE_CLASS)
    while True:
        daemon.view.changed.clear()
        wake = await daemon.tick(time.time())
        with suppress(TimeoutError):
            await asyncio.wait_for(daemon.view.changed.wait(), wake)
        await asyncio.sleep(GATHER_SECONDS)


def host_resources() -> dict[str, int]:
    """Resources that the kubelets of this computer report, whatever the node group says: they share its cores and its memory."""
    host = lifecycle.host()
    return {"cpu": host.cpus * 1000, "memory": host.memory_bytes, "pods": PODS_PER_MACHINE}


def _has_gpus(item: Object, number: int) -> bool:
    status = item.get("status") or {}
    return all((status.get(key) or {}).get(GPU) == str(number) for key in ("capacity", "allocatable"))


@contextmanager
def _log_on(stream: TextIO) -> Iterator[None]:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    loggers = (log, logging.getLogger("ebb.kube"))  # the second: what the watches meet
    for one in loggers:
        one.setLevel(logging.INFO)
        one.addHandler(handler)
    try:
        yield
    finally:
        for one in loggers:
            one.removeHandler(handler)


@contextmanager
def _locked(path: Path) -> Iterator[str]:
    """Yields "" while holding the lock, else the pid of who has it. The lock goes with the process, however that ends."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            yield file.read().strip() or "unknown"
            return
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield ""
