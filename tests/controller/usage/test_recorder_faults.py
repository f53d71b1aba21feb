"""The machine usage record and what goes wrong: lost answers, other controllers, missing rights, spoilt texts, no stack."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.usage import KEY, NAME, GroupUsage, MachineUsage, Who, write
from ebb.controller.election import LeadershipLost
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, NODES, Conflict, Denied, Unreachable
from tests.builders import make_job, make_node
from tests.controller.cloud import GPU, Cloud
from tests.controller.usage.test_recorder import usage_of
from tests.fake_time import run
from tests.world import FakeCluster, started

Object = dict[str, Any]


def open_for_business(world: FakeCluster) -> Cloud:
    cloud = Cloud(world.api, random.Random(1))
    cloud.open()
    world.api.put(ELASTIC_JOBS, make_job(replicas=1, container=GPU, placement={"gpuType": "T4", "zone": "local-a"}))
    return cloud


def total(usage: MachineUsage) -> float:
    return sum((line for lines in usage.days.values() for line in lines.values()), GroupUsage()).seconds


def written(world: FakeCluster) -> int:
    return sum(call[1:] == ("configmaps", NAME) for call in world.api.calls)


def spoil(item: Object) -> None:
    item["data"] = {"schema": "1", KEY: "{}"}


def annotate(item: Object) -> None:
    item["metadata"]["annotations"] = {"team": "vision"}


async def truth(world: FakeCluster, cloud: Cloud) -> tuple[float, float]:
    """Machine seconds that are written, and those that were."""
    usage = usage_of(world)
    return total(usage), cloud.seconds(usage.begun, usage.until).total()


def check(story: Callable[[FakeCluster, Cloud], Any]) -> None:
    async def whole() -> None:
        async with started() as world:
            cloud = open_for_business(world)
            await cloud.run(300)
            await story(world, cloud)
            await cloud.run(200)
            seen, real = await truth(world, cloud)
            assert real > 300
            assert seen == pytest.approx(real, rel=0.001)

    run(whole())


def test_a_write_whose_answer_was_lost_counts_once() -> None:
    async def story(world: FakeCluster, cloud: Cloud) -> None:
        replace = world.api.replace
        lost: list[Object] = []

        async def deaf(resource: Any, *arguments: Any, **more: Any) -> Object:
            done = await replace(resource, *arguments, **more)
            if resource == CONFIG_MAPS and not lost:
                lost.append(done)
                raise Unreachable("no answer")
            return done

        world.api.replace = deaf  # type: ignore[method-assign]
        await cloud.run(100)
        assert lost

    check(story)


def test_who_puts_an_annotation_on_it_changes_no_figure() -> None:
    async def story(world: FakeCluster, cloud: Cloud) -> None:
        world.api.change(CONFIG_MAPS, NAME, annotate)
        await cloud.run(100)
        # Figures go on, from the version with the annotation on.
        assert usage_of(world).until > world.api.clock() - 70

    check(story)


def test_another_controllers_figures_are_gone_on_from() -> None:
    async def story(world: FakeCluster, cloud: Cloud) -> None:
        theirs = usage_of(world)
        theirs.extend(world.api.clock())
        theirs.until = world.api.clock()
        world.api.change(CONFIG_MAPS, NAME, lambda item: item.update(data=write(theirs)))
        await cloud.run(100)

    check(story)


def test_a_deleted_usage_record_is_written_anew_from_memory() -> None:
    async def story(world: FakeCluster, cloud: Cloud) -> None:
        world.api.remove(CONFIG_MAPS, NAME, "ebb-system")
        await cloud.run(100)
        assert NAME in world.api.names(CONFIG_MAPS)

    check(story)


def test_a_spoilt_usage_record_is_left_alone_until_somebody_deletes_it() -> None:
    async def whole() -> None:
        async with started() as world:
            cloud = open_for_business(world)
            await cloud.run(300)
            await world.kill()
            world.api.change(CONFIG_MAPS, NAME, spoil)
            world.start()
            before = written(world)
            await cloud.run(400)
            assert (written(world), world.state()) == (before, "Running")
            world.api.remove(CONFIG_MAPS, NAME, "ebb-system")
            await cloud.run(400)
            seen, real = await truth(world, cloud)
            assert seen == pytest.approx(real, rel=0.001)

    run(whole())


def test_while_the_platform_cannot_be_read_machines_stand_as_before() -> None:
    async def story(world: FakeCluster, cloud: Cloud) -> None:
        world.api.change(CONFIG_MAPS, "ebb-platform", lambda item: item.update(data={"schema": "99"}))
        await cloud.run(100)
        cloud.open()

    check(story)


def test_a_node_that_registered_while_the_watch_was_broken_counts_from_its_creation() -> None:
    async def whole() -> None:
        async with started() as world:
            cloud = open_for_business(world)
            await cloud.run(300)
            world.api.mute(NODES)
            node = make_node("late")
            node["metadata"] |= {
                "creationTimestamp": stamp(world.api.clock()),
                "labels": {names.LABEL_NODE_GROUP: "two-b", names.LABEL_ZONE: "local-b"},
            }
            world.api.put(NODES, node)
            began = world.api.clock()
            await world.settle(50)
            world.api.unmute(NODES)
            await world.settle(150)
            assert usage_of(world).days["2027-01-15"]["two-b"].seconds == pytest.approx(usage_of(world).until - began, abs=1)

    run(whole())


def test_a_controller_that_may_not_keep_a_usage_record_goes_on_without() -> None:
    async def whole() -> None:
        async with started() as world:
            world.api.fail("get", CONFIG_MAPS, Denied("no", status=403), 100)
            cloud = open_for_business(world)
            await cloud.run(300)
            assert world.state() == "Running"
            assert NAME not in world.api.names(CONFIG_MAPS)

    run(whole())


def test_an_answer_that_says_it_is_there_already_is_looked_into() -> None:
    async def story(world: FakeCluster, cloud: Cloud) -> None:
        world.api.fail("create", CONFIG_MAPS, Conflict("there", status=409, reason="AlreadyExists"))
        world.api.remove(CONFIG_MAPS, NAME, "ebb-system")
        await cloud.run(100)

    async def whole() -> None:
        async with started() as world:
            cloud = open_for_business(world)
            await cloud.run(300)
            await story(world, cloud)
            seen, real = await truth(world, cloud)
            assert seen == pytest.approx(real, rel=0.001)

    run(whole())


def test_one_that_leads_no_more_writes_nothing() -> None:
    lost: list[str] = []

    def fence() -> None:
        if lost:
            raise LeadershipLost("no more")

    async def whole() -> None:
        async with started(fence) as world:
            cloud = open_for_business(world)
            await cloud.run(300)
            before = written(world)
            lost.append("now")
            await cloud.run(200)
            assert written(world) == before

    with pytest.raises(ExceptionGroup):
        run(whole())


def test_a_cluster_of_no_stack_has_no_usage_record() -> None:
    async def whole() -> None:
        async with started() as world:
            await world.start_all(make_job())
            await world.settle(200)
            assert written(world) == 0

    run(whole())


def test_quiet_machines_cost_one_write_a_minute() -> None:
    async def whole() -> None:
        async with started() as world:
            cloud = open_for_business(world)
            await cloud.run(300)
            before = written(world)
            await world.settle(600)
            assert 9 <= written(world) - before <= 10

    run(whole())


def test_whose_a_job_was_is_known_when_it_is_deleted_and_nobody_looks() -> None:
    async def whole() -> None:
        async with started() as world:
            cloud = open_for_business(world)
            world.api.change(
                ELASTIC_JOBS, "digits", lambda job: job["metadata"].setdefault("labels", {}).update({names.LABEL_USER: "ada"})
            )
            await cloud.run(300)
            await world.kill()
            world.api.remove(ELASTIC_JOBS, "digits")
            world.start()
            await cloud.run(100)
            ((uid, who),) = usage_of(world).who.items()
            assert (uid, who) == ("0b8e7a52", Who(namespace="elastic-job", job="digits", user="ada"))

    run(whole())
