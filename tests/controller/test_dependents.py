"""Workers of a job that is gone and that the garbage collector has not deleted: who does, when, and what is left alone."""

import logging
from typing import Any

import pytest

from ebb.api.contract import GROUP, KIND, LABEL_GROUP, LABEL_QUEUE
from ebb.controller.dependents import LOOK_SECONDS, PATIENCE_SECONDS
from ebb.kube import ELASTIC_JOBS, PODS, SERVICES, WORKLOADS, NotFound, Unreachable
from tests.builders import make_job
from tests.fake_time import run
from tests.world import DIGITS, FakeCluster, started

Object = dict[str, Any]
SOON = PATIENCE_SECONDS + 2 * LOOK_SECONDS + 1


def gone(world: FakeCluster) -> list[str]:
    return [name for verb, plural, name in world.api.calls if verb == "delete" and plural in ("pods", "services")]


def leaving(world: FakeCluster) -> list[str]:
    return [pod["metadata"]["name"] for pod in world.api.all(PODS) if "deletionTimestamp" in pod["metadata"]]


async def without_collector(world: FakeCluster) -> None:
    """A job runs with two workers, then it is deleted and nobody collects what it leaves."""
    await world.start_all(make_job(replicas=2))
    world.api.collects = False
    world.api.remove(ELASTIC_JOBS, DIGITS)


def test_what_the_collector_leaves_is_deleted_with_its_grace() -> None:
    async def story() -> None:
        async with started() as world:
            await without_collector(world)
            await world.settle(PATIENCE_SECONDS - 1)
            assert gone(world) == [], "the collector has its time"
            await world.settle(SOON)
            assert leaving(world) == ["digits-worker-0", "digits-worker-1"]
            assert world.api.names(SERVICES) == []
            await world.settle(10 * LOOK_SECONDS)
            assert len(gone(world)) == 3, "each once"

    run(story())


def test_the_next_job_of_that_name_starts_when_they_are_gone() -> None:
    async def story() -> None:
        async with started() as world:
            await without_collector(world)
            again = make_job(replicas=2)
            world.submit({**again, "metadata": {**again["metadata"], "uid": "another"}})
            await world.settle(SOON)
            assert world.status()["conditions"][-1]["reason"] == "NamesTaken"
            for name in leaving(world):
                world.api.pod_ends(name, 138)
            await world.settle(5)
            owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in world.api.all(PODS)}
            assert (world.pods(), owners) == (["digits-worker-0", "digits-worker-1"], {"another"})

    run(story())


def test_the_workload_of_a_queued_job_gives_its_quota_back() -> None:
    async def story() -> None:
        async with started() as world:
            job = make_job(replicas=2)
            world.submit({**job, "metadata": {**job["metadata"], "labels": {LABEL_QUEUE: "gpus"}}})
            await world.settle()
            assert len(world.api.names(WORKLOADS)) == 1
            world.api.collects = False
            world.api.remove(ELASTIC_JOBS, DIGITS)
            await world.settle(SOON)
            assert world.api.names(WORKLOADS) == []

    run(story())


def test_a_controller_that_starts_later_finds_them() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=2))
            await world.kill()
            world.api.collects = False
            world.api.remove(ELASTIC_JOBS, DIGITS)
            world.start()
            await world.settle(SOON)
            assert leaving(world) == ["digits-worker-0", "digits-worker-1"]

    run(story())


def test_workers_of_a_job_that_the_copy_lacks_stay() -> None:
    """Its watch is silent: the API server says that the job is there."""

    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=2))
            world.controller.cluster.jobs.objects.clear()
            await world.settle(5 * SOON)
            assert gone(world) == []

    run(story())


def test_other_peoples_pods_stay() -> None:
    async def story() -> None:
        async with started() as world:
            owners: dict[str, list[Object]] = {
                "nobodys": [],
                "another-group": [{"apiVersion": "elastic.iml.github.io/v1alpha1", "kind": KIND}],
                "another-kind": [{"apiVersion": f"{GROUP}/v1alpha1", "kind": "TrainJob"}],
            }
            for name, references in owners.items():
                metadata = {
                    "name": name, "namespace": "elastic-job", "uid": name, "labels": {LABEL_GROUP: GROUP},
                    "ownerReferences": [{**one, "controller": True, "name": "x", "uid": "x"} for one in references],
                }  # fmt: skip
                spec: Object = {"containers": [{"name": "x", "image": "x"}]}
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                world.api.put(PODS, {**pod, "status": {"phase": "Running"}})
            await world.settle(5 * SOON)
            assert gone(world) == []

    run(story())


def test_what_fails_is_done_at_the_next_look(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with started() as world:
            await without_collector(world)
            world.api.fail("delete", PODS, Unreachable("no way there"))
            await world.settle(SOON)
            assert "/digits: not all that this job left behind was deleted: no way there" in caplog.text
            await world.settle(SOON)
            assert leaving(world) == ["digits-worker-0", "digits-worker-1"]

    caplog.set_level(logging.WARNING, "ebb.controller.dependents")
    run(story())


def test_a_page_that_is_missing_is_no_job_that_is_gone() -> None:
    """An API server that does not know the kind for a moment has no word about the job."""

    async def story() -> None:
        async with started() as world:
            await without_collector(world)
            for _ in range(50):
                world.api.fail("get", ELASTIC_JOBS, NotFound("404 page not found", status=404))
            await world.settle(3 * SOON)
            assert gone(world) == []

    run(story())
