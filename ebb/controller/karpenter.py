"""Karpenter's events and NodeClaims, read into the planner's words: as autoscaler_status.py reads cluster-autoscaler's. Pure.

    supply = Karpenter(clock)
    supply.hear(event)                       # any of its events
    supply.claim(old, new)                   # a NodeClaim: a machine that was asked for
    supply.states(), supply.changes_at       # {"spot-t4-us-west-2a": GroupState(backing_off=True, message=...)}

A NodePool has our name of the node group, and a NodeClaim is called <NodePool>-<5 characters>. A machine that EC2 does not give
leaves an event, InsufficientCapacityError, and no NodeClaim: it is deleted at once, so the event's subject is all that is left to
tell the group. Karpenter then asks for no such machine for three minutes, and so long the group counts as backing off, unless a
machine of it is launched before.

A NodePool at its limit of nodes (the group's max) leaves an event of the pod that found no room, FailedScheduling, with a reason
for each NodePool. So it is full, and no stockout: a NodeClaim of it that goes makes room.

Read 2026-11-23: pkg/controllers/nodeclaim/lifecycle/launch.go and .../provisioning/scheduling of
https://github.com/kubernetes-sigs/karpenter at v1.14.0; pkg/cache/cache.go of https://github.com/aws/karpenter-provider-aws at
v1.14.1, UnavailableOfferingsTTL.

A spot machine that EC2 takes back is marked on its Node (taint karpenter.sh/disrupted), which worker_state.py knows.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ebb.api.clock import unix
from ebb.controller.autoscaler_status import happened_at
from ebb.controller.reconciler.capacity import GroupState

Object = Mapping[str, Any]

SOURCE = "karpenter"  # the component of its events
UNSCHEDULABLE, STOCKOUT = "FailedScheduling", "InsufficientCapacityError"
LABEL_POOL = "karpenter.sh/nodepool"
AWAITED = "AwaitingReconciliation"  # reason of a condition that nothing has been done for yet
STOCKOUT_SECONDS = 180.0
FULL_SECONDS = 300.0  # the same of the same pod is an event again after that time at the earliest
# It gives a reason for each NodePool, whether the pod would fit there or not.
FULL = re.compile(r"(?:node limits have been exhausted|instance types exceed limits) for nodepool \(NodePool=([\w.-]+)\)")
# Cluster-autoscaler's words first.
FULL_MESSAGE = "max node group size reached: NodePool {} has all the Nodes that its limits allow"
_PREFIX = re.compile(r"^NodeClaim \S+ event: ")


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """The reason why a NodePool gets no machine, since when, and when Karpenter tries again, in unix seconds."""

    at: float
    until: float
    message: str
    full: bool = False  # by its limits, which count a machine until its NodeClaim is gone


class Karpenter:
    """See the module's docstring. `clock`: wall time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._marks: dict[str, Shortage] = {}  # by NodePool
        self._launched: dict[str, float] = {}  # NodePool -> when its last machine was
        self._failing: dict[str, tuple[str, str]] = {}  # NodeClaim -> its NodePool, and why it cannot be launched

    def hear(self, event: Object) -> None:
        """Take in an event."""
        about, reason, message = event.get("involvedObject") or {}, event.get("reason"), event.get("message") or ""
        if reason == STOCKOUT and about.get("kind") == "NodeClaim":
            pool = str(about.get("name", "")).rpartition("-")[0]
            self._mark(pool, happened_at(event), STOCKOUT_SECONDS, _PREFIX.sub("", message))
        elif reason == UNSCHEDULABLE:
            for pool in FULL.findall(message):
                self._mark(pool, happened_at(event), FULL_SECONDS, FULL_MESSAGE.format(pool), full=True)

    def claim(self, old: Object | None, new: Object | None) -> None:
        """Take in what became of a NodeClaim."""
        value = new or old
        assert value is not None
        name, pool = value["metadata"]["name"], (value["metadata"].get("labels") or {}).get(LABEL_POOL, "")
        condition = _launched(new) if new else {}
        self._failing.pop(name, None)
        if condition.get("status") == "True":
            self._launched[pool] = max(unix(condition.get("lastTransitionTime")) or 0.0, self._launched.get(pool, 0.0))
        elif condition.get("reason") not in (None, AWAITED):
            self._failing[name] = pool, str(condition.get("message") or condition["reason"])
        elif new is None and pool in self._marks and self._marks[pool].full:
            del self._marks[pool]  # there is room for another one

    def states(self) -> dict[str, GroupState]:
        """The node groups that get no machine now."""
        now = self._clock()
        marks = {
            pool: mark for pool, mark in self._marks.items() if mark.until > now and mark.at >= self._launched.get(pool, 0.0)
        }
        found = {pool: mark.message for pool, mark in marks.items()} | dict(self._failing.values())
        self._marks = marks
        return {pool: GroupState(backing_off=True, message=message) for pool, message in found.items()}

    @property
    def changes_at(self) -> float | None:
        """The time at which `states` will differ though nothing happens, in unix seconds; None: it will not."""
        return min((mark.until for mark in self._marks.values()), default=None)

    def _mark(self, pool: str, at: float, seconds: float, message: str, *, full: bool = False) -> None:
        old = self._marks.get(pool)
        if old is None or at + seconds >= old.until:
            self._marks[pool] = Shortage(at=at, until=at + seconds, message=message, full=full)


def _launched(claim: Object) -> Object:
    conditions = (claim.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == "Launched"), {})
