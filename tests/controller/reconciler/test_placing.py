"""Where a job goes first, and when it must wait: for others, for its group, for the platform."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.schema import encode
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_group, make_platform
from tests.controller.reconciler.scenes import (
    backing_off,
    claim,
    cluster_capacity,
    dry,
    gpu_job,
    placed_job,
    reasons,
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


LONGEST_B = (dry("local-a", at=NOW - 9), dry("local-b", at=NOW - 99), dry("local-c", at=NOW - 50))


# --- The first choice ---


def test_what_is_chosen_is_written_with_the_time_and_told() -> None:
    decided = look(gpu_job(), platform=ZONES)
    assert encode(decided.status.placement) == {
        "zone": "local-a", "capacityType": "spot", "gpuType": "T4", "network": "", "since": stamp(NOW), "fallbacks": 0,
        "onLoan": False,
    }  # fmt: skip
    assert [event.message for event in decided.events if event.reason == "Placed"] == ["Workers go to zone local-a (spot T4)."]
    assert [(item.what, item.cause) for item in decided.status.history] == [("placed", "local-a")]


def test_workers_of_the_place_before_are_gone_before_new_ones_come() -> None:
    """A job that gave way, and has another place while one of its workers still writes the checkpoint."""
    job = gpu_job(low=2, replicas=2)
    pod = scheduled(job, 1)[0]
    pod["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "local-a", "ebb.dev/gpu-type": "T4"}
    pod["metadata"] |= {"deletionTimestamp": stamp(NOW + 30), "deletionGracePeriodSeconds": 30}
    placed = look(job, pod, platform=ZONES, supply=DRY_A)
    assert (zone_of(placed), done(placed)) == ("local-b", [])
    assert why(placed)[1].endswith("they start in local-b (spot T4) when 1 worker has left the old place.")
    assert done(look(again(job, placed), pod, platform=ZONES, now=NOW + 1)) == []
    assert done(look(again(job, placed), platform=ZONES, now=NOW + 2)) == ["+0", "+1"]


FIRST: dict[str, tuple[Plan, str]] = {
    "not-where-others-found-none": (
        look(gpu_job(), platform=ZONES, cluster_capacity=cluster_capacity(dried=(dry("local-a"),))),
        "local-b",
    ),
    "not-where-the-autoscaler-backs-off": (look(gpu_job(), platform=ZONES, supply=DRY_A), "local-b"),
    "if-all-are-dry-the-longest": (
        look(gpu_job(), platform=ZONES, cluster_capacity=cluster_capacity(dried=LONGEST_B)),
        "local-b",
    ),
    "beside-others": (look(gpu_job(low=2), platform=ONE, cluster_capacity=cluster_capacity(claim(zone="local-a"))), "local-a"),
    "not-beside-too-many": (
        look(gpu_job(low=3, replicas=3), platform=ZONES,
             cluster_capacity=cluster_capacity(claim(zone="local-a"), claim("x", zone="local-b"))),
        "local-c",
    ),
    "what-others-want-beyond-their-least-does-not-count": (
        look(gpu_job(low=2), platform=ONE, cluster_capacity=cluster_capacity(claim(zone="local-a", wanted=4, placed=4))),
        "local-a",
    ),
    "what-waits-behind-does-not-count": (
        look(gpu_job(low=2), platform=ONE, cluster_capacity=cluster_capacity(claim(least=4, created=NOW))),
        "local-a",
    ),
    "what-waits-before-but-elsewhere-does-not-count": (
        look(gpu_job(low=2), platform=make_platform(make_group("t4-local-a"), make_group("big", zone="local-b", gpu_type="A100")),
             cluster_capacity=cluster_capacity(
                 claim(least=4, job=gpu_job("x", low=4, replicas=4, placement={"gpuType": "A100"})))),
        "local-a",
    ),
    "what-waits-before-and-can-never-fit-does-not-count": (
        look(gpu_job(low=2), platform=ONE,
             cluster_capacity=cluster_capacity(claim(least=9, job=gpu_job("x", low=9, replicas=9, high=9)))),
        "local-a",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("decided", "zone"), FIRST.values(), ids=FIRST.keys())
def test_first_choice(decided: Plan, zone: str) -> None:
    assert zone_of(decided) == zone
    assert "+0" in done(decided)


BEHIND: dict[str, tuple[Plan, str]] = {
    "no-room-beside-one": (
        look(gpu_job(low=3, replicas=3), platform=ONE, cluster_capacity=cluster_capacity(claim(zone="local-a"))),
        "job elastic-job/other goes first in local-a (spot T4).",
    ),
    "one-before-it-takes-the-room": (
        look(gpu_job(low=3, replicas=3), platform=ONE, cluster_capacity=cluster_capacity(claim(least=2))),
        "job elastic-job/other goes first in local-a (spot T4).",
    ),
    "no-machine-is-lent-twice": (
        look(
            gpu_job(),
            platform=ONE,
            cluster_capacity=cluster_capacity(
                claim(zone="local-a"), claim("large", least=3, created=NOW - 500), claim("lent", "local-a", loan=True, least=2)
            ),
        ),
        "job elastic-job/large goes first in local-a (spot T4).",
    ),
    "the-one-right-before-it-is-named": (
        look(
            gpu_job(),
            platform=ONE,
            cluster_capacity=cluster_capacity(claim("one", least=4), claim("two", least=4, created=NOW - 500)),
        ),
        "job elastic-job/two goes first in local-a (spot T4).",
    ),
    "higher-priority": (
        look(
            gpu_job(low=3, replicas=3), platform=ONE, cluster_capacity=cluster_capacity(claim(least=2, created=NOW, priority=1))
        ),
        "job elastic-job/other goes first in local-a (spot T4).",
    ),
    "one-before-it-starves-there": (
        look(
            gpu_job(),
            platform=ONE,
            cluster_capacity=cluster_capacity(claim(zone="local-a", least=2, placed=1, hungry_since=NOW - 360)),
        ),
        "job elastic-job/other goes first in local-a (spot T4).",
    ),
    "and-without-a-stack": (
        look(gpu_job(), cluster_capacity=cluster_capacity(claim(located=True, gpu_type="", placed=1, hungry_since=NOW - 360))),
        "job elastic-job/other goes first in the cluster.",
    ),
}


@pytest.mark.parametrize(("decided", "message"), BEHIND.values(), ids=BEHIND.keys())
def test_waiting_behind_others(decided: Plan, message: str) -> None:
    assert (zone_of(decided), done(decided), decided.status.placement) == ("", [], None)
    assert why(decided) == ("BehindOthers", message)
    assert decided.wake_at == NOW + 30


def test_waiting_in_line_is_told_once_however_the_line_changes() -> None:
    job = gpu_job(low=3, replicas=3)
    first = look(job, platform=ONE, cluster_capacity=cluster_capacity(claim(zone="local-a")))
    second = look(again(job, first), platform=ONE, cluster_capacity=cluster_capacity(claim("next", zone="local-a")), now=NOW + 30)
    assert ("BehindOthers" in reasons(first), reasons(second)) == (True, [])
    assert second.status.waiting_since == stamp(NOW, digits=3)


# --- Groups ---


def in_group(*others: Any, most: int = 2, **changes: Any) -> Plan:
    group = {"name": "sweep", "maxParallel": most}
    return look(
        gpu_job(group=group, **changes),
        platform=make_platform(make_group("t4", max=99)),
        cluster_capacity=cluster_capacity(*others),
    )


def sibling(name: str, zone: str = "", **changes: Any) -> Any:
    return claim(name, zone, group="sweep", group_max=2, **changes)


GROUPS: dict[str, tuple[Plan, bool]] = {
    "alone": (in_group(), True),
    "one-runs": (in_group(sibling("a", "local-a")), True),
    "two-run": (in_group(sibling("a", "local-a"), sibling("b", "local-a")), False),
    "one-runs-and-one-is-before-it": (in_group(sibling("a", "local-a"), sibling("b")), False),
    "one-runs-and-one-is-behind-it": (in_group(sibling("a", "local-a"), sibling("b", created=NOW)), True),
    "two-run-though-they-are-behind-it": (in_group(*(sibling(name, "local-a", created=NOW) for name in "ab")), False),
    "one-before-it-can-never-start": (
        in_group(sibling("a", "local-a"), sibling("b", least=999, job=gpu_job(low=999, replicas=999, high=999))),
        True,
    ),
    "of-another-namespace": (in_group(*(sibling(name, "local-a", key=("team-b", name)) for name in "ab")), True),
    "of-another-group": (in_group(*(claim(name, "local-a", group="x", group_max=9) for name in "ab")), True),
}


@pytest.mark.parametrize(("decided", "starts"), GROUPS.values(), ids=GROUPS.keys())
def test_how_many_of_a_group_run(decided: Plan, starts: bool) -> None:
    assert bool(done(decided)) == starts
    if not starts:
        assert why(decided) == (
            "GroupFull",
            "group 'sweep' runs 2 at once, as its maxParallel says: this one waits for its turn.",
        )
        assert decided.status.waiting_since is None


def test_those_that_wait_for_their_group_keep_nobody_waiting() -> None:
    waits = claim("b", least=4, group="sweep", group_max=1)
    others = cluster_capacity(claim("a", "elsewhere", group="sweep", group_max=1), waits)
    assert zone_of(look(gpu_job(), platform=ONE, cluster_capacity=others)) == "local-a"


# --- What else ---


def test_pods_whose_jobs_status_was_lost_keep_their_zone() -> None:
    job = gpu_job(low=2)
    pods = scheduled(job, 0, 1)
    for pod in pods:
        pod["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "local-b"}
    full = cluster_capacity(claim("x", "local-b", least=4), claim("y", least=4))
    decided = look(job, *pods, platform=ZONES, cluster_capacity=full)
    assert (zone_of(decided), done(decided)) == ("local-b", [])


def test_nothing_is_made_while_the_platform_cannot_be_read() -> None:
    job = placed_job(low=2)
    broken: Any = {"platform": None, "platform_problem": "schema is 9"}
    short = look(job, *scheduled(job, 0), **broken)
    assert (done(short), why(short)) == ([], ("PlatformUnreadable", "schema is 9"))
    enough = look(job, *scheduled(job, 0, 1), **broken)
    assert (done(enough), enough.status.state) == ([], "Running")
