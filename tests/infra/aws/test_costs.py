"""Costs on AWS: held to values reckoned by hand."""

from typing import Any

import pytest

from infra.account import costs
from infra.clouds.aws import costs as aws_costs
from tests.infra.aws import stacks


def lines(**aws: Any) -> dict[str, Any]:
    """What it is -> USD per hour idle and full."""
    found = costs.sheet(stacks.stack(**aws))
    assert found is not None
    return {line.what: (line.idle, line.full) for line in found.lines}


def test_machines_without_disks_of_their_own_pay_for_a_big_and_fast_one() -> None:
    own = stacks.small(nodes={**stacks.values()["aws"]["nodes"], "diskGiB": 200, "diskThroughputMiB": 500})
    own["trainers"] = {"cuda12": {"cuda": "12.6"}}
    own["nodeGroups"] = [{"instanceTypes": ["p3.8xlarge"], "zones": ["us-west-2a"], "max": 4, "image": "cuda12"}]
    found = costs.sheet(stacks.stack(own))
    assert found is not None
    disk = (200 * 0.08 + (500 - 125) * 0.04) / 730  # 31 USD a month
    assert {line.what: line.full for line in found.lines}["disks: machines for jobs"] == pytest.approx(4 * disk)


def test_each_line_is_what_one_reckons_by_hand() -> None:
    found = lines(nodes={**stacks.values()["aws"]["nodes"], "diskGiB": 200, "diskThroughputMiB": 500, "managerDiskGiB": 50})
    disk = 50 * 0.08 / 730  # g4dn has NVMe disks of its own, so its system disk is small and slow
    assert found == {
        "machines: manager": (0.1008, 0.1008),
        "machines: spot-t4-us-west-2a": (0.0, pytest.approx(8 * 0.2104)),
        "machines: spot-t4-us-west-2b": (0.0, pytest.approx(8 * 0.2104)),
        "machines: on-demand-t4-us-west-2a": (pytest.approx(0.526), pytest.approx(1.052)),
        "EKS control plane": (0.10, 0.10),
        "NAT gateway": (pytest.approx(0.05), pytest.approx(0.05)),
        "disks: manager and etcd": (pytest.approx(60 * 0.08 / 730), pytest.approx(60 * 0.08 / 730)),
        "disks: machines for jobs": (pytest.approx(disk), pytest.approx(18 * disk)),
        "EFS": (pytest.approx(100 * 0.30 / 730), pytest.approx(100 * 0.30 / 730)),
        "ECR": (pytest.approx(4.1 * 0.10 / 730), pytest.approx(4.1 * 0.10 / 730)),
    }


def test_a_gateway_per_zone_and_endpoints_cost_by_zone() -> None:
    found = lines(network={"nat": "per-zone", "interfaceEndpoints": ["ecr.api", "ecr.dkr", "sts"]})
    assert found["2 NAT gateways"] == (pytest.approx(0.10), pytest.approx(0.10))
    assert found["6 interface endpoints"] == (pytest.approx(0.06), pytest.approx(0.06))


@pytest.mark.parametrize(
    ("deployment", "throughput", "usd_per_month"),
    [("PERSISTENT_2", 125, 174), ("PERSISTENT_2", 250, 252), ("PERSISTENT_2", 1000, 720), ("SCRATCH_2", 250, 168)],
)
def test_fsx_costs_by_size_and_throughput(deployment: str, throughput: int, usd_per_month: float) -> None:
    assert 1200 * aws_costs.fsx_usd_per_gib(deployment, throughput) == pytest.approx(usd_per_month)


def test_an_epoch_from_efs_costs_its_data() -> None:
    found = costs.sheet(stacks.stack())
    assert found is not None
    assert next(use.usd for use in found.uses if use.what == "EFS: one epoch") == pytest.approx(1.50)  # 50 GiB at 0.03


@pytest.mark.parametrize(("data", "advised"), [(50, False), (51, True), (150, True)])
def test_above_50_gb_the_advice_is_fsx_or_the_machines_disks(data: int, advised: bool) -> None:
    own = {**stacks.small(), "storage": {"dataGiB": data, "outputGiB": 10}}
    found = costs.sheet(stacks.stack(own))
    assert found is not None
    assert bool(found.advice) is advised
    if data == 150:
        (said,) = found.advice
        assert "4.50 USD for each epoch" in said  # 150 x 0.03
        assert "90 epochs 405 USD" in said
        assert "aws.storage.fsx; 1200 GiB cost 252 USD per month" in said
        assert "shards on the machines' disks" in said


def test_bursting_efs_is_free_and_slow() -> None:
    found = costs.sheet(stacks.stack(storage={"efs": {"throughputMode": "bursting"}}))
    assert found is not None
    assert "EFS: reading" not in {use.what for use in found.uses}
    assert "needs 1.9 hours" in found.advice[0]  # 1 GB at 150 kB/s


def test_a_second_manager_machine_costs_itself_and_its_disk() -> None:
    own = stacks.small()
    one = costs.sheet(stacks.stack(own))
    own["manager"]["count"] = 2
    two = costs.sheet(stacks.stack(own))
    assert one is not None
    assert two is not None
    assert two.usd_per_hour_idle - one.usd_per_hour_idle == pytest.approx(0.1008 + 50 * 0.08 / 730)
    assert two.usd_per_hour_full - one.usd_per_hour_full == pytest.approx(0.1008 + 50 * 0.08 / 730)
