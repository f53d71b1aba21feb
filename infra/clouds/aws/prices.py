"""Spot prices on AWS, by zone: DescribeSpotPriceHistory from now on, which answers with each price that holds at present.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSpotPriceHistory.html, read 2026-11-24. It needs the right
ec2:DescribeSpotPriceHistory alone, and AWS has the same prices for all accounts.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from infra.account.records import Offered
from infra.clouds.aws.account.calls import Account, Calls
from infra.config import Stack
from workloads.cluster import InstanceType

# "Linux/UNIX (Amazon VPC)" is of accounts that still have EC2-Classic.
LINUX = "Linux/UNIX"


def read(stack: Stack, types: Sequence[InstanceType], calls: Calls | None = None) -> Offered:
    """Raises Refused, NoAccess."""
    region = stack.settings.region
    ask = calls or Account(region)
    history = ask.all(
        "ec2",
        "describe_spot_price_history",
        "SpotPriceHistory",
        InstanceTypes=[one.name for one in types],
        ProductDescriptions=[LINUX],
        StartTime=datetime.now(UTC),
    )
    found: dict[str, dict[str, float]] = {}
    for one in sorted(history, key=_since):  # the newest last
        if one["AvailabilityZone"] in stack.zones:
            found.setdefault(one["InstanceType"], {})[one["AvailabilityZone"]] = float(one["SpotPrice"])
    return Offered(source="AWS, DescribeSpotPriceHistory", region=region, usd_per_hour=found)


def _since(one: dict[str, Any]) -> datetime:
    since: datetime = one["Timestamp"]
    return since
