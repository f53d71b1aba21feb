"""What the tests of placement start from: a placed job with GPUs, its pods, and what the autoscaler said."""

from typing import Any

from ebb.api.clock import stamp
from ebb.api.needs import Wish
from ebb.api.spec import Job
from ebb.api.status import Dry
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity, GroupState, Supply, Word
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_job, make_pod

Object = dict[str, Any]

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
BACKOFF = "pod didn't trigger scale-up: 1 in backoff after failed scale-up"
AT_MAX = "pod didn't trigger scale-up: 1 max node group size reached"


def gpu_job(name: str = "digits", **changes: Any) -> Object:
    """A job whose workers take one GPU each."""
    return make_job(name, **{"container": GPU, **changes})


def placed_job(
    zone: str = "local-a", *, capacity: str = "spot", since: float = NOW - 100, status: Object | None = None, **changes: Any
) -> Object:
    """A job that was placed 100 s ago, and waits since then."""
    placement = {"zone": zone, "capacityType": capacity, "gpuType": "T4", "since": stamp(since)}
    return gpu_job(status={"placement": placement, "waitingSince": stamp(since), **(status or {})}, **changes)


def pending(job: Object, *indices: int, **changes: Any) -> list[Object]:
    """Pods that no machine has room for, made 50 s ago."""
    return [make_pod(job, index, phase="Pending", node="", conditions=(UNSCHEDULABLE,), **changes) for index in indices]


def scheduled(job: Object, *indices: int, at: float = NOW - 40) -> list[Object]:
    """Pods that run since they got a machine at that time."""
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(at)}
    return [make_pod(job, index, conditions=(condition,)) for index in indices]


def said(message: str, *indices: int, triggered: bool = False, at: float = NOW - 10) -> Supply:
    """The autoscaler's word about these pods."""
    word = Word(triggered=triggered, message=message, at=at)
    return Supply(words={f"pod-{index}-0": word for index in indices})


def backing_off(*groups: str, message: str = "") -> Supply:
    """The autoscaler's report."""
    return Supply(groups={name: GroupState(backing_off=True, message=message) for name in groups})


def dry(zone: str, *, at: float = NOW - 60, message: str = BACKOFF, capacity: str = "spot", since: float | None = None) -> Dry:
    """What a status says of a zone."""
    begun = stamp(at if since is None else since)
    return Dry(zone=zone, gpu_type="T4", capacity_type=capacity, since=begun, at=stamp(at), message=message)


def claim(name: str = "other", zone: str = "", *, job: Object | None = None, **changes: Any) -> Claim:
    """Another job, older than those of make_job: of 2 GPUs, all of them in use."""
    least = changes.get("least", 2)
    values: Object = {
        "key": ("elastic-job", name), "least": 2, "wanted": 2, "placed": 2 if zone else 0, "zone": zone,
        "gpu_type": "T4" if zone else "", "capacity_type": "spot" if zone else "", "priority": 0, "created": NOW - 1000,
        "located": bool(zone),
        "wish": Wish.of(Job.of(job or gpu_job(name, low=least, replicas=max(4, least), high=None))),
    }  # fmt: skip
    return Claim(**(values | changes))


def cluster_capacity(*claims: Claim, dried: tuple[Dry, ...] = ()) -> ClusterCapacity:
    return ClusterCapacity(claims=claims, dry=dried)


def zone_of(decided: Plan) -> str:
    """Where the job now belongs; "" for nowhere."""
    return decided.status.placement.zone if decided.status.placement else ""


def why(decided: Plan) -> tuple[str, str]:
    """Reason and message of condition Running."""
    condition = decided.status.condition("Running")
    assert condition is not None
    return condition.reason, condition.message


def reasons(decided: Plan) -> list[str]:
    """Of the events."""
    return [event.reason for event in decided.events]
