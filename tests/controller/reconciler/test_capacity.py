"""What the statuses of jobs say to one another."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.needs import Wish
from ebb.api.spec import Job
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity, claim, survey
from tests.builders import NOW, UID, make_job
from tests.controller.reconciler.scenes import BACKOFF, gpu_job, placed_job

Object = dict[str, Any]
ENTRY = {"zone": "a", "gpuType": "T4", "capacityType": "spot", "since": stamp(NOW - 90), "message": BACKOFF}
HELD = {"hold": {"reason": "BudgetSpent", "message": "", "generation": 1, "at": stamp(NOW)}}


def surveyed(*jobs: Object) -> ClusterCapacity:
    return survey([Job.of(job) for job in jobs], {"urgent": 7, "": 3}, NOW, but=("elastic-job", "me"))


def test_a_claim_says_what_a_job_has_and_wants() -> None:
    history = [{"at": stamp(NOW - age), "what": "reclaimed", "worker": 0} for age in (60, 600, 2000)]
    members = [
        {"index": 0, "uid": "a", "node": "n"},
        {"index": 1, "uid": "b"},
        {"index": 2, "uid": "c", "node": "n", "settled": "x"},
    ]
    status = {"history": history, "members": members}
    job = placed_job(
        status=status, low=2, replicas=3, priorityClassName="urgent", scaling="automatic", group={"name": "g", "maxParallel": 5}
    )
    assert surveyed(job).claims == (
        Claim(
            key=("elastic-job", "digits"), least=2, wanted=3, placed=1, zone="local-a", gpu_type="T4", capacity_type="spot",
            priority=7, created=NOW - 60, group="g", group_max=5, reclaims=2, located=True, automatic=True,
            wish=Wish.of(Job.of(job)), owner=("elastic-job", ""),
        ),
    )  # fmt: skip


NOBODY = {
    "itself": make_job("me"),
    "ended": make_job(status={"conditions": [{"type": "Succeeded", "status": "True"}]}),
    "suspended": make_job(suspend=True),
    "held": make_job(status=HELD),
    "being-deleted": make_job(deleting=True),
    "run-by-others": make_job(managedBy="kueue.x-k8s.io/multikueue"),
}


@pytest.mark.parametrize("job", NOBODY.values(), ids=NOBODY.keys())
def test_who_claims_nothing(job: Object) -> None:
    assert surveyed(job).claims == ()


def test_dry_zones_are_known_of_all_jobs_for_half_an_hour() -> None:
    def job(name: str, age: float, **changes: Any) -> Object:
        return make_job(name, status={"dry": [{**ENTRY, "at": stamp(NOW - age)}]}, **changes)

    found = surveyed(job("x", 60), job("y", 60, suspend=True), job("z", 1801), job("me", 60)).dry
    assert [entry.zone for entry in found] == ["a", "a"]


def hungry(reason: str, status: str = "False", **placement: Any) -> float | None:
    conditions = [{"type": "Running", "status": status, "reason": reason, "message": ""}]
    return claim(Job.of(placed_job(status={"conditions": conditions}, **placement)), {}, NOW).hungry_since


def test_a_job_is_hungry_since_it_waits_for_machines_where_it_is() -> None:
    assert [hungry(reason) for reason in ("WaitingForMachines", "MachinesBooting", "ZoneDry", "CloudQuota")] == [NOW - 100] * 4
    assert [hungry(reason) for reason in ("WaitingForStart", "QuotaExceeded", "Moved")] == [None] * 3
    assert hungry("ElasticJobRunning", "True") is None
    later = placed_job(status={"conditions": [{"type": "Running", "status": "False", "reason": "ZoneDry", "message": ""}]})
    later["status"]["waitingSince"] = stamp(NOW - 900)
    assert claim(Job.of(later), {}, NOW).hungry_since == NOW - 100


def test_the_order_is_priority_then_age_then_name() -> None:
    def ranked(name: str, **changes: Any) -> Claim:
        return claim(Job.of(make_job(name, uid=UID, **changes)), {"urgent": 7, "": 3, "low": 1}, NOW)

    old = make_job("old")
    old["metadata"]["creationTimestamp"] = stamp(NOW - 900)
    by_template = ranked("by-template", pod={"priorityClassName": "low"}, priorityClassName="urgent")
    found = [by_template, ranked("b"), ranked("a"), claim(Job.of(old), {"": 3}, NOW), ranked("z", priorityClassName="urgent")]
    assert [one.key[1] for one in sorted(found, key=lambda one: one.rank)] == ["z", "old", "a", "b", "by-template"]


def test_jobs_of_a_sweep_have_one_wish() -> None:
    assert Wish.of(Job.of(gpu_job("a"))) == Wish.of(Job.of(gpu_job("b")))
    assert hash(Wish.of(Job.of(gpu_job("a")))) == hash(Wish.of(Job.of(gpu_job("b"))))


ODD = {
    "no-quantity": {"container": {"resources": {"limits": {"cpu": "plenty"}}}},
    "endless": {"container": {"resources": {"limits": {"cpu": "1e400"}}}},
    "less-than-nothing": {"container": {"resources": {"limits": {"cpu": "-4"}}}},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_template_that_is_no_pod_disturbs_nobody(odd: Object) -> None:
    (found,) = surveyed(make_job(**odd)).claims
    assert found.wish.needs.cpu == 0


OTHERS: dict[str, tuple[Object, int]] = {
    # a placed job of two workers, one of them on a machine -> workers whose machines are not for others
    "waits": ({}, 2),
    "its pods are refused by a quota": ({"reason": "QuotaExceeded"}, 1),
    "its pods are refused": ({"reason": "FailedCreate"}, 1),
    "runs, and more are refused": ({"reason": "FailedCreate", "status": "True"}, 2),
}


@pytest.mark.parametrize(("running", "holds"), OTHERS.values(), ids=OTHERS)
def test_a_job_whose_pods_are_refused_keeps_no_machines_from_others(running: Object, holds: int) -> None:
    condition = {"type": "Running", "status": "False", "reason": "WaitingForMachines", **running}
    member = {"index": 0, "uid": "u", "node": "n0"}
    (found,) = surveyed(placed_job(low=2, status={"conditions": [condition], "members": [member]})).claims
    assert found.holds == holds
