"""Spot prices on Azure, one for a region: the Azure Retail Prices API, which asks nobody to sign in.

https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices: `Items` of at most 1,000 and a
NextPageLink. Of a machine there are four meters of consumption: Linux and Windows, each also as Spot and as Low Priority (the
older kind, of Azure Batch). Windows shows in productName alone, the kind in skuName.
"""

import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from infra.account.records import Offered
from infra.clouds.azure.rest import answered
from infra.config import Stack
from workloads.cluster import InstanceType

ENDPOINT = "https://prices.azure.com/api/retail/prices"
Get = Callable[[str], dict[str, Any]]


def get(url: str) -> dict[str, Any]:
    """Raises Refused, NoAccess."""
    return answered(urllib.request.Request(url))  # noqa: S310 - https, or as a test says


def read(stack: Stack, types: Sequence[InstanceType], ask: Get = get) -> Offered:
    """Raises Refused, NoAccess."""
    region = stack.settings.location
    found: dict[str, dict[str, float]] = {}
    for one in types:
        spot = [item for item in _meters(one.name, region, ask) if _is_linux_spot(item)]
        if spot:
            found[one.name] = {region: min(float(item["retailPrice"]) for item in spot)}
    return Offered(source="Azure Retail Prices API", region=region, usd_per_hour=found)


def _meters(name: str, region: str, ask: Get) -> Iterator[dict[str, Any]]:
    conditions = {"serviceName": "Virtual Machines", "armRegionName": region, "armSkuName": name, "priceType": "Consumption"}
    words = " and ".join(f"{key} eq '{value}'" for key, value in conditions.items())
    url = f"{ENDPOINT}?{urllib.parse.urlencode({'$filter': words})}"
    while url:
        page = ask(url)
        yield from page["Items"]
        url = page.get("NextPageLink") or ""


def _is_linux_spot(item: dict[str, Any]) -> bool:
    return (
        item["skuName"].endswith(" Spot")
        and "Windows" not in item["productName"]
        and (item["currencyCode"], item["unitOfMeasure"]) == ("USD", "1 Hour")
    )
