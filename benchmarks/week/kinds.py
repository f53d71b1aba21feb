"""The jobs of a week, drawn from one seed before anything runs: how often each kind of life comes, and how it goes.

scenarios = draw(jobs=300, seconds=3600, rng=random.Random(7))
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.week import actions
from benchmarks.week.actions import Action, Fail, Finish, Rest, Scale, Train
from benchmarks.week.groups import USD_PER_HOUR, WORKERS_PER_MACHINE, ZONES
from benchmarks.week.scenarios import BROKEN, SETTLE_SECONDS, Scenario, need

SIZES = (1, 1, 2, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16)
MOST = 16
URGENT = "week-urgent"
"""A PriorityClass above that of other jobs."""


def draw(*, jobs: int, seconds: float, rng: random.Random, only: Sequence[str] = ()) -> list[Scenario]:
    """As many scenarios, in the order of their arrival; each arrives early enough to end by then. `only`: kinds to draw from."""
    kinds = {name: entry for name, entry in KINDS.items() if not only or name in only}
    scenarios: list[Scenario] = []
    while len(scenarios) < jobs:
        name = rng.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
        hand = Hand(rng, f"{name}-{len(scenarios):03}", name, pace=min(1.0, max(0.0, seconds - 180) / 1800))
        together = [kinds[name][1](hand)]
        if name == "sweep":
            size = min(rng.randint(3, 5), jobs - len(scenarios))
            group = {"name": hand.name, "maxParallel": rng.randint(1, 2)}
            drawn = [replace(kinds[name][1](hand), name=f"{hand.name}-{number}") for number in range(size)]
            together = [
                replace(scenario, spec={**scenario.spec, "group": group}, need=scenario.need * size) for scenario in drawn
            ]
        if max(scenario.need for scenario in together) > seconds and not only:
            continue  # a life that would not fit
        latest = max(5.0, seconds - SETTLE_SECONDS - 1.5 * max(scenario.need for scenario in together))
        arrives = rng.uniform(0, latest)
        scenarios += [replace(scenario, arrives=arrives) for scenario in together]
    return sorted(scenarios, key=lambda scenario: (scenario.arrives, scenario.name))


class Hand:
    """Draws the parts of one scenario."""

    def __init__(self, rng: random.Random, name: str, kind: str, *, pace: float) -> None:
        self.rng, self.name, self.kind, self.pace = rng, name, kind, pace

    def train(self) -> Train:
        return Train(round(self.rng.uniform(8, 20 + 180 * self.pace), 1))

    def scenario(self, *lived: Action, size: int | None = None, **more: Any) -> Scenario:
        rng = self.rng
        replicas = size or rng.choice(SIZES)
        low = rng.randint(max(1, replicas // 4), replicas) if rng.random() < 0.6 else replicas
        high = rng.randint(replicas, MOST) if rng.random() < 0.5 else replicas
        drawn = Scenario(name=self.name, kind=self.kind, low=low, replicas=replicas, high=high, actions=lived, need=need(lived),
                     placement=self._placement(low))  # fmt: skip
        chosen = replace(drawn, **{"ttl": rng.randint(3, 20) if rng.random() < 0.15 else None, **more})
        return replace(chosen, spec={**self._spec(), **chosen.spec})

    def _placement(self, low: int) -> Mapping[str, Any]:
        rng = self.rng
        # Bought on demand, a zone has few: a job that needs all of them could wait for a quiet hour.
        kinds = ["spot", "on-demand" if low <= MOST // 2 else "spot", "spot-then-on-demand", ""]
        capacity = rng.choices(kinds, [40, 10, 15, 35])[0]
        zone = rng.choice(ZONES) if rng.random() < 0.08 else "single"
        fallback = {"fallbackAfterSeconds": 15} if capacity == "spot-then-on-demand" else {}
        return {"zone": zone, **({"capacity": capacity} if capacity else {}), **fallback}

    def _spec(self) -> Mapping[str, Any]:
        urgent = {"priorityClassName": URGENT} if self.rng.random() < 0.08 else {}
        clean = {"cleanPodPolicy": "All"} if self.rng.random() < 0.3 else {}
        return {**urgent, **clean}


def _steady(hand: Hand) -> Scenario:
    spec = {"scaling": "automatic"} if hand.rng.random() < 0.2 else {}
    return hand.scenario(hand.train(), Finish(), spec=spec)


def _straggling(hand: Hand) -> Scenario:
    return hand.scenario(hand.train(), Finish(stragglers=1), size=hand.rng.choice((2, 4, 6)))


def _clumsy(hand: Hand) -> Scenario:
    limit = hand.rng.randint(1, 3)
    lived = [part for _ in range(hand.rng.randint(1, limit)) for part in (_short(hand), _failure(hand))]
    return hand.scenario(*lived, hand.train(), Finish(), backoff_limit=limit)


def _doomed(hand: Hand) -> Scenario:
    limit = hand.rng.randint(0, 2)
    lived = [part for _ in range(limit + 1) for part in (_short(hand), _failure(hand))]
    return hand.scenario(*lived, backoff_limit=limit)


def _strict(hand: Hand) -> Scenario:
    return hand.scenario(_short(hand), _failure(hand), policy="Never")


def _coded(hand: Hand) -> Scenario:
    rng = hand.rng
    again = [part for _ in range(rng.randint(0, 2)) for part in (_short(hand), Fail(rng.choice((130, 137, 143))))]
    last: list[Action] = [Finish()] if rng.random() < 0.5 else [Fail(rng.choice((1, 2, 139)))]
    return hand.scenario(*again, hand.train(), *last, policy="ExitCode")


def _leaving(hand: Hand) -> Scenario:
    return hand.scenario(_short(hand), actions.Leave(), hand.train(), Finish(), backoff_limit=0)


def _paused(hand: Hand) -> Scenario:
    lived: list[Action] = []
    for _ in range(hand.rng.randint(1, 2)):
        # A pause before the first worker runs is one, too.
        before = hand.train() if hand.rng.random() < 0.8 else Rest(hand.rng.uniform(0, 5))
        lived += [before, actions.Suspend(), Rest(hand.rng.uniform(0, 10)), actions.Resume()]
    return hand.scenario(*lived, hand.train(), Finish())


def _parked(hand: Hand) -> Scenario:
    return hand.scenario(hand.train(), actions.Suspend())


def _elastic(hand: Hand) -> Scenario:
    drawn = hand.scenario(size=hand.rng.choice((2, 3, 4, 6, 8)))
    drawn = replace(drawn, low=hand.rng.randint(1, drawn.replicas), high=hand.rng.randint(drawn.replicas, MOST))
    sizes = [Scale(hand.rng.randint(drawn.low, drawn.high)) for _ in range(hand.rng.randint(1, 3))]
    lived: list[Action] = [part for size in sizes for part in (_short(hand), size)]
    lived += [hand.train(), Finish()]
    return replace(drawn, actions=tuple(lived), need=need(lived))


def _dropped(hand: Hand) -> Scenario:
    before = hand.train() if hand.rng.random() < 0.7 else Rest(hand.rng.uniform(0, 8))
    more = (actions.Suspend(),) if hand.rng.random() < 0.2 else ()
    return hand.scenario(before, *more, actions.Delete())


def _overdue(hand: Hand) -> Scenario:
    return hand.scenario(actions.Overrun(), spec={"activeDeadlineSeconds": hand.rng.randint(15, 40)})


def _costly(hand: Hand) -> Scenario:
    more = (actions.Allow(), hand.train(), Finish()) if hand.rng.random() < 0.5 else ()
    drawn = hand.scenario(actions.Spend(), *more, size=hand.rng.choice((1, 2, 4, 6)))
    # The controller stops a job when what is left would be spent within its workers' grace of 30 s and 5 s more.
    seconds, machines = hand.rng.uniform(50, 70), -(-drawn.replicas // WORKERS_PER_MACHINE)
    return replace(drawn, placement={"capacity": "on-demand"}, budget_usd=round(seconds / 3600 * machines * USD_PER_HOUR, 4))


def _late(hand: Hand) -> Scenario:
    more = (actions.Allow(), hand.train(), Finish()) if hand.rng.random() < 0.5 else ()
    return hand.scenario(actions.Outlive(), *more, deadline_after=hand.rng.uniform(20, 40))


def _sweep(hand: Hand) -> Scenario:
    return hand.scenario(hand.train(), Finish(), size=hand.rng.choice((1, 2)))


def _misfit(hand: Hand) -> Scenario:
    if hand.rng.random() < 0.5:
        drawn = hand.scenario(Rest(20.0))
        return replace(drawn, placement={"gpuType": "V100"})
    return replace(hand.scenario(Rest(20.0)), low=48, replicas=48, high=48, placement={"zone": "single"})


def _stuck(hand: Hand) -> Scenario:
    return hand.scenario(actions.Stick(), size=hand.rng.choice((1, 2, 3)), annotations={BROKEN: "yes"})


def _hung(hand: Hand) -> Scenario:
    return hand.scenario(_short(hand), actions.Hang(), spec={"progress": {"stallTimeoutSeconds": 12}})


def _foreign(hand: Hand) -> Scenario:
    return hand.scenario(Rest(20.0), spec={"managedBy": "kueue.x-k8s.io/multikueue"})


def _unanimous(hand: Hand) -> Scenario:
    return hand.scenario(hand.train(), Finish(), spec={"successPolicy": "AllWorkers"}, size=hand.rng.choice((2, 3, 4, 6)))


def _short(hand: Hand) -> Train:
    return Train(round(hand.rng.uniform(2, 6 + 14 * hand.pace), 1))


def _failure(hand: Hand) -> Fail:
    code, reason = hand.rng.choice(((1, "Error"), (1, "Error"), (137, "OOMKilled"), (139, "Error"), (143, "Error")))
    return Fail(code, workers=hand.rng.choice((1, 1, 2, 16)), reason=reason)


KINDS: Mapping[str, tuple[int, Callable[[Hand], Scenario]]] = {
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
