"""A month of jobs of five teams with different habits, from a seed. Pure.

    asks = month(random.Random(1), days=30)
    asks[0].at, asks[0].user, asks[0].gpus, asks[0].seconds

The habits are made up, to disagree with each other as people on a shared cluster do: sweeps of many small jobs, a few jobs that
need most of the cluster for days, short jobs that somebody sits and waits for. As on shared clusters that were measured, most
jobs are small and short, and few large ones take most of the time (Jeon et al., USENIX ATC 2019,
https://www.usenix.org/conference/atc19/presentation/jeon).
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

HOUR, DAY = 3600.0, 86400.0
LONGEST = 60 * HOUR  # of a job


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A job: what it needs, and for how long when it runs without being stopped."""

    name: str
    team: str
    user: str
    at: float  # seconds from the beginning of the month, a Monday
    workers: int
    gpus_per_worker: int
    seconds: float
    urgent: bool = False

    @property
    def gpus(self) -> int:
        return self.workers * self.gpus_per_worker


def month(rng: random.Random, *, days: int = 30) -> list[Ask]:
    """All jobs, oldest first."""
    asks = [ask for day in range(days) for habit in HABITS for ask in habit(rng, day)]
    return sorted(asks, key=lambda ask: (ask.at, ask.name))


def vision(rng: random.Random, day: int) -> Iterator[Ask]:
    """Two people who start sweeps, one of them more than anybody: on most working days a hundred jobs at once."""
    for user, likely, most in (("ada", 0.8, 150), ("ali", 0.4, 80)):
        if day % 7 < 5 and rng.random() < likely:
            at, gpus = _working_hour(rng, day), rng.choice([1, 2, 2])
            for number in range(rng.randint(most // 3, most)):
                seconds = _lasting(rng, 6 * HOUR, most=24 * HOUR)
                yield Ask(
                    name=f"sweep-{user}-{day}-{number}", team="vision", user=user, at=at + number, workers=gpus,
                    gpus_per_worker=1, seconds=seconds,
                )  # fmt: skip


def language(rng: random.Random, day: int) -> Iterator[Ask]:
    """One person with few jobs that need a third to two thirds of the cluster for days."""
    if rng.random() < 0.35:
        yield Ask(
            name=f"model-{day}", team="language", user="bob", at=_working_hour(rng, day), workers=rng.choice([4, 4, 6, 8]),
            gpus_per_worker=8, seconds=_lasting(rng, 26 * HOUR, most=LONGEST),
        )  # fmt: skip


def biology(rng: random.Random, day: int) -> Iterator[Ask]:
    """Two people with jobs of one machine, some of which are urgent, every day."""
    for number in range(rng.randint(2, 7)):
        yield Ask(
            name=f"fold-{day}-{number}", team="biology", user=rng.choice(["cem", "cleo"]), at=day * DAY + rng.random() * DAY,
            workers=1, gpus_per_worker=8, seconds=_lasting(rng, 7 * HOUR, most=36 * HOUR), urgent=rng.random() < 0.1,
        )  # fmt: skip


def audio(rng: random.Random, day: int) -> Iterator[Ask]:
    """One person who starts a job of two machines in the evening and wants it done by the morning."""
    if rng.random() < 0.8:
        yield Ask(
            name=f"voice-{day}", team="audio", user="eve", at=day * DAY + (18 + 4 * rng.random()) * HOUR, workers=2,
            gpus_per_worker=8, seconds=_lasting(rng, 10 * HOUR, most=30 * HOUR),
        )  # fmt: skip


def robotics(rng: random.Random, day: int) -> Iterator[Ask]:
    """Three people who try things out and wait for the answer, on working days."""
    for number in range(rng.randint(10, 35) if day % 7 < 5 else 0):
        yield Ask(
            name=f"try-{day}-{number}", team="robotics", user=rng.choice(["dan", "dora", "dee"]), at=_working_hour(rng, day),
            workers=rng.choice([1, 1, 1, 2, 4]), gpus_per_worker=1, seconds=_lasting(rng, 0.5 * HOUR, most=6 * HOUR),
        )  # fmt: skip


HABITS = (vision, language, biology, audio, robotics)


def _working_hour(rng: random.Random, day: int) -> float:
    return day * DAY + (9 + 9 * rng.random()) * HOUR


def _lasting(rng: random.Random, usual: float, *, most: float) -> float:
    """Half of them last shorter than usual; a few last much longer."""
    return min(most, max(120.0, usual * rng.lognormvariate(0.0, 0.8)))
