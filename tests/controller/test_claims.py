"""All jobs as a market, and when a change of one concerns the others."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.schema import encode
from ebb.api.spec import Job, SpecError
from ebb.api.status import Hold, Member, Placed, Status
from ebb.controller.claims import Claims, Effect
from tests.builders import NOW, make_job

Object = dict[str, Any]
A, B = ("elastic-job", "a"), ("elastic-job", "b")
PLACED = Placed(zone="local-a", capacity_type="spot", gpu_type="T4")


def job(name: str = "a", *, members: int = 0, replicas: int = 2, placed: Placed | None = PLACED, **rest: Any) -> Object:
    """A job with workers on as many machines as it has members."""
    status = Status(
        placement=placed,
        members=tuple(Member(index=index, uid=f"pod-{index}", node=f"n{index}") for index in range(members)),
        **rest.pop("status", {}),
    )
    return make_job(name, replicas=replicas, uid=name, status=encode(status), **rest)


def refused() -> Object:
    """What the status says when a quota refuses the job's pods."""
    return {"conditions": Status().with_condition("Running", False, "QuotaExceeded", "", NOW).conditions}


@pytest.fixture
def claims() -> Claims:
    return Claims(lambda: NOW)


def test_a_job_sees_the_others_and_not_itself(claims: Claims) -> None:
    claims.put(A, job("a", members=1))
    claims.put(B, job("b"))
    assert [claim.key for claim in claims.cluster_capacity(but=A).claims] == [B]
    assert [(claim.key, claim.placed, claim.zone) for claim in claims.cluster_capacity(but=B).claims] == [(A, 1, "local-a")]
    claims.put(A, None)
    assert list(claims.cluster_capacity(but=B).claims) == []


def test_a_job_is_parsed_once_and_one_that_cannot_be_is_no_rival(claims: Claims) -> None:
    claims.put(A, job("a"))
    assert claims.job(A) is claims.job(A)
    claims.put(A, make_job("a", low=3, replicas=2))
    with pytest.raises(SpecError, match="minReplicas 3"):
        claims.job(A)
    assert list(claims.cluster_capacity(but=B).claims) == []


def test_a_decision_is_in_the_market_before_it_is_written(claims: Claims) -> None:
    claims.put(A, job("a", placed=None))
    assert claims.decided(A, Status(placement=PLACED)) is Effect.MOVED_ON
    assert claims.cluster_capacity(but=B).claims[0].zone == "local-a"
    assert claims.job(A).status.placement is None, "decisions are made from what is written"


@pytest.mark.parametrize(
    ("old", "new", "effect"),
    [
        (None, job(), Effect.NONE),
        (job(), job(), Effect.NONE),
        (job(placed=None), job(), Effect.MOVED_ON),
        (job(), job(members=1), Effect.MOVED_ON),
        (job(members=1), job(members=2), Effect.NONE),
        (job(members=1), job(), Effect.NONE),
        (job(members=2), job(members=1), Effect.SHRANK),
        (job(members=1), job(status=refused()), Effect.FREED),
        (job(), job(container={"resources": {"limits": {"cpu": "1"}}}), Effect.FREED),
        (job(group={"name": "sweep", "maxParallel": 1}), job(), Effect.FREED),
        (job(members=2), None, Effect.FREED),
        (job(members=2), job(members=2, suspend=True), Effect.FREED),
        (job(), job(status={"hold": Hold(reason="BudgetSpent", message="", generation=1, at=stamp(NOW))}), Effect.FREED),
        (job(replicas=3), job(replicas=2), Effect.FREED),
        (job(), job(placed=Placed(zone="local-b", gpu_type="T4", capacity_type="spot")), Effect.FREED),
        (job(), job(deleting=True), Effect.FREED),
    ],
    ids=[
        "appears",
        "same",
        "is placed",
        "has its machines",
        "has one more",
        "lost one of the first",
        "lost one beyond the first",
        "is refused more pods and has none",
        "asks for other machines",
        "leaves its sweep",
        "is gone",
        "is suspended",
        "is held",
        "is scaled down",
        "moves away",
        "is being deleted",
    ],
)
def test_what_a_change_may_mean_for_the_others(claims: Claims, old: Object | None, new: Object | None, effect: Effect) -> None:
    claims.put(A, old)
    assert claims.put(A, new) is effect


def waiting(reason: str, **rest: Any) -> Status:
    return Status(placement=PLACED, **rest).with_condition("Running", False, reason, "", NOW)


@pytest.mark.parametrize(
    ("status", "when_moved_on", "when_freed"),
    [
        (Status(), True, True),
        (waiting("BehindOthers"), True, True),
        (waiting("GroupFull"), True, True),
        (waiting("ZoneDry", state="Restarting"), True, True),
        (waiting("WaitingForStart"), False, True),
        (Status(placement=PLACED, state="Running").with_condition("Running", True, "ElasticJobRunning", "", NOW), False, False),
        (Status(state="Succeeded").with_condition("Succeeded", True, "", "", NOW), False, False),
    ],
    ids=["not placed", "behind others", "group full", "zone dry", "starting", "running", "ended"],
)
def test_who_is_told(claims: Claims, status: Status, when_moved_on: bool, when_freed: bool) -> None:
    claims.put(A, make_job("a", status=encode(status)))
    assert list(claims.waiting(Effect.MOVED_ON)) == [A] * when_moved_on
    assert list(claims.waiting(Effect.FREED)) == [A] * when_freed


def test_a_job_that_follows_free_capacity_is_told_while_it_runs(claims: Claims) -> None:
    status = Status(placement=PLACED, state="Running")
    claims.put(A, make_job("a", status=encode(status), scaling="automatic"))
    assert [list(claims.waiting(effect)) for effect in (Effect.MOVED_ON, Effect.SHRANK)] == [[A], [A]]


def test_only_jobs_that_follow_free_capacity_are_told_of_machines_that_nobody_was_kept_from(claims: Claims) -> None:
    """Those that wait for their turn know of minReplicas alone, and there may be hundreds of them."""
    claims.put(A, make_job("a", status=encode(waiting("BehindOthers", state="Waiting"))))
    assert list(claims.waiting(Effect.SHRANK)) == []


def test_those_of_lower_priority_that_run_are_told_when_one_waits_behind_others(claims: Claims) -> None:
    """They may have to stop for it, and nothing else of theirs changes."""
    claims.rank({"urgent": 1000})
    running = Status(placement=PLACED, state="Running").with_condition("Running", True, "ElasticJobRunning", "", NOW)
    for key, name in ((A, "a"), (("ns", "equal"), "equal")):
        spec: Object = {} if key == A else {"priorityClassName": "urgent"}
        claims.put(key, make_job(name, status=encode(running), **spec))
    waits = encode(replace(waiting("BehindOthers"), placement=None))
    assert claims.put(B, make_job("b", priorityClassName="urgent")) is Effect.NONE, "it has not been looked at"
    assert A not in list(claims.waiting(Effect.MOVED_ON))
    assert claims.put(B, make_job("b", priorityClassName="urgent", status=waits)) is Effect.CAME
    assert claims.put(B, make_job("b", priorityClassName="urgent", status=waits)) is Effect.NONE
    assert list(claims.waiting(Effect.CAME)) == [A]
    assert A in list(claims.waiting(Effect.FREED)), "what becomes free may not be enough"
    assert list(claims.waiting(Effect.SHRANK)) == []


def test_priorities_are_those_of_the_classes(claims: Claims) -> None:
    claims.put(A, job("a", priorityClassName="urgent"))
    claims.rank({"urgent": 1000})
    assert claims.cluster_capacity(but=B).claims[0].priority == 1000


def test_what_is_no_longer_recent_leaves_the_market_although_nothing_happens() -> None:
    now = [NOW]
    claims = Claims(lambda: now[0])
    dry = {"zone": "local-a", "since": stamp(NOW), "at": stamp(NOW)}
    claims.put(A, make_job("a", status={"state": "Waiting", "dry": [dry]}))
    assert len(claims.cluster_capacity(but=B).dry) == 1
    now[0] += 4000
    assert claims.cluster_capacity(but=B).dry == ()


def test_a_market_of_500_jobs_is_made_without_parsing_any_again(claims: Claims, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(500):
        claims.put(("ns", f"job-{index}"), job(f"job-{index}"))
    monkeypatch.setattr(Job, "of", None)
    assert len(claims.cluster_capacity(but=("ns", "job-7")).claims) == 499
