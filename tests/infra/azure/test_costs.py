"""Costs on Azure: held to values reckoned by hand from the list."""

from typing import Any

import pytest

from infra.account import costs
from tests.infra.azure import stacks


def lines(own: dict[str, Any] | None = None, **azure: Any) -> dict[str, Any]:
    found = costs.sheet(stacks.stack(own, **azure))
    assert found is not None
    return {line.what: (line.idle, line.full) for line in found.lines}


def always(usd: float) -> Any:
    return (pytest.approx(usd), pytest.approx(usd))


def test_each_line_is_what_one_reckons_by_hand() -> None:
    assert lines() == {
        "machines: manager": always(0.192),
        "machines: spot-t4-westus2-1": (0.0, pytest.approx(8 * 0.526 * 0.4)),
        "machines: spot-t4-westus2-2": (0.0, pytest.approx(8 * 0.526 * 0.4)),
        "machines: on-demand-t4-westus2-1": (pytest.approx(0.526), pytest.approx(2 * 0.526)),
        "AKS control plane": always(0.10),
        "NAT gateway": always(0.05),
        "the share's private address": always(0.01 + 0.50 / 730),
        "disks: manager and etcd": always((10.21 + 2.40) / 730),
        "file share": always(150 * 0.20 / 730),
        "container registry": always(0.667 / 24),
    }  # T4 machines have their system on their own disks


def test_what_is_cheaper() -> None:
    found = lines(cluster=stacks.cluster(tier="free"), storage={"files": {"redundancy": "local"}}, network=stacks.EXISTING)
    assert "AKS control plane" not in found
    assert "NAT gateway" not in found
    assert found["file share"] == always(150 * 0.16 / 730)


def test_machines_without_a_disk_of_their_own_pay_for_one() -> None:
    own = {**stacks.small(), "nodeGroups": [{"gpu": "A100-80GB", "zones": ["westus2-1"], "max": 4}]}
    assert lines(own)["disks: machines for jobs"] == (0.0, pytest.approx(4 * 19.71 / 730))


def test_the_share_is_as_fast_as_it_is_large() -> None:
    found = costs.sheet(stacks.stack())
    assert found is not None
    assert "150 GiB reads and writes 115 MiB/s" in found.advice[0]
    assert costs.sheet(stacks.stack(storage={"files": {"shareId": stacks.SHARE}})).advice == ()  # type: ignore[union-attr]


def test_a_second_manager_machine_costs_itself_and_its_disk() -> None:
    own = stacks.small()
    own["manager"]["count"] = 2
    found = lines(own)
    assert found["machines: manager-2"] == always(0.192)
    assert found["disks: manager and etcd"] == always((2 * 10.21 + 2.40) / 730)
