"""The jobs of a week, drawn from one seed before anything runs: how often each kind of life comes, and how it goes.

fates = draw(jobs=300, seconds=3600, dice=random.Random(7))
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.week import actions as acts
from benchmarks.week.actions import Act, Fail, Finish, Rest, Scale, Train
from benchmarks.week.groups import USD_PER_HOUR, WORKERS_PER_MACHINE, ZONES
from benchmarks.week.scenarios import BROKEN, SETTLE_SECONDS, Fate, need

SIZES = (1, 1, 2, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16)
MOST = 16
URGENT = "week-urgent"
"""A PriorityClass above that of other jobs."""


def draw(*, jobs: int, seconds: float, dice: random.Random, only: Sequence[str] = ()) -> list[Fate]:
    """As many fates, in the order of their arrival; each arrives early enough to end by then. `only`: kinds to draw from."""
    kinds = {name: entry for name, entry in KINDS.items() if not only or name in only}
    fates: list[Fate] = []
    while len(fates) < jobs:
        name = dice.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
        hand = Hand(dice, f"{name}-{len(fates):03}", name, pace=min(1.0, max(0.0, seconds - 180) / 1800))
        together = [kinds[name][1](hand)]
        if name == "sweep":
            size = min(dice.randint(3, 5), jobs - len(fates))
            group = {"name": hand.name, "maxParallel": dice.randint(1, 2)}
            drawn = [replace(kinds[name][1](hand), name=f"{hand.name}-{number}") for number in range(size)]
            together = [replace(fate, spec={**fate.spec, "group": group}, need=fate.need * size) for fate in drawn]
        if max(fate.need for fate in together) > seconds and not only:
            continue  # a life that would not fit
        latest = max(5.0, seconds - SETTLE_SECONDS - 1.5 * max(fate.need for fate in together))
        arrives = dice.uniform(0, latest)
        fates += [replace(fate, arrives=arrives) for fate in together]
    return sorted(fates, key=lambda fate: (fate.arrives, fate.name))


class Hand:
    """Draws the parts of one fate."""

    def __init__(self, dice: random.Random, name: str, kind: str, *, pace: float) -> None:
        self.dice, self.name, self.kind, self.pace = dice, name, kind, pace

    def train(self) -> Train:
        return Train(round(self.dice.uniform(8, 20 + 180 * self.pace), 1))

    def fate(self, *lived: Act, size: int | None = None, **more: Any) -> Fate:
        dice = self.dice
        replicas = size or dice.choice(SIZES)
        low = dice.randint(max(1, replicas // 4), replicas) if dice.random() < 0.6 else replicas
        high = dice.randint(replicas, MOST) if dice.random() < 0.5 else replicas
        drawn = Fate(name=self.name, kind=self.kind, low=low, replicas=replicas, high=high, acts=lived, need=need(lived),
                     placement=self._placement(low))  # fmt: skip
        chosen = replace(drawn, **{"ttl": dice.randint(3, 20) if dice.random() < 0.15 else None, **more})
        return replace(chosen, spec={**self._spec(), **chosen.spec})

    def _placement(self, low: int) -> Mapping[str, Any]:
        dice = self.dice
        # Bought on demand, a zone has few: a job that needs all of them could wait for a quiet hour.
        kinds = ["spot", "on-demand" if low <= MOST // 2 else "spot", "spot-then-on-demand", ""]
        capacity = dice.choices(kinds, [40, 10, 15, 35])[0]
        zone = dice.choice(ZONES) if dice.random() < 0.08 else "single"
        fallback = {"fallbackAfterSeconds": 15} if capacity == "spot-then-on-demand" else {}
        return {"zone": zone, **({"capacity": capacity} if capacity else {}), **fallback}

    def _spec(self) -> Mapping[str, Any]:
        urgent = {"priorityClassName": URGENT} if self.dice.random() < 0.08 else {}
        clean = {"cleanPodPolicy": "All"} if self.dice.random() < 0.3 else {}
        return {**urgent, **clean}


def _steady(hand: Hand) -> Fate:
    spec = {"scaling": "automatic"} if hand.dice.random() < 0.2 else {}
    return hand.fate(hand.train(), Finish(), spec=spec)


def _straggling(hand: Hand) -> Fate:
    return hand.fate(hand.train(), Finish(stragglers=1), size=hand.dice.choice((2, 4, 6)))


def _clumsy(hand: Hand) -> Fate:
    limit = hand.dice.randint(1, 3)
    lived = [part for _ in range(hand.dice.randint(1, limit)) for part in (_short(hand), _failure(hand))]
    return hand.fate(*lived, hand.train(), Finish(), backoff_limit=limit)


def _doomed(hand: Hand) -> Fate:
    limit = hand.dice.randint(0, 2)
    lived = [part for _ in range(limit + 1) for part in (_short(hand), _failure(hand))]
    return hand.fate(*lived, backoff_limit=limit)


def _strict(hand: Hand) -> Fate:
    return hand.fate(_short(hand), _failure(hand), policy="Never")


def _coded(hand: Hand) -> Fate:
    dice = hand.dice
    again = [part for _ in range(dice.randint(0, 2)) for part in (_short(hand), Fail(dice.choice((130, 137, 143))))]
    last: list[Act] = [Finish()] if dice.random() < 0.5 else [Fail(dice.choice((1, 2, 139)))]
    return hand.fate(*again, hand.train(), *last, policy="ExitCode")


def _leaving(hand: Hand) -> Fate:
    return hand.fate(_short(hand), acts.Leave(), hand.train(), Finish(), backoff_limit=0)


def _paused(hand: Hand) -> Fate:
    lived: list[Act] = []
    for _ in range(hand.dice.randint(1, 2)):
        # A pause before the first worker runs is one, too.
        before = hand.train() if hand.dice.random() < 0.8 else Rest(hand.dice.uniform(0, 5))
        lived += [before, acts.Suspend(), Rest(hand.dice.uniform(0, 10)), acts.Resume()]
    return hand.fate(*lived, hand.train(), Finish())


def _parked(hand: Hand) -> Fate:
    return hand.fate(hand.train(), acts.Suspend())


def _elastic(hand: Hand) -> Fate:
    drawn = hand.fate(size=hand.dice.choice((2, 3, 4, 6, 8)))
    drawn = replace(drawn, low=hand.dice.randint(1, drawn.replicas), high=hand.dice.randint(drawn.replicas, MOST))
    sizes = [Scale(hand.dice.randint(drawn.low, drawn.high)) for _ in range(hand.dice.randint(1, 3))]
    lived: list[Act] = [part for size in sizes for part in (_short(hand), size)]
    lived += [hand.train(), Finish()]
    return replace(drawn, acts=tuple(lived), need=need(lived))


def _dropped(hand: Hand) -> Fate:
    before = hand.train() if hand.dice.random() < 0.7 else Rest(hand.dice.uniform(0, 8))
    more = (acts.Suspend(),) if hand.dice.random() < 0.2 else ()
    return hand.fate(before, *more, acts.Delete())


def _overdue(hand: Hand) -> Fate:
    return hand.fate(acts.Overrun(), spec={"activeDeadlineSeconds": hand.dice.randint(15, 40)})


def _costly(hand: Hand) -> Fate:
    more = (acts.Allow(), hand.train(), Finish()) if hand.dice.random() < 0.5 else ()
    drawn = hand.fate(acts.Spend(), *more, size=hand.dice.choice((1, 2, 4, 6)))
    # The controller stops a job when what is left would be spent within its workers' grace of 30 s and 5 s more.
    seconds, machines = hand.dice.uniform(50, 70), -(-drawn.replicas // WORKERS_PER_MACHINE)
    return replace(drawn, placement={"capacity": "on-demand"}, budget_usd=round(seconds / 3600 * machines * USD_PER_HOUR, 4))


def _late(hand: Hand) -> Fate:
    more = (acts.Allow(), hand.train(), Finish()) if hand.dice.random() < 0.5 else ()
    return hand.fate(acts.Outlive(), *more, deadline_after=hand.dice.uniform(20, 40))


def _sweep(hand: Hand) -> Fate:
    return hand.fate(hand.train(), Finish(), size=hand.dice.choice((1, 2)))


def _misfit(hand: Hand) -> Fate:
    if hand.dice.random() < 0.5:
        drawn = hand.fate(Rest(20.0))
        return replace(drawn, placement={"gpuType": "V100"})
    return replace(hand.fate(Rest(20.0)), low=48, replicas=48, high=48, placement={"zone": "single"})


def _stuck(hand: Hand) -> Fate:
    return hand.fate(acts.Stick(), size=hand.dice.choice((1, 2, 3)), annotations={BROKEN: "yes"})


def _hung(hand: Hand) -> Fate:
    return hand.fate(_short(hand), acts.Hang(), spec={"progress": {"stallTimeoutSeconds": 12}})


def _foreign(hand: Hand) -> Fate:
    return hand.fate(Rest(20.0), spec={"managedBy": "kueue.x-k8s.io/multikueue"})


def _unanimous(hand: Hand) -> Fate:
    return hand.fate(hand.train(), Finish(), spec={"successPolicy": "AllWorkers"}, size=hand.dice.choice((2, 3, 4, 6)))


def _short(hand: Hand) -> Train:
    return Train(round(hand.dice.uniform(2, 6 + 14 * hand.pace), 1))


def _failure(hand: Hand) -> Fail:
    code, reason = hand.dice.choice(((1, "Error"), (1, "Error"), (137, "OOMKilled"), (139, "Error"), (143, "Error")))
    return Fail(code, workers=hand.dice.choice((1, 1, 2, 16)), reason=reason)


KINDS: Mapping[str, tuple[int, Callable[[Hand], Fate]]] = {
    "steady": (24, _steady),
    "straggling": (2, _straggling),
    "clumsy": (12, _clumsy),
    "doomed": (7, _doomed),
    "strict": (3, _strict),
    "coded": (6, _coded),
    "leaving": (4, _leaving),
    "paused": (8, _paused),
    "parked": (4, _parked),
    "elastic": (10, _elastic),
    "dropped": (6, _dropped),
    "overdue": (4, _overdue),
    "costly": (4, _costly),
    "late": (2, _late),
    "sweep": (2, _sweep),
    "misfit": (2, _misfit),
    "stuck": (2, _stuck),
    "hung": (2, _hung),
    "foreign": (1, _foreign),
    "unanimous": (3, _unanimous),
}
"""Weight and draw of each kind of life."""
