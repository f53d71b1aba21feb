"""Notifications in fake time: delivered at least once whatever dies or fails, and one id for each event."""

from ebb.controller.notifier import GIVE_UP_SECONDS, LAST_RETRY_SECONDS
from ebb.kube import ELASTIC_JOBS, Conflict
from tests.builders import UID, make_job
from tests.fake_time import run
from tests.world import FakeCluster, started

FINISHED = f"{UID}/finished"


async def finish(world: FakeCluster) -> None:
    await world.start_all(make_job(replicas=1))
    world.api.pod_ends("digits-worker-0", 0)
    await world.settle()


def ids(world: FakeCluster) -> list[str]:
    return [one.id for one in world.notifications.taken or ()]


def test_the_end_of_a_job_is_told_once_and_remembered_in_its_status() -> None:
    async def story() -> None:
        async with started() as world:
            world.notifications.taken = []
            await finish(world)
            assert (ids(world), world.status()["notified"]) == ([FINISHED], ["finished"])
            await world.kill()
            world.start()
            await world.settle(600)
            assert ids(world) == [FINISHED]

    run(story())


def test_without_a_webhook_nothing_is_remembered() -> None:
    async def story() -> None:
        async with started() as world:
            await finish(world)
            assert "notified" not in world.status()

    run(story())


def test_a_controller_that_is_killed_in_mid_send_sends_again_with_the_same_id() -> None:
    async def story() -> None:
        async with started() as world:
            world.notifications.taken = []
            world.notifications.answer_seconds = 5.0
            await finish(world)
            assert ids(world) == [FINISHED]
            assert "notified" not in world.status()  # taken, and the answer is on its way
            await world.kill()
            world.start()
            await world.settle(10)
            assert ids(world) == [FINISHED, FINISHED]
            assert world.status()["notified"] == ["finished"]

    run(story())


def test_a_status_that_could_not_be_written_is_told_of_when_it_is_and_with_its_own_id() -> None:
    async def story() -> None:
        async with started() as world:
            world.notifications.taken = []
            await world.start_all(make_job(budget={"maxUSD": 1.0}, activeDeadlineSeconds=100))
            await world.settle(98)
            world.api.fail("replace", ELASTIC_JOBS, Conflict("another write came first"), times=5)
            await world.settle(60)
            assert world.state() == "Failed"
            assert ids(world) == [f"{UID}/failed"]
            assert (world.notifications.taken or [])[0].at == world.status()["completionTime"]

    run(story())


def test_a_webhook_that_is_down_is_tried_until_it_is_back() -> None:
    async def story() -> None:
        async with started() as world:
            world.notifications.taken, world.notifications.problem = [], "the webhook answers 503"
            await finish(world)
            await world.settle(2 * 3600)
            assert "notified" not in world.status()
            world.notifications.problem = ""
            await world.settle(LAST_RETRY_SECONDS + 1)
            assert (ids(world), world.status()["notified"]) == ([FINISHED], ["finished"])
            assert 'ebb_notifications_total{kind="finished"} 1' in world.controller.metrics.text()

    run(story())


def test_after_a_day_it_is_given_up_by_all_controllers() -> None:
    async def story() -> None:
        async with started() as world:
            world.notifications.taken, world.notifications.problem = [], "the webhook answers 404"
            await finish(world)
            await world.settle(GIVE_UP_SECONDS + 2 * LAST_RETRY_SECONDS)
            assert world.status()["notified"] == ["finished"]
            world.notifications.problem = ""
            await world.settle(3600)
            assert ids(world) == []

    run(story())


def test_a_job_that_is_deleted_meanwhile_is_told_of_all_the_same() -> None:
    async def story() -> None:
        async with started() as world:
            world.notifications.taken, world.notifications.problem = [], "the webhook answers 503"
            await finish(world)
            world.api.remove(ELASTIC_JOBS, "digits")
            await world.settle()
            world.notifications.problem = ""
            await world.settle(LAST_RETRY_SECONDS)
            assert ids(world) == [FINISHED]

    run(story())


def test_two_machines_that_are_lost_within_minutes_are_told_of() -> None:
    async def story() -> None:
        async with started() as world:
            world.notifications.taken = []
            await world.start_all(make_job())
            for name in world.pods():
                world.api.pod_ends(name, 138)
            await world.settle(5)
            (one,) = world.notifications.taken
            lost = [entry["at"] for entry in world.status()["history"] if entry["what"] == "reclaimed"]
            assert (one.kind, one.id) == ("reclaims", f"{UID}/reclaims/{lost[1]}")

    run(story())
