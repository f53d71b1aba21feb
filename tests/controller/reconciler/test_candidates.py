"""Where a job goes: one table of stacks and jobs, and the sentence when nothing fits."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.needs import Wish, needs, workers_per_machine
from ebb.api.platform import Platform, Taint, Team, Volume
from ebb.api.spec import Job
from ebb.api.status import Placed
from ebb.controller.reconciler.candidates import Candidate, best, candidate_of, elsewhere, pod_placement, sites
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_group, make_job, make_platform
from tests.controller.reconciler.scenes import GPU, claim, cluster_capacity, why, zone_of
from tests.looks import look

THREE = make_platform()


def zoned(**maxima: int) -> Platform:
    return make_platform(*(make_group(f"t4-{zone}", zone=zone, max=top) for zone, top in maxima.items()))


def placed(platform: Platform, others: ClusterCapacity | None = None, **job: Any) -> Plan:
    """The first look at a job with one GPU a worker."""
    return look(make_job(**{"container": GPU, **job}), platform=platform, cluster_capacity=others or ClusterCapacity())


def there(zone: str, wanted: int, **changes: Any) -> Claim:
    """Another job that is placed there."""
    return claim(f"other-{zone}", zone, wanted=wanted, **changes)


CASES: dict[str, tuple[dict[str, Any], Platform, ClusterCapacity, str]] = {
    "first-of-equals": ({}, THREE, ClusterCapacity(), "local-a"),
    "room-for-all": ({"replicas": 4}, zoned(a=2, b=4), ClusterCapacity(), "b"),
    "at-least-the-most-room": ({"replicas": 4}, zoned(a=2, b=3), ClusterCapacity(), "b"),
    "where-another-job-left-room": ({"replicas": 3}, zoned(a=4, b=4), cluster_capacity(there("a", 2)), "b"),
    "shares-a-zone-if-both-fit-but-prefers-the-empty-one": (
        {"replicas": 1},
        zoned(a=4, b=4),
        cluster_capacity(there("a", 1)),
        "b",
    ),
    "away-from-reclaims": ({}, zoned(a=4, b=4), cluster_capacity(there("a", 0, reclaims=2), there("b", 0, reclaims=1)), "b"),
    "room-before-reclaims": ({"replicas": 4}, zoned(a=4, b=2), cluster_capacity(there("a", 0, reclaims=5)), "a"),
    "the-cheaper": (
        {},
        make_platform(make_group("x", zone="a"), make_group("y", zone="b", on_demand_usd_per_hour=0.5)),
        ClusterCapacity(),
        "b",
    ),
    "reclaims-before-price": (
        {},
        make_platform(make_group("x", zone="a"), make_group("y", zone="b", on_demand_usd_per_hour=0.5)),
        cluster_capacity(there("b", 0, reclaims=1)),
        "a",
    ),
    "the-one-named": ({"placement": {"zone": "local-c"}}, THREE, ClusterCapacity(), "local-c"),
    "the-one-in-the-node-selector": (
        {"pod": {"nodeSelector": {"topology.kubernetes.io/zone": "local-b"}}},
        THREE,
        ClusterCapacity(),
        "local-b",
    ),
    "any-sums-the-zones-up": ({"replicas": 4, "low": 4, "placement": {"zone": "any"}}, zoned(a=2, b=2), ClusterCapacity(), "any"),
    "spot-costs-less": (
        {},
        make_platform(make_group("od", zone="a", capacity_type="on-demand"), make_group("spot", zone="b")),
        ClusterCapacity(),
        "b",
    ),
    "on-demand-on-wish": (
        {"placement": {"capacity": "on-demand"}},
        make_platform(make_group("od", zone="a", capacity_type="on-demand"), make_group("spot", zone="b")),
        ClusterCapacity(),
        "a",
    ),
    "gpu-type-in-any-case": (
        {"placement": {"gpuType": "a100"}},
        make_platform(make_group("t4", zone="a"), make_group("a100", zone="b", gpu_type="A100")),
        ClusterCapacity(),
        "b",
    ),
    "an-instance-type-by-upstreams-label": (
        {"pod": {"nodeSelector": {"beta.kubernetes.io/instance-type": "big"}}},
        make_platform(make_group("small", zone="a"), make_group("large", zone="b", instance_type="big")),
        ClusterCapacity(),
        "b",
    ),
    "labels-that-every-machine-has": (
        {"pod": {"nodeSelector": {"kubernetes.io/os": "linux"}}},
        THREE,
        ClusterCapacity(),
        "local-a",
    ),
}


@pytest.mark.parametrize(("job", "platform", "cluster_capacity", "zone"), CASES.values(), ids=CASES.keys())
def test_zone(job: dict[str, Any], platform: Platform, cluster_capacity: ClusterCapacity, zone: str) -> None:
    assert zone_of(placed(platform, cluster_capacity, **job)) == zone


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
    reason, said = why(placed(platform, **job))
    assert (reason, message in said) == ("NoZoneFits", True), said


def test_what_is_chosen_is_reported_and_asked_for() -> None:
    taint, volume = Taint(key="k", value="v", effect="NoSchedule"), Volume(name="d", claim="c", mount_path="/d", read_only=False)
    platform = make_platform(make_group(taints=(taint,)), make_group("other", zone="local-b"), volumes=(volume,))
    there = placed(platform, placement={"capacity": "spot"}).status.placement
    assert there == Placed(zone="local-a", capacity_type="spot", gpu_type="T4", since=stamp(NOW))
    assert there is not None
    found = pod_placement(Job.of(make_job(container=GPU, placement={"capacity": "spot"})), there, platform)
    assert dict(found.selector) == {
        "topology.kubernetes.io/zone": "local-a",
        "ebb.dev/gpu-type": "T4",
        "ebb.dev/capacity-type": "spot",
    }
    assert (found.taints, found.volumes) == ((taint,), (volume,))


def test_only_a_worker_that_no_gpu_type_holds_could_land_on_the_platforms_own_machine() -> None:
    job, platform = Job.of(make_job()), make_platform()
    assert pod_placement(job, Placed(zone="local-a", gpu_type=""), platform).open_to_all
    assert not pod_placement(job, Placed(zone="local-a", gpu_type="T4"), platform).open_to_all
    assert not pod_placement(job, Placed(zone=""), None).open_to_all


def test_a_job_in_another_namespace_gets_no_claims_of_the_platform() -> None:
    volume = Volume(name="d", claim="c", mount_path="/d", read_only=False)
    value = make_job(container=GPU)
    value["metadata"]["namespace"] = "team-b"
    platform = make_platform(volumes=(volume,))
    assert pod_placement(Job.of(value), Placed(zone="local-a", gpu_type="T4"), platform).volumes == ()


def test_a_job_of_a_team_gets_the_claims_of_the_team() -> None:
    everybodys, theirs = (Volume(name=name, claim=name, mount_path=f"/{name}", read_only=False) for name in ("all", "team"))
    value = make_job(container=GPU)
    value["metadata"]["namespace"] = "ebb-team-vision"
    team = Team(name="vision", namespace="ebb-team-vision", volumes=(theirs,))
    platform = make_platform(volumes=(everybodys,), teams=(team,))
    assert pod_placement(Job.of(value), Placed(zone="local-a", gpu_type="T4"), platform).volumes == (theirs,)


def test_several_workers_share_a_large_machine() -> None:
    needed = needs(
        make_job(container={"resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": "3"}}})["spec"]["replicaSpecs"][
            "Worker"
        ]["template"]
    )
    assert workers_per_machine(needed, make_group(gpus_per_node=8, cpu=10)) == 3


FSX = Volume(name="fsx", claim="ebb-fsx", mount_path="/mnt/fsx", read_only=False, zone="local-b")
DATA = Volume(name="data", claim="ebb-data", mount_path="/mnt/data", read_only=False)
TIED = make_platform(volumes=(DATA, FSX))
OWN = {"volumeMounts": [{"name": "own", "mountPath": "/mnt/fsx/"}], **GPU}
CLAIMED = {"pod": {"volumes": [{"name": "own", "persistentVolumeClaim": {"claimName": "ebb-fsx"}}]}, "container": OWN}


@pytest.mark.parametrize(
    ("job", "zone"),
    [
        pytest.param({}, "local-b", id="of-the-platform"),
        pytest.param({"container": OWN}, "local-a", id="something-else-is-mounted-there"),
        pytest.param(CLAIMED, "local-b", id="the-templates-own-claim"),
        pytest.param({"placement": {"zone": "any"}}, "any", id="any"),
        pytest.param({"placement": {"zone": "local-b"}}, "local-b", id="the-zone-named"),
    ],
)
def test_a_job_goes_where_its_volume_is(job: dict[str, Any], zone: str) -> None:
    assert zone_of(placed(TIED, **job)) == zone


def test_a_zone_without_the_volume_is_refused() -> None:
    assert why(placed(TIED, placement={"zone": "local-a"}))[1].startswith(
        "placement.zone 'local-a' contradicts volume 'fsx', which is in local-b alone: name that"
    )
    assert why(placed(TIED, container={"resources": {"limits": {"nvidia.com/gpu": 9}}}))[1].startswith(
        "no node group in local-b, where volume 'fsx' is, fits a worker that asks for 9 GPUs"
    )


def test_a_job_elsewhere_is_not_tied_to_claims_that_it_cannot_mount() -> None:
    value = make_job(container=GPU)
    value["metadata"]["namespace"] = "team-b"
    assert zone_of(look(value, platform=TIED)) == "local-a"


BOTH = make_platform(make_group("spot"), make_group("od", capacity_type="on-demand", spot_discount=0.0, notice_seconds=0))


def test_one_site_has_all_ways_of_buying_unless_one_is_asked_for() -> None:
    def site(capacity: str | None) -> Candidate:
        (found,) = sites(Wish.of(Job.of(make_job(container=GPU))), BOTH, capacity)
        return found

    both, spot, on_demand = site(None), site("spot"), site("on-demand")
    assert (both.title, both.room, round(both.usd_per_worker_hour, 3)) == ("local-a (spot, on-demand T4)", 8, 0.3)
    assert (spot.room, on_demand.usd_per_worker_hour) == (4, 1.0)
    assert (both.overlaps(spot), spot.overlaps(on_demand)) == (True, False)
    assert candidate_of(Wish.of(Job.of(make_job(container=GPU))), spot.placed(), BOTH) == spot


def test_spot_first_and_on_demand_where_there_is_no_spot() -> None:
    asked: dict[str, Any] = {"placement": {"capacity": "spot-then-on-demand"}}
    job, only = Job.of(make_job(container=GPU, **asked)), make_platform(make_group("od", capacity_type="on-demand"))
    for stack, capacity in ((BOTH, "spot"), (only, "on-demand")):
        there = placed(stack, **asked).status.placement
        assert there is not None
        assert there.capacity_type == pod_placement(job, there, stack).selector["ebb.dev/capacity-type"] == capacity


def test_flex_start_is_a_way_of_its_own() -> None:
    flex = make_group("flex", capacity_type="flex-start", spot_discount=0.0, notice_seconds=0, provision_seconds=3900)
    stack = make_platform(make_group("spot"), flex)
    there = placed(stack, placement={"capacity": "flex-start"}).status.placement
    assert there is not None
    found = pod_placement(Job.of(make_job(container=GPU, placement={"capacity": "flex-start"})), there, stack)
    assert (found.selector["ebb.dev/capacity-type"], found.grace_seconds) == ("flex-start", 30)
    (site,) = sites(Wish.of(Job.of(make_job(container=GPU))), stack, "flex-start")
    assert (site.patience_seconds, site.usd_per_worker_hour) == (3960, 1.0)


def test_dry_sites_come_last_and_the_longest_dry_first() -> None:
    found = sites(Wish.of(Job.of(make_job(container=GPU))), THREE, None)
    since = {"local-a": 30.0, "local-b": 20.0, "local-c": 25.0}
    assert best(found, 2, ClusterCapacity(), lambda site: since.get(site.zone)).zone == "local-b"
    del since["local-c"]
    assert best(found, 2, ClusterCapacity(), lambda site: since.get(site.zone)).zone == "local-c"


@pytest.mark.parametrize(
    ("selector", "stranger"),
    [
        pytest.param({}, False, id="held-to-nothing"),
        pytest.param({"topology.kubernetes.io/zone": "local-a"}, False, id="same-zone"),
        pytest.param({"topology.kubernetes.io/zone": "local-b"}, True, id="other-zone"),
        pytest.param({"topology.kubernetes.io/zone": "local-a", "ebb.dev/gpu-type": "A100"}, True, id="other-gpu"),
        pytest.param({"ebb.dev/capacity-type": "on-demand"}, True, id="bought-otherwise"),
    ],
)
def test_which_pods_are_held_to_another_place(selector: dict[str, str], stranger: bool) -> None:
    job = Job.of(make_job(container=GPU, placement={"capacity": "spot-then-on-demand"}))
    placed = Placed(zone="local-a", capacity_type="spot", gpu_type="T4")
    assert elsewhere(job, placed, {"spec": {"nodeSelector": selector}}) == stranger


def test_how_long_a_machine_may_take() -> None:
    (site,) = sites(Wish.of(Job.of(make_job(container=GPU))), make_platform(make_group(provision_seconds=33)), None)
    assert (site.patience_seconds, Candidate(zone="", gpu_type="", capacity_type="").patience_seconds) == (93, 360)
