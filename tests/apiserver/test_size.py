"""How many workers there are: scaling while the job runs, and never one too many."""

from typing import Any

import pytest

from ebb.api import contract as names
from ebb.kube import ELASTIC_JOBS, Invalid, Resource
from tests.apiserver.controller import Process
from tests.apiserver.place import Place

Object = dict[str, Any]

SCALES = Resource("elastic.pytorch.org", "v1alpha1", "elasticjobs", "ElasticJob")


async def test_scaling_up_adds_workers_and_disturbs_none(place: Place) -> None:
    job = await place.submit(replicas=2, high=4)
    await job.runs(2)
    before = {index: job.pod_uid(index) for index in (0, 1)}
    await job.scale(4)
    await job.runs(4)
    assert {index: job.pod_uid(index) for index in (0, 1)} == before


async def test_scaling_down_removes_the_highest_indices_and_spends_nothing(place: Place) -> None:
    job = await place.submit(replicas=4, high=4)
    await job.runs(4)
    kept = {index: job.pod_uid(index) for index in (0, 1)}
    await job.scale(2)
    await job.runs(2)
    await job.until("the others are gone", lambda: set(job.pods) == {0, 1})
    assert {index: job.pod_uid(index) for index in (0, 1)} == kept
    await job.looked()
    assert (job.status["reclaims"], job.status["failures"]) == (0, 0)
    await job.until("people are told", lambda: names.REASON_SCALED in job.reasons)


async def test_the_scale_endpoint_reads_and_writes_the_workers(place: Place) -> None:
    job = await place.submit(replicas=2, high=4)
    await job.runs(2)
    scale = await place.made.kube.get(ELASTIC_JOBS, place.namespace, "digits", "scale")
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["replicas"]) == ("Scale", 2, 2)
    selector = dict(part.split("=") for part in scale["status"]["selector"].split(","))
    assert all(selector.items() <= pod["metadata"]["labels"].items() for pod in job.pods.values())
    scale["spec"]["replicas"] = 3
    await place.made.kube.replace(SCALES, place.namespace, "digits", scale, "scale")
    await job.runs(3)


async def test_pods_on_their_way_out_count_against_max_replicas(place: Place) -> None:
    """One launcher too many makes torch's rendezvous end and restart without end."""
    place.machines.leaves = False
    job = await place.submit(replicas=3, low=1, high=3)
    await job.runs(3)
    await job.scale(1)
    await job.until("two are told to leave", lambda: job.running() == {0})
    await job.scale(3)
    await job.looked()
    assert len(job.pods) == 3
    assert job.running() == {0}
    place.machines.leaves = True
    place.machines.again()
    await job.runs(3)
    assert place.machines.doubles == []


async def test_a_worker_on_its_way_out_keeps_its_name_until_it_is_gone(place: Place) -> None:
    place.machines.leaves = False
    job = await place.submit(replicas=2)
    await job.runs(2)
    old = job.pod_uid(1)
    await job.delete_pod(1)
    await job.looked()
    assert job.pod_uid(1) == old
    place.machines.leaves = True
    place.machines.again()
    await job.is_replaced(1, old)


async def test_a_job_runs_with_min_replicas_and_says_how_many_there_are(place: Place) -> None:
    place.machines.boots = False
    job = await place.submit(replicas=3, low=2, high=3)
    await job.until("all are made", lambda: len(job.pods) == 3)
    await job.until("it waits", lambda: job.condition(names.RUNNING).get("status") == "False")
    assert job.state == names.WAITING
    for index in (0, 1):
        place.machines.serve(job.worker(index))
    await job.until("it runs with two", lambda: job.state == names.RUNNING and job.status["ready"] == "2/3")
    assert job.status["replicaStatuses"]["Worker"]["active"] == 2


async def test_below_min_replicas_a_job_that_ran_is_restarting_and_running_and_restarting_exclude_each_other(
    place: Place,
) -> None:
    job = await place.submit(replicas=2, low=2, high=2)
    await job.runs(2)
    assert not job.is_true(names.RESTARTING)
    place.machines.boots = False
    await place.machines.vanish(job.machine(1))
    await job.until("it restarts", lambda: job.is_true(names.RESTARTING) and job.state == names.RESTARTING)
    assert not job.is_true(names.RUNNING)
    place.machines.boots = True
    place.machines.again()
    await job.runs(2)
    assert job.is_true(names.RUNNING)
    assert not job.is_true(names.RESTARTING)


async def test_a_missing_bound_is_the_number_of_workers_so_only_a_suspended_job_can_be_scaled(place: Place) -> None:
    """Launchers that were told different bounds do not agree on a rendezvous."""
    job = await place.submit(replicas=2, low=None, high=None)
    await job.runs(2)
    assert "--nnodes=2:2" in job.pods[0]["spec"]["containers"][0]["args"]
    with pytest.raises(
        Invalid, match=r"replicas cannot change while workers run, as it stands for the missing spec\.minReplicas"
    ):
        await job.scale(3)
    await job.patch(suspend=True)
    await job.until("it is suspended", lambda: job.state == names.SUSPENDED and not job.pods)
    await job.scale(3)
    await job.patch(suspend=False)
    await job.runs(3)
    assert {pod["spec"]["containers"][0]["args"][3] for pod in job.pods.values()} == {"--nnodes=3:3"}


async def test_a_job_that_was_changed_while_nobody_looked_starts_again_as_a_whole(place: Place, controller: Process) -> None:
    """Suspended, changed and resumed without a controller: its workers never learned of it."""
    job = await place.submit(replicas=2)
    await job.runs(2)
    await controller.stop()
    container = {"name": names.WORKER_CONTAINER, "image": "example.org/trainer:2"}
    await job.patch(suspend=True)
    await job.patch(maxReplicas=8, replicaSpecs={"Worker": {"template": {"spec": {"containers": [container]}}}})
    await job.patch(suspend=False)
    await controller.start()
    await job.until("all are new", lambda: {image(pod) for pod in job.pods.values()} == {"example.org/trainer:2"})
    await job.runs(2)
    assert all("--nnodes=1:8" in pod["spec"]["containers"][0]["args"] for pod in job.pods.values())
    assert (job.status["restarts"], job.status["failures"], job.status["reclaims"]) == (1, 0, 0)
    await job.until("people are told", lambda: names.REASON_SPEC_CHANGED in job.reasons)


def image(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["image"])
