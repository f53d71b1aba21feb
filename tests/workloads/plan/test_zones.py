"""Where a job goes: one table of stacks and jobs, and the sentence when nothing fits."""

from typing import Any

import pytest

from tests.workloads.builders import NOW, make_group, make_job, make_platform
from workloads.clock import stamp
from workloads.job.spec import Job
from workloads.job.status import Placed
from workloads.plan.zones import Market, NoZone, choose, needs, quantity, seat, survey, workers_per_machine
from workloads.platform import Platform, Taint, Volume

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
THREE = make_platform()


def zoned(**maxima: int) -> Platform:
    return make_platform(*(make_group(f"t4-{zone}", zone=zone, max=top) for zone, top in maxima.items()))


CASES: dict[str, tuple[dict[str, Any], Platform, Market, str]] = {
    "first-of-equals": ({}, THREE, Market(), "local-a"),
    "room-for-all": ({"replicas": 4}, zoned(a=2, b=4), Market(), "b"),
    "at-least-the-most-room": ({"replicas": 4}, zoned(a=2, b=3), Market(), "b"),
    "where-another-job-left-room": ({"replicas": 3}, zoned(a=4, b=4), Market(claimed={"a": 2}), "b"),
    "shares-a-zone-if-both-fit-but-prefers-the-empty-one": ({"replicas": 1}, zoned(a=4, b=4), Market(claimed={"a": 1}), "b"),
    "away-from-reclaims": ({}, zoned(a=4, b=4), Market(reclaims={"a": 2, "b": 1}), "b"),
    "room-before-reclaims": ({"replicas": 4}, zoned(a=4, b=2), Market(reclaims={"a": 5}), "a"),
    "the-cheaper": (
        {},
        make_platform(make_group("x", zone="a"), make_group("y", zone="b", on_demand_usd_per_hour=0.5)),
        Market(),
        "b",
    ),
    "reclaims-before-price": (
        {},
        make_platform(make_group("x", zone="a"), make_group("y", zone="b", on_demand_usd_per_hour=0.5)),
        Market(reclaims={"b": 1}),
        "a",
    ),
    "the-one-named": ({"placement": {"zone": "local-c"}}, THREE, Market(), "local-c"),
    "the-one-in-the-node-selector": (
        {"pod": {"nodeSelector": {"topology.kubernetes.io/zone": "local-b"}}},
        THREE,
        Market(),
        "local-b",
    ),
    "any-sums-the-zones-up": ({"replicas": 4, "low": 4, "placement": {"zone": "any"}}, zoned(a=2, b=2), Market(), "any"),
    "spot-costs-less": (
        {},
        make_platform(make_group("od", zone="a", capacity_type="on-demand"), make_group("spot", zone="b")),
        Market(),
        "b",
    ),
    "on-demand-on-wish": (
        {"placement": {"capacity": "on-demand"}},
        make_platform(make_group("od", zone="a", capacity_type="on-demand"), make_group("spot", zone="b")),
        Market(),
        "a",
    ),
    "gpu-type-in-any-case": (
        {"placement": {"gpuType": "a100"}},
        make_platform(make_group("t4", zone="a"), make_group("a100", zone="b", gpu_type="A100")),
        Market(),
        "b",
    ),
    "an-instance-type-by-upstreams-label": (
        {"pod": {"nodeSelector": {"beta.kubernetes.io/instance-type": "big"}}},
        make_platform(make_group("small", zone="a"), make_group("large", zone="b", instance_type="big")),
        Market(),
        "b",
    ),
    "labels-that-every-machine-has": ({"pod": {"nodeSelector": {"kubernetes.io/os": "linux"}}}, THREE, Market(), "local-a"),
}


@pytest.mark.parametrize(("job", "platform", "market", "zone"), CASES.values(), ids=CASES.keys())
def test_zone(job: dict[str, Any], platform: Platform, market: Market, zone: str) -> None:
    assert choose(Job.of(make_job(container=GPU, **job)), platform, market).zone == zone


REFUSED: dict[str, tuple[dict[str, Any], Platform, str]] = {
    "no-room": ({"low": 5, "high": 5, "replicas": 5}, zoned(a=4), "no zone has room for minReplicas 5: the most is 4 in a"),
    "gpu-type": ({"placement": {"gpuType": "H200"}}, THREE, "placement.gpuType 'H200' is not in the stack: choose one of T4"),
    "zone": (
        {"placement": {"zone": "nowhere"}},
        THREE,
        "placement.zone 'nowhere' is not in the stack, which has local-a, local-b",
    ),
    "too-many-gpus": ({"container": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}, THREE, "asks for 2 GPUs"),
    "too-much-memory": ({"container": {"resources": {"requests": {"memory": "9Gi"}}}}, THREE, "9 GiB of memory"),
    "an-empty-stack": ({}, make_platform(make_group(max=0)), "no node group fits"),
    "a-label-nobody-has": ({"pod": {"nodeSelector": {"team": "x"}}}, THREE, "no node group fits"),
}


@pytest.mark.parametrize(("job", "platform", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_no_zone(job: dict[str, Any], platform: Platform, message: str) -> None:
    with pytest.raises(NoZone, match=message.replace(".", r"\.")):
        choose(Job.of(make_job(**{"container": GPU, **job})), platform, Market())


def test_what_is_chosen_is_reported_and_asked_for() -> None:
    job = Job.of(make_job(container=GPU, placement={"capacity": "spot"}))
    taint, volume = Taint(key="k", value="v", effect="NoSchedule"), Volume(name="d", claim="c", mount_path="/d", read_only=False)
    platform = make_platform(make_group(taints=(taint,)), make_group("other", zone="local-b"), volumes=(volume,))
    placed = choose(job, platform, Market())
    assert placed == Placed(zone="local-a", capacity_type="spot", gpu_type="T4")
    found = seat(job, placed, platform)
    assert dict(found.selector) == {
        "topology.kubernetes.io/zone": "local-a",
        "ebb.dev/gpu-type": "T4",
        "ebb.dev/capacity-type": "spot",
    }
    assert (found.taints, found.volumes) == ((taint,), (volume,))


def test_a_job_in_another_namespace_gets_no_claims_of_the_platform() -> None:
    volume = Volume(name="d", claim="c", mount_path="/d", read_only=False)
    value = make_job(container=GPU)
    value["metadata"]["namespace"] = "team-b"
    platform = make_platform(volumes=(volume,))
    assert seat(Job.of(value), Placed(zone="local-a", gpu_type="T4"), platform).volumes == ()


def test_the_market_counts_what_unfinished_jobs_hold_and_recent_reclaims() -> None:
    def job(state: str, at: float, **rest: Any) -> Job:
        history = [{"at": stamp(at), "what": "reclaimed", "worker": 0}]
        conditions = [{"type": state, "status": "True"}]
        return Job.of(make_job(status={"placement": {"zone": "a"}, "history": history, "conditions": conditions}, **rest))

    jobs = [job("Running", NOW - 60, replicas=3), job("Succeeded", NOW - 3600), job("Running", NOW - 60, suspend=True)]
    market = survey(jobs, NOW)
    assert (dict(market.claimed), dict(market.reclaims)) == ({"a": 3}, {"a": 2})


@pytest.mark.parametrize(
    ("text", "number"), [("2", 2), (2, 2), ("500m", 0.5), ("1Gi", 2**30), ("1.5G", 1.5e9), ("512Mi", 2**29)], ids=str
)
def test_quantities(text: str | int, number: float) -> None:
    assert quantity(text) == number


def test_several_workers_share_a_large_machine() -> None:
    needed = needs(
        make_job(container={"resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": "3"}}})["spec"]["replicaSpecs"][
            "Worker"
        ]["template"]
    )
    assert workers_per_machine(needed, make_group(gpus_per_node=8, cpu=10)) == 3
