"""The order of jobs that wait: priority, then what their owners used against what they are owed, then age."""

import random
from dataclasses import replace
from typing import Any

import pytest

from ebb.api.spec import Job
from ebb.controller.reconciler.capacity import OVERDUE, OVERDUE_SECONDS, Claim
from ebb.controller.reconciler.capacity import claim as claim_of
from ebb.controller.reconciler.fair_share import describe_line, divide
from ebb.controller.reconciler.preemption import preempted_by
from ebb.controller.reconciler.queue import SharedLine, queue
from ebb.controller.reconciler.types import JobView, Observed
from tests.builders import NOW, make_group, make_platform
from tests.controller.reconciler.scenes import claim, cluster_capacity, gpu_job, placed_job
from tests.controller.reconciler.scenes import why as why_of
from tests.looks import look

ONE = make_platform(make_group(max=4))
TEAMS = ("vision", "language", "biology")


def owned(name: str, team: str, user: str = "", **changes: Any) -> Claim:
    return claim(name, owner=(team, user), key=(team, name), **changes)


def ordered(used: dict[tuple[str, str], float], *claims: Claim, now: float = NOW) -> list[str]:
    shares = divide(used, claims, now)
    return [one.key[1] for one in sorted((replace(one, share=shares.of(one)) for one in claims), key=lambda one: one.order)]


def test_who_used_less_goes_first_and_then_who_is_older() -> None:
    used = {("vision", "ada"): 300.0, ("language", "bob"): 100.0}
    old, young = owned("old", "vision", "ada", created=NOW - 900), owned("young", "language", "bob", created=NOW - 10)
    new = owned("new", "biology", "eve", created=NOW - 5)
    assert ordered(used, old, young, new) == ["new", "young", "old"]
    assert ordered({}, old, young, new) == ["old", "young", "new"]
    assert ordered(used, old, owned("older", "vision", "ada", created=NOW - 950)) == ["older", "old"]


def test_priority_counts_before_shares() -> None:
    used = {("vision", "ada"): 300.0}
    assert ordered(used, owned("urgent", "vision", "ada", priority=1), owned("other", "language", "bob")) == ["urgent", "other"]


def test_a_team_gets_no_more_by_having_more_users_nor_a_user_by_having_more_jobs() -> None:
    used = {("vision", "ada"): 100.0, ("vision", "bea"): 100.0, ("language", "bob"): 150.0}
    first, second = owned("bob", "language", "bob"), owned("cid", "vision", "cid", created=NOW - 2000)
    assert ordered(used, second, first) == ["bob", "cid"], "the team of who used nothing used more"
    within = [owned("ada", "vision", "ada", created=NOW - 3000), second]
    assert ordered(used, *within) == ["cid", "ada"]


def test_shares_say_how_much_of_what_is_owed_was_used() -> None:
    used = {("vision", "ada"): 300.0, ("vision", "bea"): 100.0, ("language", "bob"): 400.0}
    shares = divide(used, [owned("new", "biology", "eve")], NOW)
    assert shares.teams == {"vision": 1.5, "language": 1.5, "biology": 0.0}
    assert shares.users[("vision", "ada")] == 1.5
    assert shares.users[("vision", "bea")] == 0.5


@pytest.mark.parametrize(
    ("others", "first"),
    [
        ([], True),
        ([{"zone": "local-a", "owner": ("vision", "ada"), "key": ("vision", "runs")}], False),
    ],
    ids=["without-machines", "with-machines"],
)
def test_who_has_waited_for_a_day_without_any_machine_goes_first_with_one_job(others: list[dict[str, Any]], first: bool) -> None:
    used = {("vision", "ada"): 300.0}
    waiting = [owned(f"late-{number}", "vision", "ada", created=NOW - OVERDUE_SECONDS - 9 + number) for number in range(3)]
    new = owned("new", "language", "bob", created=NOW - OVERDUE_SECONDS - 100)
    known = [*waiting, new, *(claim(**{"name": "runs", **other}) for other in others)]
    shares = divide(used, known, NOW)
    assert ([shares.of(one) == OVERDUE for one in waiting], shares.of(new)) == ([first, False, False], OVERDUE)
    assert divide(used, waiting, NOW - 10).overdue == frozenset()


@pytest.mark.parametrize("seed", range(20))
def test_the_order_depends_on_nothing_but_what_is_known(seed: int) -> None:
    rng = random.Random(seed)
    used = {(team, f"user-{number}"): rng.uniform(0, 1e6) for team in TEAMS for number in range(3)}
    claims = [
        owned(
            f"job-{number}", rng.choice(TEAMS), f"user-{rng.randrange(4)}", created=NOW - rng.randrange(2 * 86400),
            priority=rng.choice([0, 0, 1]),
        )
        for number in range(30)
    ]  # fmt: skip
    other = dict(rng.sample(sorted(used.items()), len(used)))
    assert ordered(used, *claims) == ordered(other, *rng.sample(claims, len(claims)))


def test_a_job_whose_owner_used_less_passes_an_older_one() -> None:
    ahead = claim("ahead", least=3, created=NOW - 500, share=(2.0, 1.0))
    full = cluster_capacity(ahead)
    job = gpu_job(low=2, replicas=2)
    assert look(job, platform=ONE, cluster_capacity=full, share=(0.5, 1.0)).status.placement is not None
    waits = look(job, platform=ONE, cluster_capacity=full, share=(2.5, 1.0))
    assert why_of(waits) == ("BehindOthers", "job elastic-job/ahead goes first in local-a (spot T4).")


def test_shares_take_no_machines_from_anybody() -> None:
    """Two jobs hold half of what both need: the older keeps its half, whoever used less."""
    rival = claim("rival", "local-a", least=4, placed=2, created=NOW + 60, hungry_since=NOW - 900, share=(0.0, 0.0))
    job = placed_job(low=4, replicas=4, since=NOW - 900)
    decided = look(job, platform=ONE, cluster_capacity=cluster_capacity(rival), share=(5.0, 5.0))
    assert decided.status.placement is not None
    waiting = claim("waiting", least=2, created=NOW + 60, waits_behind=True, share=(0.0, 0.0))
    decided = look(job, platform=ONE, cluster_capacity=cluster_capacity(waiting), share=(5.0, 5.0))
    assert decided.status.placement is not None


def test_of_two_urgent_jobs_the_machines_are_taken_for_the_one_whose_owner_used_less() -> None:

    urgent = [
        claim(n, least=4, priority=9, created=NOW - age, waits_behind=True, share=(used, 0.0))
        for n, age, used in (("old", 50, 3.0), ("young", 10, 0.5))
    ]
    job = Job.of(placed_job(low=4, replicas=4))
    view = JobView.of(job, Observed(platform=ONE, cluster_capacity=cluster_capacity(*urgent)), NOW)
    found = preempted_by(view, claim_of(job, {}, NOW))
    assert found is not None
    assert found[0].key[1] == "young"
    assert queue(urgent[0], cluster_capacity(urgent[1]), ONE).waiting


def test_people_are_told_how_many_are_before_a_job_and_why() -> None:
    shares = {"urgent": (3.0, 0.0), "late": OVERDUE, "light": (0.5, 0.0), "old": (1.0, 0.0), "young": (1.0, 0.0)}
    ages = {"old": 30, "young": 20}
    claims = [
        claim(
            name, least=2, share=share, created=NOW - ages.get(name, 10), priority=9 * (name == "urgent"), owner=("team", "ada")
        )
        for name, share in shares.items()
    ]
    line = {one.job: one for one in describe_line(SharedLine(claims).all(ONE))}
    assert list(line) == ["urgent", "late", "light", "old", "young"]
    assert [one.why for one in line.values()] == ["next", "next", "machines", "machines", "machines"]
    young = line["young"]
    assert (young.priority, young.overdue, young.share, young.older) == (1, 1, 1, 1)
    assert (young.gpus, young.user, young.team_used) == (2, "ada", 1.0)
    assert (line["late"].priority, line["late"].overdue, line["late"].older, line["late"].team_used) == (1, 0, 0, None)


def test_people_are_told_why_a_job_cannot_have_its_turn() -> None:
    nowhere = gpu_job("nowhere", low=9, replicas=9, high=None)
    claims = [
        claim("runs", "local-a", least=1, group="sweep", group_max=1),
        claim("next", least=1, group="sweep", group_max=1),
        claim("refused", least=1, refused=True),
        claim("nowhere", least=9, job=nowhere),
    ]
    assert {one.job: one.why for one in describe_line(SharedLine(claims).all(ONE))} == {
        "next": "group",
        "refused": "refused",
        "nowhere": "nowhere",
    }
