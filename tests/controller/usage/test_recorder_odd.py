"""The machine usage record and what it was not made for: long ones, long names, pods with other owners, our mistakes."""

import pytest

from ebb.api import contract as names
from ebb.api.usage import KEY, LONGEST_USER, NAME, GroupUsage, write
from ebb.controller.usage.recorder import CHARACTERS_PER_SECOND
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, NODES, PODS
from tests.builders import make_node
from tests.controller.cloud import Cloud
from tests.controller.usage.test_recorder import usage_of
from tests.controller.usage.test_recorder_faults import Object, check, open_for_business, written
from tests.fake_time import run
from tests.world import FakeCluster, started


def test_a_long_usage_record_is_written_less_often() -> None:
    async def whole() -> None:
        async with started() as world:
            cloud = open_for_business(world)
            await cloud.run(300)
            await world.kill()
            long = usage_of(world)
            groups = {f"a-group-with-some-name-{number}": GroupUsage(seconds=number + 0.5, usd=1.25) for number in range(40)}
            long.months = {f"20{year}-{month:02}": groups for year in range(16, 26) for month in range(1, 13)}
            world.api.change(CONFIG_MAPS, NAME, lambda item: item.update(data=write(long)))
            world.start()
            await world.settle(30)
            before = written(world)
            for _ in range(60):
                world.api.change(NODES, world.api.names(NODES)[0], toggle)
                await world.settle(2)
            assert 120 / (len(write(usage_of(world))[KEY]) / CHARACTERS_PER_SECOND) - 2 < written(world) - before < 12

    run(whole())


def toggle(node: Object) -> None:
    """It is given notice, or that is taken back."""
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "", "effect": "NoSchedule"}
    node["spec"]["taints"] = [] if node["spec"].get("taints") else [taint]


def test_a_pod_that_something_else_owns_too_is_charged_to_its_job() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "99999999-z"}

    async def story(world: FakeCluster, cloud: Cloud) -> None:
        world.api.change(PODS, world.pods()[0], lambda pod: pod["metadata"]["ownerReferences"].insert(0, other))
        await cloud.run(100)
        assert {job for uses in usage_of(world).jobs.values() for job in uses} == {"0b8e7a52"}

    check(story)


def test_a_machine_that_the_usage_record_breaks_on_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("type")

    async def whole() -> None:
        async with started() as world:
            cloud = open_for_business(world)
            await cloud.run(300)
            with monkeypatch.context() as patch:
                patch.setattr("ebb.controller.usage.accounts.standing", broken)
                node = make_node("late")
                node["metadata"]["labels"] = {names.LABEL_NODE_GROUP: "two-b", names.LABEL_ZONE: "local-b"}
                world.api.put(NODES, node)
                await world.settle(10)
                before = written(world)
                await world.settle(100)
                assert (written(world) > before, world.state()) == (True, "Running")
        assert "the controller cannot tell how it stands" in caplog.text

    run(whole())


def test_a_name_of_any_length_is_written_short() -> None:
    async def whole() -> None:
        async with started() as world:
            cloud = open_for_business(world)
            long = {names.ANNOTATION_BILLED: "a" * 200_000}
            world.api.change(ELASTIC_JOBS, "digits", lambda job: job["metadata"].update(annotations=long))
            await cloud.run(300)
            (who,) = usage_of(world).who.values()
            assert who.user == "a" * LONGEST_USER

    run(whole())
