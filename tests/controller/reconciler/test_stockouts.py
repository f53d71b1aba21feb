"""When a zone counts as dry, and what is remembered of it."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.platform import Platform
from ebb.api.spec import Job
from ebb.controller.reconciler.candidates import Candidate
from ebb.controller.reconciler.capacity import GroupState, Supply
from ebb.controller.reconciler.stockouts import Kind, Stockout, find, kind_of, lasting, remember, seen, since
from ebb.controller.reconciler.summary import here
from ebb.controller.reconciler.types import JobView, Observed, PlanBuilder
from tests.builders import NOW, make_group, make_platform
from tests.controller.reconciler.scenes import (
    AT_MAX,
    BACKOFF,
    backing_off,
    cluster_capacity,
    dry,
    pending,
    placed_job,
    said,
    scheduled,
)

Object = dict[str, Any]

JOB = placed_job(low=2)
SLOW = make_platform(make_group("spot-t4-local-a"))  # 300 s and a minute
QUICK = make_platform(*(make_group(f"spot-t4-local-{zone}", zone=f"local-{zone}", provision_seconds=10) for zone in "ab"))
QUOTA = "MaxSpotInstanceCountExceeded: Max spot instance count exceeded"
FULL = "max node group size reached: NodePool spot-t4-local-a has all the Nodes that its limits allow"
GONE = "zone local-a is out of capacity: `python -m devcluster restore local-a` brings it back"


def view(*pods: Object, job: Object = JOB, platform: Platform | None = SLOW, now: float = NOW, **observed: Any) -> JobView:
    return JobView.of(Job.of(job), Observed(pods=pods, platform=platform, **observed), now)


def site(seen: JobView) -> Candidate:
    return here(seen, seen.job.status)


def found(*pods: Object, **rest: Any) -> Stockout | None:
    at = view(*pods, **rest)
    return find(at, site(at))


LATE = Stockout(kind=Kind.DRY, message="no machine came for 70 s", sure=True)
FINDS: dict[str, tuple[Stockout | None, Stockout | None]] = {
    "nothing-said": (found(*pending(JOB, 0, 1)), None),
    "group-backs-off": (
        found(*pending(JOB, 0, 1), supply=backing_off("spot-t4-local-a", message=GONE)),
        Stockout(kind=Kind.DRY, message=GONE, sure=True),
    ),
    "group-backs-off-without-words": (
        found(*pending(JOB, 0, 1), supply=backing_off("spot-t4-local-a")),
        Stockout(kind=Kind.DRY, message="the last attempts to get machines failed", sure=False),
    ),
    "quota": (
        found(*pending(JOB, 0, 1), supply=backing_off("spot-t4-local-a", message=QUOTA)),
        Stockout(kind=Kind.QUOTA, message=QUOTA, sure=True),
    ),
    "group-is-full": (
        found(*pending(JOB, 0, 1), supply=backing_off("spot-t4-local-a", message=FULL)),
        Stockout(kind=Kind.FULL, message=FULL, sure=False),
    ),
    "other-group-backs-off": (found(*pending(JOB, 0, 1), supply=backing_off("spot-t4-local-b", message=GONE)), None),
    "the-scheduler-has-not-looked-yet": (
        found(*({**pod, "status": {**pod["status"], "conditions": []}} for pod in pending(JOB, 0, 1)),
              supply=backing_off("spot-t4-local-a", message=GONE)),
        None,
    ),
    "pods-refused": (found(*pending(JOB, 0, 1), supply=said(BACKOFF, 1)), Stockout(kind=Kind.DRY, message=BACKOFF, sure=False)),
    "at-the-maximum": (found(*pending(JOB, 0, 1), supply=said(AT_MAX, 0)), Stockout(kind=Kind.FULL, message=AT_MAX, sure=False)),
    "refused-for-what-the-cloud-cannot-help": (
        found(*pending(JOB, 0, 1), supply=said("pod didn't trigger scale-up: 3 Insufficient cpu", 0)),
        None,
    ),
    "machines-are-coming": (found(*pending(JOB, 0, 1), supply=said("pod triggered scale-up", 0, 1, triggered=True)), None),
    "one-is-enough-to-be-short": (
        found(*scheduled(JOB, 0), *pending(JOB, 1), supply=said(BACKOFF, 1)),
        Stockout(kind=Kind.DRY, message=BACKOFF, sure=False),
    ),
    "enough-have-machines": (found(*scheduled(JOB, 0, 1), *pending(JOB, 2), supply=said(BACKOFF, 2)), None),
    "none-came-in-time": (found(*pending(JOB, 0, 1), platform=QUICK, now=NOW + 20), LATE),
    "not-late-yet": (found(*pending(JOB, 0, 1), platform=QUICK, now=NOW + 19), None),
    "late-but-asked-for-again": (
        found(*pending(JOB, 0, 1), platform=QUICK, now=NOW + 20, supply=said("x", 0, triggered=True)),
        None,
    ),
    "late-but-one-just-came": (found(*scheduled(JOB, 0, at=NOW - 1), *pending(JOB, 1), platform=QUICK, now=NOW + 20), None),
    "late-with-the-autoscalers-words": (
        found(*pending(JOB, 0, 1), platform=QUICK, now=NOW + 61, supply=said("pod triggered scale-up", 0, triggered=True)),
        replace(LATE, message="no machine came for 70 s (pod triggered scale-up)"),
    ),
    "without-a-stack-nobody-knows-what-is-late": (found(*pending(JOB, 0, 1), platform=None, now=NOW + 9999), None),
}  # fmt: skip


@pytest.mark.parametrize(("stockout", "expected"), FINDS.values(), ids=FINDS.keys())
def test_what_counts_as_dry(stockout: Stockout | None, expected: Stockout | None) -> None:
    assert stockout == expected


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (QUOTA, Kind.QUOTA),
        ("googleapi: Error 403: Quota 'PREEMPTIBLE_NVIDIA_T4_GPUS' exceeded, QUOTA_EXCEEDED", Kind.QUOTA),
        ("VcpuLimitExceeded: You have requested more vCPU capacity", Kind.QUOTA),
        ("InsufficientInstanceCapacity", Kind.DRY),
        (GONE, Kind.DRY),
        (f"{AT_MAX}, 1 in backoff after failed scale-up", Kind.DRY),
        (AT_MAX, Kind.FULL),
        ("pod didn't trigger scale-up: 1 Insufficient cpu", None),
    ],
)
def test_words_of_clouds(words: str, kind: Kind | None) -> None:
    assert kind_of(words) is kind


def noted(entries: tuple[Any, ...], stockout: Stockout | None, *pods: Object, now: float = NOW) -> PlanBuilder:
    at = view(*(pods or pending(JOB, 0, 1)), now=now)
    draft = PlanBuilder(replace(at.job.status, dry=entries))
    remember(at, draft, site(at), stockout)
    return draft


OUT = Stockout(kind=Kind.DRY, message=BACKOFF, sure=False)


def test_a_drought_is_written_down_once_and_confirmed_every_four_minutes() -> None:
    first = noted((), OUT).status.dry
    assert first == (dry("local-a", at=NOW),)
    assert noted(first, OUT, now=NOW + 239).status.dry is first
    assert noted(first, OUT, now=NOW + 240).status.dry == (dry("local-a", at=NOW + 240, since=NOW),)
    assert noted(first, OUT, now=NOW + 480).status.dry == (dry("local-a", at=NOW + 480),)


def test_other_words_are_written_down_at_once() -> None:
    quota = Stockout(kind=Kind.QUOTA, message=QUOTA, sure=True)
    assert noted((dry("local-a", at=NOW - 5),), quota).status.dry == (dry("local-a", at=NOW, since=NOW - 5, message=QUOTA),)


def test_droughts_are_forgotten_when_old_or_disproved() -> None:
    entries = (dry("local-b", at=NOW - 1800), dry("local-c", at=NOW - 600, message=AT_MAX), dry("local-c", at=NOW - 599))
    assert noted(entries, None).status.dry == entries[2:]
    here_and_there = (dry("local-a", at=NOW - 50), dry("local-b", at=NOW - 50))
    assert noted(here_and_there, None, *scheduled(JOB, 0, at=NOW - 60)).status.dry == here_and_there
    assert noted(here_and_there, None, *scheduled(JOB, 0, at=NOW - 40)).status.dry == here_and_there[1:]


def test_only_the_latest_six_are_kept() -> None:
    entries = tuple(dry(f"zone-{number}", at=NOW - number) for number in range(9))
    assert {entry.zone for entry in noted(entries, OUT).status.dry} == {"local-a", *(f"zone-{number}" for number in range(5))}


def test_a_drought_must_last_unless_the_cloud_says_it() -> None:
    at = view(*pending(JOB, 0, 1))
    for begun, sure, wakes in ((NOW - 29, False, [NOW + 1]), (NOW - 30, True, []), (NOW, True, [])):
        draft = PlanBuilder(replace(at.job.status, dry=(dry("local-a", at=NOW, since=begun),)))
        stockout = replace(OUT, sure=begun == NOW)
        assert (lasting(at, draft, site(at), stockout), draft.wakes) == (sure, wakes)


def test_how_long_a_job_waits_is_told_to_the_queue() -> None:
    wakes: list[float] = []
    at = view(*pending(JOB, 0, 1), platform=QUICK)
    find(at, site(at), wakes)
    assert wakes == [NOW + 20]


def last_seen(
    own: tuple[Any, ...] = (), others: tuple[Any, ...] = (), supply: Supply | None = None, **group: Any
) -> float | None:
    platform = make_platform(make_group("one"), make_group("two", **group))
    job = placed_job(low=2, capacity="spot, on-demand" if group else "spot")
    at = view(job=job, platform=platform, cluster_capacity=cluster_capacity(dried=others), supply=supply or Supply())
    return seen(at, replace(at.job.status, dry=own), site(at))


def test_what_any_job_found_dry_is_dry() -> None:
    assert last_seen() is None
    assert last_seen(own=(dry("local-a", at=NOW - 70),), others=(dry("local-a", at=NOW - 50),)) == NOW - 50
    assert last_seen(own=(dry("local-b"),)) is None
    assert last_seen(others=(dry("local-a", at=NOW - 700, message=AT_MAX),)) is None
    assert last_seen(others=(dry("local-a", at=NOW - 500, message=AT_MAX),)) == NOW - 500


def test_a_site_is_dry_when_every_way_of_buying_is() -> None:
    spot, on_demand = dry("local-a", at=NOW - 70), dry("local-a", at=NOW - 50, capacity="on-demand")
    assert last_seen(own=(spot,), capacity_type="on-demand") is None
    assert last_seen(own=(spot, on_demand), capacity_type="on-demand") == NOW - 70


def test_a_site_is_dry_while_all_its_groups_back_off() -> None:
    assert last_seen(supply=backing_off("one", "two")) == NOW
    assert last_seen(supply=Supply(groups={"one": GroupState(backing_off=True), "two": GroupState()})) is None


def test_since_when_it_is_dry_here() -> None:
    at = view(*pending(JOB, 0))
    status = replace(at.job.status, dry=(dry("local-b"), dry("local-a", since=NOW - 90)))
    assert (since(status, site(at)), since(at.job.status, site(at))) == (stamp(NOW - 90), "")
