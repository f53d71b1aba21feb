"""Spot prices of AWS: as DescribeSpotPriceHistory documents them."""

from datetime import UTC, datetime
from typing import Any

from infra import config
from infra.account.prices import spot_types
from infra.clouds.aws import prices
from tests.infra.aws.fake_calls import FakeCalls


def price(name: str, zone: str, usd: str, hour: int) -> dict[str, Any]:
    since = datetime(2026, 11, 24, hour, tzinfo=UTC)
    return {
        "InstanceType": name, "AvailabilityZone": zone, "SpotPrice": usd, "Timestamp": since, "ProductDescription": "Linux/UNIX",
    }  # fmt: skip


def test_aws_gives_the_newest_price_of_each_of_the_stacks_zones() -> None:
    stack = config.read("dev")
    types = spot_types(stack)
    zone, other = stack.zones[:2]
    answer = [
        price("g4dn.xlarge", zone, "0.2104", 9),
        price("g4dn.xlarge", zone, "0.1900", 2),
        price("g4dn.xlarge", other, "0.3000", 2),
        price("g4dn.xlarge", "us-west-2z", "0.1000", 9),
    ]
    calls = FakeCalls({("ec2", "describe_spot_price_history"): {"SpotPriceHistory": answer}})
    found = prices.read(stack, types, calls)
    assert found.usd_per_hour == {"g4dn.xlarge": {zone: 0.2104, other: 0.3}}
    (asked,) = calls.asked("ec2", "describe_spot_price_history")
    assert asked["InstanceTypes"] == [one.name for one in types]
    assert asked["ProductDescriptions"] == ["Linux/UNIX"]
