"""The controller and jobs that pause or end: suspended, over their deadline, finished, cleaned up."""

import pytest

from ebb.api.clock import stamp
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, PODS, Denied, Unreachable
from tests.builders import NOW, make_job
from tests.fake_time import run
from tests.world import FakeCluster, started


def test_a_suspended_job_gives_its_machines_back_and_goes_on_later() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.edit_spec(suspend=True)
            await world.settle()
            assert world.state() == "Suspended"
            world.edit_spec(suspend=False)
            await world.settle()
            assert all("deletionTimestamp" in pod["metadata"] for pod in world.api.all(PODS))
            for name in world.pods():
                world.api.pod_ends(name, 1)
            await world.settle()
            assert len(world.pods()) == 2
            assert world.state() == "Waiting"
            assert (world.status()["reclaims"], world.status()["failures"]) == (0, 0)
            assert "startTime" in world.status()

    run(story())


def test_a_job_that_starts_suspended_makes_no_pods() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job(suspend=True))
            await world.settle(60)
            assert (world.pods(), world.state()) == ([], "Suspended")

    run(story())


def test_a_finished_job_is_deleted_when_its_time_is_over() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=1, ttlSecondsAfterFinished=100))
            world.api.pod_ends("digits-worker-0", 0)
            await world.settle(98)
            assert world.state() == "Succeeded"
            await world.settle(4)
            assert world.api.names(ELASTIC_JOBS) == []
            assert world.pods() == []

    run(story())


def test_a_finished_job_never_runs_again_when_its_pods_are_deleted() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=1))
            world.api.pod_ends("digits-worker-0", 0)
            await world.settle()
            world.api.remove(PODS, "digits-worker-0")
            await world.settle(60)
            assert (world.pods(), world.state()) == ([], "Succeeded")

    run(story())


def test_a_job_over_its_deadline_fails() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(activeDeadlineSeconds=100))
            await world.settle(98)
            assert world.state() == "Running"
            await world.settle(2)
            assert world.state() == "Failed"
            assert world.status()["conditions"][-1]["reason"] == "DeadlineExceeded"

    run(story())


def records(world: FakeCluster) -> list[dict[str, str]]:
    return [item["data"] for item in world.api.all(CONFIG_MAPS) if "ebb.dev/record" in item["metadata"].get("labels", {})]


def test_a_job_that_is_deleted_while_it_runs_leaves_a_record_of_what_it_cost() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.remove(ELASTIC_JOBS, "digits")
            await world.settle()
            assert [(item["job"], item["reason"]) for item in records(world)] == [("digits", "Deleted")]

    run(story())


@pytest.mark.parametrize("error", [Unreachable("no answer"), TimeoutError()])
def test_a_record_whose_write_failed_is_written_later_and_bills_until_the_job_was_gone(error: Unreachable | TimeoutError) -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(uid="aaaaaaaa-1"))
            await world.settle(100)
            world.api.fail("create", CONFIG_MAPS, error, times=8)
            gone = world.api.clock()
            world.api.remove(ELASTIC_JOBS, "digits")
            # One of the same name does not wait for that.
            world.api.put(ELASTIC_JOBS, make_job(uid="bbbbbbbb-1"))
            await world.settle(2)
            assert (len(world.pods()), records(world)) == (2, [])
            await world.settle(40)
            (found,) = records(world)
            assert (found["uid"], found["ended"]) == ("aaaaaaaa-1", stamp(gone))
            assert float(found["machineSeconds"]) == pytest.approx(200, abs=3)

    run(story())


def test_each_of_several_deleted_jobs_of_a_name_leaves_a_record() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(uid="aaaaaaaa-1"))
            cost = world.status()
            world.api.fail("create", CONFIG_MAPS, TimeoutError())
            world.api.remove(ELASTIC_JOBS, "digits")
            world.api.put(ELASTIC_JOBS, make_job(uid="bbbbbbbb-1", status=cost))
            world.api.remove(ELASTIC_JOBS, "digits")
            await world.settle(5)
            assert sorted(item["uid"] for item in records(world)) == ["aaaaaaaa-1", "bbbbbbbb-1"]

    run(story())


def test_a_job_that_never_ran_leaves_none_and_one_that_ended_leaves_one() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job("idle", uid="idle", suspend=True))
            await world.start_all(make_job(replicas=1))
            world.api.pod_ends("digits-worker-0", 0)
            await world.settle()
            assert [(item["job"], item["reason"]) for item in records(world)] == [("digits", "ElasticJobSucceeded")]
            world.api.remove(ELASTIC_JOBS, "digits")
            world.api.remove(ELASTIC_JOBS, "idle")
            await world.settle()
            assert len(records(world)) == 1

    run(story())


def test_somebody_elses_job_leaves_none() -> None:
    async def story() -> None:
        async with started() as world:
            status = {"state": "Running", "startTime": stamp(NOW)}
            world.api.put(ELASTIC_JOBS, make_job(managedBy="kueue.x-k8s.io/multikueue", status=status))
            await world.settle()
            world.api.remove(ELASTIC_JOBS, "digits")
            await world.settle()
            assert (world.api.calls, world.events()) == ([], [])

    run(story())


def test_a_record_that_cannot_be_written_holds_nothing_up() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.fail("create", CONFIG_MAPS, Denied("namespace is being terminated", status=403))
            world.api.remove(ELASTIC_JOBS, "digits")
            world.api.put(ELASTIC_JOBS, make_job(uid="another"))
            await world.settle(1)
            assert len(world.pods()) == 2
            assert records(world) == []

    run(story())
