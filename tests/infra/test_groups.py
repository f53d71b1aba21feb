"""From lines of the settings to node groups. More of it, over a large catalog, is in aws/test_groups.py."""

from dataclasses import dataclass

from infra import config, groups
from tests.infra.stacks import ROOT, settings
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
