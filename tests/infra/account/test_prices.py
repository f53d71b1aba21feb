"""Spot prices: kept in a file, taken by estimates. How each cloud is asked is in its own tests."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from infra import catalog, clouds, commands, config
from infra.account import costs
from infra.account import prices as command
from infra.account.records import Offered
from infra.config import ConfigError, prices
from tests.infra.cases import CASES, Case
from workloads.cluster import InstanceType

WRITTEN = {
    "source": "the cloud",
    "region": "west",
    "readOn": "2026-11-24",
    "usdPerHour": {"small": {"west-a": 0.2}},
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which prices are written, and looked for by whoever reads a stack."""
    read, write = prices.read, prices.write
    monkeypatch.setattr(prices, "write", lambda stack, found: write(stack, found, tmp_path))
    monkeypatch.setattr(prices, "read", lambda stack, _root=tmp_path: read(stack, tmp_path))
    return tmp_path


class NoAccess(commands.RequestRefused, commands.CannotLook):
    """Both, as the clouds' own: the refusal of every request."""


def answered(case: Case, monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any]) -> None:
    monkeypatch.setattr(type(clouds.named(case.cloud)), "spot_prices", lambda _self, stack, types: answer(stack, types))


def spot_type(case: Case) -> InstanceType:
    """The first of its stack, with what the catalog assumes, whatever file of prices lies beside the stack's."""
    found = catalog.by_name(case.cloud, command.spot_types(config.read(case.stack))[0].name)
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_read_is_kept_and_estimates_take_it(
    case: Case, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assumed = spot_type(case)
    paid = assumed.usd_per_hour / 8
    zones = dict.fromkeys(case.zones, paid)
    answered(case, monkeypatch, lambda _stack, _types: Offered(source="it", region="west", usd_per_hour={assumed.name: zones}))
    assert command.main(["-s", case.stack]) == commands.EXIT_GOOD
    said = capsys.readouterr().out.splitlines()
    assert json.loads(said[-1])["usdPerHour"] == {assumed.name: zones}
    assert f"written to prices.{case.stack}.yaml" in said
    assert any("no price" in line for line in said), "of the other types"
    priced = catalog.by_name(config.read(case.stack), assumed.name)
    assert priced is not None
    assert assumed.spot_discount != priced.spot_discount == pytest.approx(7 / 8)
    assert costs.main(["-s", case.stack]) == commands.EXIT_GOOD
    assert "spot prices of 1 machine types in west as read on" in capsys.readouterr().out


def test_the_stacks_own_word_comes_first() -> None:
    found = prices.SpotPrices.model_validate(WRITTEN)
    assert prices.discounts(found, {"small": 0.5, "large": 1.0}) == {"small": {"spotDiscount": 0.6}}


def test_a_price_above_the_one_on_demand_is_no_discount() -> None:
    found = prices.SpotPrices.model_validate(WRITTEN)
    assert prices.discounts(found, {"small": 0.1}) == {"small": {"spotDiscount": 0.0}}


@pytest.mark.parametrize("stack", ["local", "lab"])
def test_a_cloud_without_spot_machines_says_so(stack: str, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["-s", stack]) == commands.EXIT_GOOD
    assert f"stack {stack} has no spot prices" in capsys.readouterr().out
    assert not list(kept.glob("prices.*"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_credentials_nothing_is_written(
    case: Case, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_stack: object, _types: object) -> Offered:
        raise NoAccess("there are no credentials in this shell")

    answered(case, monkeypatch, refuse)
    assert command.main(["-s", case.stack]) == commands.EXIT_BLIND
    said = capsys.readouterr().err
    assert "there are no credentials" in said
    assert "refused" not in said
    assert not list(kept.glob("prices.*"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_refusal_is_said_in_words(
    case: Case, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_stack: object, _types: object) -> Offered:
        raise commands.RequestRefused("you may not ask for prices")

    answered(case, monkeypatch, refuse)
    assert command.main(["-s", case.stack]) == commands.EXIT_BLIND
    assert "the prices were refused: you may not ask for prices" in capsys.readouterr().err
    assert not list(kept.glob("prices.*"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_price_at_all_is_no_success(case: Case, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(case, monkeypatch, lambda _stack, _types: Offered(source="it", region="west", usd_per_hour={}))
    assert command.main(["-s", case.stack]) == commands.EXIT_BAD
    assert not list(kept.glob("prices.*"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("source: [", "cannot be read"),
        ("- a", "has no keys"),
        ("source: it\nregion: r\nreadOn: soon\nusdPerHour: {}\n", "readOn"),
        ("source: it\nregion: r\nreadOn: 2026-11-24\nusdPerHour: {}\nmore: 1\n", "more"),
        (
            "source: it\nregion: r\nreadOn: 2026-11-24\nusdPerHour: {a: {z: -1.0}}\n",
            "usdPerHour.a.z: found -1.0; allowed is more than 0",
        ),
        ("source: it\nregion: r\nreadOn: 2026-11-24\nusdPerHour: {a: {z: cheap}}\n", "usdPerHour.a.z"),
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
