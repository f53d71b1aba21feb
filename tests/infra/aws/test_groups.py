"""From lines of the settings to node groups, with AWS's catalog: by example, and as properties of generated settings."""

import random
import re
from functools import cache
from typing import Any

import pytest

from infra import catalog, config, groups
from infra.config.checks import NAME_LENGTH
from tests.infra.stacks import ROOT, settings
from tests.infra.test_groups import expanded
from workloads.cluster import NodeGroup

SEEDS = range(200)
CAPACITIES = ("spot", "on-demand", "capacity-block")


def test_the_groups_of_the_large_stack() -> None:
    stack = config.read("imagenet")
    large, old, _ = expanded(stack)
    assert (large.name, large.zone, large.instance.name, large.image) == (
        "on-demand-p4d-24xlarge-us-west-2b", "us-west-2b", "p4d.24xlarge", "efa"
    )  # fmt: skip
    assert (large.min, large.max, large.notice_seconds, large.usd_per_hour) == (0, 8, 0, 21.9576)
    assert (large.settings.efa, large.settings.placement_group) == (True, True)
    assert large.labels == {
        "ebb.dev/node-group": "on-demand-p4d-24xlarge-us-west-2b",
        "ebb.dev/capacity-type": "on-demand",
        "ebb.dev/gpu-type": "A100",
    }
    assert (old.name, old.image, old.notice_seconds, old.usd_per_hour) == ("spot-p3-8xlarge-us-west-2b", "cuda12", 120, 4.896)
    assert [taint["key"] for taint in old.taints] == ["nvidia.com/gpu", "ebb.dev/capacity-type"]


def test_the_manager_is_one_machine_on_demand() -> None:
    manager = groups.manager_group(config.read("dev"))
    assert (manager.name, manager.zone, manager.instance.name) == ("manager", "us-west-2a", "m7i.large")
    assert (manager.capacity_type, manager.min, manager.max, manager.taints) == ("on-demand", 1, 1, [])


def test_further_instance_types_are_of_the_same_shape() -> None:
    line = {"instanceTypes": ["m7i.large", "m6i.large", "m5.large"], "max": 1, "zones": ["us-west-2a"]}
    [group] = expanded(config.parse(settings("dev") | {"nodeGroups": [line], "jobs": []}, ROOT))
    assert (group.name, group.instance.name, [one.name for one in group.others]) == (
        "spot-m7i-large-us-west-2a", "m7i.large", ["m6i.large", "m5.large"]
    )  # fmt: skip
    assert (group.labels.get("ebb.dev/gpu-type"), [taint["key"] for taint in group.taints]) == (None, ["ebb.dev/capacity-type"])


def generated(seed: int) -> dict[str, Any]:
    """Settings of a stack on AWS that are right, with 2 to 4 zones and up to five lines."""
    chance = random.Random(seed)
    zones = [f"us-west-2{letter}" for letter in sorted(chance.sample("abcdef", chance.randint(2, 4)))]
    lines = [_line(chance, zones, number) for number in range(chance.randint(0, 5))]
    values = settings("dev") | {
        "zones": zones,
        "manager": {"zone": chance.choice(zones), "instanceType": chance.choice(catalog.names("aws", gpus=False))},
        "nodeGroups": lines,
        "trainers": {"old": {"cuda": "12.6"}},
        "jobs": [],
    }
    values["aws"].pop("drill", None)
    return values


@cache
def generated_stack(seed: int) -> config.Stack:
    return config.parse(generated(seed), ROOT)


def _line(chance: random.Random, zones: list[str], number: int) -> dict[str, Any]:
    """One line. Names differ by its number; everything else is as it comes."""
    capacity = chance.choice(CAPACITIES)
    some = sorted(chance.sample(zones, 1 if capacity == "capacity-block" else chance.randint(1, len(zones))))
    least = chance.randint(0, 2)
    line: dict[str, Any] = {"name": f"line{number}", "capacity": capacity, "min": least, "max": least + chance.randint(0, 15)}
    machine = chance.choice(catalog.types("aws"))
    by_gpu = machine.gpus and chance.random() < 0.5
    line |= {"gpu": _spelt(chance, machine.gpu_type)} if by_gpu else {"instanceTypes": [machine.name]}
    used = catalog.by_gpu("aws", machine.gpu_type) if by_gpu else machine
    assert used is not None
    if machine.gpu_type.startswith("V100"):
        line["image"] = "old"
    if len(some) < len(zones) or chance.random() < 0.5:
        line["zones"] = some
    own: dict[str, Any] = {"efa": bool(getattr(used, "efa", 0)) and chance.random() < 0.5}
    if capacity == "capacity-block":
        own["capacityReservationId"] = f"cr-{number:017x}"
        line["zones"] = some
    return line | {"aws": own}


def _spelt(chance: random.Random, gpu: str) -> str:
    return chance.choice((gpu, gpu.lower(), gpu.upper()))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_group_is_what_its_line_says(seed: int) -> None:
    stack = generated_stack(seed)
    found = expanded(stack)
    wanted = [(line, zone) for line in stack.node_groups for zone in line.zones or stack.zones]
    assert [group.zone for group in found] == [zone for _, zone in wanted]
    assert len({group.name for group in found} | {groups.manager_group(stack).name}) == len(found) + 1
    for group, (line, zone) in zip(found, wanted, strict=True):
        assert group.name == f"{line.name}-{zone}"
        _is_sound(group, stack)
        _agrees(group, line)


def _is_sound(group: NodeGroup, stack: config.Stack) -> None:
    """Whatever the line: the group can be made."""
    assert re.fullmatch("[a-z][a-z0-9-]*[a-z0-9]", group.name)
    assert len(group.name) <= NAME_LENGTH
    assert group.zone in stack.zones
    assert 0 <= group.min <= group.max
    assert all(len(value) <= 63 for value in group.labels.values())
    assert {one.shape["vCPU"] for one in (group.instance, *group.others)} == {group.instance.cpu}


def _agrees(group: NodeGroup, line: config.NodeGroupSettings) -> None:
    """Labels, taints, prices and `ebb-platform` are of the capacity and the GPUs that the line asks for."""
    labels, taints, facts = group.labels, {taint["key"] for taint in group.taints}, group.facts()
    assert labels["ebb.dev/node-group"] == group.name == facts["name"]
    assert labels["ebb.dev/capacity-type"] == line.capacity == facts["capacityType"]
    assert labels.get("ebb.dev/gpu-type", "") == group.instance.gpu_type == facts["gpuType"]
    assert ("nvidia.com/gpu" in taints) == (group.instance.gpus > 0) == bool(facts["gpuType"])
    assert ("ebb.dev/capacity-type" in taints) == (line.capacity == "spot") == (group.notice_seconds > 0)
    assert (group.usd_per_hour < 0.9 * group.instance.usd_per_hour) == (line.capacity == "spot")
    assert (group.image, facts["min"], facts["max"]) == (line.image, line.min, line.max)
    assert not line.gpu or group.instance.gpu_type.lower() == line.gpu.lower()
    assert not group.settings.efa or getattr(group.instance, "efa", 0) > 0
    assert bool(group.settings.capacity_reservation_id) == (line.capacity == "capacity-block")


def test_the_generated_settings_differ_enough() -> None:
    """Else the property above says little."""
    found = [group for seed in SEEDS for group in expanded(generated_stack(seed))]
    assert {group.capacity_type for group in found} == set(CAPACITIES)
    assert len({group.instance.name for group in found}) > 50
    assert len(found) > 800
    assert any(group.settings.efa for group in found)
