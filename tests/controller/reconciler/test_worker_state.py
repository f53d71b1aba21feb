"""What became of a worker: one line per way to be lost, in the order in which the rules apply."""

from typing import Any

import pytest

from ebb.api.clock import stamp, unix
from ebb.api.contract import TAINT_RECLAIM
from ebb.api.spec import Job
from ebb.api.status import Progress
from ebb.controller.reconciler.types import JobView, Observed
from ebb.controller.reconciler.worker_state import Outcome, Worker, judge
from tests.builders import NOW, make_job, make_node, make_pod

EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
DEADLINE = f"The cloud takes this machine away at {stamp(NOW + 25)}."
WELL, GONE = make_node(), "gone"


def disrupted(reason: str, message: str = "") -> dict[str, Any]:
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}


def evicted(said: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    """A pod that the kubelet stopped, with its words."""
    return {"phase": "Failed", "exit_code": 137, "reason": "Evicted", "said": said, "conditions": conditions}


KUBELET = disrupted("TerminationByKubelet")
NODE_LOW = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. Container elasticjob-worker was using "
)
OVER_REQUEST = NODE_LOW + "9Gi, request is 4Gi, has larger consumption of memory. "
OWN_DIR = 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". '
OWN_POD = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
OWN_CONTAINER = 'Container elasticjob-worker exceeded its local ephemeral storage limit "1Gi". '
SHUTDOWN = {"reason": "Terminated", "said": "Pod was terminated in response to imminent node shutdown.", "conditions": (KUBELET,)}

CASES: dict[str, tuple[dict[str, Any], Any, Outcome, str]] = {
    # pod, node -> fate, cause
    "pending-without-machine": ({"phase": "Pending", "node": ""}, None, Outcome.LIVES, ""),
    "pending-on-machine": ({"phase": "Pending"}, WELL, Outcome.LIVES, ""),
    "running": ({}, WELL, Outcome.LIVES, ""),
    "node-not-seen-yet": ({}, None, Outcome.LIVES, ""),
    "finished": ({"phase": "Succeeded", "exit_code": 0}, WELL, Outcome.DONE, ""),
    "finished-while-a-sidecar-runs": ({"exit_code": 0}, WELL, Outcome.DONE, ""),
    "finished-and-its-machine-went-later": ({"phase": "Succeeded", "exit_code": 0}, GONE, Outcome.DONE, ""),
    "finished-then-deleted": (
        {"phase": "Succeeded", "exit_code": 0, "finished": NOW - 9, "deleted": NOW - 5},
        WELL,
        Outcome.DONE,
        "",
    ),
    "exit-0-because-of-sigterm": (
        {"phase": "Succeeded", "exit_code": 0, "finished": NOW - 2, "deleted": NOW - 5},
        WELL,
        Outcome.RECLAIMED,
        "PodDeleted",
    ),
    "node-gone": ({}, GONE, Outcome.RECLAIMED, "NodeGone"),
    "node-gone-though-it-exited-1": ({"phase": "Failed", "exit_code": 1}, GONE, Outcome.RECLAIMED, "NodeGone"),
    "node-silent": ({}, make_node(ready="Unknown"), Outcome.RECLAIMED, "NodeSilent"),
    "node-not-ready-for-long": ({}, make_node(ready="False", since=NOW - 6), Outcome.RECLAIMED, "NodeNotReady"),
    "node-not-ready-for-a-moment": ({}, make_node(ready="False", since=NOW - 4), Outcome.LIVES, ""),
    "notice-by-taint": ({}, make_node(taint=TAINT_RECLAIM), Outcome.RECLAIMED, "ReclaimNotice"),
    "notice-by-condition": ({}, make_node(notice=DEADLINE), Outcome.RECLAIMED, "ReclaimNotice"),
    "notice-before-exit-code": (
        {"phase": "Failed", "exit_code": 1},
        make_node(notice=DEADLINE),
        Outcome.RECLAIMED,
        "ReclaimNotice",
    ),
    "another-taint": ({}, make_node(taint="nvidia.com/gpu"), Outcome.LIVES, ""),
    "evicted-by-a-drain": ({"conditions": (EVICTED,), "deleted": NOW}, WELL, Outcome.RECLAIMED, "Disrupted"),
    "disrupted-then-exit-1": (
        {"phase": "Failed", "exit_code": 1, "conditions": (EVICTED,)},
        WELL,
        Outcome.RECLAIMED,
        "Disrupted",
    ),
    "node-shut-down": ({"phase": "Failed", "reason": "NodeShutdown"}, WELL, Outcome.RECLAIMED, "Disrupted"),
    "refused-by-the-kubelet": ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu"}, WELL, Outcome.RECLAIMED, "Disrupted"),
    "exit-1-as-its-machine-shut-down": ({"phase": "Failed", "exit_code": 1, **SHUTDOWN}, WELL, Outcome.RECLAIMED, "Disrupted"),
    "killed-as-its-machine-shut-down": ({"phase": "Failed", "exit_code": 137, **SHUTDOWN}, WELL, Outcome.RECLAIMED, "Disrupted"),
    "made-room-for-a-higher-priority": (
        {"conditions": (disrupted("PreemptionByScheduler"),), "deleted": NOW},
        WELL,
        Outcome.RECLAIMED,
        "Preempted",
    ),
    "made-room-for-an-agent-of-its-machine": ({"phase": "Failed", "reason": "Preempting"}, WELL, Outcome.RECLAIMED, "Disrupted"),
    "deleted-for-a-taint": (
        {"conditions": (disrupted("DeletionByTaintManager"),), "deleted": NOW},
        WELL,
        Outcome.RECLAIMED,
        "Disrupted",
    ),
    "a-disruption-that-was-called-off": (
        {"phase": "Failed", "exit_code": 1, "conditions": ({**KUBELET, "status": "False"},)},
        WELL,
        Outcome.FAILED,
        "ProgramFailed",
    ),
    "refused-because-of-a-taint": ({"phase": "Failed", "reason": "TaintToleration"}, WELL, Outcome.RECLAIMED, "Disrupted"),
    "refused-by-a-machine-that-is-full": (
        {"phase": "Failed", "reason": "Evicted", "said": "The node had condition: [MemoryPressure]. "},
        WELL,
        Outcome.RECLAIMED,
        "Disrupted",
    ),
    "evicted-as-others-filled-its-machine": (evicted(NODE_LOW, KUBELET), WELL, Outcome.RECLAIMED, "Disrupted"),
    "evicted-as-it-filled-its-machine-within-its-limits": (evicted(OVER_REQUEST, KUBELET), WELL, Outcome.RECLAIMED, "Disrupted"),
    "evicted-from-a-full-machine-by-an-old-kubelet": (evicted(NODE_LOW), WELL, Outcome.RECLAIMED, "Disrupted"),
    "evicted-for-its-own-limits": (evicted(OWN_POD), WELL, Outcome.FAILED, "ProgramFailed"),
    "evicted-for-its-containers-limit": (evicted(OWN_CONTAINER), WELL, Outcome.FAILED, "ProgramFailed"),
    "evicted-for-a-volumes-limit": (evicted(OWN_DIR), WELL, Outcome.FAILED, "ProgramFailed"),
    "evicted-for-its-own-limits-whatever-the-condition-says": (evicted(OWN_DIR, KUBELET), WELL, Outcome.FAILED, "ProgramFailed"),
    "evicted-for-its-own-limits-then-deleted": ({**evicted(OWN_DIR), "deleted": NOW}, WELL, Outcome.FAILED, "ProgramFailed"),
    "evicted-for-its-own-limits-then-its-machine-went": (evicted(OWN_DIR), GONE, Outcome.FAILED, "ProgramFailed"),
    "evicted-for-no-known-reason": ({"phase": "Failed", "reason": "Evicted"}, WELL, Outcome.FAILED, "ProgramFailed"),
    "too-slow-for-the-templates-own-deadline": (
        {"phase": "Failed", "reason": "DeadlineExceeded"},
        WELL,
        Outcome.FAILED,
        "ProgramFailed",
    ),
    "deleted-by-somebody": ({"deleted": NOW}, WELL, Outcome.RECLAIMED, "PodDeleted"),
    "deleted-and-exit-143": ({"phase": "Failed", "exit_code": 143, "deleted": NOW - 3}, WELL, Outcome.RECLAIMED, "PodDeleted"),
    "left-with-the-reclaim-code": ({"phase": "Failed", "exit_code": 138}, WELL, Outcome.RECLAIMED, "LeftOnReclaim"),
    "left-as-its-gpu-failed": ({"phase": "Failed", "exit_code": 79}, WELL, Outcome.RECLAIMED, "HardwareFault"),
    "exit-1": ({"phase": "Failed", "exit_code": 1}, WELL, Outcome.FAILED, "ProgramFailed"),
    "out-of-memory": ({"phase": "Failed", "exit_code": 137, "exit_reason": "OOMKilled"}, WELL, Outcome.FAILED, "ProgramFailed"),
    "out-of-memory-while-it-left": (
        {"phase": "Failed", "exit_code": 137, "exit_reason": "OOMKilled", "deleted": NOW - 3},
        WELL,
        Outcome.RECLAIMED,
        "PodDeleted",
    ),
    "out-of-memory-on-a-machine-with-a-notice": (
        {"phase": "Failed", "exit_code": 137, "exit_reason": "OOMKilled"},
        make_node(notice=DEADLINE),
        Outcome.RECLAIMED,
        "ReclaimNotice",
    ),
    "killed-and-nobody-says-why": ({"phase": "Failed", "exit_code": 137}, WELL, Outcome.FAILED, "ProgramFailed"),
    "lost-as-its-machine-started-anew": (
        {"phase": "Failed", "exit_code": 137, "exit_reason": "ContainerStatusUnknown"},
        WELL,
        Outcome.RECLAIMED,
        "Disrupted",
    ),
    "lost-as-its-machine-started-anew-says-containerd": (
        {"phase": "Failed", "exit_code": 255, "exit_reason": "Unknown"},
        WELL,
        Outcome.RECLAIMED,
        "Disrupted",
    ),
    "exit-255": ({"phase": "Failed", "exit_code": 255}, WELL, Outcome.FAILED, "ProgramFailed"),
    "no-such-program": (
        {"phase": "Failed", "exit_code": 128, "exit_reason": "StartError"},
        WELL,
        Outcome.FAILED,
        "ProgramFailed",
    ),
    "exit-1-while-a-sidecar-runs": ({"exit_code": 1}, WELL, Outcome.FAILED, "ProgramFailed"),
    "failed-without-a-code": ({"phase": "Failed"}, WELL, Outcome.FAILED, "ProgramFailed"),
}


def unready(node: Any) -> float:
    """Seconds that the machine has not been ready for, as the controller saw it."""
    conditions = node["status"]["conditions"] if node and node != GONE else ()
    return next((NOW - (unix(item["lastTransitionTime"]) or NOW) for item in conditions if item["status"] == "False"), 0.0)


@pytest.mark.parametrize(("pod", "node", "outcome", "cause"), CASES.values(), ids=CASES.keys())
def test_fate(pod: dict[str, Any], node: Any, outcome: Outcome, cause: str) -> None:
    verdict = judge(Worker.of(make_pod(make_job(), **pod)), None if node == GONE else node, unready(node), node_gone=node == GONE)
    assert (verdict.outcome, verdict.cause) == (outcome, cause)


NODES: dict[str, tuple[Any, dict[str, bool], tuple[Outcome, str, bool]]] = {
    # node, what the controller knows of it -> fate, cause, force: only a dead machine asks for force
    "well": (WELL, {}, (Outcome.LIVES, "", False)),
    "gone": (None, {"node_gone": True}, (Outcome.RECLAIMED, "NodeGone", True)),
    "silent, says Kubernetes": (make_node(ready="Unknown"), {}, (Outcome.RECLAIMED, "NodeSilent", True)),
    "silent, says the controller": (WELL, {"silent": True}, (Outcome.RECLAIMED, "NodeSilent", True)),
    "silent, by its Lease alone": (WELL, {"silent": True, "unconfirmed": True}, (Outcome.RECLAIMED, "NodeSilent", False)),
    "silent, says Kubernetes as well": (
        make_node(ready="Unknown"),
        {"silent": True, "unconfirmed": True},
        (Outcome.RECLAIMED, "NodeSilent", True),
    ),
    "gone, which needs no proof": (None, {"node_gone": True, "unconfirmed": True}, (Outcome.RECLAIMED, "NodeGone", True)),
    "silent after its notice": (make_node(notice=DEADLINE), {"silent": True}, (Outcome.RECLAIMED, "NodeSilent", True)),
    "silent after it was not ready": (make_node(ready="False"), {"silent": True}, (Outcome.RECLAIMED, "NodeSilent", True)),
    "silent before it was ever seen": (None, {"silent": True}, (Outcome.LIVES, "", False)),
    "not ready": (make_node(ready="False"), {}, (Outcome.RECLAIMED, "NodeNotReady", False)),
    "notice": (make_node(notice=DEADLINE), {}, (Outcome.RECLAIMED, "ReclaimNotice", False)),
    "in doubt: well": (WELL, {"doubt": True}, (Outcome.LIVES, "", False)),
    "in doubt: gone": (None, {"node_gone": True, "doubt": True}, (Outcome.RECLAIMED, "NodeGone", False)),
    "in doubt: silent, says Kubernetes": (make_node(ready="Unknown"), {"doubt": True}, (Outcome.LIVES, "", False)),
    "in doubt: silent, says the controller": (WELL, {"silent": True, "doubt": True}, (Outcome.LIVES, "", False)),
    "in doubt: not ready": (make_node(ready="False"), {"doubt": True}, (Outcome.RECLAIMED, "NodeNotReady", False)),
    "in doubt: silent after its notice": (
        make_node(ready="Unknown", notice=DEADLINE),
        {"silent": True, "doubt": True},
        (Outcome.RECLAIMED, "ReclaimNotice", False),
    ),
}


@pytest.mark.parametrize(("node", "known", "expected"), NODES.values(), ids=NODES)
def test_machines(node: Any, known: dict[str, bool], expected: tuple[Outcome, str, bool]) -> None:
    verdict = judge(Worker.of(make_pod(make_job())), node, unready(node), **known)
    assert (verdict.outcome, verdict.cause, verdict.force) == expected


OBSERVED: dict[str, tuple[dict[str, Any], tuple[Outcome, bool]]] = {
    "well": ({}, (Outcome.LIVES, False)),
    "gone": ({"gone": frozenset({"n0"})}, (Outcome.RECLAIMED, True)),
    "gone, in doubt": ({"gone": frozenset({"n0"}), "doubt": "the watch is stale"}, (Outcome.RECLAIMED, False)),
    "silent": ({"silent": frozenset({"n0"}), "progress": Progress(step=1)}, (Outcome.RECLAIMED, True)),
    "silent, of a program without metrics": ({"silent": frozenset({"n0"})}, (Outcome.RECLAIMED, False)),
    "another silent": ({"silent": frozenset({"n1"})}, (Outcome.LIVES, False)),
    "silent, in doubt": ({"silent": frozenset({"n0"}), "doubt": "half of the machines look silent"}, (Outcome.LIVES, False)),
}


@pytest.mark.parametrize(("world", "expected"), OBSERVED.values(), ids=OBSERVED)
def test_what_the_controller_sees_of_machines_is_judged(world: dict[str, Any], expected: tuple[Outcome, bool]) -> None:
    observed = Observed(pods=(make_pod(make_job()),), nodes={"n0": WELL}, **world)
    ((_, verdict),) = JobView.of(Job.of(make_job()), observed, NOW).workers
    assert (verdict.outcome, verdict.force) == expected


@pytest.mark.parametrize(("gone", "force"), [(True, True), (False, False)])
def test_a_finished_worker_on_a_dead_machine_must_be_deleted_with_force_too(gone: bool, force: bool) -> None:
    verdict = judge(Worker.of(make_pod(make_job(), phase="Succeeded", exit_code=0)), WELL, 0, node_gone=gone)
    assert (verdict.outcome, verdict.force) == (Outcome.DONE, force)


WORDS: dict[str, tuple[dict[str, Any], str]] = {
    "its place was taken": (
        {"conditions": (disrupted("PreemptionByScheduler", "default-scheduler: preempting"),)},
        "its place went to a pod of higher priority: default-scheduler: preempting",
    ),
    "drained": ({"conditions": (EVICTED,)}, "Eviction API: evicting"),
    "its own limits": (evicted(OWN_DIR), 'Evicted: Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".'),
    "the machine's": (evicted(NODE_LOW + "9Gi. "), NODE_LOW + "9Gi. "),
    "out of memory": ({"phase": "Failed", "exit_code": 137, "exit_reason": "OOMKilled"}, "OOMKilled, exit code 137"),
    "no words": ({"phase": "Failed", "reason": "NodeShutdown"}, "NodeShutdown"),
}


@pytest.mark.parametrize(("pod", "message"), WORDS.values(), ids=WORDS)
def test_what_is_said_of_it(pod: dict[str, Any], message: str) -> None:
    assert judge(Worker.of(make_pod(make_job(), **pod)), WELL, 0).message == message


def test_a_notice_carries_its_deadline() -> None:
    assert judge(Worker.of(make_pod(make_job())), make_node(notice=DEADLINE), 0).notice_until == NOW + 25


def test_a_failure_quotes_the_last_line_of_what_the_program_said() -> None:
    pod = make_pod(
        make_job(), phase="Failed", exit_code=1, message="Traceback (most recent call last):\n  ...\nValueError: no data\n"
    )
    assert judge(Worker.of(pod), WELL, 0).message == "Error, exit code 1: ValueError: no data"
