"""Jobs that each hold half of what both need: single looks, and whole towns in which every job must come to its end.

A town is a seed. A failing one is run again by its id:
`pytest "tests/controller/reconciler/test_queue_towns.py::test_a_town[17]"`.
"""

import random
from typing import Any

import pytest

from ebb.controller.reconciler.capacity import Claim
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_group, make_platform
from tests.controller.reconciler.scenes import (
    claim,
    cluster_capacity,
    gpu_job,
    pending,
    placed_job,
    reasons,
    scheduled,
    why,
    zone_of,
)
from tests.controller.reconciler.town import LEAVE, TICK, Town
from tests.looks import again, done, look

Object = dict[str, Any]
TOWNS = 30
ONE = make_platform(make_group("t4-local-a"))  # 4 machines; a job waits 360 s for one
JOB = placed_job(low=2, replicas=2, since=NOW - 100)
PODS = [*scheduled(JOB, 0), *pending(JOB, 1)]  # made 50 s ago
LATE = NOW + 310


def rival(**changes: Any) -> Claim:
    """An older job that has had one machine of two for long enough."""
    return claim(**{"zone": "local-a", "placed": 1, "hungry_since": LATE - 360, **changes})


def short(*others: Claim, now: float = LATE, platform: Any = ONE) -> Plan:
    """A look at a job that has one machine of two."""
    return look(JOB, *PODS, now=now, platform=platform, cluster_capacity=cluster_capacity(*others))


LOOKS: dict[str, tuple[Plan, bool]] = {
    "an-older-one-starves": (short(rival()), True),
    "not-before-its-own-machines-are-late": (short(rival(), now=LATE - 1), False),
    "not-before-those-of-the-older-one-are-late": (short(rival(hungry_since=LATE - 359)), False),
    "a-younger-one-starves": (short(rival(created=NOW)), False),
    "a-younger-one-of-higher-priority": (short(rival(created=NOW, priority=1)), True),
    "an-older-one-has-what-it-needs": (short(rival(placed=2, hungry_since=None)), False),
    "an-older-one-starves-elsewhere": (short(rival(zone="local-b")), False),
    "an-older-one-is-kept-out-by-it": (short(claim(least=3)), True),
    "an-older-one-is-kept-out-by-others": (short(claim(least=3), claim("x", "local-a")), False),
    "an-older-one-has-room-beside-it": (short(claim(least=2)), False),
    "nobody-else": (short(), False),
    "without-a-stack": (
        look(placed_job(low=2, replicas=2), *PODS, now=LATE, cluster_capacity=cluster_capacity(rival())),
        True,
    ),
}


@pytest.mark.parametrize(("decided", "released"), LOOKS.values(), ids=LOOKS.keys())
def test_who_lets_go(decided: Plan, released: bool) -> None:
    assert ("MachinesReleased" in reasons(decided)) == released
    assert (zone_of(decided) == "") == released
    assert done(decided) == []
    if released:
        assert why(decided)[0] == "BehindOthers"


def test_a_job_with_enough_workers_lets_go_of_nothing() -> None:
    job = placed_job(low=1, replicas=2)
    assert zone_of(look(job, *PODS, now=LATE, platform=ONE, cluster_capacity=cluster_capacity(rival()))) == "local-a"


def test_it_writes_that_down_stops_its_workers_and_waits_until_the_other_has_its_machines() -> None:
    first = short(rival())
    (told,) = (event.message for event in first.events if event.reason == "MachinesReleased")
    assert told == (
        "Not all machines came in time, and job elastic-job/other goes first in local-a (spot T4): this one lets go of what it "
        "has."
    )
    job = again(JOB, first)
    second = look(job, *PODS, now=LATE, platform=ONE, cluster_capacity=cluster_capacity(rival()))
    assert (done(second), zone_of(second)) == (["-0", "-1"], "")
    third = look(again(job, second), now=LATE + 30, platform=ONE, cluster_capacity=cluster_capacity(rival()))
    assert (done(third), why(third)) == ([], ("BehindOthers", "job elastic-job/other goes first in local-a (spot T4)."))
    last = look(
        again(job, third), now=LATE + 60, platform=ONE, cluster_capacity=cluster_capacity(rival(placed=2, hungry_since=None))
    )
    assert (done(last), zone_of(last), last.status.reclaims) == (["+0", "+1"], "local-a", 0)


# --- Towns ---


def town_of(seed: int) -> Town:
    """One to three zones with 2 to 5 machines, whose groups claim to have up to 4 more; 2 to 4 jobs that each fit somewhere."""
    rng = random.Random(seed)
    limits = {zone: rng.randint(2, 5) for zone in "abc"[: rng.randint(1, 3)]}
    groups = [make_group(f"t4-{z}", zone=z, max=most + rng.randint(0, 4), provision_seconds=60) for z, most in limits.items()]
    town = Town(make_platform(*groups), limits=limits, rng=rng)
    for number in range(rng.randint(2, 4)):
        low = rng.randint(1, max(limits.values()))
        replicas = rng.randint(low, low + 2)
        job = gpu_job(f"job-{number}", uid=f"uid-{number}", low=low, replicas=replicas, high=replicas + rng.randint(0, 2))
        job["spec"] |= {"priorityClassName": "urgent"} if rng.random() < 0.3 else {}
        job["spec"] |= {"scaling": "automatic"} if rng.random() < 0.3 else {}
        town.submit(job, work=rng.choice([100, 300, 900]))
        for _ in range(rng.randint(0, 5)):
            town.tick()
    return town


@pytest.mark.parametrize("seed", range(TOWNS))
def test_a_town(seed: int) -> None:
    town = town_of(seed)
    town.run(4 * 3600)
    assert not town.jobs, f"{sorted(town.jobs)} never had their machines"


def test_two_jobs_that_hold_half_each_both_come_to_their_end() -> None:
    for seed in range(5):
        town = Town(
            make_platform(make_group("t4-a", zone="a", max=6, provision_seconds=60)), limits={"a": 3}, rng=random.Random(seed)
        )
        for name in ("one", "two"):
            town.submit(gpu_job(name, uid=f"uid-{name}", low=3, replicas=3), work=300)
        town.run(1800)
        assert sorted(town.finished) == ["one", "two"]
        assert len(town.told("MachinesReleased")) <= 2


def test_jobs_of_one_size_finish_in_the_order_in_which_they_came() -> None:
    town = Town(make_platform(make_group("t4-a", zone="a", max=3)), limits={"a": 3}, rng=random.Random(1))
    for number in range(6):
        town.submit(gpu_job(f"job-{number}", uid=f"uid-{number}", low=2, replicas=2), work=200)
        town.tick()
    town.run(3600)
    assert town.finished == [f"job-{number}" for number in range(6)]


def test_a_job_of_higher_priority_goes_first() -> None:
    town = Town(make_platform(make_group("t4-a", zone="a", max=2)), limits={"a": 2}, rng=random.Random(1))
    for name, spec in (("runs", {}), ("waits", {}), ("urgent", {"priorityClassName": "urgent"})):
        town.submit(gpu_job(name, uid=f"uid-{name}", low=2, replicas=2, **spec), work=200)
        town.tick()
    town.run(3600)
    assert town.finished == ["urgent", "runs", "waits"]


def end_of_large(small: int) -> tuple[float, Town]:
    """Seconds from the end of the last job before a large one to its own, with so many small jobs that came after it."""
    town = Town(make_platform(make_group("t4-a", zone="a", max=4)), limits={"a": 4}, rng=random.Random(1))
    for number in range(3):
        town.submit(gpu_job(f"first-{number}", uid=f"first-{number}", low=1, replicas=1), work=150 * (number + 1))
        town.tick()
    town.submit(gpu_job("large", uid="large", low=4, replicas=4), work=100)
    for number in range(12):
        if number < small:
            town.submit(gpu_job(f"small-{number}", uid=f"small-{number}", low=1, replicas=1), work=300)
        town.tick()
    while "first-2" not in town.finished:
        town.tick()
    since = town.now
    while "large" not in town.finished:
        town.tick()
        assert town.now < since + 3600
    return town.now - since, town


def test_a_large_job_is_not_kept_out_by_small_ones_that_use_its_machines_meanwhile() -> None:
    alone, _ = end_of_large(0)
    waited, town = end_of_large(12)
    assert waited <= alone + LEAVE + 2 * TICK, "it waits for nothing but the stop of the workers on its machines"
    assert any(name.startswith("small") for name in town.finished[: town.finished.index("large")]), "its machines were lent"
    lent = [message for message in town.told("MachinesReleased") if "job elastic-job/large, which goes first" in message]
    assert 1 <= len(lent) <= 3, "who has one of its machines stops once"
    town.run(3600)
    assert len(town.finished) == 16


@pytest.mark.parametrize("seed", range(12))
def test_a_town_with_weather(seed: int) -> None:
    """Zones run dry and lose all their machines, again and again; what must hold after every look is in Town.check."""
    town, rng = town_of(seed), random.Random(f"weather-{seed}")
    for _ in range(12):
        town.dry ^= {rng.choice(sorted(town.limits))}
        if rng.random() < 0.5:
            town.reclaim(rng.choice(sorted(town.limits)))
        town.run(rng.choice([50, 200, 600]))
    town.dry.clear()
    town.run(4 * 3600)
    assert not town.jobs, f"{sorted(town.jobs)} never had their machines"


def test_a_job_leaves_a_zone_that_runs_dry_under_it() -> None:
    groups = [make_group(f"t4-{zone}", zone=zone, max=3, provision_seconds=60) for zone in "ab"]
    town = Town(make_platform(*groups), limits={"a": 3, "b": 3}, rng=random.Random(1))
    town.submit(gpu_job("one", low=2, replicas=3), work=600)
    town.run(200)
    town.dry.add("a")
    town.reclaim("a")
    began = town.now
    town.run(3600)
    (moved,) = (at for at, _, event in town.events if event.reason == "Moved")
    assert (town.finished, moved - began <= 60) == (["one"], True)
