"""What became of a worker: one line per way to be lost, in the order in which the rules apply."""

from typing import Any

import pytest

from tests.workloads.builders import NOW, make_job, make_node, make_pod
from workloads.clock import stamp
from workloads.plan.losses import Fate, Worker, judge

EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
DEADLINE = f"The cloud takes this machine away at {stamp(NOW + 25)}."
WELL = make_node()

CASES: dict[str, tuple[dict[str, Any], Any, bool, Fate, str]] = {
    # pod, node, node is gone -> fate, cause
    "pending-without-machine": ({"phase": "Pending", "node": ""}, None, False, Fate.LIVES, ""),
    "pending-on-machine": ({"phase": "Pending"}, WELL, False, Fate.LIVES, ""),
    "running": ({}, WELL, False, Fate.LIVES, ""),
    "node-not-seen-yet": ({}, None, False, Fate.LIVES, ""),
    "finished": ({"phase": "Succeeded", "exit_code": 0}, WELL, False, Fate.DONE, ""),
    "finished-while-a-sidecar-runs": ({"exit_code": 0}, WELL, False, Fate.DONE, ""),
    "finished-and-its-machine-went-later": ({"phase": "Succeeded", "exit_code": 0}, None, True, Fate.DONE, ""),
    "finished-then-deleted": (
        {"phase": "Succeeded", "exit_code": 0, "finished": NOW - 9, "deleted": NOW - 5},
        WELL,
        False,
        Fate.DONE,
        "",
    ),
    "exit-0-because-of-sigterm": (
        {"phase": "Succeeded", "exit_code": 0, "finished": NOW - 2, "deleted": NOW - 5},
        WELL,
        False,
        Fate.RECLAIMED,
        "PodDeleted",
    ),
    "node-gone": ({}, None, True, Fate.RECLAIMED, "NodeGone"),
    "node-gone-though-it-exited-1": ({"phase": "Failed", "exit_code": 1}, None, True, Fate.RECLAIMED, "NodeGone"),
    "node-silent": ({}, make_node(ready="Unknown"), False, Fate.RECLAIMED, "NodeSilent"),
    "node-not-ready-for-long": ({}, make_node(ready="False", since=NOW - 6), False, Fate.RECLAIMED, "NodeNotReady"),
    "node-not-ready-for-a-moment": ({}, make_node(ready="False", since=NOW - 4), False, Fate.LIVES, ""),
    "notice-by-taint": ({}, make_node(taint="ebb.dev/reclaim"), False, Fate.RECLAIMED, "ReclaimNotice"),
    "notice-by-condition": ({}, make_node(notice=DEADLINE), False, Fate.RECLAIMED, "ReclaimNotice"),
    "notice-before-exit-code": (
        {"phase": "Failed", "exit_code": 1},
        make_node(notice=DEADLINE),
        False,
        Fate.RECLAIMED,
        "ReclaimNotice",
    ),
    "another-taint": ({}, make_node(taint="nvidia.com/gpu"), False, Fate.LIVES, ""),
    "evicted-by-a-drain": ({"conditions": (EVICTED,), "deleted": NOW}, WELL, False, Fate.RECLAIMED, "Disrupted"),
    "disrupted-then-exit-1": (
        {"phase": "Failed", "exit_code": 1, "conditions": (EVICTED,)},
        WELL,
        False,
        Fate.RECLAIMED,
        "Disrupted",
    ),
    "node-shut-down": ({"phase": "Failed", "reason": "NodeShutdown"}, WELL, False, Fate.RECLAIMED, "Disrupted"),
    "refused-by-the-kubelet": ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu"}, WELL, False, Fate.RECLAIMED, "Disrupted"),
    "evicted-for-its-own-limits": ({"phase": "Failed", "reason": "Evicted"}, WELL, False, Fate.FAILED, "ProgramFailed"),
    "deleted-by-somebody": ({"deleted": NOW}, WELL, False, Fate.RECLAIMED, "PodDeleted"),
    "deleted-and-exit-143": (
        {"phase": "Failed", "exit_code": 143, "deleted": NOW - 3},
        WELL,
        False,
        Fate.RECLAIMED,
        "PodDeleted",
    ),
    "left-with-the-reclaim-code": ({"phase": "Failed", "exit_code": 138}, WELL, False, Fate.RECLAIMED, "LeftOnReclaim"),
    "exit-1": ({"phase": "Failed", "exit_code": 1}, WELL, False, Fate.FAILED, "ProgramFailed"),
    "exit-137-out-of-memory": ({"phase": "Failed", "exit_code": 137}, WELL, False, Fate.FAILED, "ProgramFailed"),
    "exit-1-while-a-sidecar-runs": ({"exit_code": 1}, WELL, False, Fate.FAILED, "ProgramFailed"),
    "failed-without-a-code": ({"phase": "Failed"}, WELL, False, Fate.FAILED, "ProgramFailed"),
}


@pytest.mark.parametrize(("pod", "node", "gone", "fate", "cause"), CASES.values(), ids=CASES.keys())
def test_fate(pod: dict[str, Any], node: Any, gone: bool, fate: Fate, cause: str) -> None:
    verdict = judge(Worker.of(make_pod(make_job(), **pod)), node, NOW, node_gone=gone)
    assert (verdict.fate, verdict.cause) == (fate, cause)


def test_only_a_dead_machine_asks_for_force() -> None:
    worker = Worker.of(make_pod(make_job()))
    forced = {
        "gone": judge(worker, None, NOW, node_gone=True).force,
        "silent": judge(worker, make_node(ready="Unknown"), NOW).force,
        "not ready": judge(worker, make_node(ready="False"), NOW).force,
        "notice": judge(worker, make_node(notice=DEADLINE), NOW).force,
    }
    assert forced == {"gone": True, "silent": True, "not ready": False, "notice": False}


def test_a_notice_carries_its_deadline() -> None:
    assert judge(Worker.of(make_pod(make_job())), make_node(notice=DEADLINE), NOW).notice_until == NOW + 25


def test_a_failure_quotes_the_last_line_of_what_the_program_said() -> None:
    pod = make_pod(
        make_job(), phase="Failed", exit_code=1, message="Traceback (most recent call last):\n  ...\nValueError: no data\n"
    )
    assert judge(Worker.of(pod), WELL, NOW).message == "Error, exit code 1: ValueError: no data"
