"""All that may break, and the seed's draw of what breaks when. Pure: the victims are chosen when the moment comes.

for action in schedule(seed=7, seconds=600): action.at, action.kind, action.seconds, action.pick
"""

import random
from dataclasses import dataclass
from typing import NamedTuple

FIRST_SECONDS = 5.0
GAP_SECONDS = (8.0, 18.0)  # between the beginnings of two
LAST_SECONDS = 15.0  # before the end nothing begins any more


class Kind(NamedTuple):
    """`seconds`: how long it lasts at least and at most; `cards`: how often it comes in each round, 0 for what is asked for."""

    what: str
    seconds: tuple[float, float] = (0.0, 0.0)
    cards: int = 1


KINDS = {
    "machine": Kind("a spot machine loses power", cards=2),
    "reclaim": Kind("a spot machine is taken back without notice"),
    "notice": Kind("a spot machine is taken back with 10 s of notice"),
    "manager": Kind("the manager machine loses power"),
    "controller": Kind("kill -9 of the controller that leads"),
    "gateway": Kind("kill -9 of the gateway"),
    "rendezvous": Kind("kill -9 of the etcd where workers meet"),
    "etcd": Kind("the API server's etcd is killed, and stays away", (3.0, 15.0)),
    "apiserver": Kind("the API server is killed, and stays away", (3.0, 20.0)),
    "kubelet": Kind("kill -9 of a spot machine's kubelet"),
    "frozen": Kind("a spot machine's kubelet stands still", (10.0, 50.0)),
    "zone": Kind("a zone has no more machines to give", (15.0, 40.0)),
    "disk": Kind("the output volume is full", (8.0, 25.0)),
    "slow": Kind("a spot machine's link carries 2 Mb/s", (10.0, 30.0)),
    "link": Kind("a spot machine's link is broken", (4.0, 15.0)),
    "cut": Kind("a spot machine's link is broken for longer than anybody waits for it", (80.0, 110.0)),
    "zombie": Kind("a spot machine's link is broken, and nobody there ends its pods when it is whole", (60.0, 70.0), cards=0),
}


@dataclass(frozen=True, kw_only=True)
class Action:
    """`at`: seconds after the first jobs began to train; `seconds`: until it is healed, 0 for what is over at once; `pick`: which
    victim, as its place among the candidates, 0 to 1."""

    at: float
    kind: str
    seconds: float
    pick: float


def schedule(*, seed: int, seconds: float, only: tuple[str, ...] = ()) -> list[Action]:
    """In the order of time. Kinds are dealt like cards, so that each comes once before any comes again. Where there are `only` a
    few, each begins when the last one is over: else all machines would soon be broken in the same way."""
    rng = random.Random(f"chaos {seed}")  # noqa: S311 - to be repeated
    kinds = only or tuple(name for name, kind in KINDS.items() if kind.cards)
    deck: list[str] = []
    found: list[Action] = []
    at = FIRST_SECONDS
    while at < seconds - LAST_SECONDS:
        if not deck:
            deck = [kind for kind in kinds for _ in range(KINDS[kind].cards or 1)]
            rng.shuffle(deck)
        kind = deck.pop()
        lasts = round(rng.uniform(*KINDS[kind].seconds), 1)
        found.append(Action(at=round(at, 1), kind=kind, seconds=lasts, pick=round(rng.random(), 4)))
        at += rng.uniform(*GAP_SECONDS) + (lasts if only else 0.0)
    return found


def victim(candidates: list[str], pick: float) -> str | None:
    """None where there is none."""
    return sorted(candidates)[min(int(pick * len(candidates)), len(candidates) - 1)] if candidates else None
