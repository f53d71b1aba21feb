"""The controller and machines that stop reporting: replaced before Kubernetes notices, and never by mistake."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from ebb.controller.__main__ import read_settings
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, EVENTS, LEASES, NODES, PODS, SERVICES, Denied
from tests.builders import make_job, make_lease, make_node
from tests.fake_time import run
from tests.world import FakeCluster, started

MACHINES = tuple(f"n{index}" for index in range(6))
EVERYTHING = (ELASTIC_JOBS, PODS, SERVICES, NODES, LEASES, CONFIG_MAPS)


@asynccontextmanager
async def training(replicas: int = 2, every: float = 10, *, mute: bool = False) -> AsyncIterator[FakeCluster]:
    """A job whose workers run on n0, n1, ..., and kubelets that renew the Leases of six machines every ten seconds. Its workers
    have served metrics until now, if it is not a mute one."""
    async with started() as world:
        for name in MACHINES:
            world.api.put(LEASES, make_lease(name, world.api.clock()))
        await world.start_all(make_job(replicas=replicas, high=6), nodes=len(MACHINES))
        beating = asyncio.create_task(world.beat(*MACHINES, seconds=100_000, every=every))
        world.metrics_text = {} if mute else {"10.0.0.1": "ebb_step 1\n"}
        await world.settle(30)
        world.metrics_text.clear()
        yield world
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating


def deletions(world: FakeCluster) -> list[str]:
    return [name for verb, plural, name in world.api.calls if (verb, plural) == ("delete", "pods")]


def shunned(pod: dict[str, Any]) -> list[str]:
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [field["values"][0] for field in term.get("matchFields", ())]


async def renewal(world: FakeCluster, node: str) -> None:
    """Wait for the kubelet's next sign of life."""

    def renewed() -> str:
        return str(next(lease for lease in world.api.all(LEASES) if lease["metadata"]["name"] == node)["spec"]["renewTime"])

    before = renewed()
    while renewed() == before:
        await world.settle(0.1)


def test_the_worker_of_a_machine_that_falls_silent_is_replaced_within_twenty_five_seconds() -> None:
    async def story() -> None:
        async with training() as world:
            old = world.pod("digits-worker-1")["metadata"]["uid"]
            await renewal(world, "n1")
            world.dead = {"n1"}
            await world.settle(25)
            new = world.pod("digits-worker-1")["metadata"]
            assert new["uid"] != old, "its pod was deleted with force: nobody else would have confirmed its end"
            assert "deletionTimestamp" not in new
            assert [entry["cause"] for entry in world.status()["history"]] == ["NodeSilent"]
            assert (world.status()["reclaims"], world.status()["failures"]) == (1, 0)
            assert shunned(world.pod("digits-worker-1")) == ["n1"], "Kubernetes calls it ready still, and it has room again"

    run(story())


def test_a_worker_without_metrics_keeps_its_grace_until_kubernetes_has_lost_its_machine_too() -> None:
    """Its machine's Lease alone says that it is dead, and it may train on behind a kubelet that cannot renew."""

    async def story() -> None:
        async with training(mute=True) as world:
            old = world.pod("digits-worker-1")["metadata"]["uid"]
            await renewal(world, "n1")
            world.dead = {"n1"}
            await world.settle(25)
            leaving = world.pod("digits-worker-1")["metadata"]
            assert (leaving["uid"], leaving["deletionGracePeriodSeconds"]) == (old, 30)
            assert (world.status()["reclaims"], [entry["cause"] for entry in world.status()["history"]]) == (1, ["NodeSilent"])
            world.api.put(NODES, make_node("n1", ready="Unknown"))
            await world.settle(4)
            assert world.pod("digits-worker-1")["metadata"]["uid"] != old
            assert world.status()["reclaims"] == 1

    run(story())


def test_a_worker_without_metrics_whose_end_nobody_confirms_in_its_grace_is_forced_out() -> None:
    """As where Kubernetes does not mark machines: a kubelet that is there would have said that the worker has ended."""

    async def story() -> None:
        async with training(mute=True) as world:
            old = world.pod("digits-worker-1")["metadata"]["uid"]
            await renewal(world, "n1")
            world.dead = {"n1"}
            await world.settle(23 + 30)
            assert world.pod("digits-worker-1")["metadata"]["uid"] == old
            await world.settle(8)
            assert world.pod("digits-worker-1")["metadata"]["uid"] != old

    run(story())


def test_a_new_worker_shuns_machines_that_are_on_their_way_out() -> None:
    async def story() -> None:
        async with training() as world:
            world.api.put(NODES, make_node("n0", notice="soon"))
            world.api.put(NODES, make_node("n5", taint="aws-node-termination-handler/spot-itn"))
            await world.settle(1)
            world.api.pod_ends("digits-worker-0", 138)
            await world.settle(1)
            assert shunned(world.pod("digits-worker-0")) == ["n0", "n5"]
            assert [entry["cause"] for entry in world.status()["history"]] == ["ReclaimNotice"]

    run(story())


LAST_LINES = """torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered
[launcher 09:15:02] a GPU of this machine failed: CUDA error: uncorrectable ECC error encountered; bye"""


def test_a_machine_whose_gpu_failed_is_told_of_and_shunned_by_the_job() -> None:
    async def story() -> None:
        async with training() as world:
            world.api.pod_ends("digits-worker-1", 79, LAST_LINES)
            await world.settle(1)
            assert shunned(world.pod("digits-worker-1")) == ["n1"]
            (entry,) = world.status()["history"]
            assert (entry["what"], entry["cause"], entry["node"]) == ("reclaimed", "HardwareFault", "n1")
            assert (world.status()["reclaims"], world.status()["failures"]) == (1, 0)
            (event,) = [each for each in world.api.all(EVENTS) if each["reason"] == "HardwareFault"]
            assert event["type"] == "Warning"
            assert event["message"] == (
                "Worker 1 left n1: a GPU of this machine failed: CUDA error: uncorrectable ECC error encountered; bye. It "
                "will be replaced on another machine, and nothing is spent. Other jobs may still go to "
                "n1: `kubectl cordon n1` keeps them off until somebody has looked at it."
            )
            world.api.pod_runs("digits-worker-1", "n2")
            await world.settle(1)
            world.api.pod_ends("digits-worker-0", 138)
            await world.settle(1)
            assert shunned(world.pod("digits-worker-0")) == ["n1"], "whichever worker it is"

    run(story())


def test_no_machine_is_named_where_karpenter_would_start_none_for_such_a_pod() -> None:
    async def story() -> None:
        async with training() as world:
            node = make_node("n0", taint="karpenter.sh/disrupted")
            node["metadata"]["labels"] = {**(node["metadata"].get("labels") or {}), "karpenter.sh/nodepool": "spot-t4"}
            world.api.put(NODES, node)
            await world.settle(1)
            world.api.pod_ends("digits-worker-0", 138)
            await world.settle(1)
            assert "matchFields" not in json.dumps(world.pod("digits-worker-0"))

    run(story())


def test_a_machine_that_is_slow_to_renew_loses_nobody() -> None:
    async def story() -> None:
        async with training(every=22.5) as world:
            await world.settle(120)
            assert deletions(world) == []

    run(story())


def test_an_api_server_that_is_away_for_a_minute_with_all_leases_late_costs_no_worker() -> None:
    async def story() -> None:
        async with training(replicas=6) as world:
            world.api.go_away(*EVERYTHING)
            world.dead = set(MACHINES)
            await world.settle(60)
            world.api.come_back()
            for name in MACHINES:  # Kubernetes has not heard of them either
                world.api.put(NODES, make_node(name, ready="Unknown"))
            await world.settle(9)
            world.dead = set()  # kubelets find the API server again, one after the other
            for name in MACHINES:
                await world.settle(2)
                world.api.put(NODES, make_node(name))
            await world.settle(60)
            assert deletions(world) == []
            assert world.state() == "Running"

    run(story())


def test_kubelets_that_the_api_server_refuses_keep_their_workers() -> None:
    async def story() -> None:
        async with training(replicas=6) as world:
            world.dead = set(MACHINES)
            await world.settle(120)
            assert deletions(world) == [], "more than a third of the machines look silent"
            world.dead = {"n1"}
            await world.settle(40)
            assert deletions(world) == ["digits-worker-1"], "this one did not come back with the others"

    run(story())


def test_a_watch_that_dies_silently_makes_nobody_silent() -> None:
    async def story() -> None:
        async with training(replicas=6) as world:
            world.api.mute(LEASES)
            await world.settle(60)
            world.api.unmute(LEASES)
            await world.settle(60)
            assert deletions(world) == []

    run(story())


def test_a_new_leader_waits_for_every_machine_to_have_its_turn() -> None:
    async def story() -> None:
        async with training() as world:
            await renewal(world, "n1")
            world.dead = {"n1"}
            await world.settle(21)
            await world.kill()
            world.start()
            await world.settle(22)
            assert deletions(world) == []
            await world.settle(4)
            assert deletions(world) == ["digits-worker-1"]

    run(story())


def test_a_cluster_that_does_not_show_its_leases_still_has_its_node_conditions() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.refuse(LEASES, Denied("leases is forbidden", status=403))
            await world.start_all(make_job(), nodes=6)
            await world.settle(60)
            world.api.put(NODES, make_node("n1", ready="Unknown"))
            await world.settle(4)
            assert world.status()["history"][-1]["cause"] == "NodeSilent"
            assert not any("leases" in kind for kind in world.controller.ages()), "what is not given is not late"

    run(story())


def test_doubt_that_clears_is_acted_upon_without_any_other_change() -> None:
    async def story() -> None:
        async with training() as world:
            world.dead = {"n1", "n2", "n3"}
            await world.settle(40)
            assert deletions(world) == []
            world.dead = {"n1"}
            await world.settle(40)
            assert deletions(world) == ["digits-worker-1"]

    run(story())


def test_a_machine_that_goes_while_there_is_doubt_is_acted_upon_when_that_clears() -> None:
    """No kubelet is there to end its pod, and no change of the machine comes any more."""

    async def story() -> None:
        async with training() as world:
            world.dead = {"n2", "n3", "n4"}
            await world.settle(20)
            old = world.pod("digits-worker-1")["metadata"]["uid"]
            world.api.lose_node("n1")
            await world.settle(10)
            assert world.pod("digits-worker-1")["metadata"]["uid"] == old, "nothing is deleted with force yet"
            world.dead = set()
            await world.settle(40)
            assert world.pod("digits-worker-1")["metadata"]["uid"] != old

    run(story())


def test_a_worker_that_answers_keeps_its_place_on_a_machine_whose_kubelet_does_not() -> None:
    async def story() -> None:
        async with training() as world:
            world.api.change(PODS, "digits-worker-1", lambda pod: pod["status"].update(podIP="10.0.0.2"))
            world.metrics_text["10.0.0.2"] = "up 1\n"
            world.dead = {"n1"}
            await world.settle(40)
            world.api.put(NODES, make_node("n1", ready="Unknown"))  # Kubernetes' own verdict changes nothing
            await world.settle(60)
            assert (deletions(world), world.status()["reclaims"]) == ([], 0)
            del world.metrics_text["10.0.0.2"]  # now it is gone as well
            await world.settle(6)
            assert deletions(world) == ["digits-worker-1"]
            assert [entry["cause"] for entry in world.status()["history"]] == ["NodeSilent"]

    run(story())


@pytest.mark.parametrize("seconds", ["10", "nan", "-1"])
def test_a_limit_that_every_machine_would_exceed_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--silent-after", seconds])
    assert f"--silent-after {seconds} is too short: kubelets renew every 10 s, so use more than that" in capsys.readouterr().err
    assert read_settings(["--silent-after", "45"]).silent_after == 45
