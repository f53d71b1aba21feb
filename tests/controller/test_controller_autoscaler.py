"""The controller and what it hears about machines to come: the autoscaler's words, priorities, and the other jobs."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.spec import Job
from ebb.controller.reconciler.capacity import GroupState
from ebb.controller.reconciler.types import Observed
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, EVENTS, LEASES, NODE_CLAIMS, PODS, PRIORITY_CLASSES, Denied, NotFound
from tests.builders import make_group, make_job, make_platform
from tests.fake_time import run
from tests.world import FakeCluster, started

Object = dict[str, Any]
REPORT = "nodeGroups:\n- name: eks-spot-t4-local-a-0a1b\n  scaleUp: {status: Backoff, backoffInfo: {errorMessage: no T4 left}}\n"


def say(world: FakeCluster, pod: str, reason: str, message: str, number: int = 0) -> None:
    """What the autoscaler tells about a pod."""
    about = {"kind": "Pod", "name": pod, "namespace": "elastic-job", "uid": world.pod(pod)["metadata"]["uid"]}
    metadata = {"name": f"{pod}.{number}", "namespace": "elastic-job", "uid": f"event-{number}"}
    said = {"reason": reason, "message": message, "lastTimestamp": stamp(world.api.clock())}
    world.api.put(EVENTS, {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, **said})


def report(world: FakeCluster, namespace: str, text: str = REPORT) -> None:
    metadata = {"name": "cluster-autoscaler-status", "namespace": namespace, "uid": namespace}
    world.api.put(CONFIG_MAPS, {"metadata": metadata, "data": {"status": text}})


def stack(world: FakeCluster) -> None:
    """A platform with one group of spot machines."""
    world.controller.cluster._platform = make_platform(make_group())


async def seen(world: FakeCluster, name: str = "digits") -> Observed:
    return await world.controller.cluster.observe(Job.of(world.job(name)), world.api.clock(), None)


def looks(world: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the jobs that are looked at from now on."""
    looked: list[str] = []
    observe = world.controller.cluster.observe

    async def observed(job: Job, now: float, progress: Any) -> Observed:
        looked.append(job.name)
        return await observe(job, now, progress)

    monkeypatch.setattr(world.controller.cluster, "observe", observed)
    return looked


def test_what_the_autoscaler_says_of_a_pod_is_known_at_once_and_forgotten_with_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle()
            uid = world.pod("digits-worker-0")["metadata"]["uid"]
            looked = looks(world, monkeypatch)
            say(world, "digits-worker-0", "NotTriggerScaleUp", "1 max node group size reached")
            await world.settle()
            assert looked == ["digits"]
            word = (await seen(world)).supply.words[uid]
            assert (word.triggered, word.message) == (False, "1 max node group size reached")
            await world.settle(5)
            say(world, "digits-worker-0", "TriggeredScaleUp", "0->1", number=1)
            await world.settle()
            assert (await seen(world)).supply.words[uid].triggered
            world.api.remove(PODS, "digits-worker-0")
            await world.settle()
            assert (await seen(world)).supply.words == {}

    run(story())


def test_words_from_before_the_start_are_known_and_those_about_others_are_not_kept() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle()
            say(world, "digits-worker-0", "NotTriggerScaleUp", "none left")
            stranger = {"kind": "Pod", "name": "x", "uid": "stranger"}
            for number in (7, 8):
                metadata = {"name": f"x.{number}", "namespace": "default", "uid": str(number)}
                said = {"reason": "NotTriggerScaleUp", "lastTimestamp": stamp(world.api.clock())}
                world.api.put(EVENTS, {"metadata": metadata, "involvedObject": stranger, **said})
                await world.kill()
                world.start()
                await world.settle()
                uid = world.pod("digits-worker-0")["metadata"]["uid"]
                assert set((await seen(world)).supply.words) == {uid}

    run(story())


@pytest.mark.parametrize("namespace", ["kube-system", "ebb-system"])
def test_the_autoscalers_report_is_about_our_groups(namespace: str) -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle()
            stack(world)
            report(world, namespace)
            await world.settle()
            dry = GroupState(backing_off=True, message="no T4 left")
            assert (await seen(world)).supply.groups == {"spot-t4-local-a": dry}
            report(world, namespace, REPORT.replace("Backoff", "InProgress"))
            await world.settle()
            assert (await seen(world)).supply.groups == {"spot-t4-local-a": GroupState()}
            world.api.remove(CONFIG_MAPS, "cluster-autoscaler-status", namespace)
            await world.settle()
            assert (await seen(world)).supply.groups == {}

    run(story())


def karpenter_says(world: FakeCluster, reason: str, message: str, about: Object, number: int = 0) -> None:
    metadata = {"name": f"{about['name']}.{number}", "namespace": "default", "uid": f"karpenter-{number}"}
    said = {"reason": reason, "message": message, "lastTimestamp": stamp(world.api.clock()), "source": {"component": "karpenter"}}
    world.api.put(EVENTS, {"metadata": metadata, "involvedObject": about, **said})


def launched(world: FakeCluster, pool: str) -> None:
    """A machine of the pool."""
    condition = {"type": "Launched", "status": "True", "lastTransitionTime": stamp(world.api.clock())}
    metadata = {"name": f"{pool}-abcde", "uid": f"{pool}-abcde", "labels": {"karpenter.sh/nodepool": pool}}
    world.api.put(NODE_CLAIMS, {"metadata": metadata, "status": {"conditions": [condition]}})


CLAIM = {"kind": "NodeClaim", "name": "spot-t4-local-a-x7k2p", "uid": "x7k2p"}
DRY = GroupState(backing_off=True, message="InsufficientInstanceCapacity: no T4 left")


def test_a_stockout_of_karpenter_is_the_groups_until_it_tries_again_and_jobs_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle()
            stack(world)
            looked = looks(world, monkeypatch)
            karpenter_says(world, "InsufficientCapacityError", f"NodeClaim {CLAIM['name']} event: {DRY.message}", CLAIM)
            await world.settle(10)
            assert (await seen(world)).supply.groups == {"spot-t4-local-a": DRY}
            assert "digits" in looked
            looked.clear()
            await world.settle(180)
            assert (await seen(world)).supply.groups == {}
            assert "digits" in looked

    run(story())


def test_a_machine_that_karpenter_launches_ends_the_stockout() -> None:
    async def story() -> None:
        async with started() as world:
            stack(world)
            karpenter_says(world, "InsufficientCapacityError", f"NodeClaim {CLAIM['name']} event: {DRY.message}", CLAIM)
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle(5)
            assert (await seen(world)).supply.groups == {"spot-t4-local-a": DRY}
            launched(world, "spot-t4-local-a")
            await world.settle()
            assert (await seen(world)).supply.groups == {}

    run(story())


def test_karpenters_word_about_a_pod_is_the_autoscalers_and_the_schedulers_is_not() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle()
            uid = world.pod("digits-worker-0")["metadata"]["uid"]
            pod = {"kind": "Pod", "name": "digits-worker-0", "namespace": "elastic-job", "uid": uid}
            say(world, "digits-worker-0", "FailedScheduling", "0/3 nodes are available", number=1)
            karpenter_says(world, "Evicted", "Evicted pod: Underutilized", pod, number=2)
            await world.settle()
            assert (await seen(world)).supply.words == {}
            karpenter_says(world, "Nominated", "Pod should schedule on: nodeclaim/spot-t4-local-a-x7k2p", pod, number=3)
            await world.settle()
            assert (await seen(world)).supply.words[uid].triggered

    run(story())


def test_priorities_are_the_clusters_and_the_default_is_for_jobs_that_name_none() -> None:
    async def story() -> None:
        async with started() as world:
            for name, value, default in (("urgent", 1000, False), ("usual", 10, True)):
                metadata = {"name": name, "uid": name}
                world.api.put(PRIORITY_CLASSES, {"metadata": metadata, "value": value, "globalDefault": default})
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle()
            assert (await seen(world)).priorities == {"urgent": 1000, "usual": 10, "": 10}
            world.api.remove(PRIORITY_CLASSES, "usual")
            await world.settle()
            assert (await seen(world)).priorities == {"urgent": 1000}

    run(story())


def test_a_cluster_that_shows_none_of_this_runs_jobs_all_the_same() -> None:
    async def story() -> None:
        async with started() as world:
            await world.kill()
            world.api.refuse(EVENTS, Denied("events is forbidden", status=403))
            world.api.refuse(LEASES, Denied("leases is forbidden", status=403))
            world.api.refuse(PRIORITY_CLASSES, NotFound("the server could not find the requested resource", status=404))
            world.start()
            await world.start_all(make_job())
            assert world.state() == "Running"
            late = {f'kind="{kind}"' for kind in ("events", "leases", "priorityclasses")}
            assert not late & world.controller.ages().keys()
            world.api.come_back()
            await world.settle(100)
            assert any("leases" in label for label in world.controller.ages()), "asked again now and then"

    run(story())


def test_a_helpful_kind_that_does_not_answer_holds_the_start_up_for_a_few_seconds_only() -> None:
    async def story() -> None:
        async with started() as world:
            await world.kill()
            world.api.hang(PRIORITY_CLASSES)
            world.start()
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle(4)
            assert world.pods() == []
            await world.settle(2)
            assert world.pods() == ["digits-worker-0"]

    run(story())


def test_a_job_that_waits_behind_others_is_looked_at_when_one_of_them_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=1))
            behind = {"type": "Running", "status": "False", "reason": "BehindOthers"}
            waits = {"state": "Waiting", "placement": {"zone": ""}, "conditions": [behind], "observedGeneration": 1}
            for index in range(3):
                name = f"waiting-{index}"
                world.api.put(ELASTIC_JOBS, make_job(name, replicas=1, uid=name, status=waits, managedBy="a test"))
            await world.settle(10)
            looked = looks(world, monkeypatch)
            world.api.pod_ends("digits-worker-0", 0)
            await world.settle(1)
            assert sorted(set(looked) - {"digits"}) == ["waiting-0", "waiting-1", "waiting-2"]
            assert len(looked) <= 10, "all changes of a moment are one look"

    run(story())


def test_jobs_that_only_wait_for_their_own_pods_are_left_alone_when_another_gets_its_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with started() as world:
            starting = {"type": "Running", "status": "False", "reason": "WaitingForStart"}
            waits = {"state": "Waiting", "placement": {"zone": ""}, "conditions": [starting], "observedGeneration": 1}
            world.api.put(ELASTIC_JOBS, make_job("other", replicas=1, uid="other", status=waits, managedBy="a test"))
            await world.settle(10)
            looked = looks(world, monkeypatch)
            await world.start_all(make_job(replicas=1))
            await world.settle(10)
            assert "other" not in looked

    run(story())


def test_a_job_that_is_looked_at_while_another_ones_pods_are_being_made_knows_of_them() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.takes_seconds = 0.5
            for name in ("b", "a"):  # the second would go first, had it been there
                world.api.put(ELASTIC_JOBS, make_job(name, uid=name, group={"name": "sweep", "maxParallel": 1}))
                await world.settle(0.1)
            await world.settle(10)
            assert world.pods() == ["b-worker-0", "b-worker-1"]

    run(story())
