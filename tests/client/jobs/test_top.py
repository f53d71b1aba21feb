"""What runs on what: GPUs counted, rates between two looks."""

from typing import Any

from ebb.api.contract import TAINT_RECLAIM
from ebb.client.jobs.nodes import MachineView, machine_view
from ebb.client.jobs.top import Top, top
from tests.cli.world import elastic_job, worker_pod

Object = dict[str, Any]
DAY = "2026-11-21T12:"


def node(name: str, *, group: str = "spot-t4-a", gpus: int = 1, ready: str = "True", taints: tuple[str, ...] = ()) -> Object:
    labels = {
        "ebb.dev/node-group": group, "topology.kubernetes.io/zone": "zone-a", "ebb.dev/capacity-type": "spot",
        "ebb.dev/gpu-type": "T4", "node.kubernetes.io/instance-type": "g4dn.xlarge",
    }  # fmt: skip
    return {
        "kind": "Node", "metadata": {"name": name, "labels": labels, "creationTimestamp": f"{DAY}00:00Z"},
        "spec": {"taints": [{"key": key} for key in taints]},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": ready}]},
    }  # fmt: skip


def pod(index: int, machine: str, *, gpus: int = 1, phase: str = "Running", job: str = "digits") -> Object:
    made = worker_pod(index, node=machine, job=job)
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    made["status"]["phase"] = phase
    return made


def job(step: int, at: str, name: str = "digits", **more: Any) -> Object:
    progress = {"step": step, "at": f"{DAY}{at}Z", "samplesPerSecond": 100.0, **more.pop("progress", {})}
    return elastic_job(name, progress=progress, replicaStatuses={"Worker": {"active": 2}}, **more)


def looked(*jobs: Object, pods: tuple[Object, ...] = (), nodes: tuple[Object, ...] = (), before: Top | None = None) -> Top:
    return top(jobs, pods, map(machine_view, nodes), before)


def test_a_machine_as_its_node_tells() -> None:
    assert machine_view(node("m0", taints=(TAINT_RECLAIM,))) == MachineView(
        name="m0", instance_type="g4dn.xlarge", zone="zone-a", capacity="spot", group="spot-t4-a", gpu_type="T4", gpus=1,
        ready=True, leaving=True, since=f"{DAY}00:00Z",
    )  # fmt: skip
    bare = machine_view({"metadata": {"name": "m1"}})
    assert (bare.gpus, bare.ready, bare.leaving, bare.zone) == (0, False, False, "")


def test_gpus_are_busy_where_a_worker_is() -> None:
    found = looked(
        nodes=(node("m0", gpus=4), node("m1"), node("manager-0", group="manager", gpus=0)),
        pods=(pod(0, "m0", gpus=2), pod(0, "m0", job="other"), pod(1, "m1", phase="Succeeded"), pod(2, "")),
    )
    assert (found.gpus, found.gpus_busy) == (5, 3)
    assert [(seat.machine.name, seat.gpus_busy, seat.jobs) for seat in found.machines] == [
        ("m0", 3, ("digits", "other")),
        ("m1", 0, ()),
    ]


def test_rates_are_those_since_the_look_before() -> None:
    first = looked(job(100, "00:00", progress={"usefulSeconds": 20.0}))
    assert first.jobs[0].steps_per_second == 5.0
    second = looked(job(160, "00:20"), before=first)
    assert second.jobs[0].steps_per_second == 3.0
    assert looked(job(160, "00:20"), before=second).jobs[0].steps_per_second == 3.0  # nothing new was read
    assert looked(job(150, "00:30"), before=second).jobs[0].steps_per_second == 0.0  # steps are done again
    assert looked(job(7, "00:30", "new"), before=second).jobs[0].steps_per_second is None


def test_jobs_that_run_come_first_and_those_that_are_over_not_at_all() -> None:
    found = looked(elastic_job("a", state="Waiting"), job(1, "00:00", "b"), elastic_job("c", state="Succeeded"))
    assert [(one.name, one.gpus) for one in found.jobs] == [("b", 2), ("a", 0)]
    assert found.samples_per_second == 100.0
