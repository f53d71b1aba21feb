"""The controller and a job in a queue of Kueue's, played here by a double of its documented behaviour.

The double reserves quota, evicts, and never writes what is the job's to write. `make prove-kueue` does without it.
"""

from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.controller.reconciler.workload import condition, is_true
from ebb.kube import ELASTIC_JOBS, NODES, RESOURCE_FLAVORS, WORKLOADS, Conflict, NotFound
from tests.builders import make_job, make_node
from tests.fake_time import run
from tests.world import FakeCluster, started

Object = dict[str, Any]
FLAVOR = {"metadata": {"name": "spot", "uid": "f"}, "spec": {"nodeLabels": {"pool": "spot"}}}


class FakeKueue:
    """See the module's docstring."""

    def __init__(self, world: FakeCluster) -> None:
        self.api = world.api
        self.api.put(RESOURCE_FLAVORS, FLAVOR)

    @property
    def workload(self) -> Object:
        (found,) = self.api.all(WORKLOADS)
        return found

    def admit(self, count: int) -> None:
        """Reserve quota and admit; an eviction that was before is over."""
        assigned = {"name": "worker", "flavors": {"nvidia.com/gpu": "spot"}, "count": count}
        admission = {"clusterQueue": "lab", "podSetAssignments": [assigned]}
        self._set({"admission": admission}, QuotaReserved="True", Admitted="True", Evicted="False")

    def evict(self, reason: str) -> None:
        self._set({}, reason, Evicted="True")

    def _set(self, status: Object, reason: str = "Fake", **said: str) -> None:
        def edit(workload: Object) -> None:
            found = workload.setdefault("status", {})
            found |= status
            kept = [item for item in found.get("conditions") or () if item["type"] not in said]
            now = stamp(self.api.clock())
            new = [
                {"type": kind, "status": value, "reason": reason, "message": "Higher priority.", "lastTransitionTime": now}
                for kind, value in said.items()
            ]
            found["conditions"] = kept + new

        self.api.change(WORKLOADS, self.workload["metadata"]["name"], edit)


def queued(**changes: Any) -> Object:
    job = make_job(**changes)
    job["metadata"]["labels"] = {names.LABEL_QUEUE: "gpus"}
    return job


async def begin(world: FakeCluster, job: Object) -> None:
    for index in range(2):
        world.api.put(NODES, make_node(f"n{index}"))
    world.api.put(ELASTIC_JOBS, job)
    await world.settle()


async def run_all(world: FakeCluster) -> None:
    for index, name in enumerate(world.pods()):
        world.api.pod_runs(name, f"n{index}")
    await world.settle()


def test_from_the_queue_to_the_end_with_an_eviction_between() -> None:
    async def story() -> None:
        async with started() as world:
            kueue = FakeKueue(world)
            await begin(world, queued(replicas=2, low=2, high=2))
            assert world.pods() == []
            kueue.admit(2)
            await world.settle()
            assert world.pod("digits-worker-0")["spec"]["nodeSelector"]["pool"] == "spot"
            await run_all(world)
            assert (world.state(), is_true(kueue.workload, "PodsReady")) == ("Running", True)

            kueue.evict("Preempted")
            await world.settle()
            assert all("deletionTimestamp" in world.pod(name)["metadata"] for name in world.pods())
            assert kueue.workload["status"]["admission"], "its workers still have their machines"
            for name in world.pods():
                world.api.pod_ends(name, names.EXIT_RECLAIMED)
            await world.settle()
            assert "admission" not in kueue.workload["status"]
            assert condition(kueue.workload, "Requeued")["status"] == "True"
            await world.settle(120)
            assert (world.pods(), world.status()["failures"], world.status()["reclaims"]) == ([], 0, 0)

            kueue.admit(2)
            await world.settle()
            await run_all(world)
            for name in world.pods():
                world.api.pod_ends(name, 0)
            await world.settle()
            assert (world.state(), condition(kueue.workload, "Finished")["reason"]) == ("Succeeded", "Succeeded")

    run(story())


def test_a_write_that_kueue_was_faster_than_is_decided_anew() -> None:
    async def story() -> None:
        async with started() as world:
            kueue = FakeKueue(world)
            await begin(world, queued(replicas=2, low=2, high=2))
            world.api.fail("replace", WORKLOADS, Conflict("modified", status=409, reason="Conflict"))
            kueue.admit(2)
            await world.settle()
            await run_all(world)
            await world.settle(5)
            assert is_true(kueue.workload, "PodsReady")

    run(story())


def test_a_controller_that_starts_while_kueue_cannot_be_asked_stops_nobody() -> None:
    async def story() -> None:
        async with started() as world:
            kueue = FakeKueue(world)
            await begin(world, queued(replicas=2, low=2, high=2))
            kueue.admit(2)
            await world.settle()
            await run_all(world)
            await world.kill()
            world.api.go_away(WORKLOADS)
            world.start()
            await world.settle(60)
            assert [("deletionTimestamp" in world.pod(name)["metadata"]) for name in world.pods()] == [False, False]
            assert world.state() == "Running"
            world.api.come_back()
            await world.settle(60)
            kueue.evict("Preempted")
            await world.settle()
            assert all("deletionTimestamp" in world.pod(name)["metadata"] for name in world.pods())

    run(story())


def test_without_kueue_it_says_so_and_goes_on_when_kueue_is_installed() -> None:
    async def story() -> None:
        async with started() as world:
            for kind in (WORKLOADS, RESOURCE_FLAVORS):
                world.api.refuse(kind, NotFound("the server could not find the requested resource", status=404))
            await world.kill()
            world.start()
            await begin(world, queued())
            await world.settle(10)
            said = next(item for item in world.status()["conditions"] if item["type"] == "Running")
            assert (said["reason"], world.pods(), world.api.names(WORKLOADS)) == (names.WAITING_NO_KUEUE, [], [])
            world.api.come_back()
            await world.settle(200)
            assert len(world.api.names(WORKLOADS)) == 1

    run(story())


def test_of_a_deleted_job_nothing_is_asked_any_more() -> None:
    """Its Workload goes with it, by its owner."""

    async def story() -> None:
        async with started() as world:
            FakeKueue(world)
            await begin(world, queued())
            world.api.remove(ELASTIC_JOBS, "digits")
            await world.settle(5)
            assert world.api.all(WORKLOADS)[0]["metadata"]["ownerReferences"][0]["name"] == "digits"
            assert sum(call[:2] == ("create", "workloads") for call in world.api.calls) == 1

    run(story())
