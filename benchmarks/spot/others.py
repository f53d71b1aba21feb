"""Other ways to buy machines for the same work: on-demand, spot without checkpoints, restarts from them, and Uniform Progress.

    played = uniform_progress(Case(...), cloud)
    played.usd, played.seconds, played.late

All but the elastic one need all machines at once, and go to whichever zone has them. They get what they need for nothing: they
know at once that machines came or went, and how many a zone has. Each start after a change costs RESTART_SECONDS.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.spot.cloud import BOOT_SECONDS, Cloud, Machine
from benchmarks.spot.curve import speed
from ebb.api.platform import ON_DEMAND, SPOT

TICK = 30.0
RESTART_SECONDS = 42.0  # from a loss until the workers train again: the article's log of torchelastic
SAVES_SECONDS = 900.0  # between two checkpoints; the article saved once an epoch
GIVES_UP = 4.0  # times the deadline, after which a job counts as never done


@dataclass(frozen=True, kw_only=True)
class Case:
    """The work. `seconds`: undisturbed, on all machines; `deadline`: seconds from the beginning; `least`: machines with which
    an elastic job trains on."""

    machines: int
    gpus_per_machine: int
    least: int
    seconds: float
    deadline: float

    def rate(self, machines: int) -> float:
        """The part of the full speed with so many machines."""
        return speed(machines * self.gpus_per_machine) / speed(self.machines * self.gpus_per_machine) if machines else 0.0


@dataclass(frozen=True, kw_only=True)
class Played:
    """One job. `seconds`: until its work was done; None: it never was."""

    usd: float
    seconds: float | None
    reclaims: int

    def late(self, deadline: float) -> bool:
        return self.seconds is None or self.seconds > deadline


def on_demand(case: Case, cloud: Cloud) -> Played:
    """All machines at the full price."""
    zone = next(iter(cloud.zones))
    for _ in range(case.machines):
        cloud.ask(zone, ON_DEMAND)
    cloud.advance(BOOT_SECONDS + RESTART_SECONDS + case.seconds)
    return Played(usd=cloud.usd, seconds=cloud.now, reclaims=0)


class _Gang:
    """All machines or none, in one zone. `work` and `saved` are seconds at full speed."""

    def __init__(self, case: Case, cloud: Cloud, saves: float) -> None:
        self.case, self.cloud, self.saves = case, cloud, saves
        self.held: list[Machine] = []
        self.work = self.saved = 0.0
        self.starts_at: float | None = None

    @property
    def done(self) -> bool:
        return self.work >= self.case.seconds

    @property
    def capacity(self) -> str:
        return self.held[0].capacity if self.held else ""

    def take(self, capacity: str) -> bool:
        """All machines, from the zone with most."""
        zone = max(self.cloud.zones, key=self.cloud.spare)
        if capacity == SPOT and self.cloud.spare(zone) < self.case.machines:
            return False
        asked = [self.cloud.ask(zone, capacity) for _ in range(self.case.machines)]
        self.held = [one for one in asked if one is not None]
        self.starts_at = self.cloud.now + BOOT_SECONDS + RESTART_SECONDS
        return True

    def give_back(self) -> None:
        for one in self.held:
            if one in self.cloud.machines:
                self.cloud.release(one)
        self.held, self.starts_at, self.work = [], None, self.saved

    def tick(self) -> None:
        """Train, and lose all that was not saved with the first machine that is taken back."""
        if self.starts_at is not None and self.cloud.now >= self.starts_at:
            self.work += TICK
            if self.work - self.saved >= self.saves:
                self.saved = self.work
        ended = self.cloud.advance(TICK)
        if any(one in self.held for one in ended):
            self.give_back()

    def leave_with_checkpoint(self) -> None:
        self.saved = self.work
        self.give_back()


def _play(case: Case, cloud: Cloud, gang: _Gang, look: Callable[[], None]) -> Played:
    while not gang.done and cloud.now < GIVES_UP * case.deadline:
        look()
        gang.tick()
    return Played(usd=cloud.usd, seconds=cloud.now if gang.done else None, reclaims=cloud.reclaims)


def naive(case: Case, cloud: Cloud) -> Played:
    """Spot machines without a checkpoint: a reclaim begins the work anew."""
    return restarts(case, cloud, saves=float("inf"))


def restarts(case: Case, cloud: Cloud, saves: float = SAVES_SECONDS) -> Played:
    """Spot machines, all or none, from the last checkpoint: after a reclaim all start anew, where a zone has all of them."""
    gang = _Gang(case, cloud, saves)

    def look() -> None:
        if not gang.held:
            gang.take(SPOT)

    return _play(case, cloud, gang, look)


def uniform_progress(case: Case, cloud: Cloud) -> Played:
    """Uniform Progress (Wu et al., Can't Be Late, NSDI 2024): spot where there is any; without it on-demand machines while less
    is done than a steady job would have done by now, and nothing while more is. On-demand ones are kept until two changes' time
    more is done than that. When no more than the rest of the work and two changes fits before the deadline, on-demand machines
    to the end. Its checkpoints cost nothing: a reclaim loses no work."""
    gang = _Gang(case, cloud, saves=TICK)
    change = BOOT_SECONDS + RESTART_SECONDS
    last = False

    def look() -> None:
        nonlocal last
        steady = cloud.now * case.seconds / case.deadline
        tight = case.deadline - cloud.now <= case.seconds - gang.work + 2 * change
        last = last or (tight and gang.capacity != SPOT)
        spot = any(cloud.spare(zone) >= case.machines for zone in cloud.zones)
        if gang.capacity == ON_DEMAND and not last and spot and gang.work >= steady + 2 * change:
            gang.leave_with_checkpoint()
        if not gang.held and not (not last and gang.take(SPOT)) and (last or gang.work < steady):
            gang.take(ON_DEMAND)

    return _play(case, cloud, gang, look)


def elastic(case: Case, cloud: Cloud) -> Played:
    """The article's way: one zone, the one with most machines at the beginning; a launcher that restarts all workers at each
    change, 42 s, from the last checkpoint, and trains with what is left."""
    zone = max(cloud.zones, key=cloud.spare)
    held: list[Machine] = []
    work = saved = 0.0
    trains: list[Machine] = []
    starts_at = 0.0
    while work < case.seconds and cloud.now < GIVES_UP * case.deadline:
        while len(held) < case.machines and (machine := cloud.ask(zone, SPOT)):
            held.append(machine)
        able = [one for one in held if one.ready <= cloud.now]
        if able != trains:
            work, starts_at, trains = saved, cloud.now + RESTART_SECONDS, able
        if len(able) >= case.least and cloud.now >= starts_at:
            work += TICK * case.rate(len(able))
            if work - saved >= SAVES_SECONDS:
                saved = work
        ended = cloud.advance(TICK)
        held = [one for one in held if one not in ended]
    return Played(usd=cloud.usd, seconds=cloud.now if work >= case.seconds else None, reclaims=cloud.reclaims)
