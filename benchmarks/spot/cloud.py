"""Machines of a cloud whose spot capacity follows a trace, and what they cost.

cloud = Cloud(zones, begin=3600.0, on_demand_usd=3.06, discount=0.7, rng=random.Random(1))
machine = cloud.ask("us-east-2b", SPOT)        # None: the zone has none now
cloud.advance(60.0)                            # some get a notice, others end
cloud.usd
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.spot.market import Zone
from ebb.api.platform import ON_DEMAND, SPOT

BOOT_SECONDS = 120.0  # from being asked for until a pod can run on it: the catalogue's provisionSeconds for AWS
NOTICE_SECONDS = 120.0  # of AWS


@dataclass(eq=False, kw_only=True)
class Machine:
    """One that is paid. Times are seconds of the play; `ends`: it was announced that it is taken back then."""

    name: str
    zone: str
    capacity: str
    ready: float
    ends: float | None = None


class Cloud:
    """See the module's docstring. `begin`: the second of the trace at which the play begins."""

    def __init__(self, zones: Sequence[Zone], *, begin: float, on_demand_usd: float, discount: float, rng: random.Random) -> None:
        self.zones = {zone.name: zone for zone in zones}
        self.begin, self.on_demand_usd, self.spot_usd = begin, on_demand_usd, on_demand_usd * (1 - discount)
        self.rng = rng
        self.now, self.usd, self.reclaims = 0.0, 0.0, 0
        self.machines: list[Machine] = []
        self._count = 0

    def most(self, zone: str) -> int:
        """Spot machines that the zone gives now."""
        return self.zones[zone].most(self.begin + self.now)

    def spare(self, zone: str) -> int:
        """Spot machines that could be had besides those that are held."""
        return self.most(zone) - sum(one.capacity == SPOT and one.zone == zone and one.ends is None for one in self.machines)

    def ask(self, zone: str, capacity: str) -> Machine | None:
        """A machine that boots, and is paid from now on; on-demand ones can be had at any time."""
        if capacity == SPOT and self.spare(zone) <= 0:
            return None
        self._count += 1
        machine = Machine(name=f"m{self._count}", zone=zone, capacity=capacity, ready=self.now + BOOT_SECONDS)
        self.machines.append(machine)
        return machine

    def release(self, machine: Machine) -> None:
        self.machines.remove(machine)

    def advance(self, seconds: float) -> list[Machine]:
        """Let time pass; returns the machines that ended. Those that the trace takes back get their notice at its end."""
        self.usd += sum(self._price(one) for one in self.machines) * seconds / 3600
        self.now += seconds
        ended = [one for one in self.machines if one.ends is not None and one.ends <= self.now]
        self.machines = [one for one in self.machines if one not in ended]
        for zone in self.zones:
            held = [one for one in self.machines if one.capacity == SPOT and one.zone == zone and one.ends is None]
            for one in self.rng.sample(held, max(0, len(held) - self.most(zone))):
                one.ends = self.now + NOTICE_SECONDS
                self.reclaims += 1
        return ended

    def _price(self, machine: Machine) -> float:
        if machine.capacity == ON_DEMAND:
            return self.on_demand_usd
        return self.zones[machine.zone].price(self.begin + self.now, self.spot_usd)
