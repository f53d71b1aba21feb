"""The machines over their lives: asked for, booting, ready, leaving, ending. Carries out what scaling and reclaim decided.

    fleet = Fleet(machines, charges, cluster, clock, wake)
    fleet.ask(group, 2, now); fleet.end(name, IDLE)
    await fleet.advance(groups, nodes)            # once per tick: starts due boots, notices what became ready or vanished

Boots and kills take seconds, so they run as tasks; `wake` is called when one is done. All that must survive a kill -9 of the
daemon is in the charge log and on the machines themselves: advance() finds the rest out again.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from devcluster.cloud.charges import Charge, Charges
from devcluster.cloud.cluster import Attempts, ClusterWriter
from devcluster.cloud.reclaim import (
    RETRY_SECONDS,
    WITHOUT_NOTICE,
    Leave,
    WishError,
    plan_leave,
    read_leave,
    read_wish,
    removal,
    seconds_to_live,
    start,
)
from devcluster.cloud.records import Node, NodeGroupObject, Pod, Taint
from devcluster.cloud.scaling import BOOTING, GROUP_DELETED, IDLE, LEAVING, READY, Machine, Removal
from devcluster.machines.lifecycle import MachineRecord, MachineSpec
from devcluster.settings import BoxError
from ebb.kube import NODES, KubeError

log = logging.getLogger("box")

TRUE_BOOT_SECONDS = 0.7  # from boot() to a ready node, measured on 2 cores; shorter bootSeconds are not reached
BOOTS_AT_ONCE = 4  # a computer has few cores: more at once make all of them late
BACKOFF_SECONDS = 30.0  # after a boot that failed; upstream 300
NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' own for generated names: they spell nothing
VANISHED, NOBODYS, BOOT_FAILED = "vanished", "unknown", "boot-failed"


class Machines(Protocol):
    """Maker of real machines: devcluster.machines for one box, or a fake. Each may raise BoxError; all are safe to repeat."""

    async def boot(self, spec: MachineSpec) -> None: ...

    async def kill(self, name: str) -> None: ...

    def list(self) -> Sequence[MachineRecord]: ...


class Fleet:
    """All machines of a devcluster."""

    def __init__(
        self, machines: Machines, charges: Charges, cluster: ClusterWriter, clock: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._machines, self._charges, self._cluster, self._clock, self._wake = machines, charges, cluster, clock, wake
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, str] = {}
        self._room = asyncio.Semaphore(BOOTS_AT_ONCE)
        self.backoff: dict[str, float] = {}

    def ask(self, group: NodeGroupObject, number: int, now: float) -> None:
        """Decide on new machines; they appear group.boot_seconds later."""
        for _ in range(number):
            name = f"{group.name}-{''.join(secrets.choice(NAME_LETTERS) for _ in range(5))}"
            self._charges.ask(name, group, now)
            log.info("machine %s: asked for in %s, ready in %g s", name, group.zone, group.boot_seconds)
        self._wake()

    def end(self, machine: str, why: str) -> None:
        """Kill a machine now and delete its node; also one that is still booting."""
        if machine in self._ending:
            return
        self._ending[machine] = why
        log.info("machine %s: ends (%s)", machine, why)
        self._start(machine, self._end(machine, why, self._tasks.pop(machine, None)))

    def is_ending(self, machine: str) -> bool:
        """It is being killed right now."""
        return machine in self._ending

    def running(self) -> list[asyncio.Task[None]]:
        """The boots and kills under way."""
        return list(self._tasks.values())

    def records(self) -> Sequence[MachineRecord]:
        """The machines themselves."""
        return self._machines.list()

    def machines(self, nodes: Mapping[str, Node]) -> list[Machine]:
        """All that exist or are to boot, as scaling sees them."""
        return [
            Machine(name=charge.machine, group=charge.group, state=self._state(charge, nodes), since=charge.asked_at)
            for charge in self._charges.living()
        ]

    async def advance(self, groups: Mapping[str, NodeGroupObject], nodes: Mapping[str, Node]) -> None:
        """Bring what exists in line with what was asked for."""
        now = self._clock()
        records = {record.name: record for record in self._machines.list()}
        for charge in self._charges.living():
            if charge.machine not in self._tasks:
                self._advance_one(charge, groups.get(charge.group), nodes.get(charge.machine), records.get(charge.machine), now)
        living = {charge.machine for charge in self._charges.living()}
        for name in records.keys() - living - self._tasks.keys():
            self.end(name, NOBODYS)
        for name in nodes.keys() - living - self._tasks.keys():
            log.info("node %s: deleted, it has no machine", name)
            await self._cluster.delete(NODES, name)

    def next_wake_seconds(self, groups: Mapping[str, NodeGroupObject], now: float) -> float:
        """Seconds until the next boot is due; infinite if there is none."""
        waiting = [one for one in self._charges.living() if one.booted_at is None and one.machine not in self._tasks]
        times = [_due(one, groups[one.group]) - now for one in waiting if one.group in groups]
        return min([time for time in times if time > 0], default=float("inf"))

    async def close(self, patience_seconds: float) -> None:
        """Let kills finish, give up boots: they are finished or cleaned up by the next daemon."""
        for name, task in self._tasks.items():
            if name not in self._ending:
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=patience_seconds)

    def _state(self, charge: Charge, nodes: Mapping[str, Node]) -> str:
        node = nodes.get(charge.machine)
        if charge.machine in self._ending or (node is not None and read_leave(node) is not None):
            return LEAVING
        return BOOTING if charge.booted_at is None else READY

    def _advance_one(
        self, charge: Charge, group: NodeGroupObject | None, node: Node | None, record: MachineRecord | None, now: float
    ) -> None:
        alive = record is not None and record.alive
        if charge.booted_at is not None:
            if not alive:
                leave = read_leave(node) if node is not None else None
                self.end(charge.machine, leave.why if leave else VANISHED)
        elif alive and node is not None and node.ready:
            self._charges.booted(charge.machine, now)
            log.info("machine %s: ready %.1f s after it was asked for", charge.machine, now - charge.asked_at)
        elif not alive and group is not None and now >= _due(charge, group):
            self._start(charge.machine, self._boot(charge.machine, group))

    def _start(self, machine: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=machine)
        self._tasks[machine] = task
        task.add_done_callback(lambda done: self._finished(machine, done))

    def _finished(self, machine: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(machine) is task:
            del self._tasks[machine]
            self._ending.pop(machine, None)
        if not task.cancelled() and (error := task.exception()):
            log.error("machine %s: %s", machine, error, exc_info=None if isinstance(error, BoxError | KubeError) else error)
        self._wake()

    async def _boot(self, machine: str, group: NodeGroupObject) -> None:
        try:
            async with self._room:
                log.info("machine %s: boots (%s, %s)", machine, group.instance_type, group.zone)
                await self._machines.boot(machine_spec(machine, group))
        except BoxError as error:
            log.error("machine %s: did not boot: %s", machine, error)
            self.backoff[group.name] = self._clock() + BACKOFF_SECONDS
            await self._end(machine, BOOT_FAILED, None)

    async def _end(self, machine: str, why: str, boot: asyncio.Task[None] | None) -> None:
        if boot is not None:  # half a boot must not go on behind the kill
            boot.cancel()
            await asyncio.wait([boot])
        await self._machines.kill(machine)
        self._charges.gone(machine, self._clock(), why)
        await self._cluster.delete(NODES, machine)
        log.info("machine %s: gone (%s)", machine, why)


def machine_spec(name: str, group: NodeGroupObject) -> MachineSpec:
    """Order for devcluster.machines to boot one machine of a group."""
    return MachineSpec(
        name=name,
        zone=group.zone,
        instance_type=group.instance_type,
        labels=group.node_labels,
        taints=[_taint(taint) for taint in group.taints],
        cpu=group.cpu,
        memory_gib=group.memory_gib,
        gpus=group.gpus,
    )


def _taint(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def _due(charge: Charge, group: NodeGroupObject) -> float:
    return charge.asked_at + max(0.0, group.boot_seconds - TRUE_BOOT_SECONDS)


log = logging.getLogger("box")


class Leaving:
    """Machines on their way out."""

    def __init__(self, cluster: ClusterWriter, fleet: Fleet, attempt: Attempts) -> None:
        self._cluster, self._fleet, self._attempt = cluster, fleet, attempt
        self._marked: dict[str, Leave] = {}  # written, but the watch has not brought it back yet

    async def step(
        self, groups: Mapping[str, NodeGroupObject], nodes: Mapping[str, Node], pods: Sequence[Pod], now: float
    ) -> float:
        """Take up new wishes and go on with the leaves there are. Seconds until there is something to do again."""
        steps = [self._step(node, groups.get(node.group), pods, now) for node in nodes.values()]
        return min(await asyncio.gather(*steps), default=float("inf"))

    async def remove(self, removals: Iterable[Removal], machines: Iterable[Machine], now: float) -> None:
        """Begin what scaling decided: idle machines and those of a deleted group leave in order, the rest is just ended."""
        states = {machine.name: machine.state for machine in machines}
        for one in removals:
            if one.machine in self._marked:
                continue
            if one.why in (IDLE, GROUP_DELETED) and states[one.machine] != BOOTING:
                log.info("machine %s: leaves (%s)", one.machine, one.why)
                await self._mark(one.machine, removal(one.why, now), now)
            else:
                self._fleet.end(one.machine, one.why)

    async def _step(self, node: Node, group: NodeGroupObject | None, pods: Sequence[Pod], now: float) -> float:
        if self._fleet.is_ending(node.name):
            return float("inf")
        if self._marked.get(node.name) == read_leave(node):
            self._marked.pop(node.name, None)
        leave = self._marked.get(node.name) or await self._wished(node, group, now) or read_leave(node)
        if leave is None:
            return seconds_to_live(node, group, now)
        if leave.why == WITHOUT_NOTICE:
            self._fleet.end(node.name, leave.why)
            return float("inf")
        plan = plan_leave(leave, [pod for pod in pods if pod.node == node.name], now)
        if plan.stay:
            log.info("machine %s: stays, a pod came in the last moment", node.name)
            await self._attempt(f"node {node.name}: unmark", self._cluster.unmark(node.name))
        elif plan.kill:
            self._fleet.end(node.name, leave.why)
        await asyncio.gather(*(self._evict(pod, grace) for pod, grace in plan.evict))
        return plan.next_wake_seconds

    async def _wished(self, node: Node, group: NodeGroupObject | None, now: float) -> Leave | None:
        """The leave that a wish on the node begins, already marked there."""
        try:
            seconds = read_wish(node, group)
        except WishError as error:
            log.warning("%s", error)
            await self._attempt(f"node {node.name}: unmark", self._cluster.unmark(node.name))
            return None
        if seconds is None and group is not None and read_leave(node) is None and not seconds_to_live(node, group, now):
            log.info("machine %s: as old as its group %s allows", node.name, group.name)
            seconds = group.notice_seconds
        if seconds is None:
            return None
        leave = start(seconds, now, read_leave(node))
        if leave.why == WITHOUT_NOTICE:
            return leave  # the end comes before any mark could be read
        log.info("machine %s: reclaimed, %g s of notice", node.name, leave.deadline - now)
        return leave if await self._mark(node.name, leave, now) else None

    async def _mark(self, node: str, leave: Leave, now: float) -> bool:
        marked = await self._attempt(f"node {node}: mark", self._cluster.mark(node, leave, now))
        if marked:
            self._marked[node] = leave
        return marked

    async def _evict(self, pod: Pod, grace_seconds: int) -> None:
        what = f"pod {pod.namespace}/{pod.name}"
        if await self._attempt(f"{what}: evict (again every {RETRY_SECONDS:g} s)", self._cluster.evict(pod, grace_seconds)):
            log.info("%s: evicted from %s, %d s to stop", what, pod.node, grace_seconds)
