"""Carries out reclaim's plans: takes up wishes, marks nodes, evicts pods, ends machines.

    wake_seconds = await leaving.step(groups, nodes, pods, now)       # once per tick

What is going on is written on the nodes (reclaim.LEAVE_ANNOTATION), so a new daemon goes on where a killed one stopped.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from devcluster.cloud.attempts import Attempts
from devcluster.cloud.cluster import Cluster
from devcluster.cloud.fleet import Fleet
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
from devcluster.cloud.records import Node, NodeGroup, Pod
from devcluster.cloud.scaling import BOOTING, GROUP_DELETED, IDLE, Machine, Removal

log = logging.getLogger("box")


class Leaving:
    """Machines on their way out."""

    def __init__(self, cluster: Cluster, fleet: Fleet, attempt: Attempts) -> None:
        self._cluster, self._fleet, self._attempt = cluster, fleet, attempt
        self._marked: dict[str, Leave] = {}  # written, but the watch has not brought it back yet

    async def step(self, groups: Mapping[str, NodeGroup], nodes: Mapping[str, Node], pods: Sequence[Pod], now: float) -> float:
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

    async def _step(self, node: Node, group: NodeGroup | None, pods: Sequence[Pod], now: float) -> float:
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

    async def _wished(self, node: Node, group: NodeGroup | None, now: float) -> Leave | None:
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
