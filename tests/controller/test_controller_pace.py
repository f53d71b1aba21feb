"""How much the controller asks of the API server: few writes while much happens, and patience where it is refused."""

from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from ebb.controller.reconciler import quotas
from ebb.controller.reconciler.types import Observed
from ebb.kube import ELASTIC_JOBS, NODES, PODS, Denied, Invalid, Unreachable
from tests.builders import make_job, make_node
from tests.fake_time import run
from tests.world import FakeCluster, started

Object = dict[str, Any]
QUOTA = Denied('pods "digits-worker-0" is forbidden: exceeded quota: gpus, requested: 1, used: 8, limited: 8', status=403)


def running(world: FakeCluster) -> Object:
    return next(item for item in world.status()["conditions"] if item["type"] == "Running")


def say(pod: Object, reason: str) -> None:
    pod["status"]["reason"] = reason


def refuse(pod: Object) -> None:
    pod["status"] = {"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "Pod was rejected"}


def created(world: FakeCluster) -> int:
    return sum(1 for verb, plural, _ in world.api.calls if (verb, plural) == ("create", "pods"))


def test_a_quota_that_refuses_pods_is_a_waiting_reason_in_the_servers_words_and_is_tried_ever_less_often() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.fail("create", PODS, QUOTA, times=5)
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle(1)
            assert (running(world)["reason"], running(world)["message"]) == ("QuotaExceeded", str(QUOTA))
            refused_at = [world.api.failed_at.pop()]
            for _ in range(4):
                while not world.api.failed_at:
                    await world.settle(0.5)
                refused_at.append(world.api.failed_at.pop())
            waits = [after - before for before, after in pairwise(refused_at)]
            assert [round(wait) for wait in waits] == [5, 10, 20, 40]
            assert world.pods() == []
            await world.settle(61)
            assert world.pods() == ["digits-worker-0"]

    run(story())


def test_changes_of_the_world_do_not_make_a_refused_creation_come_sooner() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=1))
            world.api.fail("create", PODS, QUOTA, times=1)
            world.edit_spec(replicas=2)
            await world.settle()
            writes = len(world.api.calls)
            for turn in range(8):
                world.api.put(NODES, make_node("n0", taint="x" if turn % 2 else None))
                await world.settle()
            assert (created(world), world.api.calls[writes:]) == (1, []), "nothing is created, and nothing is said again"
            assert world.events().count("FailedCreate") == 1
            await world.settle(2)
            assert created(world) == 2

    run(story())


def test_another_spec_is_tried_at_once() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.fail("create", PODS, Invalid("spec.containers[0].image: Required value", status=422), times=2)
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle(10)
            assert (running(world)["reason"], world.pods()) == ("FailedCreate", [])
            world.edit_spec(nprocPerNode=1)
            await world.settle()
            assert world.pods() == ["digits-worker-0"]

    run(story())


def test_a_job_that_wants_no_more_pods_is_no_longer_refused_any() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.fail("create", PODS, QUOTA, times=1)
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle(1)
            assert running(world)["reason"] == "QuotaExceeded"
            world.edit_spec(suspend=True)
            await world.settle(1)
            assert world.state() == "Suspended"
            written = len(world.api.calls)
            await world.settle(120)
            assert world.api.calls[written:] == []

    run(story())


def test_a_refusal_does_not_keep_lost_workers_from_being_stopped() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.fail("create", PODS, QUOTA, times=1)
            world.edit_spec(replicas=3)
            await world.settle()
            world.api.put(NODES, make_node("n1", notice="soon"))
            await world.settle()
            assert "deletionTimestamp" in world.pod("digits-worker-1")["metadata"]
            assert world.status()["reclaims"] == 1

    run(story())


def test_while_many_workers_start_the_status_is_written_about_once_a_second_and_is_right_in_the_end() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(NODES, make_node("n0"))
            world.api.put(ELASTIC_JOBS, make_job(replicas=64, low=64, high=64))
            await world.settle(2)
            before = len(world.api.calls)
            for name in world.pods():
                world.api.pod_runs(name, "n0")
                await world.settle(0.1)
            statuses = [call for call in world.api.calls[before:] if call[0] == "status"]
            assert len(statuses) <= 9, "64 pods in 6.4 s"
            await world.settle(1.1)
            assert (world.status()["ready"], world.state(), len(world.status()["members"])) == ("64/64", "Running", 64)

    run(story())


def test_what_matters_is_written_at_once_between_figures() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=4))
            await world.settle(2)
            world.edit_spec(replicas=3)
            await world.settle(0.1)
            world.api.lose_node("n1")
            await world.settle(0.1)
            assert world.status()["reclaims"] == 1
            world.api.pod_ends("digits-worker-0", 1)
            await world.settle(0.1)
            assert world.status()["failures"] == 1

    run(story())


def test_a_storm_of_changes_to_one_job_is_a_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=2))
            looks: list[int] = []
            observe = world.controller.cluster.observe

            async def observed(*arguments: Any) -> Observed:
                looks.append(1)
                return await observe(*arguments)

            monkeypatch.setattr(world.controller.cluster, "observe", observed)
            for turn in range(200):
                world.api.change(PODS, "digits-worker-0", partial(say, reason=str(turn)))
                await world.settle(0.005)
            assert 15 <= len(looks) <= 25

    run(story())


def test_a_loss_is_acted_upon_within_a_tenth_of_a_second() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            await world.settle(5)
            world.api.put(NODES, make_node("n1", notice="soon"))
            await world.settle(0.1)
            assert "deletionTimestamp" in world.pod("digits-worker-1")["metadata"]

    run(story())


def test_thirty_workers_of_many_jobs_that_are_lost_at_once_are_replaced_in_less_than_a_second() -> None:
    async def story() -> None:
        async with started() as world:
            for index in range(30):
                world.api.put(NODES, make_node(f"n{index}"))
                world.api.put(ELASTIC_JOBS, make_job(f"job-{index}", replicas=2, uid=f"uid-{index}"))
            await world.settle(2)
            for index in range(30):
                world.api.pod_runs(f"job-{index}-worker-0", f"n{index}")
                world.api.pod_runs(f"job-{index}-worker-1", "n0")
            await world.settle(2)
            old = {pod["metadata"]["uid"] for pod in world.api.all(PODS)}
            for index in range(1, 30):
                world.api.lose_node(f"n{index}")
            await world.settle(0.5)
            new = [pod for pod in world.api.all(PODS) if pod["metadata"]["uid"] not in old]
            assert len(new) == 29
            assert 'ebb_replacement_seconds_bucket{le="0.25"} 29' in world.controller.metrics.text()

    run(story())


def test_how_long_a_job_was_short_of_workers_is_measured() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(low=2))
            world.api.lose_node("n1")
            await world.settle(7)
            assert world.state() == "Restarting"
            world.api.pod_runs("digits-worker-1", "n0")
            await world.settle(1)
            assert world.state() == "Running"
            text = world.controller.metrics.text()
            assert "ebb_recovery_seconds_count 1" in text
            assert 'ebb_recovery_seconds_bucket{le="5.0"} 0' in text
            assert 'ebb_recovery_seconds_bucket{le="10.0"} 1' in text

    run(story())


def test_nodes_that_the_copy_never_had_are_asked_for_all_at_once_and_those_seen_to_go_are_not() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=8, high=8), nodes=8)
            machines = world.controller.cluster.machines
            names = {f"n{index}" for index in range(8)}
            for name in sorted(names):
                world.api.lose_node(name)
            await world.settle()
            world.api.fail("get", NODES, Unreachable("asked"))
            assert await machines.find(names) == ({}, frozenset(names)), "known without asking"
            world.api.put(NODES, make_node("n3"))
            await world.settle()
            nodes, gone = await machines.find(names)
            assert (set(nodes), set(gone)) == ({"n3"}, names - {"n3"}), "back again"
            with pytest.raises(Unreachable):
                await machines.find({"never-seen"})
            assert await machines.find({"never-seen"}) == ({}, frozenset({"never-seen"}))

    run(story())


def test_the_planners_words_for_a_quota_are_kubernetes_own() -> None:
    assert quotas.EXCEEDED in str(QUOTA)


@pytest.mark.parametrize("ends", ["refused", "left"])
def test_workers_that_are_lost_at_once_are_not_created_without_end(ends: str) -> None:
    """Without a pause these were 802 pods and 1,201 writes of the status in a minute."""

    async def story() -> None:
        async with started() as world:
            for name in ("n0", "n1"):
                world.api.put(NODES, make_node(name))
            world.api.put(ELASTIC_JOBS, make_job(low=2, backoffLimit=0))
            until = world.api.clock() + 60
            while world.api.clock() < until:
                await world.settle(0.1)
                for name in world.pods():
                    if world.pod(name)["status"].get("phase") != "Failed":
                        world.api.pod_runs(name, "n0")
                        world.api.pod_ends(name, 138)
                    if ends == "refused":
                        world.api.change(PODS, name, refuse)
            writes = [call for call in world.api.calls if call[0] == "status"]
            assert 8 <= created(world) <= 12
            assert len(writes) <= 30

    run(story())
