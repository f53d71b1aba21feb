"""Machines that are kept for a job that cannot start yet: jobs behind it have them on loan."""

import random
from dataclasses import replace

import pytest

from ebb.api.needs import Wish
from ebb.api.spec import Job
from ebb.controller.claims import Claims, Effect
from ebb.controller.reconciler.candidates import sites
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity
from ebb.controller.reconciler.queue import SharedCapacity, SharedLine, queue
from tests.builders import NOW, make_group, make_platform
from tests.controller.reconciler.scenes import claim, cluster_capacity, gpu_job, placed_job, reasons, scheduled, why
from tests.looks import again, done, look

ONE = make_platform(make_group(max=4))
ZONES = make_platform(make_group("a", max=9), make_group("b", zone="local-b", max=6))
HOLDER, LARGE = claim("holder", "local-a", least=2), claim("large", least=4, created=NOW - 500)
JOB = placed_job(low=2, replicas=2, status={"placement": {
    "zone": "local-a", "capacityType": "spot", "gpuType": "T4", "since": "2027-01-15T07:58:00Z", "onLoan": True
}})  # fmt: skip
PODS = scheduled(JOB, 0, 1)


def test_it_starts_on_machines_that_are_kept_for_a_job_that_cannot_start() -> None:
    decided = look(gpu_job(low=2, replicas=2), platform=ONE, cluster_capacity=cluster_capacity(HOLDER, LARGE))
    assert decided.status.placement is not None
    assert (decided.status.placement.on_loan, done(decided)) == (True, ["+0", "+1"])
    (told,) = (event.message for event in decided.events if event.reason == "Placed")
    assert told == (
        "Workers go to zone local-a (spot T4), on machines kept for job elastic-job/large, which cannot start yet: when it can, "
        "this one stops with a checkpoint."
    )


def test_it_keeps_them_as_long_as_the_other_one_cannot_start() -> None:
    decided = look(JOB, *PODS, platform=ONE, cluster_capacity=cluster_capacity(HOLDER, LARGE))
    assert decided.status.placement is not None
    assert (decided.status.placement.on_loan, done(decided)) == (True, [])


def test_it_keeps_them_until_the_other_one_is_placed() -> None:
    """Room for it is not enough: it may have other reasons to wait."""
    decided = look(JOB, *PODS, platform=ONE, cluster_capacity=cluster_capacity(LARGE))
    assert decided.status.placement is not None
    (site,) = sites(Wish.of(Job.of(gpu_job(low=4, replicas=4))), ONE, None)
    mine = claim("mine", "local-a", loan=True, created=NOW)
    assert queue(LARGE, cluster_capacity(mine), ONE).free.room(site) == 4, "it can start as if nothing was lent"


def test_it_stops_with_a_checkpoint_when_the_other_one_starts_and_then_waits_for_its_turn() -> None:
    starts = replace(LARGE, zone="local-a", located=True, gpu_type="T4", capacity_type="spot", placed=0)
    first = look(JOB, *PODS, platform=ONE, cluster_capacity=cluster_capacity(starts))
    (told,) = (event.message for event in first.events if event.reason == "MachinesReleased")
    assert told == (
        "job elastic-job/large, which goes first in local-a (spot T4), can start now on the machines that this one had "
        "meanwhile: it is stopped with a checkpoint, and goes on by itself when there is room."
    )
    assert first.status.placement is None
    second = look(again(JOB, first), *PODS, platform=ONE, cluster_capacity=cluster_capacity(starts))
    assert done(second) == ["-0", "-1"]
    assert (second.status.failures, second.status.restarts) == (0, 0)
    third = look(again(JOB, second), platform=ONE, cluster_capacity=cluster_capacity(starts))
    assert (done(third), why(third)) == ([], ("BehindOthers", "job elastic-job/large goes first in local-a (spot T4)."))


def test_when_its_own_turn_comes_it_stays_for_good() -> None:
    decided = look(JOB, *PODS, platform=ONE, cluster_capacity=cluster_capacity(HOLDER))
    assert decided.status.placement is not None
    assert (decided.status.placement.on_loan, done(decided), "MachinesReleased" in reasons(decided)) == (False, [], False)


def test_of_two_loans_the_one_behind_ends_where_there_is_room_for_one() -> None:
    platform = make_platform(make_group(max=6))
    starts = replace(LARGE, zone="local-a", located=True, gpu_type="T4", capacity_type="spot", placed=0)
    for created, ends in ((NOW - 700, True), (NOW + 700, False)):
        other = claim("lent", "local-a", loan=True, created=created)
        decided = look(JOB, *PODS, platform=platform, cluster_capacity=cluster_capacity(starts, other))
        assert ("MachinesReleased" in reasons(decided)) == ends


def test_it_is_looked_at_when_another_one_gets_its_place() -> None:
    claims = Claims(lambda: NOW)
    key = ("elastic-job", JOB["metadata"]["name"])
    claims.put(key, JOB)
    assert key in claims.waiting(Effect.MOVED_ON, ONE)
    assert key not in claims.waiting(Effect.CAME, ONE)


# --- Towns ----------------------------------------------------------------------------------------------------------------------


def town(rng: random.Random) -> list[Claim]:
    """Jobs in two zones that hold no more than there is, some of it on loan, and jobs that wait."""
    left, found = {"local-a": 9, "local-b": 6}, []
    for number in range(25):
        least = rng.randint(1, 7)
        zone = rng.choice(["", "", "local-a", "local-b"])
        zone = zone if zone and left[zone] >= least else ""
        if zone:
            left[zone] -= least
        share = (rng.choice([0.5, 1.0, 2.0]), rng.choice([0.5, 2.0]))
        found.append(
            claim(
                f"job-{number}", zone, least=least, loan=bool(zone) and rng.random() < 0.6, created=NOW - rng.randrange(900),
                priority=rng.choice([0, 0, 0, 5]), share=share,
            )
        )  # fmt: skip
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_loan_takes_nothing_from_a_job_before_it(seed: int) -> None:
    claims = town(random.Random(seed))
    for me in (one for one in claims if not one.located):
        others = [one for one in claims if one is not me]
        without = [one for one in others if not (one.loan and one.order > me.order)]
        known = sites(me.wish, ZONES, None)
        rooms = [[queue(me, cluster_capacity(*some), ZONES).free.room(site) for site in known] for some in (others, without)]
        assert rooms[0] == rooms[1], me


def take_turn(me: Claim, claims: list[Claim]) -> Claim:
    """As placing.py does: the claim after the job's look."""
    seen = queue(me, SharedCapacity(claims=tuple(one for one in claims if one is not me), line=SharedLine(claims)), ZONES)
    known = sites(me.wish, ZONES, None)
    if me.loan:
        (here,) = (site for site in known if site.zone == me.zone)
        assert seen.firm is not None
        if seen.free.room(here) >= me.least:
            return replace(me, loan=False)
        return me if seen.firm.room(here) >= me.least else replace(me, loan=False, located=False, zone="", placed=0)
    for left in () if me.located else (seen.free, seen.spare):
        for site in known:
            if left.room(site) >= me.least:
                return replace(me, located=True, zone=site.zone, gpu_type="T4", capacity_type="spot", loan=left is seen.spare)
    return me


@pytest.mark.parametrize("seed", range(60))
def test_whoever_takes_its_turn_leaves_no_machine_that_another_one_could_use(seed: int) -> None:
    """All jobs take what the line leaves them, one after the other in any order: nobody who waits fits anywhere then."""
    rng = random.Random(seed)
    claims = {one.key: one for one in town(rng)}
    changed = True
    while changed:
        changed = False
        for key in rng.sample(sorted(claims), len(claims)):
            me = take_turn(claims[key], list(claims.values()))
            claims[key], changed = me, changed or me != claims[key]
    held = {zone: sum(one.least for one in claims.values() if one.zone == zone) for zone in ("local-a", "local-b")}
    assert held["local-a"] <= 9
    assert held["local-b"] <= 6
    spare = max(9 - held["local-a"], 6 - held["local-b"])
    most = {"local-a": 9, "local-b": 6}
    waiting = [one.least for one in claims.values() if not one.located and one.least <= max(most.values())]
    assert all(least > spare for least in waiting), (held, waiting)


@pytest.mark.parametrize("seed", range(30))
def test_each_job_sees_in_the_shared_line_what_it_would_see_alone(seed: int) -> None:
    claims = town(random.Random(seed))
    line = SharedLine(claims)
    for me in claims:
        others, known = tuple(one for one in claims if one is not me), sites(me.wish, ZONES, None)
        shared, alone = (
            queue(me, capacity, ZONES) for capacity in (SharedCapacity(claims=others, line=line), ClusterCapacity(claims=others))
        )
        assert [shared.free.room(site) for site in known] == [alone.free.room(site) for site in known]
        assert list(shared.holders) == list(alone.holders)
        if not me.located:
            assert [shared.spare.room(site) for site in known] == [alone.spare.room(site) for site in known]
        if me.loan:
            assert shared.firm is not None
            assert alone.firm is not None
            assert [shared.firm.room(site) for site in known] == [alone.firm.room(site) for site in known]
