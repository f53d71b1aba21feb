"""The memory that machines of Compute Engine offer to pods on GKE, beside what was seen of real ones."""

import pytest

from infra.clouds.gcp.catalog import GcpInstance


# https://github.com/2i2c-org/infrastructure/issues/2121
@pytest.mark.parametrize(
    ("name", "memory_gib", "seen_mib"),
    [("n2-highmem-4", 32, 28_404), ("n2-highmem-16", 128, 119_346), ("n2-highmem-64", 512, 498_636)],
)
def test_machines_that_were_seen_offer_at_least_that(name: str, memory_gib: int, seen_mib: int) -> None:
    instance = GcpInstance(name=name, machine_type=name, cpu=4, memory_gib=memory_gib, usd_per_hour=1.0)
    assert 0.98 * seen_mib < instance.allocatable_mib(None) <= seen_mib
