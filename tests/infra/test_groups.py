"""From lines of the settings to node groups. More of it, over a large catalog, is in aws/test_groups.py."""

from dataclasses import dataclass

import pytest

from infra import config, groups
from tests.infra.stacks import ROOT, changed, settings
from workloads.cluster import NodeGroup


@dataclass(frozen=True)
class Warns:
    """A cloud that gives notice."""

    notice_seconds: int = 120


def expanded(stack: config.Stack) -> list[NodeGroup]:
    return groups.job_groups(stack, Warns())


def test_a_gpu_may_be_spelt_in_any_case() -> None:
    stack = config.parse(settings() | {"nodeGroups": [{"gpu": "t4", "max": 1, "zones": ["local-b"]}]}, ROOT)
    [group] = expanded(stack)
    assert (group.name, group.zone, group.labels["ebb.dev/gpu-type"]) == ("spot-t4-local-b", "local-b", "T4")


@pytest.mark.parametrize(
    ("zone", "second"),
    [("local-a", "local-b"), ("local-b", "local-a"), ("local-c", "local-a")],
)
def test_a_second_manager_machine_is_in_another_zone(zone: str, second: str) -> None:
    """A group each, as one group over two zones may have both machines where etcd's disk is not."""
    values = changed(settings(), "manager.zone", zone)
    assert [(one.name, one.zone) for one in groups.manager_groups(config.parse(values, ROOT))] == [("manager", zone)]
    both = groups.manager_groups(config.parse(changed(values, "manager.count", 2), ROOT))
    assert [(one.name, one.zone, one.min, one.max) for one in both] == [("manager", zone, 1, 1), ("manager-2", second, 1, 1)]
    assert both[0].labels == both[1].labels == {"ebb.dev/node-group": "manager", "ebb.dev/capacity-type": "on-demand"}
    assert both[0].node_selector == both[1].node_selector
    assert all(one.is_manager for one in both)
