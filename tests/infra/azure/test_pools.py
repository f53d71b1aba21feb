"""Agent pools: one for each node group, and what they say to Azure, to Kubernetes and to the autoscaler agrees."""

import json
import random
import re
from typing import Any

import pytest
import yaml

from infra.clouds.azure import machine, names, pools
from infra.clouds.azure.catalog import TYPES
from infra.clouds.azure.checks import pools as names_of_pools
from infra.clouds.azure.settings import GroupSettings
from tests.infra.azure import stacks
from tests.infra.azure.world import inputs, world
from tests.infra.stacks import problems
from workloads.cluster import NodeGroup

MARK = "kubernetes.azure.com/scalesetpriority"


def pool(name: str = "spot-t4-westus2-1") -> dict[str, Any]:
    return inputs(world(), "AgentPool", name)


def test_one_pool_for_each_zone_of_a_line() -> None:
    assert set(world().named("AgentPool")) == {"spot-t4-westus2-1", "spot-t4-westus2-2", "on-demand-t4-westus2-1"}
    assert pool()["availabilityZones"] == ["1"]
    assert pool("spot-t4-westus2-2")["availabilityZones"] == ["2"]


def test_a_spot_pool() -> None:
    made = pool()
    assert (made["scaleSetPriority"], made["scaleSetEvictionPolicy"], made["spotMaxPrice"]) == ("Spot", "Delete", -1)
    assert (made["minCount"], made["maxCount"], made["count"], made["enableAutoScaling"]) == (0, 8, 0, True)
    assert made["vmSize"] == "Standard_NC4as_T4_v3"
    assert made["gpuProfile"] == {"driver": "Install"}
    assert "upgradeSettings" not in made, "AKS refuses them for spot pools"
    assert made["localDNSProfile"] == {"mode": "Disabled"}, "it answers at a link-local address, which jobs may not reach"
    assert world().one("AgentPool", "spot-t4-westus2-1").ignore_changes == ("count",), "the autoscaler owns it"


def test_an_on_demand_pool() -> None:
    made = pool("on-demand-t4-westus2-1")
    assert (made["scaleSetPriority"], made["minCount"], made["maxCount"]) == ("Regular", 1, 2)
    assert not {"scaleSetEvictionPolicy", "spotMaxPrice"} & set(made)
    assert made["upgradeSettings"] == {"maxSurge": "0", "maxUnavailable": "1"}
    assert MARK not in made["nodeLabels"]
    assert made["nodeTaints"] == ["nvidia.com/gpu=present:NoSchedule"]


def test_what_aks_puts_on_spot_machines_is_declared_and_told_to_jobs() -> None:
    made = pool()
    assert made["nodeLabels"][MARK] == "spot"
    assert f"{MARK}=spot:NoSchedule" in made["nodeTaints"]
    platform = json.loads(world().one("ConfigMap", "ebb-platform").inputs["data"]["platform.json"])
    told = {group["name"]: group for group in platform["nodeGroups"]}["spot-t4-westus2-1"]
    assert {"key": MARK, "value": "spot", "effect": "NoSchedule"} in told["taints"]
    assert [f"{one['key']}={one['value']}:{one['effect']}" for one in told["taints"]] == made["nodeTaints"]
    assert told["labels"] == made["nodeLabels"]
    assert (told["noticeSeconds"], told["zone"], told["provisionSeconds"]) == (30, "westus2-1", 720)


def test_the_autoscaler_knows_every_pool_and_takes_spot_first() -> None:
    config_map = inputs(world(), "ConfigMap", pools.EXPANDER)
    assert config_map["metadata"] == {"name": "cluster-autoscaler-priority-expander", "namespace": "kube-system"}
    listed = yaml.safe_load(config_map["data"]["priorities"])
    where = {}
    for made in world().all("AgentPool"):
        scale_set = f"aks-{made.inputs['agentPoolName']}-12345678-vmss"
        [where[made.name]] = [number for number, patterns in listed.items() if any(re.search(one, scale_set) for one in patterns)]
    assert where["spot-t4-westus2-1"] == where["spot-t4-westus2-2"] > where["on-demand-t4-westus2-1"]


def test_the_device_plugin_runs_where_gpus_are() -> None:
    daemons = world().one("DaemonSet", "nvidia-device-plugin").inputs["spec"]["template"]["spec"]
    [term] = daemons["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "ebb.dev/gpu-type", "operator": "In", "values": ["T4"]}]


def test_without_gpus_there_is_no_plugin() -> None:
    own = {**stacks.small(), "nodeGroups": [{"instanceTypes": ["Standard_D4s_v5"], "max": 2}]}
    found = world(stacks.stack(own))
    assert [made.name for made in found.all("DaemonSet")] == ["daemon-set-ebb-notices"]
    assert "gpuProfile" not in found.one("AgentPool", "spot-standard_d4s_v5-westus2-1").inputs


def test_machines_close_to_each_other() -> None:
    own = stacks.small()
    own["nodeGroups"] = [{"gpu": "H100", "zones": ["westus2-1"], "max": 4, "azure": {"proximity": True}}]
    found = world(stacks.stack(own))
    [made] = found.all("AgentPool")
    assert made.inputs["proximityPlacementGroupID"] == f"ProximityPlacementGroup-{made.name}"


@pytest.mark.parametrize(
    ("size", "own", "expected"),
    [
        pytest.param("Standard_NC4as_T4_v3", {}, (128, "Ephemeral"), id="on its own disk"),
        pytest.param("Standard_NC4as_T4_v3", {"disk_gib": 256}, (256, "Managed"), id="larger than its own disk"),
        pytest.param("Standard_NC24ads_A100_v4", {}, (128, "Managed"), id="a small disk of its own"),
        pytest.param("Standard_D4s_v5", {}, (128, "Managed"), id="no disk of its own"),
    ],
)
def test_the_system_disk(size: str, own: dict[str, Any], expected: tuple[int, str]) -> None:
    instance = next(one for one in TYPES if one.name == size)
    group = NodeGroup(
        name="g", zone="westus2-1", instance=instance, capacity_type="spot", min=0, max=1, notice_seconds=30,
        settings=GroupSettings.model_construct(**own),
    )  # fmt: skip
    assert machine.system_disk(group, stacks.stack().settings) == expected


def test_names_of_pools_are_what_aks_takes_whatever_the_group() -> None:
    chance = random.Random(7)
    gpus = ["", *{one.gpu_type for one in TYPES if one.gpu_type}]
    made = set()
    for number in range(3000):
        zone = f"westus2-{chance.randint(1, 3)}"
        name = names.pool(f"group-{number}-{zone}", chance.choice(["spot", "on-demand"]), chance.choice(gpus), zone)
        assert re.fullmatch("[a-z][a-z0-9]{0,11}", name), name
        made.add(name)
    assert len(made) == 3000


def test_a_pools_name_depends_on_its_own_group_alone() -> None:
    """Or another line would rename it, and take its machines."""
    fewer = stacks.small()
    more = {
        **fewer,
        "nodeGroups": [{"gpu": "H100", "max": 1}, *fewer["nodeGroups"]],
        "zones": ["westus2-2", "westus2-1", "westus2-3"],
    }
    assert {name: pool for _, name, pool in names_of_pools(stacks.stack(fewer))}.items() <= {
        name: pool for _, name, pool in names_of_pools(stacks.stack(more))
    }.items()


def test_two_groups_that_would_be_one_pool_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_hash", lambda text: "0000")
    own = stacks.small()
    own["nodeGroups"] = [{"gpu": "T4", "max": 1, "name": "one"}, {"gpu": "T4", "max": 1, "name": "two"}]
    said = problems(own)
    assert said == [
        f"nodeGroups[1].name: 'two-westus2-{zone}' and 'one-westus2-{zone}' would both be agent pool 'st4{zone}0000' "
        "(12 characters): set another `name`"
        for zone in (1, 2)
    ]


def test_two_manager_machines_are_two_system_pools_of_one() -> None:
    own = stacks.small()
    own["manager"]["count"] = 2
    found = world(stacks.stack(own))
    [first] = inputs(found, "ManagedCluster")["agentPoolProfiles"]
    second = inputs(found, "AgentPool", "manager-2")
    assert (first["availabilityZones"], second["availabilityZones"]) == (["1"], ["2"])
    assert second["agentPoolName"] == "manager2"
    same = set(first) - {"name", "availabilityZones"}
    assert {key: second[key] for key in same} == {key: first[key] for key in same}
    assert (second["mode"], second["count"], second["enableAutoScaling"]) == ("System", 1, False)
    assert found.one("ConfigMap", "cluster-autoscaler-priority-expander").inputs["data"]["priorities"].count("manager") == 0
