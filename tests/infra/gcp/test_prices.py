"""Spot prices of Google Cloud: summed from the parts that its Billing Catalog lists."""

from typing import Any

from infra import config
from infra.account.prices import spot_types
from infra.clouds.gcp import prices
from tests.infra.gcp.fake_calls import FakeCalls


def sku(description: str, nanos: int, *, kind: str = "Preemptible", region: str = "us-central1") -> dict[str, Any]:
    """As the Cloud Billing Catalog API lists them."""
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": nanos}}
    return {
        "description": description,
        "category": {"resourceFamily": "Compute", "usageType": kind},
        "serviceRegions": [region],
        "pricingInfo": [{"pricingExpression": {"usageUnit": "h", "tieredRates": [rate]}}],
    }


N1 = [
    sku("Spot Preemptible N1 Predefined Instance Core running in Americas", 6_000_000),
    sku("Spot Preemptible N1 Predefined Instance Ram running in Americas", 1_000_000),
    sku("N1 Predefined Instance Core running in Americas", 31_000_000, kind="OnDemand"),
    sku("Spot Preemptible N1 Predefined Instance Core running in Europe", 9_000_000, region="europe-west1"),
    sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Iowa", 140_000_000),
]


def test_google_cloud_sums_the_parts_of_a_machine() -> None:
    stack = config.read("gcp")
    types = spot_types(stack)
    found = prices.read(stack, types, FakeCalls({"services/6F81-5844-456A/skus": {"skus": N1}}))
    t4 = next(one for one in types if one.gpu_type == "T4")
    assert found.usd_per_hour == {t4.name: {"us-central1": round(t4.cpu * 0.006 + t4.memory_gib * 0.001 + t4.gpus * 0.14, 6)}}
    assert len(found.notes) == len(types) - 1
    assert all("no price, as there is no one SKU of its cores, memory" in one for one in found.notes)


def test_google_clouds_price_is_not_guessed_between_two() -> None:
    stack = config.read("gcp")
    (t4,) = [one for one in spot_types(stack) if one.gpu_type == "T4"]
    twice = [*N1, sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", 150_000_000)]
    found = prices.read(stack, [t4], FakeCalls({"services/6F81-5844-456A/skus": {"skus": twice}}))
    assert not found.usd_per_hour
    assert found.notes == (f"{t4.name}: no price, as there is no one SKU of its GPUs",)
