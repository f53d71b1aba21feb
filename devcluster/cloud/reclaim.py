"""The ways a machine leaves: reclaimed by the spot market, drained because its group is gone, or removed when idle.

    wish = read_wish(node, group_is_spot)         # what `python -m devcluster reclaim` wrote on the Node; raises WishError
    leave = start(wish, now)                      # kept on the Node itself, so that a daemon killed in the middle goes on
    plan = plan_leave(leave, pods, now)           # asked again at every tick until it says kill (or stay)

With notice, as in the clouds: the node gets a taint and a condition, its pods are evicted with the time that is left, and the
machine goes at the deadline or once nothing but daemons runs on it. Without: there is nothing to plan, it is killed at once.
Pure: the daemon carries the plans out.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from devcluster.cloud.records import SPOT, Node, NodeGroupObject, Pod, Taint
from devcluster.cloud.scaling import GROUP_DELETED, IDLE
from ebb.api import reclaim

WISH_ANNOTATION = "box.ebb.dev/reclaim"  # {"noticeSeconds": N}; 0: none. Written by the verb
LEAVE_ANNOTATION = "box.ebb.dev/leaving"  # {"why": ..., "deadline": unix time}. Written by the daemon
RECLAIM_TAINT = Taint(**reclaim.TAINT)
LEAVE_TAINT = Taint("ToBeDeletedByClusterAutoscaler", "", "NoSchedule")  # upstream's, for its own removals
WITH_NOTICE, WITHOUT_NOTICE = "reclaim-notice", "reclaim"
DRAIN_SECONDS = 60.0  # for a deleted group; EKS gives 15 minutes, nobody waits that long for a devcluster
SETTLE_SECONDS = 1.0  # a scheduler that has not seen the taint yet may still bind a pod; upstream waits 5 s
RETRY_SECONDS = 1.0  # for an eviction that a PodDisruptionBudget refused


class WishError(ValueError):
    """The node cannot be reclaimed like that; the message is for the user."""


@dataclass(frozen=True)
class Leave:
    """A machine on its way out: `why` as in the charge log, `deadline` in unix seconds."""

    why: str
    deadline: float

    @property
    def taint(self) -> Taint:
        """The taint that keeps new pods off meanwhile."""
        return RECLAIM_TAINT if self.why == WITH_NOTICE else LEAVE_TAINT


@dataclass(frozen=True, kw_only=True)
class LeavePlan:
    """Next step for a leaving machine: evict (pod, grace seconds), kill it, or let it stay after all."""

    evict: tuple[tuple[Pod, int], ...] = ()
    kill: bool = False
    stay: bool = False
    next_wake_seconds: float = RETRY_SECONDS


def read_wish(node: Node, group: NodeGroupObject | None) -> float | None:
    """Seconds of notice that somebody wants this node to be reclaimed with; None if nobody does. Raises WishError."""
    written = node.annotations.get(WISH_ANNOTATION)
    if written is None:
        return None
    check_spot(node.name, group)
    try:
        seconds = float(json.loads(written)["noticeSeconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise WishError(
            f"node {node.name}: annotation {WISH_ANNOTATION} is {written!r}; it must look like "
            f'{{"noticeSeconds": 30}} (0: no notice): use `python -m devcluster reclaim {node.name} --notice 30`.'
        ) from error
    if not 0 <= seconds <= 3600:
        raise WishError(f"node {node.name}: a notice of {seconds:g} s is not possible; say 0 to 3600 seconds.")
    return seconds


def check_spot(node: str, group: NodeGroupObject | None) -> None:
    """Raises WishError for a machine that no cloud would take away: one on-demand."""
    if group is not None and group.capacity_type != SPOT:
        raise WishError(
            f"node {node} is of node group {group.name}, which is {group.capacity_type}: clouds reclaim only spot machines. "
            "Name a spot node (`kubectl get nodes -L ebb.dev/capacity-type`)."
        )


def seconds_to_live(node: Node, group: NodeGroupObject | None, now: float) -> float:
    """Until the cloud takes the machine for its age: from then on it is 0. Without an age it lives for ever."""
    if group is None or not group.max_age_seconds or not node.created:
        return float("inf")
    return max(0.0, node.created + group.max_age_seconds - now)


def start(notice_seconds: float, now: float, already: Leave | None) -> Leave:
    """The reclaim that a wish begins; a second wish for the same node can only bring the end nearer."""
    deadline = now + notice_seconds
    if already is not None and already.why == WITH_NOTICE:
        deadline = min(deadline, already.deadline)
    return Leave(WITH_NOTICE if notice_seconds else WITHOUT_NOTICE, deadline)


def read_leave(node: Node) -> Leave | None:
    """The leave that the daemon noted on the node, if any; one that somebody garbled is taken as due."""
    written = node.annotations.get(LEAVE_ANNOTATION)
    if written is None:
        return None
    try:
        noted = json.loads(written)
        return Leave(str(noted["why"]), float(noted["deadline"]))
    except (ValueError, KeyError, TypeError):
        return Leave(WITHOUT_NOTICE, 0.0)


def plan_leave(leave: Leave, pods: Iterable[Pod], now: float) -> LeavePlan:
    """The next step for a machine that runs `pods`."""
    there = [pod for pod in pods if not pod.daemon and (pod.terminating or not pod.finished)]
    left = leave.deadline - now
    if leave.why == IDLE and (there or left > 0):
        return LeavePlan(stay=bool(there), next_wake_seconds=left)  # stay: the scheduler was faster than the taint
    if not there or left <= 0:
        return LeavePlan(kill=True)
    # A grace of 0 would delete the pod's object while its processes still run, hence at least 1.
    evict = tuple((pod, max(1, min(pod.grace_seconds, int(left)))) for pod in there if not pod.terminating)
    return LeavePlan(evict=evict, next_wake_seconds=min(left, RETRY_SECONDS) if evict else left)


def removal(why: str, now: float) -> Leave:
    """Leave of a machine that scaling wants to go: one of a deleted group is drained, an idle one waits for late pods."""
    return Leave(why, now + (DRAIN_SECONDS if why == GROUP_DELETED else SETTLE_SECONDS))


def marks(leave: Leave, node: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that notes the leave on a Node (as the API server has it), and takes the wish off."""
    annotations = {WISH_ANNOTATION: None, LEAVE_ANNOTATION: json.dumps(asdict(leave))}
    return _patch(node, annotations, [asdict(leave.taint)])


def unmarks(node: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that undoes `marks`, and any wish."""
    return _patch(node, {WISH_ANNOTATION: None, LEAVE_ANNOTATION: None}, [])


def _patch(node: Mapping[str, Any], annotations: Mapping[str, str | None], taints: list[dict[str, str]]) -> dict[str, Any]:
    patch = reclaim.patch_taints(node, add=taints, remove=(RECLAIM_TAINT.key, LEAVE_TAINT.key))
    return {**patch, "metadata": {**patch["metadata"], "annotations": annotations}}


def condition(leave: Leave, now: float) -> Mapping[str, Any]:
    """The status patch (strategic merge) by which workloads can read the deadline."""
    mark = reclaim.notice("SpotReclaim", "the devcluster's spot market takes it back", leave.deadline)
    return reclaim.patch_condition(mark, now)
