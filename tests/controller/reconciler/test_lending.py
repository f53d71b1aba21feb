"""Quotas that teams lend one another: who may borrow, what is given back, and to whom."""

import random
from dataclasses import replace
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.platform import Platform, Team
from ebb.client.queue import reason
from ebb.controller.claims import Claims, Effect
from ebb.controller.reconciler.candidates import sites
from ebb.controller.reconciler.capacity import OVERDUE, OVERDUE_SECONDS, TURN_SECONDS, Claim, ClusterCapacity, Key
from ebb.controller.reconciler.fair_share import describe_line, describe_loans
from ebb.controller.reconciler.lending import LARGER, QuotaPool, base, borrowers
from ebb.controller.reconciler.queue import SharedCapacity, SharedLine, queue
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_group, make_platform
from tests.controller.reconciler.scenes import claim, cluster_capacity, gpu_job, placed_job, reasons, scheduled, why, zone_of
from tests.controller.reconciler.town import Town
from tests.looks import again, done, look

VISION, SPEECH, MUSIC = "ebb-team-vision", "ebb-team-speech", "ebb-team-music"
Object = dict[str, Any]


def platform(machines: int = 8, vision: int = 4, speech: int = 4, borrow: int = 4) -> Platform:
    teams = (
        Team(name="vision", namespace=VISION, gpus=vision, borrow=borrow),
        Team(name="speech", namespace=SPEECH, gpus=speech, borrow=borrow),
    )
    return make_platform(make_group(max=machines), teams=teams)


def of(team: str, name: str, least: int, zone: str = "local-a", **changes: Any) -> Claim:
    """A job of a team; one without a zone waits behind others."""
    job = mine(gpu_job(name, low=least, replicas=least, high=least), team)
    return claim(name, zone, job=job, least=least, key=(team, name), placed=least if zone else 0, wanted=least, **changes)


def waiting(team: str, name: str, least: int, **changes: Any) -> Claim:
    return of(team, name, least, "", waits_behind=True, **changes)


def mine(job: Object, team: str = VISION) -> Object:
    job["metadata"]["namespace"] = team
    return job


def seen(job: Object, *claims: Claim, pods: tuple[Object, ...] = (), on: Platform | None = None, **rest: Any) -> Plan:
    return look(job, *pods, platform=on or platform(), cluster_capacity=cluster_capacity(*claims), **rest)


QUOTA = "the quota of team 'vision' is 4 GPUs"
BORROWS: dict[str, tuple[tuple[Claim, ...], int, int, str]] = {
    # claims, minReplicas of mine, borrow -> "" or the words
    "within its quota": ((), 4, 1, ""),
    "more than its quota, and nobody uses the rest": ((), 6, 4, ""),
    "more than it may borrow": (
        (of(VISION, "a", 4),), 4, 2, f"{QUOTA}: its jobs have 4, minReplicas 4 needs 4, and the team may borrow 2.",
    ),
    "more than it could ever have": (
        (), 7, 2, f"{QUOTA}, it may borrow 2, and all teams have 8: minReplicas 7 needs 7. Lower "
        "minReplicas, or have the quota raised.",
    ),
    "more than others leave": (
        (of(VISION, "a", 4), of(SPEECH, "b", 3)), 2, 4,
        f"{QUOTA}: its jobs have 4, minReplicas 2 needs 2, and other teams have 1 to lend.",
    ),
    "of what an owner waits for": (
        (of(VISION, "a", 4), of(SPEECH, "b", 2), waiting(SPEECH, "c", 2)), 2, 4,
        f"{QUOTA}: its jobs have 4, minReplicas 2 needs 2, and other teams have 0 to lend.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "least", "borrow", "words"), BORROWS.values(), ids=BORROWS)
def test_a_job_borrows_what_others_leave(claims: tuple[Claim, ...], least: int, borrow: int, words: str) -> None:
    decided = seen(mine(gpu_job(low=least, replicas=least, high=least)), *claims, on=platform(20, borrow=borrow))
    assert bool(zone_of(decided)) == (not words)
    if words:
        assert why(decided)[1] == words


def test_where_nobody_may_borrow_the_quota_of_kubernetes_alone_decides() -> None:
    decided = seen(mine(gpu_job(low=6, replicas=6, high=6)), on=platform(20, borrow=0))
    assert zone_of(decided) == "local-a"


def test_it_says_whose_gpus_it_has() -> None:
    decided = seen(mine(gpu_job(low=6, replicas=6, high=6)))
    (told,) = (event.message for event in decided.events if event.reason == "Placed")
    assert told == (
        "Workers go to zone local-a (spot T4), 2 of their GPUs lent by team speech: when that needs them, this one stops with a "
        "checkpoint."
    )
    decided = seen(mine(gpu_job(low=4, replicas=4, high=4)))
    assert [event.message for event in decided.events if event.reason == "Placed"] == ["Workers go to zone local-a (spot T4)."]


def test_an_owner_is_placed_at_its_first_look_however_low_its_priority_and_the_newest_loan_stops() -> None:
    old, new = of(VISION, "old", 4), of(VISION, "new", 4, created=NOW - 300)
    owner = mine(gpu_job("owner", low=4, replicas=4, high=4, priorityClassName="low"), SPEECH)
    decided = seen(owner, old, new, priorities={"low": -5})
    assert zone_of(decided) == "local-a"
    placed = replace(of(SPEECH, "owner", 4, priority=-5), placed=0)
    job = mine(placed_job(name="new", low=4, replicas=4, high=4))
    pods = tuple(scheduled(job, 0, 1, 2, 3))
    first = seen(job, old, placed, pods=pods)
    assert zone_of(first) == ""
    (told,) = (event.message for event in first.events if event.reason == names.REASON_RELEASED)
    assert told == (
        "job ebb-team-speech/owner needs the GPUs of its team's quota that this one's team has borrowed: this one is stopped "
        "with a checkpoint, and goes on by itself when there is room."
    )
    second = seen(again(job, first), old, placed, pods=pods)
    assert done(second) == ["-0", "-1", "-2", "-3"]
    assert (second.status.failures, second.status.restarts) == (0, 0)
    assert why(seen(again(job, second), old, placed))[1] == (
        f"{QUOTA}: its jobs have 4, minReplicas 4 needs 4, and other teams have 0 to lend."
    )


def test_the_older_job_of_its_team_stays() -> None:
    job = mine(placed_job(name="old", low=4, replicas=4, high=4))
    decided = seen(job, of(VISION, "new", 4, created=NOW + 300), of(SPEECH, "owner", 4), pods=tuple(scheduled(job, 0, 1, 2, 3)))
    assert zone_of(decided) == "local-a"


OTHERS: dict[str, tuple[tuple[Claim, ...], bool]] = {
    # beside 4 of its team's own and 4 of an owner's: whether a loan of 2 stops
    "the pool is 12, and has room": ((), False),
    "another loan is newer": ((of(VISION, "newer", 3, created=NOW + 9),), False),
    "another loan is of lower priority": ((of(VISION, "less", 3, created=NOW - 900, priority=-1),), False),
    "another loan is older": ((of(VISION, "older", 3, created=NOW - 900),), True),
    "an older one is so large that it must stop itself": ((of(VISION, "older", 5, created=NOW - 900),), False),
}


@pytest.mark.parametrize(("others", "stops"), OTHERS.values(), ids=OTHERS)
def test_as_few_as_will_do_stop(others: tuple[Claim, ...], stops: bool) -> None:
    job = mine(placed_job(name="mine", low=2, replicas=2, high=2))
    held = (of(VISION, "own", 4, created=NOW - 5000), of(SPEECH, "owner", 4))
    decided = seen(job, *held, *others, pods=tuple(scheduled(job, 0, 1)), on=platform(20, speech=8, borrow=8))
    assert (zone_of(decided) == "") == stops


def test_who_waits_to_borrow_takes_nothing_from_who_borrows_unless_its_priority_is_higher() -> None:
    job = mine(placed_job(name="mine", low=4, replicas=4, high=4))
    pods, own, full = tuple(scheduled(job, 0, 1, 2, 3)), of(VISION, "own", 4), of(MUSIC, "full", 4)
    teams = (*platform().teams, Team(name="music", namespace=MUSIC, gpus=4, borrow=4))
    on = make_platform(make_group(max=12), teams=teams)
    for priority, stops in ((0, False), (5, True)):
        rival = waiting(MUSIC, "rival", 4, created=NOW - 9000, share=(0.0, 0.0), priority=priority)
        decided = seen(job, own, full, rival, pods=pods, on=on)
        assert (zone_of(decided) == "") == stops
        assert (names.REASON_PREEMPTED in reasons(decided)) == stops


def test_who_would_borrow_takes_nothing_from_another_teams_own_whatever_its_priority() -> None:
    """The stopped job would be within its quota while it waits, and would take the GPUs back."""
    job = mine(placed_job(name="mine", low=4, replicas=4, high=4))
    rival = waiting(SPEECH, "rival", 4, priority=9)
    decided = seen(job, of(SPEECH, "full", 4), rival, pods=tuple(scheduled(job, 0, 1, 2, 3)))
    assert zone_of(decided) == "local-a"


def test_within_a_team_a_job_of_higher_priority_still_makes_a_lower_one_stop() -> None:
    job = mine(placed_job(name="mine", low=4, replicas=4, high=4))
    decided = seen(job, of(SPEECH, "full", 4), waiting(VISION, "urgent", 4, priority=9), pods=tuple(scheduled(job, 0, 1, 2, 3)))
    assert (zone_of(decided), names.REASON_PREEMPTED in reasons(decided)) == ("", True)


def test_workers_beyond_the_first_ones_shrink_before_anybody_stops() -> None:
    elastic = {"ebb-elastic": 100, "": 1000}
    job = mine(gpu_job(name="mine", low=1, replicas=8, high=8))
    placement = {"zone": "local-a", "capacityType": "spot", "gpuType": "T4", "since": "2027-01-15T07:58:00Z"}
    job["status"] = {"placement": placement, "waitingSince": placement["since"]}
    pods = tuple(scheduled(job, *range(8)))
    decided = seen(job, pods=pods, on=platform(20), priorities=elastic)
    assert why(decided)[1] == "8 of 8 workers run.", "4 of its own, 4 borrowed"
    owner = replace(of(SPEECH, "owner", 3), placed=0)
    decided = seen(job, owner, pods=pods, on=platform(20), priorities=elastic)
    (told,) = (event.message for event in decided.events if event.reason == names.REASON_SCALED)
    assert told == "Stopped workers 5-7: its quota lets it have 5."
    assert why(decided)[1] == "8 of 5 workers run. Its team's quota lets it have 5 of 8."
    assert zone_of(decided) == "local-a"


def test_a_teams_own_part_goes_to_its_own_elastic_workers_first() -> None:
    """`other` is older, and has borrowed for workers beyond its first: mine are within the quota of its team."""
    other = replace(of(SPEECH, "other", 1), wanted=8, pods=8, priority=1000)
    job = mine(gpu_job(name="mine", low=1, replicas=4, high=4))
    decided = seen(again(job, seen(job, other)), other, priorities={"ebb-elastic": 100, "": 1000})
    assert done(decided) == ["+0", "+1", "+2", "+3"]


def test_of_a_team_the_newest_jobs_of_the_lowest_priority_borrow() -> None:
    first = of(VISION, "first", 3, priority=5, created=NOW)
    second, third, fourth = (of(VISION, f"j{at}", size, created=NOW - 900 + at) for at, size in ((1, 2), (2, 1), (3, 1)))
    pool = QuotaPool.of(platform())
    assert pool is not None
    found = borrowers((fourth, third, second, first), pool)
    assert found == {(VISION, "j1"): 1, (VISION, "j3"): 1}, "j2 fits into what is left of the quota"
    kueue = replace(first, priority=-9, elsewhere=True, key=(VISION, "kueue"))
    assert kueue.key not in borrowers((fourth, third, second, kueue), pool), "it borrows by Kueue's rules"


def test_where_nobody_may_borrow_no_line_is_walked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of jobs that wait a walk costs too much for what every placed job, and every newcomer, asks."""
    placed = of(VISION, "placed", 4)
    line = SharedLine([placed, waiting(SPEECH, "waits", 4)])
    monkeypatch.setattr(line, "_walk", lambda platform: pytest.fail("it was walked"))
    assert line.before(placed, platform(borrow=0)) is None
    assert line.borrowing(platform(borrow=0)) == {}


def test_lenders_are_named_in_the_order_of_what_they_leave_and_once_for_each_gpu() -> None:
    teams = {
        name: Team(name=name, namespace=name, gpus=gpus, borrow=9) for name, gpus in (("a", 0), ("b", 3), ("c", 2), ("d", 0))
    }
    pool = QuotaPool(teams)
    assert [list(pool.lenders("a", gpus)) for gpus in (1, 3, 4, 9)] == [["b"], ["b"], ["b", "c"], ["b", "c"]]
    pool.take("d", 2)
    assert [list(pool.lenders("a", gpus)) for gpus in (1, 2, 3)] == [["b"], ["b", "c"], ["b", "c"]]
    pool.take("a", 1)
    assert list(pool.lenders("a", 1)) == ["c"]
    pool.take("a", 2)
    assert list(pool.lenders("a", 1)) == []


def test_those_that_borrow_are_looked_at_when_an_owner_is_placed() -> None:
    claims = Claims(lambda: NOW)
    for name, created in (("old", NOW - 900), ("new", NOW - 300)):
        job = mine(placed_job(name=name, low=4, replicas=4, high=4))
        job["metadata"]["creationTimestamp"] = stamp(created)
        claims.put((VISION, name), job)
    assert set(claims.waiting(Effect.MOVED_ON, platform())) == {(VISION, "new")}
    assert set(claims.waiting(Effect.MOVED_ON, platform(borrow=0))) == set()


def test_one_that_can_never_start_keeps_nothing_for_itself() -> None:
    never = waiting(SPEECH, "never", 9, created=NOW - 9000)
    decided = seen(mine(gpu_job(low=6, replicas=6, high=6)), never, on=platform(20))
    assert decided.status.placement is not None
    assert not decided.status.placement.on_loan


def test_an_owner_joins_a_place_where_an_older_job_that_borrows_gets_no_machines() -> None:
    """Of two that are within their quotas the younger one would wait."""
    old = of(SPEECH, "old", 4, created=NOW - 9000)
    hungry = of(SPEECH, "hungry", 2, created=NOW - 8000, hungry_since=NOW - 4000)
    job = mine(gpu_job(low=2, replicas=2, high=2))
    assert zone_of(seen(job, old, replace(hungry, placed=0))) == "local-a"
    assert zone_of(seen(job, replace(old, least=2), replace(hungry, placed=0))) == ""


def test_a_newcomer_that_the_shared_line_does_not_know_yet_is_not_taken_for_an_owner() -> None:
    others = (of(VISION, "own", 4, created=NOW - 5000), of(VISION, "loan", 4))
    me = waiting(VISION, "new", 2)
    (site,) = sites(me.wish, platform(20), None)
    assert queue(me, SharedCapacity(claims=others, line=SharedLine(others)), platform(20)).free.room(site) == 0


def test_people_are_told_who_borrows_of_whom_and_who_goes_before() -> None:
    claims = (
        of(VISION, "own", 4, created=NOW - 5000), of(VISION, "loan", 1), waiting(SPEECH, "first", 2),
        waiting(VISION, "next", 1, priority=3), waiting(VISION, "late", 2), waiting(VISION, "later", 2, created=NOW),
    )  # fmt: skip
    line, on = SharedLine(claims), platform(20)
    told = {
        one.job: (one.why, one.quota, one.priority, one.older, one.borrows, one.lenders) for one in describe_line(line.all(on))
    }
    assert told == {
        "first": ("next", 0, 0, 0, 0, ()),
        "next": ("next", 1, 0, 0, 1, ("speech",)),
        "late": ("machines", 1, 1, 0, 2, ()),
        "later": ("machines", 1, 1, 1, 2, ()),
    }
    assert [(one.job, one.gpus, one.lenders) for one in describe_loans(line.loans(on))] == [("loan", 1, ("speech",))]


def test_a_sweep_is_counted_by_what_its_runs_borrow() -> None:
    """One without a quota has none to borrow of; of a team with one also the runs borrow that wait for another to end."""
    sweep: Object = {"group": "lr", "group_max": 1, "created": NOW - 3000}
    claims = (
        of(VISION, "own", 4, created=NOW - 5000), of(SPEECH, "own", 4, created=NOW - 5000), of(VISION, "lr-0", 1, **sweep),
        waiting(VISION, "lr-1", 1, **sweep), waiting(VISION, "late", 2),
        *(waiting("elastic-job", f"run-{number}", 1, **sweep) for number in range(3)),
    )  # fmt: skip
    told = {one.job: one for one in describe_line(SharedLine(claims).all(platform(20)))}
    assert {name: (one.why, one.quota, one.older) for name, one in told.items()} == {
        "run-0": ("next", 0, 0), "run-1": ("group", 0, 1), "run-2": ("group", 0, 2),
        "lr-1": ("group", 3, 0), "late": ("machines", 3, 1),
    }  # fmt: skip
    assert reason(told["late"]) == (
        "waits for 2 GPUs, 2 of them beyond its team's quota; 3 jobs that borrow no GPUs and 1 older job are before it"
    )


# --- The turn of a job that is larger than its team's quota ---------------------------------------------------------------------

DUE: Object = {"rested": True, "share": OVERDUE, "created": NOW - 2 * OVERDUE_SECONDS}
BIG = waiting(VISION, "big", 6, **DUE)
STARTED = replace(BIG, zone="local-a", gpu_type="T4", capacity_type="spot", located=True, turn=True, waits_behind=False, placed=6)
TURNS: dict[str, tuple[tuple[Claim, ...], str]] = {
    "it has waited for a day without a machine": ((BIG,), "big"),
    "not yet": ((replace(BIG, rested=False),), ""),
    "its owner has machines": ((replace(BIG, share=(0.0, 0.0)),), ""),
    "it fits into the quota, which others of its team use": ((of(VISION, "own", 4), replace(BIG, least=4)), ""),
    "it is larger than it may ever be": ((replace(BIG, least=9),), ""),
    "it cannot start": ((replace(BIG, refused=True),), ""),
    "an older one waits": ((BIG, waiting(SPEECH, "older", 5, **{**DUE, "created": NOW - 9e5})), "older"),
    "one of higher priority waits": ((BIG, waiting(SPEECH, "urgent", 5, **DUE, priority=5)), "urgent"),
    "another one has it": ((BIG, replace(STARTED, key=(SPEECH, "runs"), least=5, placed=5)), "runs"),
    "another one has had it": ((BIG, replace(STARTED, key=(SPEECH, "runs"), least=5, placed=5, turn=False)), "big"),
    "it lost its machines in it": ((BIG, replace(STARTED, key=(SPEECH, "moves"), least=5, zone="", located=False)), "moves"),
}


@pytest.mark.parametrize(("claims", "name"), TURNS.values(), ids=TURNS)
def test_one_job_at_a_time_has_its_turn_beyond_its_teams_quota(claims: tuple[Claim, ...], name: str) -> None:
    for some in (claims, claims[::-1]):
        turn = SharedLine(some).turn(platform())
        assert (turn or ("", ""))[1] == name


def big_job(**status: Any) -> Object:
    job = mine(gpu_job("big", low=6, replicas=6, high=6))
    job["metadata"]["creationTimestamp"] = stamp(BIG.created)
    placement = {"zone": "local-a", "capacityType": "spot", "gpuType": "T4", "since": "2027-01-15T07:58:00Z"}
    return {**job, "status": {"placement": placement, **status}} if status else job


def test_a_job_that_waits_for_its_turn_says_when_it_comes_and_then_that_it_has_come() -> None:
    others = (of(SPEECH, "own", 3),)
    job = big_job()
    job["metadata"]["creationTimestamp"] = stamp(NOW)
    assert why(seen(job, *others))[1] == (
        f"{QUOTA}: its jobs have 0, minReplicas 6 needs 6, and other teams have 5 to lend. {LARGER}"
    )
    assert why(seen(big_job(), *others, share=OVERDUE))[1] == (
        "This job is larger than its team's quota and has waited for a day: machines in local-a (spot T4) are kept for it."
    )


def test_what_is_kept_for_it_is_on_loan_to_owners_at_their_first_look() -> None:
    owner, own = mine(gpu_job("late", low=1, replicas=1, high=1), SPEECH), of(SPEECH, "own", 3)
    for big, lent in ((BIG, True), (replace(BIG, rested=False), False)):
        placement = seen(owner, own, big).status.placement
        assert placement is not None
        assert placement.on_loan is lent


def test_an_owner_has_that_loan_though_all_machines_are_in_use_by_jobs_that_borrow() -> None:
    owner, borrowed = mine(gpu_job("late", low=1, replicas=1, high=1), SPEECH), of(VISION, "borrowed", 5, created=NOW - 500)
    placement = seen(owner, of(SPEECH, "own", 3), borrowed, BIG).status.placement
    assert placement is not None
    assert placement.on_loan
    late = of(SPEECH, "late", 1, loan=True)
    job = mine(placed_job(name="borrowed", low=5, replicas=5, high=5))
    decided = seen(job, of(SPEECH, "own", 3), BIG, late, pods=tuple(scheduled(job, *range(5))))
    assert zone_of(decided) == "", "it borrows, and stops for one that does not"


def test_nobody_within_its_quota_stops_for_it() -> None:
    job = mine(placed_job(name="own", low=3, replicas=3, high=3), SPEECH)
    assert zone_of(seen(job, BIG, pods=tuple(scheduled(job, 0, 1, 2)))) == "local-a"


def test_when_it_starts_it_says_for_how_long_and_loans_end() -> None:
    decided = seen(big_job(), of(SPEECH, "late", 3, loan=True), waiting(SPEECH, "next", 1), share=OVERDUE)
    until = stamp(NOW + TURN_SECONDS)
    assert (zone_of(decided), decided.status.turn_until) == ("local-a", until)
    (told,) = (event.message for event in decided.events if event.reason == "Placed")
    assert told == (
        f"Workers go to zone local-a (spot T4), 2 of their GPUs lent by team speech: after {until}, when that needs them, this "
        "one stops with a checkpoint."
    )
    job = mine(placed_job(name="late", low=3, replicas=3, high=3), SPEECH)
    job["status"]["placement"]["onLoan"] = True
    ended = seen(job, STARTED, pods=tuple(scheduled(job, 0, 1, 2)))
    (said,) = (event.message for event in ended.events if event.reason == names.REASON_RELEASED)
    assert said == (
        "job ebb-team-vision/big is larger than its team's quota, has waited for a day, and can start now: this one is stopped "
        "with a checkpoint, and goes on by itself when there is room."
    )


def test_owners_wait_for_it_for_a_day_and_no_longer() -> None:
    job = big_job(turnUntil=stamp(NOW + 60))
    pods = tuple(scheduled(job, *range(6)))
    assert zone_of(seen(job, waiting(SPEECH, "owner", 4), pods=pods)) == "local-a"
    owner = mine(gpu_job("owner", low=4, replicas=4, high=4), SPEECH)
    assert zone_of(seen(owner, STARTED)) == ""
    assert zone_of(seen(owner, replace(STARTED, turn=False))) == "local-a"
    placed = replace(of(SPEECH, "owner", 4), placed=0)
    assert zone_of(seen(job, placed, pods=pods, now=NOW + 61)) == ""


def test_after_its_turn_it_has_no_other_one_for_a_day() -> None:
    for since, due in ((OVERDUE_SECONDS - 1, False), (OVERDUE_SECONDS, True)):
        job = big_job()
        job["status"] = {"turnUntil": stamp(NOW - since)}
        decided = seen(job, of(SPEECH, "own", 3), share=OVERDUE)
        assert ("are kept for it" in why(decided)[1]) == due


def test_people_are_told_of_the_turn() -> None:
    line = SharedLine([of(SPEECH, "own", 3), BIG, waiting(SPEECH, "owner", 1), waiting(VISION, "more", 5, created=NOW)])
    told = {one.job: (one.has_turn, one.turn, one.quota) for one in describe_line(line.all(platform()), line.turn(platform()))}
    assert told == {"big": (True, 0, 0), "owner": (False, 1, 0), "more": (False, 1, 1)}


TICKS = 20


def want_all(claims: dict[Key, Claim], tick: int, rng: random.Random) -> None:
    """Jobs of two other teams, more than fit into their quotas."""
    for team in (VISION, MUSIC):
        while sum(base(one) for key, one in claims.items() if key[0] == team) < TEAMS[team][0] + 3:
            one = waiting(team, f"{tick}-{len(claims)}", rng.randint(1, 2), created=NOW + tick)
            claims[one.key] = one


def settle_and_judge(claims: dict[Key, Claim], big: Claim, rng: random.Random) -> None:
    """Rules before the large job has started, while it runs, and when it starts."""
    before, was = dict(claims), borrowers(claims.values(), quotas())
    for key in settle(claims, rng, ONE_ZONE):
        assert key not in before or key in was or before[key].loan, "who is within its quota is never stopped"
    assert sum(used(claims).values()) <= 15
    if not claims.get(big.key, big).located:
        found = borrowers(claims.values(), quotas())
        assert all(one.located or key in found for key, one in claims.items()), "owners begin at their first look"


def pressed(seed: int, *, rested: bool) -> tuple[int | None, int]:
    """Ticks until a job of 10 GPUs starts while others want all of theirs, for 8 ticks at most, and ticks that it has then."""
    rng = random.Random(f"pressed-{seed}")
    claims: dict[Key, Claim] = {}
    ends: dict[Key, int] = {}
    big = waiting(SPEECH, "big", 10, **{**DUE, "rested": rested})
    began, kept = None, 0
    for tick in range(TICKS):
        want_all(claims, tick, rng)
        claims |= {big.key: big} if tick == 3 else {}
        settle_and_judge(claims, big, rng)
        located = [key for key, one in claims.items() if one.located]
        if big.key in located:
            began, kept = tick - 3 if began is None else began, kept + 1
        for key in located:
            if key != big.key and ends.setdefault(key, tick + rng.randint(1, 8)) <= tick + 1:
                del claims[key]
    return began, kept


@pytest.mark.parametrize("seed", range(3))
def test_a_job_larger_than_its_quota_starts_when_those_before_it_have_ended_and_stays(seed: int) -> None:
    began, kept = pressed(seed, rested=True)
    assert began is not None
    assert began <= 8, "all that were within their quotas when its turn came have ended"
    assert kept == TICKS - 3 - began
    assert pressed(seed, rested=False)[1] < kept, "without a turn owners take theirs back"


# --- Many teams, in any state ---------------------------------------------------------------------------------------------------

TEAMS = {VISION: (6, 4), SPEECH: (5, 9), MUSIC: (4, 0)}
MANY = make_platform(
    make_group("a", max=9),
    make_group("b", zone="local-b", max=6),
    teams=tuple(Team(name=name.removeprefix("ebb-team-"), namespace=name, gpus=g, borrow=b) for name, (g, b) in TEAMS.items()),
)
ONE_ZONE = replace(MANY, node_groups=(make_group("a", max=15),))


def random_claim(rng: random.Random, number: int) -> Claim:
    share = (rng.choice([0.5, 1.0, 2.0]), rng.choice([0.5, 2.0]))
    return waiting(
        rng.choice(sorted(TEAMS)), f"job-{number}", rng.randint(1, 7), created=NOW - rng.randrange(900),
        priority=rng.choice([0, 0, 0, 5]), share=share,
    )  # fmt: skip


def take_turn(me: Claim, claims: list[Claim], on: Platform) -> Claim:
    """As turns.py and placing.py do: the claim after the job's look."""
    seen = queue(me, SharedCapacity(claims=tuple(one for one in claims if one is not me), line=SharedLine(claims)), on)
    known = [site for site in sites(me.wish, on, None) if site.room >= me.least]
    if me.located:
        (here,) = (site for site in known if site.zone == me.zone)
        if me.loan and seen.free.room(here) >= me.least:
            return replace(me, loan=False)
        stays = seen.firm is None or seen.firm.room(here) >= me.least
        return me if stays else replace(me, loan=False, located=False, zone="", placed=0, waits_behind=True)
    for left in (seen.free, seen.spare):
        for site in known:
            if left.room(site) >= me.least and not QuotaPool(quotas().teams).beyond(me):
                return replace(
                    me, located=True, zone=site.zone, gpu_type="T4", capacity_type="spot", loan=left is seen.spare,
                    placed=me.least, waits_behind=False, turn=seen.turn == me.key and left is seen.free,
                )  # fmt: skip
    return me


def quotas() -> QuotaPool:
    found = QuotaPool.of(MANY)
    assert found is not None
    return found


def settle(claims: dict[Key, Claim], rng: random.Random, on: Platform) -> set[Key]:
    """All take their turns, one after the other in any order, until nothing changes; the jobs that were stopped."""
    stopped, changed = set(), True
    while changed:
        changed = False
        for key in rng.sample(sorted(claims), len(claims)):
            before, claims[key] = claims[key], take_turn(claims[key], list(claims.values()), on)
            stopped |= {key} if before.located and not claims[key].located else set()
            changed = changed or before != claims[key]
    return stopped


def used(claims: dict[Key, Claim]) -> dict[str, int]:
    return {team: sum(base(one) for one in claims.values() if one.located and one.key[0] == team) for team in TEAMS}


@pytest.mark.parametrize("on", [MANY, ONE_ZONE], ids=["two zones", "one zone"])
@pytest.mark.parametrize("seed", range(40))
def test_the_pool_is_kept_nothing_idles_and_owners_have_theirs(seed: int, on: Platform) -> None:
    rng = random.Random(seed)
    claims = {one.key: one for one in (random_claim(rng, number) for number in range(rng.randint(5, 25)))}
    settle(claims, rng, on)
    taken = used(claims)
    assert sum(taken.values()) <= 15
    assert all(taken[team] <= gpus + borrow for team, (gpus, borrow) in TEAMS.items())
    pool, zones = quotas(), {"local-a": on.node_groups[0].max, "local-b": on.node_groups[-1].max * (len(on.node_groups) - 1)}
    for one in claims.values():
        if one.located:
            zones[one.zone] -= one.least
            pool.take(one.key[0], base(one))
    assert min(zones.values()) >= 0
    for one in claims.values():
        if not one.located and not pool.beyond(one):
            assert base(one) > min(pool.gpus(one.key[0]), max(zones.values())), f"{one.key} could start"
    if on is ONE_ZONE:
        found = borrowers(claims.values(), pool)
        assert all(one.located or one.key in found for one in claims.values()), "whoever is within its team's quota runs"


@pytest.mark.parametrize("seed", range(40))
def test_a_newcomer_within_its_teams_quota_runs_and_any_other_makes_nobody_stop(seed: int) -> None:
    rng = random.Random(f"newcomer-{seed}")
    claims = {one.key: one for one in (random_claim(rng, number) for number in range(rng.randint(3, 15)))}
    settle(claims, rng, ONE_ZONE)
    new = replace(random_claim(rng, 99), created=NOW, priority=0)
    before, claims[new.key] = dict(claims), new
    owner = new.key not in borrowers(claims.values(), quotas())
    placed = take_turn(new, list(claims.values()), ONE_ZONE)
    assert not owner or (placed.located and not placed.loan), "at its first look"
    stopped = settle(claims, rng, ONE_ZONE)
    was = borrowers(before.values(), quotas())
    assert stopped <= {key for key, one in before.items() if key in was or one.loan}, "only who had borrowed stops"
    if not owner:
        assert all(before[key].loan for key in stopped), "and for one that borrows only who has what is kept for others"
    assert claims[new.key].located or not owner


@pytest.mark.parametrize("seed", range(20))
def test_each_job_sees_in_the_shared_line_what_it_would_see_alone_and_in_any_order(seed: int) -> None:
    rng = random.Random(f"alone-{seed}")
    claims = {one.key: one for one in (random_claim(rng, number) for number in range(20))}
    for _ in range(rng.randint(0, 30)):  # not quiet: some are placed, some will have to stop
        key = rng.choice(sorted(claims))
        claims[key] = take_turn(claims[key], list(claims.values()), MANY)
    line, mixed = SharedLine(claims.values()), rng.sample(list(claims.values()), len(claims))
    for me in claims.values():
        others, known = tuple(one for one in mixed if one is not me), sites(me.wish, MANY, None)
        shared, alone = (
            queue(me, capacity, MANY) for capacity in (SharedCapacity(claims=others, line=line), ClusterCapacity(claims=others))
        )
        assert [shared.free.room(site) for site in known] == [alone.free.room(site) for site in known]
        assert shared.borrowing == alone.borrowing
        assert (shared.firm is None) == (alone.firm is None)
        if shared.firm and alone.firm:
            assert [shared.firm.room(site) for site in known] == [alone.firm.room(site) for site in known]


# --- Towns: the planner as a whole ----------------------------------------------------------------------------------------------


def town(seed: int, machines: int = 8) -> Town:
    return Town(platform(machines), limits={"local-a": machines}, rng=random.Random(seed))


@pytest.mark.parametrize("seed", range(3))
def test_an_owner_has_its_quota_within_minutes_and_what_it_leaves_is_lent_again(seed: int) -> None:
    one = town(seed)
    for number in range(4):
        one.submit(mine(gpu_job(f"v{number}", uid=f"v{number}", low=2, replicas=2, high=2)), work=9000)
        one.tick()
    one.run(900)
    assert [one.running(f"v{number}") for number in range(4)] == [2, 2, 2, 2], "all machines, though its own quota is 4"
    one.submit(mine(gpu_job("s", uid="s", low=4, replicas=4, high=4), SPEECH), work=600)
    one.run(180)
    assert one.running("s") == 4
    assert [one.running(f"v{number}") for number in range(4)] == [2, 2, 0, 0], "the newest"
    one.run(1500)
    assert [one.running(f"v{number}") for number in range(4)] == [2, 2, 2, 2], "they are back"


@pytest.mark.parametrize("seed", range(3))
def test_in_a_town_of_teams_every_job_comes_to_its_end(seed: int) -> None:
    rng, one = random.Random(seed), town(seed)
    for number in range(7):
        low = rng.choice([1, 2, 3, 4, 6, 8])
        job = gpu_job(f"j{number}", uid=f"j{number}", low=low, replicas=low, high=low)
        one.submit(mine(job, rng.choice([VISION, SPEECH])), work=rng.uniform(200, 900))
        one.run(rng.uniform(0, 200))
    one.run(3 * 3600)
    assert not one.jobs, f"{sorted(one.jobs)} never ended"
