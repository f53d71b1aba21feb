"""The daemon, tick by tick, over a working fake: machines come and go, in every case also when it is killed between two ticks."""

import json
from pathlib import Path
from typing import Any

import pytest

from devcluster.cloud.daemon import EXIT_REFUSED, run
from devcluster.cloud.fleet import TRUE_BOOT_SECONDS, Leaving
from devcluster.cloud.reclaim import WISH_ANNOTATION
from devcluster.settings import Box
from ebb.api.clock import stamp
from ebb.api.contract import TAINT_RECLAIM
from ebb.controller.reconciler.worker_state import leave_at
from ebb.kube import CLAIMS, CONFIG_MAPS, NODE_GROUPS, NODES, PODS, VOLUMES
from tests.builders import make_group, make_platform
from tests.devcluster.cloud_world import CloudWorld, group_object, pod_object


@pytest.fixture(params=[False, True], ids=["undisturbed", "killed between ticks"])
def disturbed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def world(tmp_path: Path, disturbed: bool) -> CloudWorld:
    """A box with one spot group; with `disturbed` every tick is another daemon's."""
    made = _Disturbed(tmp_path) if disturbed else CloudWorld(tmp_path)
    made.api.put(NODE_GROUPS, group_object())
    return made


class _Disturbed(CloudWorld):
    async def tick(self, seconds: float = 0) -> float:
        self.restart()
        return await super().tick(seconds)


async def with_machine(world: CloudWorld) -> str:
    """Bring one machine up with pod w0 running on it; its name."""
    world.api.put(PODS, pod_object())
    await world.tick()
    await world.tick(10)
    await world.tick()
    (name,) = world.nodes
    world.api.put(PODS, pod_object(node=name))
    await world.tick()
    return name


def wish(world: CloudWorld, name: str, seconds: float) -> None:
    annotations = world.node(name)["metadata"].setdefault("annotations", {})
    annotations[WISH_ANNOTATION] = json.dumps({"noticeSeconds": seconds})


async def test_a_pending_pod_brings_a_machine_after_its_boot_time(world: CloudWorld) -> None:
    world.api.put(PODS, pod_object())
    await world.tick()
    assert (len(world.charges), world.machines.history) == (1, [])
    assert world.events == [("TriggeredScaleUp", "pod triggered scale-up: [{t4-a 0->1 (max: 2)}]")]
    await world.tick(9.9 - TRUE_BOOT_SECONDS)
    assert world.machines.history == []
    await world.tick(0.1)  # a boot takes a moment in truth, so it begins that much before the 10 s are over
    name = world.charges[0].machine
    assert world.machines.history == [f"boot {name}"]
    await world.tick(TRUE_BOOT_SECONDS)
    charge = world.charges[0]
    assert (charge.asked_at, charge.gone_at) == (1000, None)
    assert charge.booted_at == pytest.approx(1010)
    assert (charge.group, charge.zone, charge.price_per_hour, charge.capacity_type) == ("t4-a", "local-a", 0.36, "spot")


async def test_a_node_gets_its_gpus_and_gets_them_again(world: CloudWorld) -> None:
    name = await with_machine(world)
    assert world.node(name)["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    world.node(name)["status"]["capacity"]["nvidia.com/gpu"] = "0"  # a kubelet that starts again resets it
    await world.tick()
    assert world.node(name)["status"]["capacity"]["nvidia.com/gpu"] == "1"


async def test_an_idle_machine_leaves(tmp_path: Path) -> None:
    world = CloudWorld(tmp_path)
    world.api.put(NODE_GROUPS, group_object())
    name = await with_machine(world)
    world.remove(PODS, "w0", "jobs")
    await world.tick()
    await world.tick(20)
    assert [taint["key"] for taint in world.node(name)["spec"]["taints"]] == ["ToBeDeletedByClusterAutoscaler"]
    await world.tick(0.5)
    assert world.nodes == [name]
    await world.tick(0.5)
    assert (world.nodes, world.charges[0].why, world.charges[0].gone_at) == ([], "idle", world.now)


async def test_a_new_daemon_starts_idleness_anew(tmp_path: Path) -> None:
    world = CloudWorld(tmp_path)
    world.api.put(NODE_GROUPS, group_object())
    name = await with_machine(world)
    world.remove(PODS, "w0", "jobs")
    await world.tick()
    world.restart()
    await world.tick(20)
    await world.tick(19)
    assert world.nodes == [name]
    await world.tick(1)
    await world.tick(1)
    assert world.nodes == []


async def test_an_idle_machine_stays_if_a_pod_was_faster(tmp_path: Path) -> None:
    world = CloudWorld(tmp_path)
    world.api.put(NODE_GROUPS, group_object())
    name = await with_machine(world)
    world.remove(PODS, "w0", "jobs")
    await world.tick()
    await world.tick(20)
    world.api.put(PODS, pod_object("late", node=name))
    await world.tick(0.5)
    await world.tick(1)
    assert (world.nodes, world.node(name)["spec"]["taints"]) == ([name], [])


async def test_a_reclaim_with_notice(world: CloudWorld) -> None:
    name = await with_machine(world)
    wish(world, name, 20)
    await world.tick()
    node = world.node(name)
    assert node["spec"]["taints"] == [{"key": TAINT_RECLAIM, "value": "notice", "effect": "NoSchedule"}]
    assert [one["type"] for one in node["status"]["conditions"]][-1] == "ReclaimNotice"
    assert world.api.evicted == [("w0", 20)]
    await world.tick(5)
    assert (world.nodes, world.api.evicted) == ([name], [("w0", 20)])
    world.remove(PODS, "w0", "jobs")
    await world.tick()
    assert (world.nodes, world.charges[0].why, world.charges[0].gone_at) == ([], "reclaim-notice", 1015)


async def test_a_reclaim_ends_at_its_deadline(world: CloudWorld) -> None:
    name = await with_machine(world)
    wish(world, name, 20)
    await world.tick()
    await world.tick(19)
    assert world.nodes == [name]
    await world.tick(1)
    assert (world.nodes, world.charges[0].why) == ([], "reclaim-notice")


async def test_a_second_reclaim_without_notice_ends_it_at_once(world: CloudWorld) -> None:
    name = await with_machine(world)
    wish(world, name, 20)
    await world.tick()
    wish(world, name, 0)
    await world.tick()
    assert (world.nodes, world.charges[0].why) == ([], "reclaim")


async def test_a_reclaim_without_notice(world: CloudWorld) -> None:
    name = await with_machine(world)
    wish(world, name, 0)
    await world.tick()
    assert (world.nodes, world.api.evicted, world.charges[0].why) == ([], [], "reclaim")
    assert world.machines.history == [f"boot {name}", f"kill {name}"]


async def test_a_machine_that_is_as_old_as_its_group_allows_is_reclaimed_with_notice(world: CloudWorld) -> None:
    world.api.put(NODE_GROUPS, group_object(maxAgeSeconds=100))
    name = await with_machine(world)
    world.node(name)["metadata"]["creationTimestamp"] = stamp(world.now)
    assert await world.tick(80) <= 20
    assert world.api.evicted == []
    await world.tick(20)
    assert world.api.evicted == [("w0", 30)]
    await world.tick(31)
    assert (world.nodes, world.charges[0].why) == ([], "reclaim-notice")


async def test_a_worker_that_the_controller_moves_by_plan_is_off_an_old_machine_in_time(tmp_path: Path) -> None:
    """Then it goes as an idle one, and nothing was reclaimed."""
    world = CloudWorld(tmp_path)
    world.api.put(NODE_GROUPS, group_object(maxAgeSeconds=1000, labels={"ebb.dev/node-group": "t4-a"}))
    name = await with_machine(world)
    world.node(name)["metadata"]["creationTimestamp"] = stamp(world.now)
    born, platform = world.now, make_platform(make_group("t4-a", max_age_seconds=1000))
    leaves = leave_at(world.node(name), platform, index=0, workers=1)
    assert leaves is not None
    await world.tick(leaves - world.now)
    assert world.api.evicted == []
    world.remove(PODS, "w0", "jobs")
    await world.tick()
    await world.tick(20)
    await world.tick(1)
    assert (world.nodes, world.charges[0].why, world.api.evicted) == ([], "idle", [])
    assert world.now < born + 1000


async def test_a_disruption_budget_only_delays_an_eviction(world: CloudWorld) -> None:
    name = await with_machine(world)
    world.api.put(PODS, pod_object(node=name, labels={"budget": "0"}))
    wish(world, name, 20)
    await world.tick()
    assert world.api.evicted == []
    world.api.put(PODS, pod_object(node=name))
    await world.tick(5)
    assert world.api.evicted == [("w0", 15)]


async def test_an_on_demand_machine_is_not_reclaimed(world: CloudWorld) -> None:
    world.api.put(NODE_GROUPS, group_object(capacityType="on-demand"))
    name = await with_machine(world)
    wish(world, name, 20)
    await world.tick()
    await world.tick(21)
    assert (world.nodes, world.node(name)["metadata"]["annotations"]) == ([name], {})


async def test_a_machine_that_dies_by_itself(world: CloudWorld) -> None:
    name = await with_machine(world)
    world.machines.alive[name] = False
    await world.tick(1)
    assert (world.nodes, world.charges[0].why, world.machines.history[-1]) == ([], "vanished", f"kill {name}")


async def test_a_machine_that_died_while_it_was_being_reclaimed(world: CloudWorld) -> None:
    name = await with_machine(world)
    wish(world, name, 20)
    await world.tick()
    del world.machines.alive[name]
    await world.tick(1)
    assert (world.nodes, world.charges[0].why) == ([], "reclaim-notice")


async def test_machines_of_a_deleted_group_are_drained(world: CloudWorld) -> None:
    name = await with_machine(world)
    world.remove(NODE_GROUPS, "t4-a")
    await world.tick()
    await world.tick()
    assert (world.nodes, world.api.evicted) == ([name], [("w0", 30)])
    world.remove(PODS, "w0", "jobs")
    await world.tick(1)
    assert (world.nodes, world.charges[0].why) == ([], "group-deleted")


async def test_a_machine_that_was_asked_for_by_a_group_deleted_since(world: CloudWorld) -> None:
    world.api.put(PODS, pod_object())
    await world.tick()
    world.remove(NODE_GROUPS, "t4-a")
    await world.tick(30)
    assert (world.machines.history, world.charges[0].why) == ([f"kill {world.charges[0].machine}"], "group-deleted")


async def test_machines_and_nodes_that_nobody_asked_for_go(world: CloudWorld) -> None:
    world.machines.alive["stray"] = True
    world.api.put(NODES, {"metadata": {"name": "ghost"}, "spec": {}, "status": {}})
    await world.tick()
    assert (world.nodes, world.machines.alive) == ([], {})


async def test_a_boot_that_fails_is_tried_again_later(tmp_path: Path) -> None:
    world = CloudWorld(tmp_path)
    world.api.put(NODE_GROUPS, group_object(bootSeconds=0))
    world.api.put(PODS, pod_object())
    world.machines.fails = True
    await world.tick()
    await world.tick(1)
    assert world.charges[0].why == "boot-failed"
    await world.tick(1)
    assert (len(world.charges), world.events[-1][1]) == (1, "pod didn't trigger scale-up: 1 in backoff after failed scale-up")
    assert "the last boot failed" in world.api.of(NODE_GROUPS)[0]["status"]["message"]
    world.machines.fails = False
    await world.tick(30)
    await world.tick(1)
    await world.tick(1)
    assert [charge.why for charge in world.charges] == ["boot-failed", None]
    assert len(world.nodes) == 1


async def test_a_dry_zone_is_read_at_every_tick(world: CloudWorld) -> None:
    (world.folder / "dry").write_text('["local-a"]')
    world.api.put(PODS, pod_object())
    await world.tick()
    assert world.events == [("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 zone local-a is out of capacity")]
    assert "python -m devcluster restore local-a" in world.api.of(NODE_GROUPS)[0]["status"]["message"]
    (world.folder / "dry").write_text("[]")
    await world.tick(1)
    assert len(world.charges) == 1


async def test_a_pod_that_goes_during_a_tick_is_told_nothing(world: CloudWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Leaving.step

    async def slow(leaving: Leaving, *arguments: Any) -> float:
        for key in [key for key in world.api.objects if key[0] == PODS]:
            del world.api.objects[key]
        return await step(leaving, *arguments)

    monkeypatch.setattr(Leaving, "step", slow)
    world.api.put(PODS, pod_object())
    await world.tick()
    assert (world.events, len(world.charges)) == ([], 1)


async def test_a_pod_is_told_once(tmp_path: Path) -> None:
    world = CloudWorld(tmp_path)
    world.api.put(PODS, pod_object())
    for _ in range(3):
        await world.tick(1)
    assert world.events == [("NotTriggerScaleUp", "pod didn't trigger scale-up: there are no node groups")]


@pytest.mark.parametrize("content", ["{", "3", '["local-a", 3]'], ids=["no JSON", "no list", "no zone"])
async def test_a_garbled_dry_file_counts_as_none(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    world = CloudWorld(tmp_path)
    (tmp_path / "dry").write_text(content)
    world.api.put(NODE_GROUPS, group_object(min=1))
    await world.tick()
    await world.tick()
    assert len(world.charges) == 1
    assert caplog.text.count("must be a JSON list of zones") == 1


async def test_the_delay_is_a_setting_of_the_box(tmp_path: Path) -> None:
    world = CloudWorld(tmp_path)
    (tmp_path / "cloud.json").write_text('{"scaleDownDelaySeconds": 3}')
    world.api.put(NODE_GROUPS, group_object())
    await with_machine(world)
    world.remove(PODS, "w0", "jobs")
    await world.tick()
    await world.tick(3)
    await world.tick(1)
    assert world.nodes == []


async def test_group_status_and_the_autoscalers_status(world: CloudWorld) -> None:
    await with_machine(world)
    await world.tick()
    assert world.api.of(NODE_GROUPS)[0]["status"] == {"machines": 1, "ready": 1, "message": ""}
    assert (
        "cloudProviderTarget: 1" in world.api.objects[CONFIG_MAPS, "kube-system", "cluster-autoscaler-status"]["data"]["status"]
    )


async def test_a_lost_api_server_changes_nothing(world: CloudWorld) -> None:
    name = await with_machine(world)
    wish(world, name, 20)
    world.api.down = True
    await world.tick()
    world.api.down = False
    assert world.api.evicted == []
    await world.tick(1)
    assert world.api.evicted == [("w0", 20)]


async def test_claims_get_volumes(world: CloudWorld, monkeypatch: Any) -> None:
    monkeypatch.setattr("devcluster.cloud.volumes.os.chown", lambda *_: None)
    spec = {"storageClassName": "ebb-shared", "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    world.api.put(CLAIMS, {"metadata": {"namespace": "jobs", "name": "data", "uid": "u"}, "spec": spec})
    await world.tick()
    assert {item["metadata"]["name"] for item in world.api.of(VOLUMES)} == {"pvc-u", "ebb-environment"}
    assert (world.folder / "volumes" / "jobs-data").is_dir()
    world.remove(CLAIMS, "data", "jobs")
    await world.tick()
    assert [item["metadata"]["name"] for item in world.api.of(VOLUMES)] == ["ebb-environment"]
    assert (world.folder / "volumes" / "jobs-data").is_dir()


async def test_a_claim_without_a_folder_is_told_why(world: CloudWorld) -> None:
    (world.folder / "volumes").write_text("a file in the way")
    spec = {"storageClassName": "ebb-shared", "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    world.api.put(CLAIMS, {"metadata": {"namespace": "jobs", "name": "data", "uid": "u"}, "spec": spec})
    await world.tick()
    ((reason, message),) = world.events
    assert reason == "ProvisioningFailed"
    assert "cannot make folder" in message


async def test_a_machine_costs_from_boot_to_end(world: CloudWorld) -> None:
    name = await with_machine(world)
    wish(world, name, 0)
    await world.tick(36)
    (charge,) = world.charges
    assert charge.usd(now=9999) == pytest.approx(36 * 0.36 / 3600)


def test_a_second_daemon_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import fcntl

    box = Box(name="b", slot=0, home=tmp_path)
    box.folder.mkdir(parents=True)
    with (box.folder / "cloud.lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run(box) == EXIT_REFUSED
    assert "has a daemon already (pid 4711)" in capsys.readouterr().out
