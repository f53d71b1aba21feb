"""The line that all waiting jobs share: each sees in it what it would alone, and with more jobs a look does not cost more."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.needs import Wish
from ebb.api.platform import Platform
from ebb.api.spec import Job
from ebb.controller.claims import Claims, Effect
from ebb.controller.reconciler.candidates import sites, ways
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity
from ebb.controller.reconciler.capacity import claim as claim_of
from ebb.controller.reconciler.queue import SharedCapacity, SharedLine, queue
from ebb.controller.reconciler.reconcile import plan
from ebb.controller.reconciler.types import Observed
from tests.builders import NOW, make_group, make_platform
from tests.controller.reconciler.scenes import claim, gpu_job, placed_job

PLATFORM = make_platform(
    make_group("a", max=20), make_group("b", zone="local-b", max=5), make_group("od", capacity_type="on-demand", max=3)
)
JOBS = (
    gpu_job("small", low=1, replicas=1, high=None),
    gpu_job("wide", low=6, replicas=8, high=None),
    gpu_job("bound", low=2, replicas=2, high=None, placement={"zone": "local-b"}),
    gpu_job("nowhere", low=2, replicas=2, high=None, placement={"gpuType": "H100"}),
)


def town(rng: random.Random, count: int) -> list[Claim]:
    """Jobs with and without a place, in groups and none, of few wishes, as those of sweeps are."""
    wishes = [Wish.of(Job.of(job)) for job in JOBS]
    found = []
    for number in range(count):
        wish = rng.choice(wishes)
        zone = rng.choice(["", "", "", "local-a", "local-b"])
        group = rng.choice(["", "", "sweep", "other"])
        found.append(
            claim(
                f"job-{number}", zone, job=JOBS[wishes.index(wish)], least=wish.least, wish=wish, created=NOW - rng.randrange(50),
                priority=rng.choice([0, 0, 0, 100]), group=group, group_max=rng.randint(1, 4) if group else 0,
                refused=rng.random() < 0.1, placed=rng.randint(0, wish.least) if zone else 0,
            )
        )  # fmt: skip
    return found


def seen(me: Claim, capacity: ClusterCapacity, platform: Platform | None) -> tuple[object, ...]:
    line = queue(me, capacity, platform)
    known = [site for way in ways(me.wish) for site in sites(me.wish, PLATFORM, way)] if platform else []
    return (
        [(site.title, line.free.room(site), line.before(me, site)) for site in known],
        list(line.holders),
        list(line.waiting),
        line.in_group,
    )


@pytest.mark.parametrize("seed", range(30))
def test_each_job_sees_in_the_shared_line_what_it_would_see_alone(seed: int) -> None:
    rng = random.Random(seed)
    claims = town(rng, 40)
    platform = PLATFORM if seed % 5 else None
    line = SharedLine(claims)
    for me in claims:
        others = tuple(other for other in claims if other is not me)
        shared = SharedCapacity(claims=others, line=line)
        assert seen(me, shared, platform) == seen(me, ClusterCapacity(claims=others), platform)


@pytest.mark.parametrize("now", [{"zone": "local-a", "located": True}, {"priority": 50}, {"created": NOW + 5}])
def test_a_job_that_stands_elsewhere_in_the_line_than_it_thinks_does_not_meet_itself(now: dict[str, Any]) -> None:
    """As when its place was decided and is not written yet."""
    me, first = claim("me", created=NOW - 1), claim("first", created=NOW - 2)
    shared = SharedCapacity(claims=(first,), line=SharedLine([first, claim("me", **{"created": NOW - 1, **now})]))
    assert seen(me, shared, PLATFORM) == seen(me, ClusterCapacity(claims=(first,)), PLATFORM)


@pytest.mark.parametrize("seed", range(30))
def test_a_job_that_is_not_told_of_free_machines_could_not_have_taken_them(seed: int) -> None:
    claims = town(random.Random(seed), 40)
    line = SharedLine(claims)
    stuck = line.stuck(PLATFORM)
    for me in claims:
        seen = line.before(me, PLATFORM)
        if seen is None or not me.key[1].startswith("job"):
            continue
        able = [site for site in sites(me.wish, PLATFORM, None) if site.room >= me.least and seen.free.room(site) >= me.least]
        lent = [site for site in sites(me.wish, PLATFORM, None) if site.room >= me.least and seen.spare.room(site) >= me.least]
        may_start = bool(able or lent) and not (me.group and seen.in_group >= me.group_max)
        assert not (may_start and me.key in stuck), me
    assert len(stuck) > 5
    assert line.stuck(None) == frozenset(), "where no stack says what there is, all are told"


def test_of_a_thousand_that_wait_only_those_are_told_whose_turn_it_may_be() -> None:
    claims = Claims(lambda: NOW)
    for number in range(1000):
        name = f"job-{number:04}"
        claims.put(("elastic-job", name), gpu_job(name, low=4, replicas=4, uid=name))
    told = list(claims.waiting(Effect.FREED, PLATFORM))
    # 23 machines in one zone and 5 in the other are 6 jobs of 4; the next one is the first that must wait.
    assert told == [("elastic-job", f"job-{number:04}") for number in range(7)]
    for key in told[:2]:
        claims.put(key, None)
    assert list(claims.waiting(Effect.FREED, PLATFORM))[-1] == ("elastic-job", "job-0008")


def test_jobs_are_seen_as_they_are_now() -> None:
    claims = Claims(lambda: NOW)
    for name in ("a", "b"):
        claims.put(("elastic-job", name), gpu_job(name, uid=name))
    me = claim("me", created=NOW + 1)
    assert len(queue(me, claims.cluster_capacity(but=me.key), PLATFORM).waiting) == 2
    claims.put(("elastic-job", "a"), None)
    assert len(queue(me, claims.cluster_capacity(but=me.key), PLATFORM).waiting) == 1
    claims.put(("elastic-job", "b"), gpu_job("b", uid="b", suspend=True))
    assert len(queue(me, claims.cluster_capacity(but=me.key), PLATFORM).waiting) == 0


def test_a_job_stops_for_one_of_higher_priority_that_stands_in_the_shared_line() -> None:
    platform = make_platform(make_group("a"))  # 4 machines
    job = placed_job(low=4, replicas=4)
    claims = Claims(lambda: NOW)
    key = ("elastic-job", job["metadata"]["name"])
    claims.put(key, job)
    urgent = gpu_job("urgent", low=4, replicas=4, uid="urgent", priorityClassName="high")
    claims.put(("elastic-job", "urgent"), urgent)
    claims.rank({"high": 1000})
    there = Observed(platform=platform, cluster_capacity=claims.cluster_capacity(but=("elastic-job", "urgent")))
    waits = plan(claims.job(("elastic-job", "urgent")), there, NOW)
    claims.decided(("elastic-job", "urgent"), waits.status)
    decided = plan(claims.job(key), Observed(platform=platform, cluster_capacity=claims.cluster_capacity(but=key)), NOW)
    assert "Preempted" in [event.reason for event in decided.events]


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """The calls of Python functions within the block: one number, once it has ended."""
    counted = [0]

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        counted[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(before)


def look(claims: Claims, number: int) -> None:
    key = "elastic-job", f"job-{number:04}"
    observed = Observed(platform=PLATFORM, cluster_capacity=claims.cluster_capacity(but=key))
    decided = plan(claims.job(key), observed, NOW)
    assert (decided.status.state, decided.status.placement) == ("Waiting", None)
    claims.decided(key, decided.status)


def submit(claims: Claims, number: int) -> None:
    name = f"job-{number:04}"
    claims.put(("elastic-job", name), gpu_job(name, low=4, replicas=4, uid=name))


def calls_of_a_look(jobs: int) -> float:
    """Calls of Python functions, on average, when one of so many jobs that wait is looked at."""
    claims, looks = Claims(lambda: NOW), 20
    for number in range(jobs):
        submit(claims, number)
    look(claims, jobs - 1)  # the one after a change walks the line
    with counted_calls() as counted:
        for number in range(jobs - looks, jobs):
            look(claims, number)
    return counted[0] / looks


def calls_of_a_newcomer(jobs: int) -> float:
    """The same when the last fifty of so many jobs arrive one after the other, within half a second."""
    now, arrive = NOW, 50
    claims, calls = Claims(lambda: now), 0
    for number in range(jobs):
        if number == jobs - arrive:
            now += 2  # the line is walked with all that came before
            look(claims, number - 1)
        submit(claims, number)
        if number >= jobs - arrive:
            now += 0.01
            with counted_calls() as counted:
                look(claims, number)
            calls += counted[0]
    return calls / arrive


def test_a_look_at_a_waiting_job_costs_the_same_among_a_hundred_and_a_thousand() -> None:
    few, many = calls_of_a_look(100), calls_of_a_look(1000)
    assert many < 1.05 * few, (few, many)


def test_the_first_look_at_a_new_job_costs_the_same_behind_a_hundred_and_a_thousand() -> None:
    few, many = calls_of_a_newcomer(100), calls_of_a_newcomer(1000)
    assert many < 1.05 * few, (few, many)


def test_the_others_know_of_a_new_job_within_a_second_and_of_one_that_took_machines_at_once() -> None:
    now = NOW
    claims, me = Claims(lambda: now), claim("me", created=NOW + 1)

    def waiting() -> list[str]:
        return [turn.claim.key[1] for turn in queue(me, claims.cluster_capacity(but=me.key), PLATFORM).waiting]

    claims.put(("elastic-job", "a"), gpu_job("a", uid="a"))
    assert waiting() == ["a"]
    claims.put(("elastic-job", "b"), gpu_job("b", uid="b"))
    now += 1.0
    assert waiting() == ["a", "b"]
    claims.put(("elastic-job", "c"), placed_job(uid="c", name="c"))
    line = queue(me, claims.cluster_capacity(but=me.key), PLATFORM)
    assert [holder.key[1] for holder, _ in line.holders] == ["c"]


def test_a_quota_and_a_priority_are_seen_among_all_as_by_looking_through_them() -> None:
    claims = Claims(lambda: NOW)
    refused = {"quota": {"since": stamp(NOW), "generation": 1, "message": "exceeded quota"}}
    behind = {"conditions": [{"type": "Running", "status": "False", "reason": names.WAITING_BEHIND}]}
    for name, status in (("a", refused), ("b", behind), ("c", {}), ("d", {**refused, **behind})):
        claims.put(("elastic-job", name), gpu_job(name, uid=name, status=status))
    for step in range(2):
        for me in "abcd":
            seen = claims.cluster_capacity(but=("elastic-job", me))
            plain = ClusterCapacity(claims=tuple(seen.claims))
            assert len(seen.claims) == len(tuple(seen.claims)) == (3 if step == 0 else 2 if me in "acd" else 3)
            for asked in ("elastic-job", "another"):
                assert seen.short_of_quota(asked) == plain.short_of_quota(asked)
            for than in (-1, 0):
                assert seen.urgent(than) == plain.urgent(than)
        claims.put(("elastic-job", "d"), gpu_job("d", uid="d"))
        claims.put(("elastic-job", "b"), None)


def test_what_owners_used_moves_jobs_in_the_line_within_a_minute_and_all_see_the_same() -> None:
    now = NOW
    claims = Claims(lambda: now)
    for number, user in enumerate(("ada", "bob", "ada", "bob")):
        job = gpu_job(f"job-{number}", low=4, replicas=4, uid=f"job-{number}")
        job["metadata"]["annotations"] = {"ebb.dev/submitted-by": user}
        claims.put(("elastic-job", f"job-{number}"), job)

    def waits_for(key: tuple[str, str]) -> int:
        capacity = claims.cluster_capacity(but=key)
        me = replace(claim_of(claims.job(key), {}, now), share=claims.share(key))
        return len(queue(me, capacity, PLATFORM).waiting)

    def places() -> list[str]:
        return sorted((f"job-{number}" for number in range(4)), key=lambda name: waits_for(("elastic-job", name)))

    assert places() == ["job-0", "job-1", "job-2", "job-3"]
    claims.used({("elastic-job", "ada"): 500.0, ("elastic-job", "bob"): 100.0})
    assert places() == ["job-1", "job-3", "job-0", "job-2"], "at once after a start"
    claims.used({("elastic-job", "ada"): 500.0, ("elastic-job", "bob"): 600.0})
    assert places() == ["job-1", "job-3", "job-0", "job-2"], "not between the looks of one minute"
    now += 61
    assert places() == ["job-0", "job-2", "job-1", "job-3"]
