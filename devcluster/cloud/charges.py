"""The charge log of a devcluster: `machines.jsonl`, one JSON line per machine that was ever asked for.

    charges = Charges(folder / "machines.jsonl")
    charges.ask("spot-x7k2p", group, now); charges.booted("spot-x7k2p", now); charges.gone("spot-x7k2p", now, "idle")

It is the bill and the story of the demo, and at the same time the daemon's memory: a machine that was asked for and neither
booted nor gone is one to boot, also after the daemon was killed. Lines are in the order of asking; times are unix seconds, null
while still to come. The file is small and written anew as a whole, so that a reader or a crash never meets half a line.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from devcluster.cloud.records import NodeGroupObject


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One machine. `why` it went: idle, reclaim-notice, reclaim, group-deleted, vanished, ... (see scaling and fleet)."""

    machine: str
    group: str
    zone: str
    capacity_type: str
    price_per_hour: float
    asked_at: float
    booted_at: float | None = None
    gone_at: float | None = None
    why: str | None = None

    def usd(self, now: float) -> float:
        """Cost so far in USD: from boot to end, by the second."""
        if self.booted_at is None:
            return 0.0
        return max(0.0, (self.gone_at or now) - self.booted_at) * self.price_per_hour / 3600


class Charges:
    """The log, read once and kept. Only one process writes it: the daemon, under its lock (`down` after that is gone)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._charges = {charge.machine: charge for charge in read_charges(path)}

    def __iter__(self) -> Iterator[Charge]:
        return iter(self._charges.values())

    def get(self, machine: str) -> Charge | None:
        """The charge of a machine, if it was ever asked for."""
        return self._charges.get(machine)

    def living(self) -> list[Charge]:
        """Machines that were asked for and are not gone."""
        return [charge for charge in self if charge.gone_at is None]

    def ask(self, machine: str, group: NodeGroupObject, now: float) -> None:
        """Note a decision to boot. To be called before anything is booted."""
        self._charges[machine] = Charge(
            machine=machine,
            group=group.name,
            zone=group.zone,
            capacity_type=group.capacity_type,
            price_per_hour=group.usd_per_hour,
            asked_at=now,
        )
        self._write()

    def booted(self, machine: str, now: float) -> None:
        """Note that its node is ready for the first time."""
        self._change(machine, booted_at=now)

    def gone(self, machine: str, now: float, why: str) -> None:
        """Note its end; the first end counts."""
        charge = self._charges.get(machine)
        if charge is not None and charge.gone_at is None:
            self._change(machine, gone_at=now, why=why)

    def _change(self, machine: str, **values: object) -> None:
        self._charges[machine] = replace(self._charges[machine], **values)  # type: ignore[arg-type]
        self._write()

    def _write(self) -> None:
        text = "".join(json.dumps(asdict(charge)) + "\n" for charge in self)
        beside = self._path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self._path)


def read_charges(path: Path) -> list[Charge]:
    """The log as it is now; empty if there is none. Raises ValueError for a file that is not ours."""
    if not path.exists():
        return []
    try:
        return [Charge(**json.loads(line)) for line in path.read_text().splitlines() if line]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a charge log ({error}): move it away; the daemon begins a new one.") from error
