"""Spot machines that can be had, by zone and time: read from published traces, or drawn from a seed. Pure but for read().

    zones = read(Path("traces"))                  # files of the format below
    zones = drawn(random.Random(1), days=14)
    zones[0].most(3600.0)                         # machines that the zone gives at that time, those in use included

A trace is a JSON file, one for each zone, in the format of https://github.com/skypilot-org/spot-traces:

    {"metadata": {"gap_seconds": 300}, "data": [16, 16, 12, 0, ...]}

with the number of machines that could be had at once, `gap_seconds` apart. Where a folder has `prices.json`, in the format of
`aws ec2 describe-spot-price-history`, it holds the price of a machine in each zone, of which the earliest counts as the trace's
beginning; else spot costs what the catalogue assumes.
"""

import json
import random
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

PRICES = "prices.json"
# Mean hours of times with all of 16 machines, with some, and with none, of the three zones of availability/16-node/aws-08-27-2023
# (V100 on AWS, 11 to 16 days each): 1.67 to 2.00, 0.16 to 0.50, 2.01 to 2.45.
MEAN_HOURS = {"all": 1.8, "some": 0.2, "none": 2.2}
GAP_SECONDS = 300.0
MOST = 16
ZONES = 3


class TraceError(ValueError):
    """A trace that cannot be read; the message names file, key and what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Zone:
    """One zone. `counts`: machines, `gap_seconds` apart; `prices`: (seconds from the beginning, USD an hour), sorted."""

    name: str
    gap_seconds: float
    counts: tuple[int, ...]
    prices: tuple[tuple[float, float], ...] = ()

    @property
    def seconds(self) -> float:
        return self.gap_seconds * len(self.counts)

    def most(self, at: float) -> int:
        """Machines that it gives at that time, from the beginning of the trace; after its end it begins anew."""
        return self.counts[int(at / self.gap_seconds) % len(self.counts)]

    def price(self, at: float, assumed: float) -> float:
        """USD an hour of a spot machine."""
        place = bisect_right(self.prices, (at, float("inf")))
        return self.prices[max(0, place - 1)][1] if self.prices else assumed


def read(folder: Path) -> list[Zone]:
    """All traces of a folder.

    Raises:
        TraceError: there is none, or one is not of the format.
    """
    files = sorted(path for path in folder.glob("*.json") if path.name != PRICES)
    if not files:
        raise TraceError(f"--traces {folder} has no *.json: give a folder with one trace for each zone")
    prices = _prices(folder / PRICES) if (folder / PRICES).exists() else {}
    return [_zone(path, prices) for path in files]


def _zone(path: Path, prices: dict[str, tuple[tuple[float, float], ...]]) -> Zone:
    value = _json(path)
    try:
        gap, counts = float(value["metadata"]["gap_seconds"]), value["data"]
    except (KeyError, TypeError, ValueError):
        raise TraceError(f"{path} needs metadata.gap_seconds, a number, and data, a list") from None
    if gap <= 0 or not isinstance(counts, list) or not counts or not all(isinstance(one, int) and one >= 0 for one in counts):
        raise TraceError(f"{path}: data must be a list of machines, integers from 0, and gap_seconds more than 0")
    name = path.stem
    own = next((found for zone, found in prices.items() if name.startswith(zone)), ())
    if prices and not own:
        raise TraceError(f"{path.parent / PRICES} has no price for {name}: name the file after an AvailabilityZone in it")
    return Zone(name=name, gap_seconds=gap, counts=tuple(counts), prices=own)


def _prices(path: Path) -> dict[str, tuple[tuple[float, float], ...]]:
    value = _json(path)
    try:
        rows = [
            (item["AvailabilityZone"], datetime.fromisoformat(item["Timestamp"]).timestamp(), float(item["SpotPrice"]))
            for item in value["SpotPriceHistory"]
        ]
    except (KeyError, TypeError, ValueError):
        raise TraceError(f"{path} is not what `aws ec2 describe-spot-price-history --output json` prints") from None
    begin = min((at for _, at, _ in rows), default=0.0)
    zones = {zone for zone, _, _ in rows}
    return {zone: tuple(sorted((at - begin, usd) for name, at, usd in rows if name == zone)) for zone in zones}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TraceError(f"{path} cannot be read as JSON: {error}") from None


def drawn(rng: random.Random, *, days: float) -> list[Zone]:
    """Zones that behave as the published ones of 16 machines do: exponential times of the means above."""
    ticks = int(days * 86400 / GAP_SECONDS)
    return [Zone(name=f"zone-{'abc'[number]}", gap_seconds=GAP_SECONDS, counts=_counts(rng, ticks)) for number in range(ZONES)]


def _counts(rng: random.Random, ticks: int) -> tuple[int, ...]:
    counts: list[int] = []
    state = rng.choice(["all", "none"])
    came_from = state
    while len(counts) < ticks:
        lasts = max(1, round(rng.expovariate(1 / (MEAN_HOURS[state] * 3600)) / GAP_SECONDS))
        there = {"all": MOST, "none": 0}.get(state)
        counts += [rng.randint(1, MOST - 1) if there is None else there] * lasts
        if state == "some":
            state = "none" if came_from == "all" else "all"
        else:
            came_from, state = state, "some"
    return tuple(counts[:ticks])
