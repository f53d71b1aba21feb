"""The memory that machines of EC2 offer to pods, beside what was seen of real ones."""

from types import SimpleNamespace
from typing import Any

import pytest

from infra import catalog
from workloads.cluster import SPOT, InstanceType, NodeGroup

WITH_EFA, WITHOUT = SimpleNamespace(efa=True), SimpleNamespace(efa=False)


def machine(name: str) -> InstanceType:
    found = catalog.by_name("aws", name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "settings", "seen_mib"),
    [
        pytest.param("g6.4xlarge", WITHOUT, 58_981, id="pytorch/ci-infra#1082"),
        # its e820 map has 1,139.7 GiB, of which page structures take 1/64, the kubelet 8,462 MiB and huge pages 10,256 MiB
        pytest.param("p4d.24xlarge", WITH_EFA, 1_130_090, id="p4d"),
    ],
)
def test_machines_that_were_seen_offer_at_least_that(name: str, settings: Any, seen_mib: int) -> None:
    assert 0.98 * seen_mib < machine(name).allocatable_mib(settings) <= seen_mib


def test_a_group_of_several_types_offers_what_the_least_does() -> None:
    less, more = machine("g5.2xlarge"), machine("g4dn.2xlarge")  # 32 GiB both, of which the first keeps more for its many pods
    group = NodeGroup(
        name="workers", zone="a", instance=more, others=(less,), capacity_type=SPOT, min=0, max=8, notice_seconds=30
    )
    assert group.facts()["allocatableMemoryGiB"] == less.allocatable_mib(None) / 1024 < more.allocatable_mib(None) / 1024
