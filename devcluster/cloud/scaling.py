"""Which machines to boot and which to remove: the decisions and reports of cluster-autoscaler. Pure.

    decision = decide(world)         # the daemon makes the World, calls this once per tick and carries the Decision out
    group_status(world, group)       # {"machines", "ready", "message"} for the status of a NodeGroup
    status_text(world)               # YAML of ConfigMap cluster-autoscaler-status, with the keys of upstream's (1.30 and later)

Like upstream: only pods count that the scheduler gave up on; they are packed onto machines that are there or booting before new
ones are asked for, and only as many as the packing needs; a machine leaves when it ran no pod of its own for the whole delay.
Unlike upstream: price alone chooses the group, a group's minimum is always kept, busy machines are never emptied to save money,
and a group that would not fit anyway is reported with that reason even when it is also full.
The status leaves out upstream's times of probes and transitions: they would make a write of every tick.
It keeps no state: what must be remembered from tick to tick (idle_since) goes out with the Decision and comes back in the World.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from devcluster.cloud.fits import FreeMachine, misfits, new_place, node_place
from devcluster.cloud.records import GPU, Node, NodeGroupObject, Pod, Resources

BOOTING = "booting"  # decided; becomes READY when its node is ready for the first time
READY = "ready"  # its node was ready once; becomes LEAVING
LEAVING = "leaving"  # being reclaimed, drained or removed: it takes no pods, and still counts against max

IDLE, GROUP_DELETED, NODE_DELETED, NEVER_READY = "idle", "group-deleted", "node-deleted", "never-ready"
AT_MAX = "max node group size reached"  # upstream's words, as are the next
BACKING_OFF = "in backoff after failed scale-up"
TRIGGERED, NOT_TRIGGERED = "TriggeredScaleUp", "NotTriggerScaleUp"

SCALE_DOWN_DELAY_SECONDS = 20.0  # upstream 600; short enough to be watched, long enough for the next job to find a warm machine
PROVISION_SECONDS = 120.0  # beyond boot_seconds; upstream 900. A machine here is ready in about 3 s, a cold disk takes 30
CONFIG_MAP = "cluster-autoscaler-status"
NAMESPACE = "kube-system"
LONGEST_WAKE_SECONDS = 10.0  # upstream's scan interval


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that exists or was decided on; `since` is the time of that decision."""

    name: str
    group: str
    state: str
    since: float = 0.0


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything that a decision depends on."""

    groups: Sequence[NodeGroupObject]
    machines: Sequence[Machine] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    pods: Sequence[Pod] = ()
    exhausted: frozenset[str] = frozenset()  # zones without capacity
    backoff: Mapping[str, float] = field(default_factory=dict)  # group -> unix time until which it is not tried
    idle_since: Mapping[str, float] = field(default_factory=dict)  # machine -> unix time, from the last Decision
    host: Resources = field(default_factory=dict)  # what this computer has: no machine of the devcluster can offer more
    delay_seconds: float = SCALE_DOWN_DELAY_SECONDS
    now: float


@dataclass(frozen=True)
class Removal:
    """Why a machine goes: IDLE, GROUP_DELETED, NODE_DELETED or NEVER_READY."""

    machine: str
    why: str


@dataclass(frozen=True)
class PodEvent:
    """An event that `kubectl describe pod` is to show."""

    pod: Pod
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The steps to take now. `boot` is (group, number) by group name; the rest is as named."""

    boot: tuple[tuple[str, int], ...] = ()
    remove: tuple[Removal, ...] = ()
    events: tuple[PodEvent, ...] = ()
    idle_since: Mapping[str, float] = field(default_factory=dict)
    next_wake_seconds: float = LONGEST_WAKE_SECONDS


def decide(world: World) -> Decision:
    """One tick. Pure: the same World gives the same Decision."""
    packing = _Packing(world)
    packing.keep_minimums()
    for pod in sorted(filter(lambda one: one.waits_for_machine, world.pods), key=_largest_first):
        packing.place(pod)
    idle_since = _idle_since(world, packing.wanted)
    return Decision(
        boot=tuple(sorted((group, number) for group, number in packing.planned.items() if number)),
        remove=tuple(_removals(world, idle_since)),
        events=tuple(packing.events()),
        idle_since=idle_since,
        next_wake_seconds=_next_wake(world, idle_since),
    )


def out_of_capacity(zone: str) -> str:
    """The reason for a zone that was exhausted."""
    return f"zone {zone} is out of capacity"


class _Packing:
    """First fit, largest pods first, over the machines there are and those being planned."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._groups = sorted(world.groups, key=lambda group: (group.usd_per_hour, group.name))
        self._templates = {group.name: _template(world, group) for group in world.groups}
        self._size = Counter(machine.group for machine in world.machines)
        self._places = [*_ready_places(world, self._templates), *self._booting_places()]
        self._new: list[FreeMachine] = []
        self._refused: list[tuple[Pod, Counter[str]]] = []
        self.planned: Counter[str] = Counter()
        self.wanted: set[str] = set()  # machines that a waiting pod will go to

    def keep_minimums(self) -> None:
        """Plan machines for groups below their minimum, as far as max, zone and backoff allow."""
        staying = Counter(machine.group for machine in self._world.machines if machine.state != LEAVING)
        for group in self._groups:
            for _ in range(group.min - staying[group.name]):
                if not self._blocked(group):
                    self._plan(group)

    def place(self, pod: Pod) -> None:
        """Find room for one pod: there, booting, planned, or on a new machine of the cheapest group that can have one."""
        for place in [*self._places, *self._new]:
            if not misfits(pod, place):
                place.take(pod)
                self.wanted.add(place.name)
                return
        reasons: Counter[str] = Counter()
        for group in self._groups:
            refused = misfits(pod, new_place(group, self._templates[group.name])) or self._blocked(group)
            if not refused:
                self._plan(group).take(pod)
                return
            reasons.update(refused)
        self._refused.append((pod, reasons))

    def events(self) -> Iterable[PodEvent]:
        """For every pod that new machines are booted for, and every one that none can be booted for."""
        for place in self._new:
            after = self._size[place.group]
            limit = next(group.max for group in self._groups if group.name == place.group)
            change = f"{{{place.group} {after - self.planned[place.group]}->{after} (max: {limit})}}"
            for pod in place.pods:
                yield PodEvent(pod, TRIGGERED, f"pod triggered scale-up: [{change}]")
        for pod, reasons in self._refused:
            counted = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items()))
            yield PodEvent(pod, NOT_TRIGGERED, f"pod didn't trigger scale-up: {counted or 'there are no node groups'}")

    def _booting_places(self) -> Iterable[FreeMachine]:
        by_name = {group.name: group for group in self._groups}
        for machine in self._world.machines:
            if machine.state == BOOTING and machine.group in by_name:
                yield new_place(by_name[machine.group], self._templates[machine.group], machine.name)

    def _blocked(self, group: NodeGroupObject) -> tuple[str, ...]:
        if self._size[group.name] >= group.max:
            return (AT_MAX,)
        if group.zone in self._world.exhausted:
            return (out_of_capacity(group.zone),)
        return (BACKING_OFF,) if self._world.backoff.get(group.name, 0) > self._world.now else ()

    def _plan(self, group: NodeGroupObject) -> FreeMachine:
        self.planned[group.name] += 1
        self._size[group.name] += 1
        place = new_place(group, self._templates[group.name])
        self._new.append(place)
        return place


def _template(world: World, group: NodeGroupObject) -> dict[str, int]:
    """Resources of a new machine of the group: as its ready ones do, else as the group says and this computer can give."""
    for node in world.nodes.values():
        if node.group == group.name and node.ready and node.allocatable.get("cpu"):
            return _with_gpus(node.allocatable, group)
    return {name: min(amount, world.host.get(name, amount)) for name, amount in group.allocatable.items()}


def _with_gpus(allocatable: Resources, group: NodeGroupObject) -> dict[str, int]:
    """The devcluster adds the GPUs to the node right after it appears; a machine must not look as if it had none until then."""
    return {**allocatable, GPU: group.gpus} if group.gpus else dict(allocatable)


def _ready_places(world: World, templates: Mapping[str, Resources]) -> Iterable[FreeMachine]:
    groups = {group.name: group for group in world.groups}
    for machine in world.machines:
        node = world.nodes.get(machine.name)
        if machine.state != READY or node is None or not node.ready or machine.group not in templates:
            continue
        place = node_place(node, _with_gpus(node.allocatable, groups[machine.group]))
        for pod in world.pods:
            if pod.node == machine.name and not pod.finished:
                place.take(pod)
        yield place


def _idle_since(world: World, wanted: set[str]) -> dict[str, float]:
    """When each machine that is idle now became so."""
    busy = {pod.node for pod in world.pods if pod.holds_machine} | wanted
    idle = (machine.name for machine in world.machines if machine.state == READY and machine.name not in busy)
    return {name: world.idle_since.get(name, world.now) for name in idle}


def _removals(world: World, idle_since: Mapping[str, float]) -> Iterable[Removal]:
    groups = {group.name: group for group in world.groups}
    staying = Counter(machine.group for machine in world.machines if machine.state != LEAVING)
    for machine in sorted(world.machines, key=lambda one: (idle_since.get(one.name, world.now), one.name)):
        why = _why_remove(world, machine, groups.get(machine.group), idle_since)
        if why == IDLE and staying[machine.group] <= groups[machine.group].min:
            continue
        if why:
            staying[machine.group] -= 1
            yield Removal(machine.name, why)


def _why_remove(world: World, machine: Machine, group: NodeGroupObject | None, idle_since: Mapping[str, float]) -> str:
    if machine.state == LEAVING:
        return ""
    if group is None:
        return GROUP_DELETED
    if machine.state == BOOTING:
        return NEVER_READY if world.now >= machine.since + group.boot_seconds + PROVISION_SECONDS else ""
    if machine.name not in world.nodes:
        return NODE_DELETED
    return IDLE if machine.name in idle_since and world.now - idle_since[machine.name] >= world.delay_seconds else ""


def _next_wake(world: World, idle_since: Mapping[str, float]) -> float:
    """Seconds until time alone can change the decision."""
    times = [since + world.delay_seconds for since in idle_since.values()] + list(world.backoff.values())
    return min([LONGEST_WAKE_SECONDS, *(time - world.now for time in times if time > world.now)])


def _largest_first(pod: Pod) -> tuple[int, int, int, float, str, str]:
    """Large pods first pack best; the rest of the key makes the order the same in every tick."""
    asked = pod.requests
    return -asked.get(GPU, 0), -asked.get("cpu", 0), -asked.get("memory", 0), pod.created, pod.namespace, pod.name


def group_status(world: World, group: NodeGroupObject) -> dict[str, Any]:
    """Machines that exist or are booting, how many of them are ready, and what stands in the way of more."""
    states = _states(world, group)
    return {"machines": states.total(), "ready": states[READY], "message": _message(world, group)}


def status_text(world: World) -> str:
    """The ConfigMap's data.status."""
    states = Counter(machine.state for machine in world.machines)
    groups = [_group(world, group) for group in sorted(world.groups, key=lambda one: one.name)]
    whole = {
        "autoscalerStatus": "Running",
        "clusterWide": {
            "health": {"status": "Healthy", "nodeCounts": _counts(states)},
            "scaleUp": {"status": _activity(states)},
            "scaleDown": _scale_down(len(world.idle_since)),
        },
        "nodeGroups": groups,
    }
    return yaml.safe_dump(whole, sort_keys=False)


def _group(world: World, group: NodeGroupObject) -> dict[str, Any]:
    states = _states(world, group)
    idle = sum(machine.group == group.name and machine.name in world.idle_since for machine in world.machines)
    limits = {"cloudProviderTarget": states.total(), "minSize": group.min, "maxSize": group.max}
    message = _message(world, group)
    blocked = {"status": "Backoff", "backoffInfo": {"errorCode": "OutOfCapacity", "errorMessage": message}}
    return {
        "name": group.name,
        "health": {"status": "Healthy", "nodeCounts": _counts(states), **limits},
        "scaleUp": blocked if message else {"status": _activity(states)},
        "scaleDown": _scale_down(idle),
    }


def _counts(states: Counter[str]) -> dict[str, Any]:
    registered = states[READY] + states[LEAVING]
    return {
        "registered": {"total": registered, "ready": states[READY], "beingDeleted": states[LEAVING], "notStarted": 0},
        "unregistered": states[BOOTING],
    }


def _activity(states: Counter[str]) -> str:
    return "InProgress" if states[BOOTING] else "NoActivity"


def _scale_down(candidates: int) -> dict[str, Any]:
    return {"status": "CandidatesPresent" if candidates else "NoCandidates", "candidates": candidates}


def _states(world: World, group: NodeGroupObject) -> Counter[str]:
    return Counter(machine.state for machine in world.machines if machine.group == group.name)


def _message(world: World, group: NodeGroupObject) -> str:
    if group.zone in world.exhausted:
        return f"{out_of_capacity(group.zone)}: `python -m devcluster restore {group.zone}` brings it back"
    return "the last boot failed; trying again soon" if world.backoff.get(group.name, 0) > world.now else ""
