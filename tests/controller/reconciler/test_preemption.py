"""Jobs that stop for one of higher priority: single looks, and towns in which nobody may stop in vain, or again and again."""

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from ebb.api.platform import Platform
from ebb.api.spec import Job
from ebb.controller.reconciler.capacity import Claim
from ebb.controller.reconciler.capacity import claim as claim_of
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_group, make_platform, make_pod
from tests.controller.reconciler.scenes import claim, cluster_capacity, gpu_job, placed_job, reasons, why, zone_of
from tests.controller.reconciler.town import Town
from tests.looks import again, done, look

Object = dict[str, Any]
ONE = make_platform(make_group("t4-local-a"))  # 4 machines
TWO = make_platform(make_group("t4-local-a"), make_group("t4-local-b", zone="local-b"))
JOB = placed_job(low=2, replicas=2)  # of priority 0, made 60 s ago
DEAR = placed_job(low=2, replicas=2, status={"cost": {"machineSeconds": 3600}})


def urgent(**changes: Any) -> Claim:
    """A job of higher priority that waits for four machines."""
    return claim("urgent", **{"least": 4, "priority": 1, "created": NOW, "waits_behind": True, **changes})


def other(name: str = "other", **changes: Any) -> Claim:
    """An older job that runs beside this one."""
    return claim(name, "local-a", **changes)


def look_at(*others: Claim, platform: Platform | None = ONE, job: Object = JOB) -> Plan:
    return look(job, *(make_pod(job, index) for index in range(2)), platform=platform, cluster_capacity=cluster_capacity(*others))


LOOKS: dict[str, tuple[Plan, bool]] = {
    "for-one-that-needs-all": (look_at(urgent(), other()), True),
    "alone": (look_at(urgent()), True),
    "not-for-an-equal": (look_at(urgent(priority=0), other()), False),
    "not-for-one-of-lower-priority": (look_at(urgent(priority=-1), other()), False),
    "not-for-one-that-waits-for-something-else": (look_at(urgent(waits_behind=False), other()), False),
    "not-for-one-that-has-room-beside-it": (look_at(urgent(least=2)), False),
    "not-for-one-that-fits-nowhere": (look_at(urgent(least=5), other()), False),
    "not-where-others-keep-it-out-in-any-case": (look_at(urgent(), other(priority=1)), False),
    "the-newer-of-two": (look_at(urgent(least=2), other()), True),
    "not-the-older-of-two": (look_at(urgent(least=2), other(created=NOW)), False),
    "not-the-dearer-of-two": (look_at(urgent(least=2), other(), job=DEAR), False),
    "the-lower-of-two": (look_at(urgent(least=2, priority=9), other(priority=1, created=NOW)), True),
    "not-the-higher-of-two": (look_at(urgent(least=2, priority=9), other(priority=-1)), False),
    "not-where-another-zone-has-room": (look_at(urgent(), platform=TWO), False),
    "not-where-others-are-of-lower-priority-in-another-zone": (
        look_at(urgent(), claim("x", "local-b", priority=-1), other(), platform=TWO), False,
    ),
    "not-without-a-stack": (look_at(urgent(), other(), platform=None), False),
}  # fmt: skip


@pytest.mark.parametrize(("decided", "stops"), LOOKS.values(), ids=LOOKS.keys())
def test_who_stops(decided: Plan, stops: bool) -> None:
    assert ("Preempted" in reasons(decided)) == stops
    assert (zone_of(decided) == "") == stops
    assert done(decided) == []


def test_as_few_as_will_do_stop() -> None:
    """The cheapest first, but not those that a dearer one, which is needed in any case, makes needless."""
    others = [other("small", least=1, wanted=1, placed=1, created=NOW + 1), other("large", least=3, wanted=3, placed=3)]
    job = placed_job(low=1, replicas=1)
    small, free = make_platform(make_group("t4-local-a", max=5)), urgent(least=3)
    assert "Preempted" not in reasons(look(job, make_pod(job), platform=small, cluster_capacity=cluster_capacity(free, *others)))


def test_it_says_for_whom_and_comes_back_by_itself() -> None:
    first = look_at(urgent())
    (told,) = (event.message for event in first.events if event.reason == "Preempted")
    assert told == (
        "job elastic-job/urgent has a higher priority (1) and needs the machines in local-a (spot T4): this one is stopped with "
        "a checkpoint, and goes on by itself when there is room."
    )
    job, pods = again(JOB, first), [make_pod(JOB, index) for index in range(2)]
    second = look(job, *pods, platform=ONE, cluster_capacity=cluster_capacity(urgent()))
    assert done(second) == ["-0", "-1"]
    runs = urgent(zone="local-a", located=True, placed=4, gpu_type="T4", capacity_type="spot", waits_behind=False)
    third = look(again(job, second), now=NOW + 30, platform=ONE, cluster_capacity=cluster_capacity(runs))
    assert (done(third), why(third)) == ([], ("BehindOthers", "job elastic-job/urgent goes first in local-a (spot T4)."))
    last = look(again(job, third), now=NOW + 60, platform=ONE)
    assert (done(last), zone_of(last), last.status.reclaims, last.status.failures) == (["+0", "+1"], "local-a", 0, 0)


def test_what_others_see_of_a_job_is_what_it_sees_itself() -> None:
    value = placed_job(
        status={"cost": {"machineSeconds": 3600 * 2.5}}, container={"resources": {"limits": {"nvidia.com/gpu": 4}}}
    )
    assert claim_of(Job.of(value), {}, NOW).gpu_hours == 10
    waiting = gpu_job(status={"conditions": [{"type": "Running", "status": "False", "reason": "BehindOthers"}]})
    assert claim_of(Job.of(waiting), {}, NOW).waits_behind


# --- Towns ---

RANKS = {"low": 10, "": 1000, "urgent": 5000}


def town_of(seed: int) -> tuple[Town, dict[str, int]]:
    """One or two zones; four to six jobs of three priorities that each fit somewhere, and then one that is urgent."""
    rng = random.Random(f"preemption-{seed}")
    limits = {zone: rng.randint(3, 6) for zone in "ab"[: rng.randint(1, 2)]}
    groups = [make_group(f"t4-{zone}", zone=zone, max=most, provision_seconds=60) for zone, most in limits.items()]
    town, priorities = Town(make_platform(*groups), limits=limits, rng=rng), {}
    names = [rng.choice(["low", "", "urgent"]) for _ in range(rng.randint(4, 6))]
    for number, name in enumerate([*names, "urgent"]):
        low = rng.randint(1, max(limits.values()))
        job = gpu_job(f"job-{number}", uid=f"uid-{number}", low=low, replicas=low + rng.randint(0, 2), high=low + 2)
        job["spec"] |= {"priorityClassName": name} if name else {}
        priorities[f"job-{number}"] = RANKS[name]
        town.submit(job, work=rng.choice([100, 300, 900]))
        for _ in range(rng.randint(0, 30)):
            town.tick()
    return town, priorities


def stopped(town: Town) -> list[tuple[float, str, str]]:
    """When, who, and for whom."""
    found = [(at, name, event.message) for at, name, event in town.events if event.reason == "Preempted"]
    return [(at, name, message.split()[1].rpartition("/")[2]) for at, name, message in found]


@pytest.mark.parametrize("seed", range(25))
def test_a_town_of_three_priorities(seed: int) -> None:
    town, priorities = town_of(seed)
    town.run(6 * 3600)
    assert not town.jobs, f"{sorted(town.jobs)} never had their machines"
    assert all(priorities[name] < priorities[first] for _, name, first in stopped(town)), "only for a higher priority"
    assert max(Counter((name, first) for _, name, first in stopped(town)).values(), default=0) <= 1, "once for each"


def test_towns_are_the_same_every_time_and_some_jobs_stop() -> None:
    towns = [town_of(seed)[0] for seed in range(6) for _ in range(2)]
    for town in towns:
        town.run(3600)
    found = [stopped(town) for town in towns]
    assert found[::2] == found[1::2]
    assert any(found)


def test_an_urgent_job_starts_at_once_and_the_others_go_on_after_it() -> None:
    town = Town(make_platform(make_group("t4-a", zone="a", max=4)), limits={"a": 4}, rng=random.Random(1))
    for number in range(2):
        town.submit(gpu_job(f"job-{number}", uid=f"uid-{number}", low=2, replicas=2, priorityClassName="low"), work=900)
        town.run(200)
    town.submit(gpu_job("urgent", uid="urgent", low=2, replicas=2), work=600)
    begun = town.now
    while not town.running("urgent"):
        town.tick()
        assert town.running("job-0") == 2, "the older one stays"
    assert town.now - begun <= 120
    running = []
    while town.jobs and town.now < begun + 3600:
        town.tick()
        running.append(town.running("job-1") if "job-1" in town.jobs else 2)
    assert town.finished[-1] == "job-1"
    assert sum(before > 0 and after == 0 for before, after in pairwise(running)) == 0, "it comes back once"


# --- With and without a stack ---


@pytest.fixture(params=[True, False], ids=["stack", "no-stack"])
def town(request: pytest.FixtureRequest) -> Town:
    """Six machines, and a scheduler that ends pods of lower priority."""
    platform = make_platform(make_group("t4-a", zone="a", max=6)) if request.param else None
    return Town(platform, limits={"a": 6}, rng=random.Random(1), preempts=True)


def submit(town: Town, name: str, low: int, *, wanted: int = 0, priority: str = "", work: float = 900) -> None:
    wanted = wanted or low
    spec = {"priorityClassName": priority} if priority else {}
    town.submit(gpu_job(name, uid=f"uid-{name}", low=low, replicas=wanted, high=wanted, **spec), work=work)


def test_workers_beyond_the_minimum_go_first(town: Town) -> None:
    submit(town, "wide", 2, wanted=6)
    town.run(200)
    submit(town, "urgent", 4, priority="urgent", work=300)
    for _ in range(40):
        town.tick()
        assert town.running("wide") >= 2
    assert "urgent" in town.finished
    assert stopped(town) == []


def test_then_one_of_two_jobs_stops_as_a_whole_and_goes_on_by_itself(town: Town) -> None:
    for name in ("first", "second"):
        submit(town, name, 3, priority="low")
        town.run(200)
    submit(town, "urgent", 2, work=1500)
    begun = town.now
    town.run(300)
    assert (town.running("urgent"), town.running("first")) == (2, 3)
    assert [(name, above) for _, name, above in stopped(town)] == [("second", "urgent")]
    assert not town.pods["second"], "it holds nothing"
    town.run(3 * 3600)
    assert sorted(town.finished) == ["first", "second", "urgent"]
    assert len(stopped(town)) <= 2, "it tries again at most once"
    assert town.now - begun < 3600


def test_an_equal_pushes_nobody_off(town: Town) -> None:
    submit(town, "first", 6)
    town.run(200)
    submit(town, "second", 2)
    town.run(600)
    assert (town.running("first"), stopped(town)) == (6, [])


def test_nobody_stops_for_one_that_cannot_start_even_so(town: Town) -> None:
    submit(town, "first", 2, priority="urgent")
    submit(town, "second", 3, priority="low")
    town.run(200)
    submit(town, "large", 5)
    town.run(300)
    if town.platform:
        assert town.running("second") == 3
    town.run(4 * 3600)
    assert not town.jobs
