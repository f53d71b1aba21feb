"""Spot prices: read as each cloud's API documents them, kept in a file, taken by estimates."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from infra import catalog, clouds, commands, config
from infra.account import costs
from infra.account import prices as command
from infra.account.records import Offered
from infra.clouds.aws import prices as aws
from infra.clouds.aws.account.calls import NoAccess, Refused
from infra.clouds.azure import prices as azure
from infra.clouds.gcp import prices as gcp
from infra.config import ConfigError, prices
from tests.infra.aws.fake_calls import FakeCalls
from tests.infra.gcp.fake_calls import FakeCalls as GoogleCalls

WRITTEN = {
    "source": "AWS",
    "region": "us-west-2",
    "readOn": "2026-11-24",
    "usdPerHour": {"g4dn.xlarge": {"us-west-2a": 0.2}},
}


def price(name: str, zone: str, usd: str, hour: int) -> dict[str, Any]:
    since = datetime(2026, 11, 24, hour, tzinfo=UTC)
    return {
        "InstanceType": name, "AvailabilityZone": zone, "SpotPrice": usd, "Timestamp": since, "ProductDescription": "Linux/UNIX",
    }  # fmt: skip


def test_aws_gives_the_newest_price_of_each_of_the_stacks_zones() -> None:
    stack = config.read("dev")
    types = command.spot_types(stack)
    zone, other = stack.zones[:2]
    answer = [
        price("g4dn.xlarge", zone, "0.2104", 9),
        price("g4dn.xlarge", zone, "0.1900", 2),
        price("g4dn.xlarge", other, "0.3000", 2),
        price("g4dn.xlarge", "us-west-2z", "0.1000", 9),
    ]
    calls = FakeCalls({("ec2", "describe_spot_price_history"): {"SpotPriceHistory": answer}})
    found = aws.read(stack, types, calls)
    assert found.usd_per_hour == {"g4dn.xlarge": {zone: 0.2104, other: 0.3}}
    (asked,) = calls.asked("ec2", "describe_spot_price_history")
    assert asked["InstanceTypes"] == [one.name for one in types]
    assert asked["ProductDescriptions"] == ["Linux/UNIX"]


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
    (t4,) = [one for one in command.spot_types(stack) if one.name == "Standard_NC4as_T4_v3"]
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

    found = azure.read(stack, [t4], answer)
    assert found.usd_per_hour == {"Standard_NC4as_T4_v3": {stack.settings.location: 0.21}}
    assert asked[0].startswith("https://prices.azure.com/api/retail/prices?%24filter=")
    assert "armSkuName+eq+%27Standard_NC4as_T4_v3%27" in asked[0]
    assert asked[1] == "https://next"


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
    types = command.spot_types(stack)
    found = gcp.read(stack, types, GoogleCalls({"services/6F81-5844-456A/skus": {"skus": N1}}))
    t4 = next(one for one in types if one.gpu_type == "T4")
    assert found.usd_per_hour == {t4.name: {"us-central1": round(t4.cpu * 0.006 + t4.memory_gib * 0.001 + t4.gpus * 0.14, 6)}}
    assert len(found.notes) == len(types) - 1
    assert all("no price, as there is no one SKU of its cores, memory" in one for one in found.notes)


def test_google_clouds_price_is_not_guessed_between_two() -> None:
    stack = config.read("gcp")
    (t4,) = [one for one in command.spot_types(stack) if one.gpu_type == "T4"]
    twice = [*N1, sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", 150_000_000)]
    found = gcp.read(stack, [t4], GoogleCalls({"services/6F81-5844-456A/skus": {"skus": twice}}))
    assert not found.usd_per_hour
    assert found.notes == (f"{t4.name}: no price, as there is no one SKU of its GPUs",)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where prices are written, and looked for by whoever reads a stack."""
    read, write = prices.read, prices.write
    monkeypatch.setattr(prices, "write", lambda stack, found: write(stack, found, tmp_path))
    monkeypatch.setattr(prices, "read", lambda stack, _root=tmp_path: read(stack, tmp_path))
    return tmp_path


def answered(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any]) -> None:
    monkeypatch.setattr(type(clouds.named("aws")), "spot_prices", lambda _self, stack, types: answer(stack, types))


def offered(_stack: object, _types: object) -> Offered:
    return Offered(source="AWS", region="us-west-2", usd_per_hour={"g4dn.xlarge": {"us-west-2a": 0.1315, "us-west-2b": 0.1315}})


def test_what_is_read_is_kept_and_estimates_take_it(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assumed = catalog.by_name(config.read("dev"), "g4dn.xlarge")
    answered(monkeypatch, offered)
    assert command.main(["-s", "dev"]) == commands.EXIT_GOOD
    said = capsys.readouterr().out.splitlines()
    assert json.loads(said[-1])["usdPerHour"]["g4dn.xlarge"]["us-west-2a"] == 0.1315
    assert "written to prices.dev.yaml" in said
    assert any("no price" in line for line in said), "of the other types"
    priced = catalog.by_name(config.read("dev"), "g4dn.xlarge")
    assert assumed is not None
    assert priced is not None
    assert (assumed.spot_discount, priced.spot_discount) == (0.6, 0.75)  # 0.1315 of 0.526
    assert costs.main(["-s", "dev"]) == commands.EXIT_GOOD
    assert "spot prices of 1 machine types in us-west-2 as read on" in capsys.readouterr().out


def test_the_stacks_own_word_comes_first() -> None:
    found = prices.SpotPrices.model_validate(WRITTEN)
    assert prices.discounts(found, {"g4dn.xlarge": 0.5, "g5.xlarge": 1.0}) == {"g4dn.xlarge": {"spotDiscount": 0.6}}


def test_a_price_above_the_one_on_demand_is_no_discount() -> None:
    found = prices.SpotPrices.model_validate(WRITTEN)
    assert prices.discounts(found, {"g4dn.xlarge": 0.1}) == {"g4dn.xlarge": {"spotDiscount": 0.0}}


@pytest.mark.parametrize("stack", ["local", "lab"])
def test_a_cloud_without_spot_machines_says_so(stack: str, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["-s", stack]) == commands.EXIT_GOOD
    assert f"stack {stack} has no spot prices" in capsys.readouterr().out
    assert not list(kept.glob("prices.*"))


def test_without_credentials_nothing_is_written(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_stack: object, _types: object) -> Offered:
        raise NoAccess("NoCredentials", "there are no AWS credentials in this shell")

    answered(monkeypatch, refuse)
    assert command.main(["-s", "dev"]) == commands.EXIT_BLIND
    assert "there are no AWS credentials" in capsys.readouterr().err
    assert not list(kept.glob("prices.*"))


def test_a_refusal_is_said_in_words(kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_stack: object, _types: object) -> Offered:
        raise Refused("UnauthorizedOperation", "you may not ask for prices")

    answered(monkeypatch, refuse)
    assert command.main(["-s", "dev"]) == commands.EXIT_BLIND
    assert "the prices were refused: you may not ask for prices" in capsys.readouterr().err
    assert not list(kept.glob("prices.*"))


def test_no_price_at_all_is_no_success(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, lambda _stack, _types: Offered(source="AWS", region="us-west-2", usd_per_hour={}))
    assert command.main(["-s", "dev"]) == commands.EXIT_BAD
    assert not list(kept.glob("prices.*"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("source: [", "cannot be read"),
        ("- a", "has no keys"),
        ("source: AWS\nregion: r\nreadOn: soon\nusdPerHour: {}\n", "readOn"),
        ("source: AWS\nregion: r\nreadOn: 2026-11-24\nusdPerHour: {}\nmore: 1\n", "more"),
        (
            "source: AWS\nregion: r\nreadOn: 2026-11-24\nusdPerHour: {a: {z: -1.0}}\n",
            "usdPerHour.a.z: found -1.0; allowed is more than 0",
        ),
        ("source: AWS\nregion: r\nreadOn: 2026-11-24\nusdPerHour: {a: {z: cheap}}\n", "usdPerHour.a.z"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_its_key_and_the_way_out(tmp_path: Path, text: str, told: str) -> None:
    prices.path_of("dev", tmp_path).write_text(text)
    with pytest.raises(ConfigError) as error:
        prices.read("dev", tmp_path)
    assert told in str(error.value)
    assert "prices.dev.yaml" in str(error.value)
    assert "make prices STACK=dev" in str(error.value)


def test_old_prices_are_said_to_be_old() -> None:
    found = prices.SpotPrices.model_validate(WRITTEN)
    assert "days ago" not in found.sentence("dev", date(2026, 12, 24))
    assert "31 days ago: `make prices STACK=dev` reads them again" in found.sentence("dev", date(2026, 12, 25))


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    found = prices.SpotPrices.model_validate(WRITTEN)
    prices.write("dev", found, tmp_path)
    assert prices.read("dev", tmp_path) == found
