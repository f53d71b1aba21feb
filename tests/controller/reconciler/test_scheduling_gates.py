"""Pods with scheduling gates: nobody looks for their machines yet, so no zone has run out of them."""

from typing import Any

from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_group, make_platform
from tests.controller.reconciler.scenes import backing_off, claim, cluster_capacity, pending, placed_job, scheduled, why, zone_of
from tests.looks import again, done, look

Object = dict[str, Any]
ZONES = make_platform(*(make_group(f"t4-{zone}", zone=zone) for zone in ("local-a", "local-b")))
JOB = placed_job(low=2)
HOUR = 3600.0


def gated(*indices: int, job: Object = JOB) -> list[Object]:
    """Pods that Kubernetes reports as SchedulingGated."""
    pods = pending(job, *indices)
    for pod in pods:
        pod["spec"]["schedulingGates"] = [{"name": "example.org/approval"}]
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    return pods


def gated_for_an_hour(job: Object = JOB, **observed: Any) -> tuple[Object, Plan]:
    """The job and the second of two looks, an hour apart."""
    job = again(job, look(job, *gated(0, 1, job=job), platform=ZONES, **observed))
    decided = look(job, *gated(0, 1, job=job), platform=ZONES, now=NOW + HOUR, **observed)
    return again(job, decided), decided


def test_gated_pods_are_left_alone_and_the_job_says_what_it_waits_for() -> None:
    _, decided = gated_for_an_hour()
    assert (done(decided), zone_of(decided), decided.status.dry) == ([], "local-a", ())
    assert why(decided) == (
        "SchedulingGated",
        "0 of at least 2 workers run: 2 workers wait until somebody removes scheduling gate 'example.org/approval'.",
    )


def test_what_the_cloud_says_of_other_pods_does_not_move_them() -> None:
    _, decided = gated_for_an_hour(supply=backing_off("t4-local-a", message="InsufficientInstanceCapacity"))
    assert (done(decided), zone_of(decided)) == ([], "local-a")


def test_a_gated_job_does_not_fall_back_to_on_demand_machines() -> None:
    placement = {"capacity": "spot-then-on-demand", "fallbackAfterSeconds": 60}
    stack = make_platform(make_group("spot"), make_group("sure", capacity_type="on-demand", spot_discount=0.0))
    job = placed_job(low=2, placement=placement)
    job = again(job, look(job, *gated(0, 1, job=job), platform=stack))
    decided = look(job, *gated(0, 1, job=job), platform=stack, now=NOW + HOUR)
    assert (done(decided), decided.status.placement and decided.status.placement.capacity_type) == ([], "spot")


def test_it_lets_go_of_nothing_for_a_job_that_goes_first() -> None:
    first = cluster_capacity(claim(zone="local-a", placed=1, hungry_since=NOW - 2 * HOUR))
    _, decided = gated_for_an_hour(cluster_capacity=first)
    assert zone_of(decided) == "local-a"


def test_the_time_for_a_machine_begins_when_the_gate_is_gone() -> None:
    job, _ = gated_for_an_hour()
    opened = look(job, *pending(job, 0, 1), platform=ZONES, now=NOW + HOUR)
    assert (zone_of(opened), why(opened)[0]) == ("local-a", "WaitingForMachines")
    job = again(job, opened)
    soon = look(job, *pending(job, 0, 1), platform=ZONES, now=NOW + HOUR + 359)
    late = look(job, *pending(job, 0, 1), platform=ZONES, now=NOW + HOUR + 361)
    assert (zone_of(soon), zone_of(late)) == ("local-a", "local-b")


def test_enough_workers_run_while_others_are_gated() -> None:
    decided = look(placed_job(low=2, replicas=3), *scheduled(JOB, 0, 1), *gated(2), platform=ZONES)
    assert (decided.status.state, done(decided)) == ("Running", [])


def test_a_worker_without_a_gate_that_lacks_a_machine_does_not_move_those_with_one() -> None:
    job = again(JOB, look(JOB, *gated(0), *pending(JOB, 1), platform=ZONES))
    decided = look(job, *gated(0), *pending(job, 1), platform=ZONES, now=NOW + HOUR)
    assert (done(decided), zone_of(decided), why(decided)[0]) == ([], "local-a", "SchedulingGated")
