"""A cloud in small: machines that only pretend, in node groups of three zones, booted in seconds that stand for minutes.

    cloud = Cloud(kube, sight, rng, protected=..., doomed=...); tasks.create_task(cloud.run())

Which machines to boot and which to give back is decided by the autoscaler of the local stack (devcluster.cloud.scaling), from the
pods that the scheduler gave up on. This module makes and removes the nodes, lets zones run out of machines, and takes machines
back: with a notice, without, or silently, with no event at all. A machine without its label has no kubelet (kwok leaves it
alone).
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.week.groups import ALIVE, NOTICE_SECONDS, ZONES, groups, node_object
from benchmarks.week.seen import ChangeSignal, Crowd, Watched
from devcluster.cloud import scaling
from devcluster.cloud.cluster import ClusterWriter
from devcluster.cloud.reclaim import WITH_NOTICE, Leave, removal
from devcluster.cloud.records import SPOT, Node, Pod, node, pod
from devcluster.cloud.scaling import BOOTING, LEAVING, NOT_TRIGGERED, READY, Decision, Machine, World, decide, status_text
from ebb.kube import MERGE, NODES, Conflict, Kube, NotFound

Object = dict[str, Any]

TICK_SECONDS = 0.5  # upstream's autoscaler looks every 10 s, which would be a minute and a half of a week in an hour: 0.06 s
BOOT_SECONDS = (2.0, 5.0)  # 6 to 14 minutes of a week in an hour
IDLE_SECONDS = 4.0  # upstream: 10 minutes, 3.6 s
SPOT_LIFE_SECONDS = 120.0  # on average until the cloud wants a spot machine back: 5.6 hours
MACHINE_LIFE_SECONDS = 2000.0  # any machine may fail
SHORTEST_NOTICE_SECONDS = 4
BURST = 6  # machines of one group at most
STOCKOUT_EVERY_SECONDS, STOCKOUT_SECONDS = 90.0, (15.0, 60.0)
SILENT_UNTIL_SECONDS = (20.0, 70.0)  # until the cloud itself notices that a machine is dead, and removes its node
SILENT_PART = 8  # at most one in so many machines is silent: of a third and more the controller must not believe it

NOTICE, GONE, SILENT, IDLE = "notice", "gone", "silent", "idle"


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The cluster as it is seen."""

    pods: Watched
    nodes: Watched
    jobs: Watched
    crowd: Crowd
    changes: ChangeSignal


class Cloud:
    """See the module's docstring. `protected(machine)`: not to be touched now; `doomed(machine, why)` is told of each machine
    that goes, before anything else can know."""

    def __init__(
        self,
        kube: Kube,
        sight: Sight,
        rng: random.Random,
        *,
        protected: Callable[[str], bool],
        doomed: Callable[[str, str], None],
    ) -> None:
        self._kube, self._sight, self._rng = kube, sight, rng
        self._protected, self._doomed = protected, doomed
        self._cluster = ClusterWriter(kube)
        self._groups = {group.name: group for group in groups()}
        self._idle_since: Mapping[str, float] = {}
        self._told: dict[str, str] = {}  # pod's UID -> the last word about it
        self._said = ""
        self._parsed: dict[str, tuple[str, Pod]] = {}
        self.booted = 0
        self.machines: dict[str, Machine] = {}
        self.exhausted: set[str] = set()
        self.kind = False  # no reclaims any more, and every zone has machines
        self.reclaims = {NOTICE: 0, GONE: 0, SILENT: 0}
        self.silent: set[str] = set()

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._tick(tasks)
                if not self.kind:
                    self._take_back(tasks)
                    self._exhaust_some(tasks)
                await asyncio.sleep(TICK_SECONDS)

    async def _tick(self, tasks: asyncio.TaskGroup) -> None:
        now = time.time()
        nodes = {one["metadata"]["name"]: node(one) for one in self._sight.nodes.objects.values()}
        world = self._world(nodes, now)
        decision = decide(world)
        self._idle_since = decision.idle_since
        for group, number in decision.boot:
            for _ in range(number):
                self._boot(group, now, tasks)
        for gone in decision.remove:
            if gone.why == scaling.IDLE and not self._protected(gone.machine):
                self._set(gone.machine, LEAVING)
                tasks.create_task(self._give_back(gone.machine))
            elif gone.why == scaling.NODE_DELETED:
                self.machines.pop(gone.machine, None)
        await self._tell(decision, replace(world, machines=list(self.machines.values())), now)

    def _world(self, nodes: Mapping[str, Node], now: float) -> World:
        return World(
            groups=list(self._groups.values()),
            machines=list(self.machines.values()),
            nodes=nodes,
            pods=list(self._pods()),
            exhausted=frozenset(self.exhausted),
            idle_since=self._idle_since,
            delay_seconds=IDLE_SECONDS,
            now=now,
        )

    def _pods(self) -> Iterable[Pod]:
        """Reading a pod's amounts is slow, so each version of it is read once."""
        for uid, item in self._sight.pods.objects.items():
            version = item["metadata"]["resourceVersion"]
            if self._parsed.get(uid, ("",))[0] != version:
                self._parsed[uid] = (version, pod(item))
            yield self._parsed[uid][1]
        self._parsed = {uid: read for uid, read in self._parsed.items() if uid in self._sight.pods.objects}

    async def _tell(self, decision: Decision, world: World, now: float) -> None:
        """Events of pods and the autoscaler's status, where they changed."""
        self._told = {uid: word for uid, word in self._told.items() if uid in self._sight.pods.objects}
        for event in decision.events:
            item = self._sight.pods.objects.get(event.pod.uid)
            if item is None or (event.reason == NOT_TRIGGERED and self._told.get(event.pod.uid) == event.message):
                continue
            self._told[event.pod.uid] = event.message
            await self._cluster.tell(item, event.reason, event.message, now)
        text = status_text(world)
        if text != self._said:
            self._said = text
            await self._cluster.write_status_text(text, now)

    def _boot(self, group: str, now: float, tasks: asyncio.TaskGroup) -> None:
        self.booted += 1
        name = f"{group}-{self.booted}"
        self.machines[name] = Machine(name=name, group=group, state=BOOTING, since=now)
        tasks.create_task(self._booted(name, self._rng.uniform(*BOOT_SECONDS)))

    async def _booted(self, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._kube.create(NODES, None, node_object(name, self._groups[self.machines[name].group]))
        await self._sight.changes.until(lambda: name in self._names(), 30)
        self._set(name, READY)

    async def _give_back(self, name: str) -> None:
        """As upstream: keep pods off, look again, and only then remove it."""
        leave = removal(scaling.IDLE, time.time())
        await self._mark(name, leave)
        await asyncio.sleep(max(0.0, leave.deadline - time.time()))
        if any(not one.finished for one in self._sight.crowd.on(name)) or self._protected(name):
            with suppress(NotFound, Conflict):
                await self._cluster.unmark(name)
            self._set(name, READY)
            return
        self._doomed(name, IDLE)
        await self._remove(name)

    def _take_back(self, tasks: asyncio.TaskGroup) -> None:
        """Perhaps: one machine, or some of a group at once."""
        ready = [one for one in self.machines.values() if one.state == READY and not self._protected(one.name)]
        spot = [one for one in ready if self._groups[one.group].capacity_type == SPOT]
        if ready and self._rng.random() < len(ready) * TICK_SECONDS / MACHINE_LIFE_SECONDS:
            self._lose([self._rng.choice(ready)], self._rng.choice((SILENT, GONE)), tasks)
        if spot and self._rng.random() < len(spot) * TICK_SECONDS / SPOT_LIFE_SECONDS:
            first = self._rng.choice(spot)
            number = self._rng.randint(2, BURST) if self._rng.random() < 0.25 else 1
            many = [first, *(one for one in spot if one.group == first.group and one is not first)][:number]
            self._lose(many, self._rng.choices((NOTICE, GONE, SILENT), (50, 35, 15))[0], tasks)

    def _lose(self, many: list[Machine], how: str, tasks: asyncio.TaskGroup) -> None:
        drained = self._rng.random() < 0.5
        notice, unnoticed = self._rng.randint(SHORTEST_NOTICE_SECONDS, NOTICE_SECONDS), self._rng.uniform(*SILENT_UNTIL_SECONDS)
        for machine in many:
            if machine.state != READY or (how == SILENT and len(self.silent) >= max(1, len(self.machines) // SILENT_PART)):
                continue
            self._set(machine.name, LEAVING)
            self.reclaims[how] += 1
            match how:
                case "notice":
                    tasks.create_task(self._with_notice(machine.name, notice, drained))
                case "gone":
                    tasks.create_task(self._at_once(machine.name))
                case "silent":
                    tasks.create_task(self._silently(machine.name, unnoticed))

    async def _with_notice(self, name: str, seconds: int, drained: bool) -> None:
        self._doomed(name, NOTICE)
        ends = time.monotonic() + seconds
        await self._mark(name, Leave(WITH_NOTICE, time.time() + seconds))
        if drained:
            staying = [one for one in self._sight.crowd.on(name) if not one.leaving and not one.finished]
            for item in [self._sight.pods.objects[one.uid] for one in staying]:
                with suppress(Conflict):
                    await self._cluster.evict(pod(item), seconds)
        await asyncio.sleep(max(0.0, ends - time.monotonic()))
        await self._remove(name)

    async def _at_once(self, name: str) -> None:
        self._doomed(name, GONE)
        await self._remove(name)

    async def _silently(self, name: str, seconds: float) -> None:
        self._doomed(name, SILENT)
        self.silent.add(name)
        with suppress(NotFound):
            await self._kube.patch(NODES, None, name, {"metadata": {"labels": {ALIVE: None}}}, kind=MERGE)
        await asyncio.sleep(seconds)
        self.silent.discard(name)
        await self._remove(name)

    async def _mark(self, name: str, leave: Leave) -> None:
        with suppress(NotFound, Conflict):
            await self._cluster.mark(name, leave, time.time())

    async def _remove(self, name: str) -> None:
        with suppress(NotFound):
            await self._kube.delete(NODES, None, name)
        self.machines.pop(name, None)

    def _exhaust_some(self, tasks: asyncio.TaskGroup) -> None:
        others = [zone for zone in ZONES if zone not in self.exhausted]
        if len(others) > 1 and self._rng.random() < TICK_SECONDS / STOCKOUT_EVERY_SECONDS:
            tasks.create_task(self._exhaust(self._rng.choice(others), self._rng.uniform(*STOCKOUT_SECONDS)))

    async def _exhaust(self, zone: str, seconds: float) -> None:
        self.exhausted.add(zone)
        await self._sight.changes.until(lambda: self.kind, seconds)
        self.exhausted.discard(zone)

    def _set(self, name: str, state: str) -> None:
        if name in self.machines:
            self.machines[name] = replace(self.machines[name], state=state)

    def _names(self) -> set[str]:
        return {one["metadata"]["name"] for one in self._sight.nodes.objects.values()}
