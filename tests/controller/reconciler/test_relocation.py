"""When a placed job goes elsewhere: out of a dry zone, to on-demand machines and back. One look, or a few in a row."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.platform import Volume
from ebb.api.schema import encode
from ebb.api.status import Progress
from ebb.controller.reconciler.types import CreatePod, Plan
from tests.builders import NOW, make_group, make_node, make_platform, make_pod
from tests.controller.reconciler.scenes import (
    AT_MAX,
    BACKOFF,
    backing_off,
    claim,
    cluster_capacity,
    dry,
    gpu_job,
    pending,
    placed_job,
    reasons,
    said,
    scheduled,
    why,
    zone_of,
)
from tests.looks import again, done, look

Object = dict[str, Any]
ZONES = make_platform(*(make_group(f"t4-{zone}", zone=zone) for zone in ("local-a", "local-b", "local-c")))
ONE = make_platform(make_group("t4-local-a"))
ERROR = "InsufficientInstanceCapacity"
DRY_A = backing_off("t4-local-a", message=ERROR)


def entry(zone: str, **changes: Any) -> Object:
    return encode(dry(zone, **changes))


def waiting(*, age: float = 100, **rest: Any) -> Plan:
    """A look at a job that was placed in local-a so many seconds ago, and waits for two machines."""
    job = placed_job(since=NOW - age, low=2, status=rest.pop("status", None), **rest.pop("spec", {}))
    return look(job, *pending(job, 0, 1), **{"platform": ZONES, **rest})


MOVES: dict[str, tuple[Plan, str]] = {
    "the-cloud-says-so": (waiting(supply=DRY_A), "local-b"),
    "the-autoscaler-says-so-for-the-first-time": (waiting(supply=said(BACKOFF, 0, 1)), "local-a"),
    "the-autoscaler-says-so-for-half-a-minute": (
        waiting(supply=said(BACKOFF, 0, 1), status={"dry": [entry("local-a", at=NOW - 30)]}),
        "local-b",
    ),
    "full-for-half-a-minute": (
        waiting(supply=said(AT_MAX, 0, 1), status={"dry": [entry("local-a", at=NOW - 30, message=AT_MAX)]}),
        "local-b",
    ),
    "nothing-comes": (waiting(age=400, now=NOW + 310), "local-b"),
    "not-to-a-zone-that-is-dry-too": (
        waiting(supply=DRY_A, cluster_capacity=cluster_capacity(dried=(dry("local-b"),))),
        "local-c",
    ),
    "not-to-a-zone-without-room": (
        waiting(supply=DRY_A, cluster_capacity=cluster_capacity(claim(zone="local-b", least=3))),
        "local-c",
    ),
    "not-to-a-zone-where-one-before-it-starves": (
        waiting(supply=DRY_A, cluster_capacity=cluster_capacity(claim(zone="local-b", placed=1, hungry_since=NOW - 400))),
        "local-c",
    ),
    "nowhere-else": (waiting(supply=DRY_A, platform=ONE), "local-a"),
    "the-author-names-the-zone": (waiting(supply=DRY_A, spec={"placement": {"zone": "local-a"}}), "local-a"),
    "the-zone-is-not-in-the-stack-any-more": (
        waiting(age=400, now=NOW + 310, platform=make_platform(*ZONES.node_groups[1:])),
        "local-b",
    ),
    "machines-come": (waiting(supply=said("pod triggered scale-up", 0, 1, triggered=True)), "local-a"),
}


@pytest.mark.parametrize(("decided", "zone"), MOVES.values(), ids=MOVES.keys())
def test_moving_out_of_a_dry_zone(decided: Plan, zone: str) -> None:
    assert zone_of(decided) == zone
    assert ("Moved" in reasons(decided)) == (zone != "local-a")
    assert not any(isinstance(action, CreatePod) for action in decided.actions)


def test_a_job_with_enough_workers_never_moves_for_more() -> None:
    job = placed_job(low=2, replicas=4)
    pods = [*scheduled(job, 0, 1), *pending(job, 2, 3)]
    decided = look(job, *pods, platform=ZONES, supply=DRY_A, now=NOW + 9999)
    assert (zone_of(decided), done(decided)) == ("local-a", [])


def test_a_move_is_written_then_all_pods_leave_and_then_new_ones_come() -> None:
    job = placed_job(low=2, replicas=3, status={"reclaims": 4})
    pods = [*scheduled(job, 0), *pending(job, 1)]
    for pod in pods:
        pod["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "local-a", "ebb.dev/gpu-type": "T4"}
    moved = look(job, *pods, platform=ZONES, supply=DRY_A)
    assert (zone_of(moved), done(moved)) == ("local-b", [])
    assert why(moved) == (
        "Moved",
        "1 of at least 2 workers run: they start in local-b (spot T4) when 2 workers have left the old place.",
    )
    assert [event.message for event in moved.events if event.reason == "Moved"] == [
        f"The job goes from local-a (spot T4) to local-b (spot T4): local-a (spot T4) has no machines for it: {ERROR}.",
    ]
    assert [(item.what, item.cause) for item in moved.status.history] == [("placed", "local-b")]
    assert [item.zone for item in moved.status.dry] == ["local-a"]

    job = again(job, moved)
    assert done(look(job, *pods, platform=ZONES)) == ["-0", "-1"]
    asked = {"deletionTimestamp": stamp(NOW + 30), "deletionGracePeriodSeconds": 30}
    leaving = {**pods[0], "metadata": {**pods[0]["metadata"], **asked}}
    slow = look(job, leaving, platform=ZONES, now=NOW + 1)
    assert done(slow) == []
    gone = look(again(job, slow), platform=ZONES, now=NOW + 20)
    assert done(gone) == ["+0", "+1"]
    selectors = [action.body["spec"]["nodeSelector"] for action in gone.actions if isinstance(action, CreatePod)]
    assert {selector["topology.kubernetes.io/zone"] for selector in selectors} == {"local-b"}
    assert gone.status.reclaims == 4


def test_a_worker_on_a_dead_machine_does_not_hold_up_a_move() -> None:
    job = placed_job("local-b")
    pod = make_pod(job, 0, node="n1")
    pod["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "local-a"}
    assert done(look(job, pod, platform=ZONES, nodes=(make_node("n1", ready="Unknown"),))) == ["-0!"]


def test_where_all_zones_are_dry_each_is_tried_in_its_turn_and_ever_more_seldom() -> None:
    dried = {"dry": [entry("local-a", at=NOW - 40), entry("local-b", at=NOW - 900), entry("local-c", at=NOW - 1500)]}

    def tried(age: float, waited: float) -> tuple[str, float | None]:
        decided = waiting(age=age, supply=DRY_A, status={**dried, "waitingSince": stamp(NOW - waited)})
        return zone_of(decided), decided.wake_at

    assert tried(359, 359) == ("local-a", NOW + 1)
    assert tried(360, 360)[0] == "local-c"
    assert tried(699, 1399)[0] == "local-a"
    assert tried(700, 1400)[0] == "local-c"
    assert tried(1800, 99999)[0] == "local-c"


def test_the_zone_of_a_volume_is_not_left() -> None:
    volume = Volume(name="fsx", claim="ebb-fsx", mount_path="/mnt/fsx", read_only=False, zone="local-a")
    decided = waiting(supply=DRY_A, platform=make_platform(*ZONES.node_groups, volumes=(volume,)))
    assert zone_of(decided) == "local-a"
    assert why(decided)[1].endswith("The job waits there, as volume 'fsx' is in local-a alone.")


# --- spot-then-on-demand ---

BOTH = make_platform(
    make_group("spot-a"), make_group("od-a", capacity_type="on-demand"),
    make_group("spot-b", zone="local-b"), make_group("od-b", zone="local-b", capacity_type="on-demand"),
)  # fmt: skip
THEN: Any = {"placement": {"capacity": "spot-then-on-demand", "fallbackAfterSeconds": 300}}


def bought(decided: Plan) -> tuple[str, str, int]:
    placed = decided.status.placement
    assert placed is not None
    return placed.zone, placed.capacity_type, placed.fallbacks


def test_it_begins_on_spot_and_falls_back_when_that_took_too_long() -> None:
    assert bought(look(gpu_job(**THEN), platform=BOTH)) == ("local-a", "spot", 0)
    assert bought(waiting(platform=BOTH, spec=THEN, status={"waitingSince": stamp(NOW - 299)})) == ("local-a", "spot", 0)
    late = waiting(platform=BOTH, spec=THEN, status={"waitingSince": stamp(NOW - 300)})
    assert bought(late) == ("local-a", "on-demand", 1)
    assert late.events[-1].message == (
        "The job goes from local-a (spot T4) to local-a (on-demand T4): no spot machines for 300 s."
    )


def test_it_does_not_fall_back_while_it_waits_for_something_else() -> None:
    job = placed_job(low=2, since=NOW - 900, **THEN)
    starting = [make_pod(job, index, phase="Pending", node="n0") for index in range(2)]
    assert bought(look(job, *starting, platform=BOTH)) == ("local-a", "spot", 0)


def test_it_falls_back_from_the_line_too() -> None:
    job = gpu_job(low=4, replicas=4, status={"waitingSince": stamp(NOW - 300)}, **THEN)
    others = cluster_capacity(claim("x", "local-a"), claim("y", "local-b"))
    assert bought(look(job, platform=BOTH, cluster_capacity=others)) == ("local-a", "on-demand", 0)
    early = gpu_job(low=4, replicas=4, status={"waitingSince": stamp(NOW - 200)}, **THEN)
    decided = look(early, platform=BOTH, cluster_capacity=others)
    assert (why(decided)[0], decided.wake_at) == ("BehindOthers", NOW + 30)


def on_demand(age: float, *, fallbacks: int = 1, before: int | None = None, after: int | None = None, **rest: Any) -> Plan:
    """A job that runs on on-demand machines for so many seconds; `before` and `after`: steps of its newest checkpoint."""
    steps = {} if before is None else {"progress": {"step": before, "checkpointStep": before}}
    job = placed_job(capacity="on-demand", since=NOW - age, low=2, status=steps, **THEN)
    job["status"]["placement"]["fallbacks"] = fallbacks
    progress = None if after is None else Progress(step=after, checkpoint_step=after)
    return look(job, *scheduled(job, 0, 1), **{"platform": BOTH, "progress": progress, **rest})


RETURNS: dict[str, tuple[Plan, str]] = {
    "too-early": (on_demand(1799), "on-demand"),
    "no-checkpoints-known": (on_demand(1800), "spot"),
    "at-a-checkpoint": (on_demand(1800, before=10, after=20), "spot"),
    "between-checkpoints": (on_demand(1800, before=10, after=10), "on-demand"),
    "its-first-figures": (on_demand(1800, after=10), "on-demand"),
    "figures-missing": (on_demand(1800, before=10), "on-demand"),
    "twice-as-long-the-second-time": (on_demand(3599, fallbacks=2), "on-demand"),
    "the-second-time": (on_demand(3600, fallbacks=2), "spot"),
    "four-hours-at-most": (on_demand(4 * 3600, fallbacks=9), "spot"),
    "one-zone-is-dry": (on_demand(1800, cluster_capacity=cluster_capacity(dried=(dry("local-a"),))), "spot"),
    "all-are-dry": (on_demand(1800, cluster_capacity=cluster_capacity(dried=(dry("local-a"), dry("local-b")))), "on-demand"),
    "no-room": (
        on_demand(1800, cluster_capacity=cluster_capacity(claim("x", "local-a", least=3), claim("y", "local-b", least=3))),
        "on-demand",
    ),
}


@pytest.mark.parametrize(("decided", "capacity"), RETURNS.values(), ids=RETURNS.keys())
def test_back_to_spot(decided: Plan, capacity: str) -> None:
    assert bought(decided)[1] == capacity
    assert ("Moved" in reasons(decided)) == (capacity == "spot")
    assert done(decided) == []


HOUR = 3600
LEFT = 2 * HOUR  # of training: 8,000 of 10,000 steps in 0.9 s each
MARGIN = 2 * 480 + LEFT // 20


def hurried(spare: float, *, runs: int = 0, capacity: str = "spot", age: float = HOUR, **placement: Any) -> Plan:
    """A job of 2 to 4 workers whose deadline is `spare` seconds after the end of the training that is left. `runs`: workers
    with a machine; the others wait."""
    spec: Any = {"placement": {"capacity": "spot-then-on-demand", **placement}, "deadline": stamp(NOW + LEFT + spare)}
    status = {"waitingSince": stamp(NOW - age)} if runs < 2 else {}
    job = placed_job(capacity=capacity, since=NOW - age, status=status, **{"low": 2, "replicas": 4, **spec})
    progress = Progress(step=2000, total_steps=10_000, useful_seconds=1800.0, checkpoint_step=2000)
    job["status"]["progress"] = encode(Progress(step=1900, checkpoint_step=1900))
    pods = [*scheduled(job, *range(runs)), *pending(job, *range(runs, 4))]
    return look(job, *pods, platform=BOTH, progress=progress)


HURRIED: dict[str, tuple[Plan, str]] = {
    "it-can-wait": (hurried(MARGIN + 1), "spot"),
    "it-presses": (hurried(MARGIN), "on-demand"),
    "it-trains-with-fewer-and-can-wait": (hurried(MARGIN + 1, runs=2), "spot"),
    "it-trains-with-fewer-and-it-presses": (hurried(MARGIN, runs=2), "on-demand"),
    "it-lacks-nobody": (hurried(0, runs=4), "spot"),
    "the-job-says-when": (hurried(MARGIN + 1, fallbackAfterSeconds=600), "on-demand"),
    "the-job-says-later": (hurried(0, fallbackAfterSeconds=2 * HOUR), "spot"),
    "back-with-time-to-spare": (hurried(3 * MARGIN + 1, runs=4, capacity="on-demand"), "spot"),
    "not-back-without": (hurried(3 * MARGIN, runs=4, capacity="on-demand"), "on-demand"),
}


@pytest.mark.parametrize(("decided", "capacity"), HURRIED.values(), ids=HURRIED.keys())
def test_a_deadline_says_how_long_spot_machines_are_waited_for(decided: Plan, capacity: str) -> None:
    assert bought(decided)[1] == capacity


def test_it_wakes_when_the_deadline_begins_to_press_and_says_why_it_moved() -> None:
    # A zone without machines is looked at sooner.
    assert hurried(MARGIN + 20, runs=2).wake_at == NOW + 20
    assert hurried(MARGIN).events[-1].message == (
        "The job goes from local-a (spot T4) to local-a (on-demand T4): spot machines are lacking, and 2.0 h of training are "
        f"left until {stamp(NOW + LEFT + MARGIN)}."
    )


def test_before_the_first_steps_a_deadline_says_nothing() -> None:
    spec: Any = {"placement": {"capacity": "spot-then-on-demand"}, "deadline": stamp(NOW + 60 * HOUR)}
    assert bought(waiting(platform=BOTH, spec=spec, status={"waitingSince": stamp(NOW - 599)}))[1] == "spot"
    assert bought(waiting(platform=BOTH, spec=spec, status={"waitingSince": stamp(NOW - 600)}))[1] == "on-demand"


def test_dry_on_demand_zones_are_left_for_others_and_then_for_spot() -> None:
    def out(*dried: Any) -> tuple[str, str, int]:
        job = placed_job(capacity="on-demand", low=2, **THEN)
        supply = backing_off("od-a", message=ERROR)
        return bought(
            look(job, *pending(job, 0, 1), platform=BOTH, supply=supply, cluster_capacity=cluster_capacity(dried=dried))
        )

    assert out() == ("local-b", "on-demand", 0)
    assert out(dry("local-b", capacity="on-demand")) == ("local-a", "spot", 0)
