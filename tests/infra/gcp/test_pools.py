"""Node pools on Google Cloud: what machines are, how they are bought, and what the facts tell of them."""

import json
from typing import Any

import pulumi
import pytest

from infra.clouds.gcp import pools
from tests.infra.declared import Declared
from tests.infra.gcp.stacks import facts, usual, world

SPOT, ON_DEMAND = "spot-t4-us-central1-a", "on-demand-t4-us-central1-a"


def pool(made: Declared, name: str) -> dict[str, Any]:
    return made.one("NodePool", name).inputs


def test_a_group_is_a_pool_in_one_zone_from_zero() -> None:
    zones = {one.name: one.inputs["nodeLocations"] for one in usual().all("NodePool")}
    assert zones == {
        "manager": ["us-central1-a"],
        **{f"spot-{gpu}-us-central1-{letter}": [f"us-central1-{letter}"] for gpu in ("t4", "a100") for letter in "abc"},
        ON_DEMAND: ["us-central1-a"],
    }
    found = pool(usual(), SPOT)
    assert found["autoscaling"] == {"minNodeCount": 0, "maxNodeCount": 64, "locationPolicy": "ANY"}
    assert (found["initialNodeCount"], "nodeCount" in found) == (0, False)
    assert (pool(usual(), "manager")["nodeCount"], "autoscaling" in pool(usual(), "manager")) == (1, False)


def test_a_pool_carries_what_the_facts_tell() -> None:
    told = facts()
    for name, entry in told.items():
        node = pool(usual(), name)["nodeConfig"]
        assert node["labels"] == entry["labels"]
        effects = {"NO_SCHEDULE": "NoSchedule"}
        assert [{**taint, "effect": effects[taint["effect"]]} for taint in node["taints"]] == entry["taints"]
        assert node["guestAccelerators"][0]["count"] == entry["gpusPerNode"]
        assert pool(usual(), name)["autoscaling"]["maxNodeCount"] == entry["max"]


def test_only_spot_machines_are_spot_and_hold_up_their_shutdown() -> None:
    spot, always = pool(usual(), SPOT)["nodeConfig"], pool(usual(), ON_DEMAND)["nodeConfig"]
    assert spot["spot"] is True
    assert spot["kubeletConfig"] == {"shutdownGracePeriodSeconds": 120, "shutdownGracePeriodCriticalPodsSeconds": 15}
    assert ("spot" in always, "kubeletConfig" in always) == (False, False)
    assert {name: entry["noticeSeconds"] for name, entry in facts().items() if name in (SPOT, ON_DEMAND)} == {
        SPOT: 105,
        ON_DEMAND: 0,
    }


def test_an_older_cluster_leaves_pods_fifteen_seconds() -> None:
    changes = {"gcp.cluster.minVersion": "1.34", "gcp.nodes.shutdownGraceSeconds": 30}
    assert facts(changes)[SPOT]["noticeSeconds"] == 15
    assert "kubeletConfig" not in pool(world(changes), SPOT)["nodeConfig"]


@pytest.mark.parametrize(
    ("gpu", "image", "driver"),
    [("T4", "default", "LATEST"), ("L4", "default", "LATEST"), ("H100", "default", "LATEST"), ("V100", "old", "DEFAULT")],
)
def test_drivers_are_installed_that_know_the_gpu(gpu: str, image: str, driver: str) -> None:
    line = {"gpu": gpu, "max": 1, "zones": ["us-central1-a"], "name": "one", "image": image}
    made = world({"nodeGroups": [line], "trainers": {"old": {"cuda": "12.6"}}})
    accelerator = pool(made, "one-us-central1-a")["nodeConfig"]["guestAccelerators"]
    assert accelerator[0]["gpuDriverInstallationConfig"] == {"gpuDriverVersion": driver}


def test_flex_start_machines_are_kept_as_long_as_the_facts_say() -> None:
    line = {"gpu": "H100", "capacity": "flex-start", "maxAgeHours": 48, "max": 2, "zones": ["us-central1-a"]}
    made, name = world({"nodeGroups": [line]}), "flex-start-h100-us-central1-a"
    node = pool(made, name)["nodeConfig"]
    assert (node["flexStart"], node["maxRunDuration"]) == (True, "172800s")
    assert node["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert node["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 2}
    assert pool(made, name)["management"]["autoRepair"] is False
    told = facts({"nodeGroups": [line]})[name]
    assert (told["maxAgeSeconds"], told["capacityType"], [one["key"] for one in told["taints"]]) == (
        172800, "flex-start", ["nvidia.com/gpu"]
    )  # fmt: skip


def test_jobs_wait_for_flex_start_machines_an_hour_longer() -> None:
    line = {"gpu": "H100", "capacity": "flex-start", "maxAgeHours": 48, "max": 2, "zones": ["us-central1-a"], "name": "flex"}
    made = world({"nodeGroups[1]": line})
    told = json.loads(made.one("ConfigMap", "ebb-platform").inputs["data"]["platform.json"])["nodeGroups"]
    waits = {one["capacityType"]: one["provisionSeconds"] for one in told}
    assert waits["flex-start"] - waits["spot"] == 3600
    assert waits["spot"] == waits["on-demand"]


def test_preemptible_machines_have_no_longer_notice_than_google_gives() -> None:
    """30 s, 15 of which are the system's: GKE takes no other grace for them, and ends them then."""
    line = {"gpu": "T4", "maxAgeHours": 23.5, "max": 2, "zones": ["us-central1-a"], "gcp": {"preemptible": True}}
    assert facts({"nodeGroups": [line]})[SPOT]["noticeSeconds"] == 15
    assert "kubeletConfig" not in pool(world({"nodeGroups": [line]}), SPOT)["nodeConfig"]


def test_a_control_plane_that_is_too_old_for_the_notice_is_refused_with_what_to_do() -> None:
    assert pools.able(SPOT, "ebb-gcp", "1.35.0-gke.1171000") == "ebb-gcp"
    with pytest.raises(pulumi.RunError, match=r"1\.35\.0-gke\.1000000.*15 s of notice: set gcp\.nodes\.shutdownGraceSeconds: 30"):
        pools.able(SPOT, "ebb-gcp", "1.35.0-gke.1000000")
    assert pool(usual(), SPOT)["cluster"] == pool(usual(), ON_DEMAND)["cluster"] == "ebb-gcp"


def test_preemptible_machines_are_left_before_a_day() -> None:
    line = {"gpu": "T4", "maxAgeHours": 23.5, "max": 2, "zones": ["us-central1-a"], "gcp": {"preemptible": True}}
    node = pool(world({"nodeGroups": [line]}), SPOT)["nodeConfig"]
    assert (node["preemptible"], "spot" in node, node["labels"]["ebb.dev/capacity-type"]) == (True, False, "spot")
    assert facts({"nodeGroups": [line]})[SPOT]["maxAgeSeconds"] == 84600
    assert "maxAgeSeconds" not in facts()[SPOT]


def test_machines_are_placed_together_where_the_stack_says_so() -> None:
    line = {"gpu": "A100", "max": 2, "zones": ["us-central1-a"], "gcp": {"compactPlacement": True}}
    assert pool(world({"nodeGroups": [line]}), "spot-a100-us-central1-a")["placementPolicy"] == {"type": "COMPACT"}
    assert "placementPolicy" not in pool(usual(), SPOT)


def test_a_changed_min_is_not_another_pool() -> None:
    assert {one.ignore_changes for one in usual().all("NodePool")} == {("initialNodeCount",)}


def test_two_manager_machines_are_two_pools_of_one() -> None:
    made = world({"manager.count": 2})
    first, second = pool(made, "manager"), pool(made, "manager-2")
    assert (first["nodeLocations"], second["nodeLocations"]) == (["us-central1-a"], ["us-central1-b"])
    assert (second["nodeCount"], "autoscaling" in second) == (1, False)
    assert first["nodeConfig"]["labels"] == second["nodeConfig"]["labels"]
    assert first["nodeConfig"]["diskSizeGb"] == second["nodeConfig"]["diskSizeGb"] == 50
    assert first["upgradeSettings"] == second["upgradeSettings"]
