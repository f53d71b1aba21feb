"""The mock of Google Cloud: its table agrees with the installed SDK, and what replaces is pinned, for every type."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from testing.pulumi.mocks import wheel
from testing.pulumi.mocks.gcp import Gcp
from testing.pulumi.mocks.package import UNKNOWN, Asked, MockError
from testing.pulumi.mocks.rows import Row
from testing.pulumi.mocks.tables.gcp import ROWS
from testing.pulumi.mocks.wheel import Property

rows = pytest.mark.parametrize("row", ROWS, ids=[row.token for row in ROWS])
POOL, SUBNET, DISK = "gcp:container/nodePool:NodePool", "gcp:compute/subnetwork:Subnetwork", "gcp:compute/disk:Disk"


def provider() -> Gcp:
    made = Gcp()
    made.configure({"project": "p", "region": "us-central1", "defaultLabels": '{"ebb-stack": "x"}'})
    return made


def asked(token: str) -> Asked:
    return Asked(f"urn:pulumi:x::ebb::{token}::one", token, "one")


def inner(found: Property) -> Property:
    while found.item is not None:
        found = found.item
    return found


def exists(row: Row, path: str) -> bool:
    known: Mapping[str, Property] = row.properties
    for part in path.split("."):
        if part not in known:
            return False
        found = inner(known[part])
        known = wheel.fields_of(found.fields) if found.fields else {}
    return True


@rows
def test_the_table_names_nothing_that_does_not_exist(row: Row) -> None:
    named = (*row.replaces, *row.updated, *row.sets, *row.allowed, *filter(None, [row.autoname]))
    assert [path for path in named if not exists(row, path)] == []
    assert set(row.outputs) <= set(wheel.outputs_of(row.token))


def replaced(row: Row, properties: Mapping[str, Property], path: str = "") -> Iterator[str]:
    for name, found in properties.items():
        full = f"{path}.{name}".lstrip(".")
        if row.replaced_by(full):
            yield full
        elif inner(found).fields is not None:
            yield from replaced(row, wheel.fields_of(inner(found).fields), full)  # type: ignore[arg-type]


@rows
def test_what_replaces_is_what_the_row_says_and_no_more(row: Row) -> None:
    """The outermost property first met: a path that lies within another one of the row would be said twice."""
    assert sorted(replaced(row, row.properties)) == sorted(row.replaces)


def pool(**node: Any) -> dict[str, Any]:
    return {
        "cluster": "c", "location": "us-central1", "nodeLocations": ["us-central1-a"], "name": "one",
        "nodeConfig": {"machineType": "n1-standard-4", "spot": True, "taints": [], **node},
        "autoscaling": {"minNodeCount": 0, "maxNodeCount": 2}, "initialNodeCount": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "replaces"),
    [
        pytest.param({}, {"autoscaling": {"minNodeCount": 0, "maxNodeCount": 3}}, (), id="max"),
        pytest.param({}, {"autoscaling": {"minNodeCount": 1, "maxNodeCount": 2}}, (), id="min"),
        pytest.param({}, {"initialNodeCount": 1}, ("initialNodeCount",), id="the first size"),
        pytest.param({}, {"nodeLocations": ["us-central1-b"]}, (), id="another zone moves machines"),
        pytest.param({}, {"nodeConfig": pool(machineType="n1-standard-8")["nodeConfig"]}, (), id="machine type"),
        pytest.param({}, {"nodeConfig": pool(spot=False)["nodeConfig"]}, ("nodeConfig.spot",), id="spot"),
        pytest.param({}, {"nodeConfig": pool(labels={"a": "b"})["nodeConfig"]}, (), id="labels"),
        pytest.param(
            {}, {"nodeConfig": pool(guestAccelerators=[{"type": "t", "count": 1}])["nodeConfig"]},
            ("nodeConfig.guestAccelerators",), id="a GPU comes",
        ),
        pytest.param({}, {"placementPolicy": {"type": "COMPACT"}}, ("placementPolicy",), id="placement"),
    ],
)  # fmt: skip
def test_what_replaces_a_node_pool(old: dict[str, Any], new: dict[str, Any], replaces: tuple[str, ...]) -> None:
    found = provider().diff(asked(POOL), pool() | old, {}, pool() | new)
    assert found.changes
    assert found.replaces == replaces


def test_a_block_that_goes_takes_along_what_is_in_it() -> None:
    row = Row("gcp:container/nodePool:NodePool", replaces=("networkConfig.podRange",))
    assert not row.replaced_by("networkConfig")
    assert not row.replaced_by("networkConfig", {"enablePrivateNodes": True})
    assert row.replaced_by("networkConfig", {"podRange": "x"})
    assert Row(row.token, replaces=("nodeConfig",), updated=("nodeConfig.labels",)).replaced_by("nodeConfig.labels") is False


@pytest.mark.parametrize(
    ("token", "old", "new", "replaces"),
    [
        pytest.param(SUBNET, {"ipCidrRange": "10.0.0.0/20"}, {"ipCidrRange": "10.0.0.0/16"}, (), id="a subnet grows"),
        pytest.param(SUBNET, {"ipCidrRange": "10.0.0.0/16"}, {"ipCidrRange": "10.0.0.0/20"}, ("ipCidrRange",), id="or not"),
        pytest.param(SUBNET, {"ipCidrRange": "10.0.0.0/20"}, {"ipCidrRange": UNKNOWN}, (), id="a preview does not know"),
        pytest.param(DISK, {"size": 10}, {"size": 20}, (), id="a disk grows"),
        pytest.param(DISK, {"size": 20}, {"size": 10}, ("size",), id="a disk does not shrink"),
    ],
)
def test_what_hangs_on_values(token: str, old: dict[str, Any], new: dict[str, Any], replaces: tuple[str, ...]) -> None:
    assert provider().diff(asked(token), old, {}, new).replaces == replaces


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"zone": "us-central1-a"}, "zone: is not a property here", id="unknown"),
        pytest.param({"nodeConfig": {"spots": True}}, "nodeConfig.spots: is not a property here", id="unknown, inside"),
        pytest.param({"cluster": None}, "cluster: is missing", id="missing"),
        pytest.param({"autoscaling": {"locationPolicy": "SOME"}}, "must be one of BALANCED, ANY", id="not allowed"),
        pytest.param({"nodeCount": "many"}, "must be an integer", id="kind"),
    ],
)
def test_what_the_sdk_does_not_have_is_refused(change: dict[str, Any], said: str) -> None:
    inputs = {key: value for key, value in (pool() | change).items() if value is not None}
    _, failures = provider().check(asked(POOL), inputs, {}, b"")
    assert [said in f"{one.path}: {one.reason}" for one in failures] == [True]


def test_labels_and_places_of_the_provider_are_in_the_outputs() -> None:
    identity, outputs = provider().create(asked(DISK), {"name": "d", "zone": "z", "labels": {"a": "b"}}, preview=False)
    assert identity == "projects/p/zones/z/disks/d"
    assert outputs["pulumiLabels"] == outputs["effectiveLabels"] == {"ebb-stack": "x", "a": "b"}
    assert outputs["project"] == "p"


def test_a_name_is_made_up_and_stays() -> None:
    one = provider()
    first, _ = one.check(asked(DISK), {"zone": "z"}, {}, b"")
    again, _ = one.check(asked(DISK), {"zone": "z"}, first, b"")
    assert first["name"] == again["name"] != "one"
    assert one.diff(asked(DISK), first, {}, first | {"zone": "y"}).delete_first is False
    given, _ = one.check(asked(DISK), {"zone": "z", "name": "mine"}, {}, b"")
    assert one.diff(asked(DISK), given, {}, given | {"zone": "y"}).delete_first is True


def test_a_provider_says_where_it_is() -> None:
    assert [one.path for one in Gcp().check_config({})] == ["project", "region"]


def test_what_is_not_reviewed_is_refused() -> None:
    with pytest.raises(MockError, match="is not in the reviewed tables"):
        provider().create(asked("gcp:compute/instance:Instance"), {}, preview=False)
    with pytest.raises(MockError, match="looks up gcp:compute/getZones:getZones while it runs"):
        provider().invoke("gcp:compute/getZones:getZones", {})
