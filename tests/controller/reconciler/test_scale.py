"""A job of a thousand workers: what a look costs grows with the workers and no faster, and what is written stays small."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from types import FrameType
from typing import Any

import orjson
import pytest

from ebb.api.parts import MOST_WORKERS
from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.controller.reconciler.reconcile import plan
from ebb.controller.reconciler.types import DeletePod, Observed
from tests.builders import NOW, make_job, make_node, make_pod

Object = dict[str, Any]
Scene = tuple[Job, Observed]
ON_EACH = 8  # workers on a machine
STATUS_BYTES = 150_000  # a tenth of what an object of the API may have


def machine(index: int) -> str:
    return f"ip-10-0-{index // ON_EACH}-1.us-west-2.compute.internal"


@cache
def running(workers: int) -> Scene:
    """A job all of whose workers run, and whose status says so."""
    value = make_job(replicas=workers, low=workers // 2, high=workers)
    uid = "0b8e7a52-1111-4222-8333-{:012d}"
    pods = tuple(make_pod(value, index, node=machine(index), uid=uid.format(index), marked=True) for index in range(workers))
    nodes = {machine(index): make_node(machine(index)) for index in range(workers)}
    job, observed = Job.of(value), Observed(pods=pods, nodes=nodes)
    for later in (0, 1):
        job = replace(job, status=plan(job, observed, NOW + later).status)
    assert job.status.ready == f"{workers}/{workers}"
    return job, observed


def suspended(scene: Scene) -> Scene:
    job, observed = scene
    return replace(job, spec=replace(job.spec, suspend=True)), observed


def halved(scene: Scene) -> Scene:
    job, observed = scene
    worker = replace(job.worker, replicas=job.worker.replicas // 2)
    return replace(job, spec=replace(job.spec, replica_specs=replace(job.spec.replica_specs, worker=worker))), observed


def without_machines(scene: Scene) -> Scene:
    job, observed = scene
    return job, replace(observed, nodes={}, gone=frozenset(observed.nodes))


def vanished(scene: Scene) -> Scene:
    job, observed = scene
    return job, replace(observed, pods=())


def failed(scene: Scene) -> Scene:
    job, observed = scene
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    pods = ({**pod, "status": {"phase": "Failed", "containerStatuses": [{"name": "elasticjob-worker", "state": ended}]}}
            for pod in observed.pods)  # fmt: skip
    return job, replace(observed, pods=tuple(pods))


def as_it_is(scene: Scene) -> Scene:
    return scene


SCENES = (as_it_is, suspended, halved, without_machines, vanished, failed)


@contextmanager
def counted_steps() -> Iterator[list[int]]:
    """The calls of functions, Python's own too, within the block: one number, once it has ended."""
    counted = [0]

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        counted[0] += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(before)


def steps(workers: int, change: Callable[[Scene], Scene]) -> float:
    """Calls for each worker of a look at a job of so many."""
    job, observed = change(running(workers))
    decide = partial(plan, job, observed, NOW + 60)
    decide()  # what is parsed once
    with counted_steps() as counted:
        decide()
    return counted[0] / workers


@pytest.mark.parametrize("change", SCENES)
def test_a_look_costs_each_of_many_workers_what_it_costs_each_of_few(change: Callable[[Scene], Scene]) -> None:
    few, many = steps(50, change), steps(400, change)
    assert many < 1.1 * few, (few, many)


@pytest.mark.parametrize("change", SCENES)
def test_of_a_thousand_workers_a_few_sentences_are_told_and_a_small_status_is_written(change: Callable[[Scene], Scene]) -> None:
    job, observed = change(running(MOST_WORKERS))
    decided = plan(job, observed, NOW + 60)
    assert len(decided.events) <= 3
    assert all(len(event.message) < 300 for event in decided.events), [event.message for event in decided.events]
    assert len(orjson.dumps(encode(decided.status))) < STATUS_BYTES


def test_a_thousand_workers_of_lost_machines_are_deleted_once_each() -> None:
    job, observed = without_machines(running(MOST_WORKERS))
    decided = plan(job, observed, NOW + 60)
    gone = [action.uid for action in decided.actions if isinstance(action, DeletePod)]
    assert sorted(gone) == sorted(member.uid for member in job.status.members)
    machines = f"{machine(0)}, {machine(8)}, {machine(16)} and 122 more machines"
    assert [event.message for event in decided.events if event.reason == "WorkerReclaimed"] == [
        f"Workers 0-999 on {machines} are lost: each one's machine is gone. They will be replaced."
    ]
