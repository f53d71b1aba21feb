"""Spot prices that were read from the cloud, kept beside the stack's file: prices.<stack>.yaml.

    found = prices.read("dev")              # None: there is no such file
    prices.write("dev", SpotPrices(...))    # `make prices STACK=dev`

They take the place of the catalog's assumed discounts, in estimates alone. What the stack's own file says of a machine type
(`ebb:instanceTypes`, spotDiscount) comes before them.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import yaml
from pydantic import Field

from infra.config.salvage import salvage
from infra.config.section import ROOT, ConfigError, Form, Section

Day = Annotated[str, Form(r"\d{4}-\d\d-\d\d", "a day, such as 2026-11-24")]
OLD_DAYS = 30
_HEAD = """\
# Spot prices in USD per hour, by machine type and zone, written by `make prices STACK={stack}`. Estimates take these before the
# catalog's assumed discounts. Remove the file to go back to those.
"""


class SpotPrices(Section):
    """The prices of one reading."""

    source: str = Field(description="Who was asked.", examples=["the cloud's price list"])
    region: str = Field(description="The region that they are of.", examples=["us-west-2"])
    read_on: Day = Field(description="The day on which they were read, UTC.", examples=["2026-11-24"])
    usd_per_hour: dict[str, dict[str, float]] = Field(description="By machine type, then by zone, or by region.", examples=[{}])

    def mean(self, name: str) -> float | None:
        """Of a machine type, over the zones; None where there is none."""
        found = self.usd_per_hour.get(name)
        return fmean(found.values()) if found else None

    def sentence(self, stack: str, today: date | None = None) -> str:
        """The basis of estimates, in words."""
        age = ((today or datetime.now(UTC).date()) - date.fromisoformat(self.read_on)).days
        old = f", {age} days ago: `make prices STACK={stack}` reads them again" if age > OLD_DAYS else ""
        what = f"{len(self.usd_per_hour)} machine types in {self.region}"
        return f"spot prices of {what} as read on {self.read_on}{old} (prices.{stack}.yaml)"


def of_today(source: str, region: str, usd_per_hour: Mapping[str, Mapping[str, float]]) -> SpotPrices:
    found = {name: dict(zones) for name, zones in usd_per_hour.items()}
    today = datetime.now(UTC).date()
    return SpotPrices.model_validate({"source": source, "region": region, "readOn": str(today), "usdPerHour": found})


def path_of(stack: str, root: Path = ROOT) -> Path:
    return root / f"prices.{stack}.yaml"


def read(stack: str, root: Path = ROOT) -> SpotPrices | None:
    """None where there is no file. Raises ConfigError, which names the file and the key."""
    path = path_of(stack, root)
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; {_way_out(stack)}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} has no keys; {_way_out(stack)}")
    if isinstance(document.get("readOn"), date):  # what YAML makes of a day without quotes
        document["readOn"] = str(document["readOn"])
    found, problems, _ = salvage(SpotPrices, document, "")
    if told := [*map(str, problems), *_negative(found)]:
        lines = "\n".join(f"  {one}" for one in told)
        raise ConfigError(f"{path} is wrong; {_way_out(stack)}:\n{lines}")
    return found


def _way_out(stack: str) -> str:
    return f"remove it, and `make prices STACK={stack}` writes it again"


def _negative(found: SpotPrices) -> Iterable[str]:
    for name, zones in found.usd_per_hour.items():
        for zone, usd in zones.items():
            if usd <= 0:
                yield f"usdPerHour.{name}.{zone}: found {usd!r}; allowed is more than 0"


def write(stack: str, found: SpotPrices, root: Path = ROOT) -> Path:
    path = path_of(stack, root)
    body = yaml.safe_dump(found.model_dump(by_alias=True), sort_keys=False)
    path.write_text(_HEAD.format(stack=stack) + body)
    return path


def discounts(found: SpotPrices, on_demand: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """As `ebb:instanceTypes` has them: fractions of the prices on-demand, of those machine types that have one."""
    made = {}
    for name, usd in on_demand.items():
        mean = found.mean(name)
        if mean is not None and usd > 0:
            made[name] = {"spotDiscount": round(max(0.0, 1 - mean / usd), 4)}
    return made
