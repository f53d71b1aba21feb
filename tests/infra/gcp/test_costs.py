"""Costs on Google Cloud: held to values reckoned by hand."""

from typing import Any

import pytest

from infra.account import costs
from tests.infra.gcp import stacks


def lines(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """What it is -> USD per hour idle and full."""
    found = costs.sheet(stacks.stack(changes))
    assert found is not None
    return {line.what: (pytest.approx(line.idle), pytest.approx(line.full)) for line in found.lines}


def test_each_line_is_what_one_reckons_by_hand() -> None:
    disk, t4 = 200 * 0.10 / 730, 0.189999 + 0.35
    assert lines() == {
        "machines: manager": (0.134, 0.134),
        **{f"machines: spot-t4-us-central1-{one}": (0.0, round(t4 * 0.4, 4) * 64) for one in "abc"},
        **{f"machines: spot-a100-us-central1-{one}": (0.0, 15.2813 * 8) for one in "abc"},
        "machines: on-demand-t4-us-central1-a": (0.0, round(t4, 4) * 2),
        "GKE control plane": (0.10, 0.10),
        "NAT": (0.005 + 0.0014, 0.005 + 32 * 0.0014),  # no more is charged from 32 machines on
        "disks: manager and etcd": (60 * 0.10 / 730, 60 * 0.10 / 730),
        "disks: machines for jobs": (0.0, 218 * disk),
        "Filestore": (1024 * 0.25 / 730, 1024 * 0.25 / 730),
        "Artifact Registry": (4.1 * 0.10 / 730, 4.1 * 0.10 / 730),
    }


def test_what_exists_already_costs_nothing_here() -> None:
    network = {"name": "n", "subnet": "s", "podsRange": "p", "servicesRange": "v"}
    found = lines({"gcp.network": network, "gcp.storage.filestore": {"address": "10.0.0.2"}})
    assert not {"NAT", "Filestore"} & set(found)


def test_lustre_costs_by_size_and_throughput() -> None:
    found = lines({"gcp.storage.lustre": {"zone": "us-central1-a", "sizeGiB": 36000}})
    assert found["Managed Lustre"][0] == pytest.approx(36000 * 0.34 / 730)


def test_flex_start_says_what_it_reckons_with() -> None:
    line = {"gpu": "H100", "capacity": "flex-start", "maxAgeHours": 48, "max": 2, "zones": ["us-central1-a"]}
    found = costs.sheet(stacks.stack({"nodeGroups": [line]}))
    assert found is not None
    assert any("flex-start at the on-demand price" in one for one in found.basis)


def test_a_second_manager_machine_costs_itself_and_its_disk() -> None:
    found = lines({"manager.count": 2})
    assert found["machines: manager-2"] == (0.134, 0.134)
    assert found["disks: manager and etcd"] == (110 * 0.10 / 730, 110 * 0.10 / 730)
    assert found["NAT"] == (0.005 + 2 * 0.0014, 0.005 + 32 * 0.0014)
    assert found["disks: machines for jobs"] == lines()["disks: machines for jobs"]
