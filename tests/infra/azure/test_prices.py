"""Spot prices of Azure: as its list of retail prices documents them."""

from typing import Any

from infra import config
from infra.account.prices import spot_types
from infra.clouds.azure import prices


def meter(sku: str, usd: float, product: str = "Virtual Machines NCasT4_v3 Series", currency: str = "USD") -> dict[str, Any]:
    """An item of https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices."""
    return {
        "currencyCode": currency,
        "unitOfMeasure": "1 Hour",
        "armSkuName": "Standard_NC4as_T4_v3",
        "skuName": sku,
        "productName": product,
        "retailPrice": usd,
    }


def test_azure_gives_the_spot_price_of_linux_over_all_pages() -> None:
    stack = config.read("azure")
    (t4,) = [one for one in spot_types(stack) if one.name == "Standard_NC4as_T4_v3"]
    pages: list[dict[str, Any]] = [
        {"Items": [meter("NC4as T4 v3", 0.526), meter("NC4as T4 v3 Low Priority", 0.1)], "NextPageLink": "https://next"},
        {
            "Items": [
                meter("NC4as T4 v3 Spot", 0.09, "Virtual Machines NCasT4_v3 Series Windows"),
                meter("NC4as T4 v3 Spot", 0.21),
                meter("NC4as T4 v3 Spot", 0.01, currency="EUR"),
            ],
            "NextPageLink": None,
        },
    ]
    asked: list[str] = []

    def answer(url: str) -> dict[str, Any]:
        asked.append(url)
        return dict(pages[len(asked) - 1])

    found = prices.read(stack, [t4], answer)
    assert found.usd_per_hour == {"Standard_NC4as_T4_v3": {stack.settings.location: 0.21}}
    assert asked[0].startswith("https://prices.azure.com/api/retail/prices?%24filter=")
    assert "armSkuName+eq+%27Standard_NC4as_T4_v3%27" in asked[0]
    assert asked[1] == "https://next"
