"""Counts the time of machines from one change to the next, over restarts of the controller, nothing twice. Pure.

    meter = resume(usage, {"n0": Sight(standing, created)}, now)    # after a start: what was written, and what is there now
    meter.stand("n0", standing(node, pods, group), now)             # it changed; None: it is gone
    meter.settle(now)                                               # the usage record is complete until now

What is written carries `until`. For the time from there to the next start, in which nobody looked, all counts as it stood at
`until`, as it does on the jobs' own bills (money.py). Machines that went meanwhile count until `until`, those that came from
their creation; and the usage record says that there was such a time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ebb.api.platform import NodeGroup
from ebb.api.usage import BOOT, IDLE, LEAVING, Gap, MachineUsage, Standing
from ebb.controller.reconciler.money import share_of
from ebb.controller.reconciler.pods import owner_of
from ebb.controller.reconciler.worker_state import has_notice

Object = Mapping[str, Any]

FINISHED = ("Succeeded", "Failed")  # phases of a pod of which no process runs any more
LATEST_SECONDS = 300.0  # news of a machine come no later; one that is older was not in a node group before
GAP_SECONDS = 30.0  # in which nobody watched are worth reporting, also when no machine came or went


@dataclass(frozen=True, kw_only=True)
class Sight:
    """A machine that is there, and since when (unix seconds)."""

    standing: Standing
    created: float


class Meter:
    """See the module's docstring."""

    def __init__(self, usage: MachineUsage) -> None:
        self.usage = usage
        self._since: dict[str, float] = {}

    def stand(self, machine: str, standing: Standing | None, now: float) -> bool:
        """From now on it stands like this; None: it is gone. Whether that is news."""
        old = self.usage.open.get(machine)
        if old == standing:
            return False
        if old is not None:
            self.usage.count(old, self._since[machine], now)
        if standing is None:
            del self.usage.open[machine], self._since[machine]
        else:
            self.usage.open[machine], self._since[machine] = standing, now
        return True

    def find(self, machine: str, sight: Sight, now: float) -> None:
        """One that is new here, and older than this moment: the news came late."""
        self.usage.count(replace(sight.standing, held=()), max(sight.created, now - LATEST_SECONDS, self.usage.begun), now)
        self.stand(machine, sight.standing, now)

    def settle(self, now: float) -> None:
        """Bring the usage record up to now."""
        for machine, standing in self.usage.open.items():
            self.usage.count(standing, self._since[machine], now)
            self._since[machine] = now
        self.usage.advance(now)
        self.usage.fold(now)


def resume(usage: MachineUsage, there: Mapping[str, Sight], now: float) -> Meter:
    """Go on with a record that was written before."""
    until, before = usage.until, dict(usage.open)
    stayed = {name for name in before if name in there and there[name].created <= until}
    for name, old in before.items():
        if name in stayed:
            usage.count(old, until, now)
        else:
            usage.miss(old, until, now)
    for name in there.keys() - stayed:
        # Nobody gave it to a job meanwhile: what has a worker by now was idle, to the jobs' own bills too.
        usage.count(replace(there[name].standing, held=()), max(there[name].created, until), now)
    gap = Gap(begun=until, ended=now, vanished=len(before) - len(stayed), came=len(there) - len(stayed))
    if now > until and (gap.vanished or gap.came or now - until > GAP_SECONDS):
        usage.gaps = (*usage.gaps, gap)
    usage.open = {}
    usage.advance(now)
    meter = Meter(usage)
    for name, sight in there.items():
        meter.stand(name, sight.standing, now)
    return meter


def standing(node: Object, pods: Iterable[Object], group: NodeGroup, before: Standing | None) -> Standing:
    """The standing of a machine of that group, with these pods of jobs on it."""
    there = ((owner_of(pod), pod) for pod in pods if (pod.get("status") or {}).get("phase") not in FINISHED)
    workers = [(str(owner["uid"])[:8], pod) for owner, pod in there if owner]
    beside = Counter(job for job, _ in workers)
    held: defaultdict[str, float] = defaultdict(float)
    for job, pod in workers:
        held[job] += share_of(pod, group, beside[job])
    return Standing(
        group=group.name,
        phase=_phase(node, before),
        usd=group.usd_per_hour,
        on_demand=group.on_demand_usd_per_hour,
        gpus=group.gpus_per_node,
        held=tuple(sorted((job, round(share, 6)) for job, share in held.items())),
    )


def _phase(node: Object, before: Standing | None) -> str:
    if has_notice(node):
        return LEAVING
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(item["type"] == "Ready" and item.get("status") == "True" for item in conditions)
    # One that was ready once and is not now boots no more.
    return IDLE if ready or (before is not None and before.phase != BOOT) else BOOT
