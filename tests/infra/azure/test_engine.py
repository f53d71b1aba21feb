"""The Azure stack on the real engine, against the echo: what the tests over all clouds do not ask.

One stack goes from change to change; each test sees what its own does.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from testing.pulumi.mocks.engine import Stack
from testing.pulumi.mocks.run import Run, name_of, type_of
from tests.infra.azure.case import AGENT_POOL, CASE, CLUSTER, NETWORK, SUBNET

pytestmark = pytest.mark.e2e
DISK, RIGHT = "azure-native:compute:Disk", "azure-native:authorization:RoleAssignment"
POOLS = {"t4-westus2-1", "t4-westus2-2", "on-demand-t4-westus2-1", "spot-a100-westus2-1", "spot-a100-westus2-2"}
Change = tuple[tuple[str, ...], Any]


class Living:
    """A stack that is up."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._made = stack, list[Change]()
        stack.up()

    def planned(self, *change: Change) -> Run:
        """What a change would do."""
        self._stack.configure(CASE.values(*self._made, *change))
        return self._stack.preview()

    def up(self, *change: Change) -> tuple[Run, list[tuple[str, str]]]:
        """What a change does, and what the plugins were asked meanwhile: method and URN."""
        self._made += change
        self._stack.configure(CASE.values(*self._made))
        before = len(self._stack.calls())
        run = self._stack.up()
        return run, [(call["method"], call["urn"]) for call in self._stack.calls()[before:]]


@pytest.fixture(scope="module")
def living() -> Iterator[Living]:
    with Stack("azure", CASE.values()) as stack:
        yield Living(stack)


def replaced(run: Run) -> set[tuple[str, str]]:
    return {(type_of(urn), name_of(urn)) for urn in run.urns("replace")}


def test_another_network_shows_all_that_is_in_it_before_anything_is_touched(living: Living) -> None:
    """The provider knows of none of it: it would ask Azure to change the ranges, and Azure would refuse."""
    found = replaced(living.planned(CASE.cidr))
    assert {(NETWORK, "ebb-azure"), (SUBNET, "ebb-azure-machines"), (SUBNET, "ebb-azure-endpoints")} <= found
    assert {(AGENT_POOL, name) for name in POOLS} <= found


def test_another_zone_of_the_manager_shows_that_etcds_disk_goes(living: Living) -> None:
    run = living.planned((("ebb:manager", "zone"), "westus2-2"))
    assert (DISK, "ebb-azure-etcd") in replaced(run)
    assert run.step("ebb-azure-etcd").diff == {"zones[0]": "update-replace"}
    assert not {kind for kind, _ in replaced(run)} & {CLUSTER, AGENT_POOL}


def test_infiniband_updates_its_pools_and_adds_what_runs_for_it(living: Living) -> None:
    run = living.planned((("ebb:nodeGroups", 2, "azure"), {"infiniband": True}))  # type: ignore[arg-type]
    done = {(type_of(urn), name_of(urn)): what for urn, what in run.changes.items()}
    assert {name: what for (kind, name), what in done.items() if kind == AGENT_POOL} == {
        "spot-a100-westus2-1": "update", "spot-a100-westus2-2": "update"
    }  # fmt: skip
    made = {name for (kind, name), what in done.items() if what == "create" and kind.startswith("kubernetes:")}
    assert made == {"rdma-device-plugin", "ebb-rdma"}


def test_another_disk_replaces_the_pools_alone_and_each_old_one_goes_first(living: Living) -> None:
    """Both have the same name: one that came first would be the old one, changed, and the deletion would take it."""
    run, asked = living.up((("ebb:azure", "nodes"), {"diskGiB": 256}))
    assert replaced(run) == {(AGENT_POOL, name) for name in POOLS}
    assert set(run.changes.values()) == {"replace"}
    assert run.step("t4-westus2-1").diff == {"osDiskSizeGB": "update-replace", "osDiskType": "update-replace"}
    for urn in run.urns("replace"):
        assert [method for method, of in asked if of == urn and method in ("Create", "Delete")] == ["Delete", "Create"]


def test_an_upgrade_of_kubernetes_updates_cluster_and_pools_and_replaces_nothing(living: Living) -> None:
    """Its preview says more: who the machines are, the provider does not tell of a cluster that is to change."""
    upgrade: Change = (("ebb:azure", "cluster", "kubernetesVersion"), "1.36")
    assert replaced(living.planned(upgrade)) == {(RIGHT, "ebb-azure-pull")}
    run, _ = living.up(upgrade)
    assert {(type_of(urn), done) for urn, done in run.changes.items()} == {(CLUSTER, "update"), (AGENT_POOL, "update")}
    order = [type_of(urn) for urn in run.finished("update")]
    assert order[0] == CLUSTER, "no pool may be newer than its cluster"
