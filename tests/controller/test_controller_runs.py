"""Jobs that meet by torch's own rendezvous: their folder in the older etcd is there before any worker is."""

from ebb.api import contract as names
from ebb.kube import ELASTIC_JOBS
from tests.builders import UID, make_job
from tests.fake_time import run
from tests.world import started

JOB = make_job(rdzvBackend="etcd", rdzvEndpoint=names.LEGACY_ETCD)
MADE = f"PUT http://{names.LEGACY_ETCD}/v2/keys/torchelastic/p2p/run_digits-{UID[:8]}"


def test_the_folder_is_made_once_for_all_workers() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, JOB)
            await world.settle()
            assert (world.asked_etcd, len(world.pods())) == ([MADE], 2)

    run(story())


def test_without_it_no_worker_is_made_and_the_job_says_why() -> None:
    async def story() -> None:
        async with started() as world:
            world.etcd_is_away = True
            world.api.put(ELASTIC_JOBS, JOB)
            await world.settle()
            (running,) = [one for one in world.status()["conditions"] if one["type"] == names.RUNNING]
            assert (world.pods(), running["status"], running["reason"]) == ([], "False", names.REASON_CREATE_REFUSED)
            assert "does this etcd run?" in running["message"]
            world.etcd_is_away = False
            await world.settle(120)
            assert (world.asked_etcd[-1], len(world.pods())) == (MADE, 2)

    run(story())


def test_other_jobs_need_none() -> None:
    async def story() -> None:
        async with started() as world:
            world.etcd_is_away = True
            world.api.put(ELASTIC_JOBS, make_job())
            await world.settle()
            assert (world.asked_etcd, len(world.pods())) == ([], 2)

    run(story())


def test_runs_of_jobs_that_are_gone_are_looked_for_every_hour() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, JOB)
            await world.settle()
            await world.settle(3600)
            assert world.asked_etcd == [MADE, f"GET http://{names.LEGACY_ETCD}/v2/keys/torchelastic/p2p"]

    run(story())
