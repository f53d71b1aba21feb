"""Jobs that a ResourceQuota lets in one worker at a time: single looks, and towns in which nobody may hold what helps nobody."""

import random
from dataclasses import replace
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.platform import Team
from ebb.api.spec import Job
from ebb.api.status import Quota
from ebb.controller.reconciler.capacity import OVERDUE, Claim
from ebb.controller.reconciler.fair_share import divide
from ebb.controller.reconciler.quotas import Refusal
from ebb.controller.reconciler.reconcile import refused
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_group, make_platform, make_pod
from tests.controller.reconciler.scenes import claim, cluster_capacity, gpu_job, placed_job, reasons, why, zone_of
from tests.controller.reconciler.town import Town
from tests.looks import again, done, look

Object = dict[str, Any]
GPUS = "requests.nvidia.com/gpu"
STACK = make_platform(make_group("t4-a", zone="local-a", max=20))


def words(worker: int = 3, *, used: int = 6, limited: int = 6) -> str:
    """As the API server has them."""
    return (
        f'pods "digits-worker-{worker}" is forbidden: exceeded quota: gpus, requested: {GPUS}=1, used: {GPUS}={used}, '
        f"limited: {GPUS}={limited}"
    )


KEPT_OUT = Quota(since=stamp(NOW), generation=1, message=words(), room=6.0)


def short(*, since: float = NOW, low: int = 4, **quota: Any) -> Object:
    """A job with three workers of which a quota refused one more."""
    remembered = {"since": stamp(since), "generation": 1, "message": words(), **quota}
    return placed_job(low=low, replicas=4, status={"quota": remembered, "replicas": 3})


def rival(**changes: Any) -> Claim:
    """An older job of the namespace, in the same state."""
    return claim(**{"zone": "local-a", "least": 4, "placed": 3, "pods": 3, "quota": KEPT_OUT, "refused": True, **changes})


def look_at(job: Object, *others: Claim, now: float = NOW, pods: int = 3) -> Plan:
    workers = [make_pod(job, index) for index in range(pods)]
    return look(job, *workers, now=now, platform=STACK, cluster_capacity=cluster_capacity(*others))


YOUNGER = {"created": NOW}
LOOKS: dict[str, tuple[Plan, bool]] = {
    "behind-another-after-a-minute": (look_at(short(), rival(), now=NOW + 60), True),
    "not-before": (look_at(short(), rival(), now=NOW + 59), False),
    "before-another-that-will-give-way": (look_at(short(), rival(**YOUNGER), now=NOW + 299), False),
    "which-does-not": (look_at(short(), rival(**YOUNGER), now=NOW + 300), True),
    "beside-one-that-runs": (look_at(short(), rival(quota=None, placed=4), now=NOW + 60), True),
    "alone-beside-pods-of-somebody-else": (look_at(short(room=3.0), now=NOW + 60), True),
    "alone-with-room-enough": (look_at(short(room=4.0), now=NOW + 60), False),
    "of-another-namespace": (look_at(short(room=4.0), rival(key=("team", "other")), now=NOW + 60), False),
    "of-lower-priority-though-older": (look_at(short(), rival(priority=-1), now=NOW + 60), False),
    "a-second-time-at-once": (look_at(short(times=1), rival()), True),
    "more-than-it-allows-at-all": (look_at(short(low=4, tooSmall=True, message=words(limited=3, used=3))), True),
    "with-all-that-it-needs": (look_at(short(), rival(), now=NOW + 600, pods=4), False),
}


@pytest.mark.parametrize(("decided", "gives"), LOOKS.values(), ids=LOOKS.keys())
def test_who_gives_its_workers_back(decided: Plan, gives: bool) -> None:
    assert ("MachinesReleased" in reasons(decided)) == gives
    assert (zone_of(decided) == "") == gives
    assert [word for word in done(decided) if word.startswith("-")] == []


def waiter(**changes: Any) -> Claim:
    """An older job of the namespace that has given its workers back."""
    given = Quota(since=stamp(NOW), generation=1, message=words(), room=6.0, at=stamp(NOW), times=1)
    return rival(**{"zone": "", "located": False, "placed": 0, "pods": 0, "quota": given, **changes})


TURNS: dict[str, tuple[float, float, Claim, bool]] = {
    # what owners used, mine and the other's, and the other one -> whether mine waits, new or after it gave its workers back
    "an-older-one": (1.0, 1.0, waiter(), True),
    "an-older-one-of-who-used-more": (0.5, 2.0, waiter(), False),
    "a-younger-one-of-who-used-less": (2.0, 0.5, waiter(created=NOW + 900), True),
    "a-younger-one-of-who-used-more": (0.5, 2.0, waiter(created=NOW + 900), False),
    "an-older-one-of-who-used-more-that-holds-workers": (0.5, 2.0, rival(), True),
    "a-younger-one-of-who-used-less-that-holds-workers": (2.0, 0.5, rival(created=NOW + 900, wanted=4, pods=2), False),
    "one-of-higher-priority": (0.5, 2.0, waiter(priority=1), True),
}


@pytest.mark.parametrize(("mine", "others", "other", "waits"), TURNS.values(), ids=TURNS.keys())
@pytest.mark.parametrize("new", [True, False], ids=["new", "waits"])
def test_of_those_that_hold_nothing_the_one_whose_owner_used_less_goes_first(
    mine: float, others: float, other: Claim, waits: bool, new: bool
) -> None:
    given = {"since": stamp(NOW), "generation": 1, "message": words(), "room": 20.0, "at": stamp(NOW), "times": 1}
    job = gpu_job(low=4, replicas=4, high=4, status={} if new else {"quota": given})
    other = replace(other, share=(others, 0.0))
    decided = look(job, now=NOW + 7, platform=STACK, cluster_capacity=cluster_capacity(other), share=(mine, 0.0))
    assert (zone_of(decided) == "") == waits
    if waits:
        assert why(decided)[0] == names.WAITING_FOR_QUOTA


@pytest.mark.parametrize(("share", "first"), [(2.0, "a"), (0.5, "b")])
def test_workers_beyond_the_minimum_make_room_for_the_one_whose_turn_it_is(share: float, first: str) -> None:
    rivals = (
        waiter(key=("elastic-job", "a"), share=(1.0, 0.0), pods=0, least=4),
        waiter(key=("elastic-job", "b"), share=(share, 0.0), created=NOW, least=4),
    )
    job = placed_job(low=2, replicas=4, status={"replicas": 4})
    decided = look_at(job, *rivals, pods=4)
    (told,) = (event.message for event in decided.events if event.reason == names.REASON_SCALED)
    assert f"job elastic-job/{first} needs the namespace's quota" in told


def test_one_that_a_quota_keeps_out_goes_first_after_a_day_too() -> None:
    used = {("elastic-job", "ada"): 900.0, ("elastic-job", "bob"): 1.0}
    late = waiter(owner=("elastic-job", "ada"), created=NOW - 90_000)
    assert divide(used, [late, waiter(owner=("elastic-job", "bob"))], NOW).of(late) == OVERDUE
    hopeless = replace(late, quota=None)
    assert divide(used, [hopeless], NOW).of(hopeless) != OVERDUE


def test_one_with_all_that_it_needs_forgets_the_quota() -> None:
    assert LOOKS["with-all-that-it-needs"][0].status.quota is None


def test_what_the_api_server_says_of_a_quota() -> None:
    found = Refusal.of(
        'pods "a-b-worker-12" is forbidden: exceeded quota: team quota, requested: pods=1,requests.memory=8Gi, '
        "used: pods=9,requests.memory=60Gi, limited: pods=10,requests.memory=64Gi"
    )
    assert found is not None
    assert (found.worker, found.quota, found.resource, found.each, found.limit) == (
        12, "team quota", "requests.memory", "8Gi", "64Gi",
    )  # fmt: skip
    assert (found.room_for(8), found.room_for(9)) == (True, False)
    assert Refusal.of('pods "a-worker-0" is forbidden: no such class') is None


def test_only_the_workers_that_a_job_needs_matter() -> None:
    job = placed_job(low=2, replicas=4)
    decided = look(job, platform=STACK)
    assert refused(Job.of(job), decided, [words(3)], NOW).status.quota is None
    remembered = refused(Job.of(job), decided, [words(3), words(1)], NOW).status.quota
    assert remembered is not None
    assert (remembered.since, remembered.message, remembered.too_small) == (stamp(NOW, digits=3), words(1), False)


def test_it_says_whose_quota_and_what_it_needs() -> None:
    first = look_at(short(), rival(), now=NOW + 60)
    assert why(first) == (
        "QuotaExceeded",
        "ResourceQuota 'gpus' of namespace 'elastic-job' has no room for minReplicas 4 now (4 x 1 of requests.nvidia.com/gpu, 6 "
        "in all): the job holds no machines until it has. Job elastic-job/other goes first.",
    )
    second = look_at(again(short(), first), rival(), now=NOW + 61)
    assert (done(second), second.status.reclaims) == (["-0", "-1", "-2"], 0)


def test_one_that_can_never_fit_says_so_and_holds_nothing() -> None:
    job = placed_job(low=8, replicas=8, high=8)
    told = refused(Job.of(job), look(job, platform=STACK), [words(6)], NOW)
    decided = look(again(job, told), *(make_pod(job, index) for index in range(6)), platform=STACK)
    assert why(decided) == (
        "QuotaTooSmall",
        "ResourceQuota 'gpus' of namespace 'elastic-job' allows 6 of requests.nvidia.com/gpu in all, and minReplicas 8 needs 8 x "
        "1 of requests.nvidia.com/gpu: lower minReplicas, or have the quota raised. The job holds no machines meanwhile.",
    )
    gone = look(again(job, decided), *(make_pod(job, index) for index in range(6)), platform=STACK)
    assert done(gone) == [f"-{index}" for index in range(6)]
    lowered = again(placed_job(low=4, replicas=8, high=8), gone)
    lowered["metadata"]["generation"] = 2
    assert len(done(look(lowered, platform=STACK, now=NOW + 1))) == 4


def test_nobody_joins_before_one_that_waits_for_the_quota_and_nobody_grows() -> None:
    newcomer = look(gpu_job(), platform=STACK, cluster_capacity=cluster_capacity(rival()))
    assert (done(newcomer), why(newcomer)) == (
        [],
        ("QuotaExceeded", "job elastic-job/other goes first within the namespace's quota."),
    )
    job = placed_job(low=2, replicas=4)
    pods = [make_pod(job, index) for index in range(2)]
    assert done(look(job, *pods, platform=STACK, cluster_capacity=cluster_capacity(rival()))) == []
    assert done(look(job, *pods, platform=STACK, cluster_capacity=cluster_capacity(rival(key=("team", "other"))))) == ["+2", "+3"]


def stops(*others: Claim, low: int = 2, pods: int = 4, leaving: int = 0) -> list[str]:
    """Workers of a job of the namespace that are stopped for others."""
    job = placed_job(low=low, replicas=pods, high=pods, status={"replicas": pods})
    found = [make_pod(job, index, deleted=NOW if index >= pods - leaving else None) for index in range(pods)]
    return done(look(job, *found, platform=STACK, cluster_capacity=cluster_capacity(*others)))


def test_workers_beyond_the_minimum_make_room() -> None:
    """For one that needs three of a quota of six, of which this job has four."""
    out = rival(least=3, placed=0, pods=0)
    assert stops(out) == ["-3"]
    assert stops(rival(least=4, placed=0, pods=0)) == ["-2", "-3"]
    assert stops(rival(least=2, placed=0, pods=0)) == [], "there is room"
    assert stops(rival(least=5, placed=0, pods=0)) == [], "that would not be enough"
    assert stops(out, leaving=1) == [], "one goes already"
    assert stops(out, low=4) == [], "it has no more than it needs"
    assert stops(rival(least=3, placed=0, pods=0, key=("team", "other"))) == []
    behind, before = (Object(pods=3, least=2, quota=None, created=NOW + when) for when in (1, -99))
    small = rival(least=1, placed=0, pods=0)
    assert stops(small, claim("third", "local-a", **behind), pods=3) == [], "the one behind gives first"
    assert stops(small, claim("third", "local-a", **before), pods=3) == ["-2"]


# --- Towns ---


def town_of(*least: int, quota: int = 6, seed: int = 1, urgent: int | None = None, work: float = 4 * 3600) -> Town:
    town = Town(make_platform(make_group("t4-a", zone="a", max=20)), limits={"a": 20}, rng=random.Random(seed), quota=quota)
    for number, low in enumerate(least):
        priority = {"priorityClassName": "urgent"} if number == urgent else {}
        town.submit(gpu_job(f"job-{number}", uid=f"uid-{number}", low=low, replicas=low, high=low, **priority), work=work)
    return town


def hours(town: Town, seconds: float) -> list[set[str]]:
    """The jobs that had minReplicas workers, of every moment."""
    seen, end = [], town.now + seconds
    while town.now < end and town.jobs:
        town.tick()
        seen.append({name for name in town.jobs if town.running(name) >= town.state(name).min_replicas})
    return seen


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("least", "urgent", "winner"), [((4, 4), None, None), ((4, 4), 1, "job-1"), ((4, 4, 4), 2, "job-2")])
def test_in_an_hour_one_starts_and_keeps_its_workers_and_the_others_hold_none(
    least: tuple[int, ...], urgent: int | None, winner: str | None, seed: int
) -> None:
    town = town_of(*least, seed=seed, urgent=urgent)
    seen = hours(town, 3600)
    begun = next(index for index, running in enumerate(seen) if running)
    assert begun * 10 <= 300
    assert len(set(map(frozenset, seen[begun:]))) == 1, "the winner changes"
    assert winner is None or seen[begun] == {winner}
    others = set(town.jobs) - seen[-1]
    assert all(town.state(name).status.condition(names.RUNNING).reason == "QuotaExceeded" for name in others)  # type: ignore[union-attr]
    assert {len(town.pods[name]) for name in others} == {0}


def test_those_that_waited_start_one_after_the_other_and_at_once() -> None:
    town = town_of(4, 4, 4, work=600)
    town.run(3 * 900)
    assert sorted(town.finished) == ["job-0", "job-1", "job-2"]


def test_one_that_can_never_fit_keeps_nobody_out() -> None:
    town = town_of(8, 4, 2, urgent=0)
    seen = hours(town, 3600)
    assert seen[-1] == {"job-1", "job-2"}
    assert town.state("job-0").status.condition(names.RUNNING).reason == "QuotaTooSmall"  # type: ignore[union-attr]
    assert not town.pods["job-0"]


def test_a_quota_that_is_raised_is_found_out() -> None:
    town = town_of(8)
    town.run(900)
    town.quota = 8
    town.run(3600)
    assert town.running("job-0") == 8


def test_one_that_runs_is_not_stopped_for_the_first_in_line() -> None:
    town = town_of(4)
    town.run(300)
    town.submit(gpu_job("urgent", uid="urgent", low=4, replicas=4, priorityClassName="urgent"), work=600)
    seen = hours(town, 3600)
    assert all("job-0" in running for running in seen)


def test_a_job_starts_on_what_others_have_beyond_their_minimum_and_that_is_stable() -> None:
    town = Town(make_platform(make_group("t4-a", zone="a", max=20)), limits={"a": 20}, rng=random.Random(1), quota=6)
    town.submit(gpu_job("wide", uid="wide", low=2, replicas=6, high=6), work=4 * 3600)
    town.run(300)
    assert town.running("wide") == 6
    town.submit(gpu_job("late", uid="late", low=3, replicas=3, high=3), work=4 * 3600)
    town.run(600)
    for _ in range(200):
        town.tick()
        assert (town.running("wide"), town.running("late")) == (3, 3)


@pytest.mark.parametrize(("least", "limited", "reason"), [(4, 6, "QuotaExceeded"), (4, 3, "QuotaTooSmall")])
def test_a_job_of_a_team_says_whose_quota_it_is(least: int, limited: int, reason: str) -> None:
    small = {"tooSmall": True} if reason == "QuotaTooSmall" else {}
    job = short(low=least, message=words(limited=limited, used=limited), room=float(limited), **small)
    job["metadata"]["namespace"] = "ebb-team-vision"
    teams = (Team(name="vision", namespace="ebb-team-vision", gpus=limited),)
    platform = make_platform(make_group("t4-a", zone="local-a", max=20), teams=teams)
    other = rival(key=("ebb-team-vision", "other"))
    decided = look(job, *(make_pod(job, index) for index in range(3)), now=NOW + 60, platform=platform,
                   cluster_capacity=cluster_capacity(other))  # fmt: skip
    found = decided.status.condition("Running")
    assert found is not None
    told = [event.message for event in decided.events if event.reason == "MachinesReleased"]
    assert told[0].startswith("the quota of team 'vision' (ResourceQuota 'gpus' of namespace 'ebb-team-vision') "), told
