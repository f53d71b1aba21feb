"""The controller as a whole, told as stories: a job, a cluster that does something to it, what comes out."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.contract import TAINT_RECLAIM
from ebb.kube import ELASTIC_JOBS, EVENTS, NODES, PODS, SERVICES
from tests.builders import UID, make_job, make_node, make_service
from tests.fake_time import run
from tests.world import started


def test_a_job_is_created_runs_and_succeeds() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job())
            await world.settle()
            assert world.pods() == ["digits-worker-0", "digits-worker-1"]
            assert world.state() == "Waiting"
            for index in (0, 1):
                world.api.put(NODES, make_node(f"n{index}"))
                world.api.pod_runs(f"digits-worker-{index}", f"n{index}")
            await world.settle()
            assert (world.state(), world.status()["ready"]) == ("Running", "2/2")
            assert world.api.names(SERVICES) == ["digits-workers"]
            world.api.pod_ends("digits-worker-1", 0)
            await world.settle()
            assert world.state() == "Running", "the other worker has a grace"
            world.api.pod_ends("digits-worker-0", 0)
            await world.settle()
            assert world.state() == "Succeeded"
            assert world.status()["succeededIndices"] == [0, 1]
            assert world.pods() == ["digits-worker-0", "digits-worker-1"], "finished pods keep their logs"
            assert world.api.names(SERVICES) == []
            await world.settle(3600)
            assert world.state() == "Succeeded"
            assert world.events() == ["ElasticJobCreated", "SuccessfulCreatePod", "ElasticJobRunning", "ElasticJobSucceeded"]

    run(story())


def test_a_worker_that_never_ends_does_not_hold_up_success() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.pod_ends("digits-worker-0", 0)
            await world.settle(119)
            assert world.state() == "Running"
            await world.settle(3)
            assert world.state() == "Succeeded"
            assert "deletionTimestamp" in world.pod("digits-worker-1")["metadata"]

    run(story())


def test_a_notice_stops_the_worker_with_the_time_that_is_left_and_replaces_it() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            message = f"The cloud takes this machine away at {stamp(world.api.clock() + 20)}."
            world.api.put(NODES, make_node("n1", notice=message, taint=TAINT_RECLAIM))
            await world.settle()
            leaving = world.pod("digits-worker-1")["metadata"]
            assert 18 <= leaving["deletionGracePeriodSeconds"] <= 20
            assert world.pods() == ["digits-worker-0", "digits-worker-1"], "a pod on its way out holds its index"
            world.api.pod_ends("digits-worker-1", 138)
            await world.settle()
            assert world.pods() == ["digits-worker-0", "digits-worker-1"]
            assert world.pod("digits-worker-1")["metadata"]["uid"] != leaving["uid"]
            status = world.status()
            assert (status["reclaims"], status["failures"], status["state"]) == (1, 0, "Running")
            assert [entry["cause"] for entry in status["history"]] == ["ReclaimNotice"]

    run(story())


def test_a_dead_machine_is_replaced_within_a_second_although_nobody_ends_its_pods() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            old = world.pod("digits-worker-1")["metadata"]["uid"]
            world.api.lose_node("n1")
            await world.settle(1)
            new = world.pod("digits-worker-1")
            assert new["metadata"]["uid"] != old
            assert new["spec"].get("nodeName") is None
            assert (world.status()["reclaims"], world.status()["failures"]) == (1, 0)
            assert 'ebb_reclaims_total{cause="NodeGone"} 1' in world.controller.metrics.text()

    run(story())


def test_a_burst_of_losses_is_replaced_in_one_pass() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=30, high=30), nodes=30)
            old = {pod["metadata"]["uid"] for pod in world.api.all(PODS)}
            for index in range(30):
                world.api.lose_node(f"n{index}")
            await world.settle(1)
            assert len(world.pods()) == 30
            assert not old & {pod["metadata"]["uid"] for pod in world.api.all(PODS)}
            assert world.status()["reclaims"] == 30
            text = world.controller.metrics.text()
            assert 'ebb_reclaims_total{cause="NodeGone"} 30' in text, "all of them, though the history keeps fewer"
            assert "ebb_replacement_seconds_count 30" in text
            assert world.api.max_pods == 30

    run(story())


def test_a_pod_that_vanished_is_a_reclaim() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.remove(PODS, "digits-worker-0")
            await world.settle(1.1)
            assert world.pods() == ["digits-worker-0", "digits-worker-1"]
            assert world.status()["history"][0]["cause"] == "PodVanished"

    run(story())


def test_failures_that_happen_together_spend_one_and_the_last_one_fails_the_job() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(backoffLimit=1))
            world.api.pod_ends("digits-worker-0", 1)
            world.api.pod_ends("digits-worker-1", 1)
            await world.settle()
            assert (world.status()["failures"], world.status()["restarts"]) == (1, 1)
            assert world.pods() == [], "the restart waits a little"
            await world.settle(5)
            assert world.pods() == ["digits-worker-0", "digits-worker-1"]
            args = world.pod("digits-worker-0")["spec"]["containers"][0]["args"]
            assert any(word.startswith("--rdzv_id=digits-") and word.endswith("-r1") for word in args)
            for index in (0, 1):
                world.api.pod_runs(f"digits-worker-{index}", f"n{index}")
            await world.settle()
            world.api.pod_ends("digits-worker-1", 1)
            await world.settle()
            assert world.state() == "Failed"
            assert world.status()["failures"] == 2
            assert "deletionTimestamp" in world.pod("digits-worker-0")["metadata"], "the survivor is stopped"
            assert "deletionTimestamp" not in world.pod("digits-worker-1")["metadata"], "the failed one keeps its log"

    run(story())


def test_a_survivor_of_a_failure_leaves_and_starts_again_without_being_counted() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.pod_ends("digits-worker-0", 1)
            await world.settle()
            assert "deletionTimestamp" in world.pod("digits-worker-1")["metadata"]
            world.api.pod_ends("digits-worker-1", 143)
            await world.settle(6)
            assert world.pods() == ["digits-worker-0", "digits-worker-1"]
            assert (world.status()["failures"], world.status()["reclaims"]) == (1, 0)

    run(story())


def test_scaling_up_and_down_never_has_more_pods_than_allowed() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.edit_spec(replicas=4)
            await world.settle()
            assert len(world.pods()) == 4
            for index in (2, 3):
                world.api.pod_runs(f"digits-worker-{index}", "n0")
            await world.settle()
            world.edit_spec(replicas=1)
            await world.settle()
            leaving = [pod["metadata"]["name"] for pod in world.api.all(PODS) if "deletionTimestamp" in pod["metadata"]]
            assert leaving == ["digits-worker-1", "digits-worker-2", "digits-worker-3"]
            world.edit_spec(replicas=4)
            await world.settle()
            assert len(world.pods()) == 4, "indices on their way out are not free yet"
            for name in leaving:
                world.api.pod_ends(name, 138)
            await world.settle()
            assert len(world.pods()) == 4
            assert world.api.max_pods == 4
            assert (world.status()["reclaims"], world.status()["failures"]) == (0, 0)
            assert world.status()["observedGeneration"] == 4

    run(story())


def test_the_one_service_of_a_job_stays_while_its_workers_come_and_go() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.edit_spec(replicas=1)
            await world.settle()
            world.api.pod_ends("digits-worker-1", 138)
            await world.settle()
            assert (world.pods(), world.api.names(SERVICES)) == (["digits-worker-0"], ["digits-workers"])

    run(story())


def test_a_job_of_the_same_name_does_not_adopt_the_pods_of_its_predecessor() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=1))
            orphan = world.pod("digits-worker-0")
            world.api.remove(ELASTIC_JOBS, "digits")
            world.api.put(PODS, orphan)
            world.api.put(ELASTIC_JOBS, make_job(replicas=1, uid="another-uid"))
            await world.settle()
            assert world.pod("digits-worker-0")["metadata"]["uid"] == orphan["metadata"]["uid"]
            world.api.remove(PODS, "digits-worker-0")
            await world.settle()
            assert world.pod("digits-worker-0")["metadata"]["ownerReferences"][0]["uid"] == "another-uid"

    run(story())


def test_nothing_is_written_while_nothing_changes() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            written = len(world.api.calls)
            world.api.put(NODES, make_node("n0"))
            await world.settle(3600)
            assert world.api.calls[written:] == []

    run(story())


def test_progress_is_read_from_a_worker_and_written_at_most_every_thirty_seconds() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            written = len(world.api.calls)
            for step in range(120):
                world.metrics_text["10.0.0.1"] = f"ebb_step {step}\nebb_loss 0.5\nebb_world_size 2\n"
                await world.settle(1)
            await world.settle(30)
            writes = world.api.calls[written:]
            assert {call[0] for call in writes} == {"status"}
            assert 4 <= len(writes) <= 6
            progress = world.status()["progress"]
            assert (progress["step"], progress["loss"], progress["worldSize"]) == (119, 0.5, 2)

    run(story())


def test_a_second_job_waits_for_its_own_zone_and_names() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.put(ELASTIC_JOBS, make_job("second", replicas=1, uid="second-uid"))
            await world.settle()
            assert world.pods() == ["digits-worker-0", "digits-worker-1", "second-worker-0"]
            world.api.remove(ELASTIC_JOBS, "second")
            await world.settle()
            assert world.pods() == ["digits-worker-0", "digits-worker-1"]

    run(story())


def test_a_job_that_breaks_the_rules_is_told_so_and_left_alone() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job(low=3, replicas=2))
            await world.settle()
            assert world.pods() == []
            assert "minReplicas 3" in world.status()["conditions"][0]["message"]

    run(story())


DEPLOYMENT = {"kind": "Deployment", "name": "web", "uid": "1", "controller": True}
OWNERS: dict[str, tuple[list[Any], str]] = {
    "nobody": ([], "no other object"),
    "a-deployment": ([DEPLOYMENT], "Deployment web"),
}


@pytest.mark.parametrize(("references", "owner"), OWNERS.values(), ids=OWNERS.keys())
def test_a_service_of_that_name_that_is_somebody_elses_is_told_once_and_the_job_goes_on(references: Any, owner: str) -> None:
    async def story() -> None:
        async with started() as world:
            metadata = {"name": "digits-workers", "namespace": "elastic-job", "uid": "foreign", "ownerReferences": references}
            world.api.put(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}})
            await world.start_all(make_job())
            await world.settle(30)
            (event,) = [item for item in world.api.all(EVENTS) if item["reason"] == "ServiceNameTaken"]
            assert event["type"] == "Warning"
            assert event["message"].startswith(f"Service digits-workers is not this job's: it belongs to {owner}. ")
            assert world.state() == "Running"
            world.edit_spec(replicas=3)
            await world.settle(30)
            assert world.events().count("ServiceNameTaken") == 1
            world.api.remove(ELASTIC_JOBS, "digits")
            await world.settle()
            assert world.api.names(SERVICES) == ["digits-workers"], "it is not ours to delete"

    run(story())


def test_a_service_that_an_earlier_job_of_that_name_leaves_behind_is_not_told_of() -> None:
    async def story() -> None:
        async with started() as world:
            old = make_service(make_job(uid="earlier"))
            world.api.put(SERVICES, old)
            await world.start_all(make_job())
            await world.settle(30)
            assert "ServiceNameTaken" not in world.events()
            world.api.remove(SERVICES, "digits-workers")  # Kubernetes collects it
            world.edit_spec(replicas=3)
            await world.settle(10)
            (service,) = world.api.all(SERVICES)
            assert service["metadata"]["ownerReferences"][0]["uid"] == UID

    run(story())
