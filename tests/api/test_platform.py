"""ConfigMap ebb-platform: what is read, and what every damage says."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from ebb.api.platform import Network, NodeGroup, Platform, PlatformError, Sidecar, Taint, Volume, parse
from tests.cli.world import TAINTS, node_group, platform_json, platform_map


def platform(*extra: dict[str, Any]) -> Platform:
    return parse(platform_map(*extra)["data"])


def test_reads_everything() -> None:
    found = platform()
    assert (found.cloud, found.region, found.stack) == ("local", "local", "local")
    assert found.trainer_image == "localhost/ebb/trainer:abc"
    assert found.volumes[2] == Volume(
        name="environment", claim="ebb-environment", mount_path="/opt/ebb/site-packages", read_only=True
    )
    assert found.node_groups[1] == NodeGroup(
        name="spot-t4-local-a", zone="local-a", instance_type="g4dn.xlarge", gpu_type="T4", gpus_per_node=1, cpu=4, memory_gib=16,
        capacity_type="spot", min=0, max=4, taints=tuple(Taint(**taint) for taint in TAINTS), labels={"ebb.dev/gpu-type": "T4"},
        on_demand_usd_per_hour=0.526, spot_discount=0.7, notice_seconds=120,
    )  # fmt: skip


def test_a_volume_may_be_in_one_zone_and_a_machine_may_take_its_time() -> None:
    value = platform_json(node_group("slow", "local-a", provisionSeconds=900))
    value["volumes"][0]["zone"] = "local-b"
    found = parse({"schema": "1", "platform.json": json.dumps(value)})
    assert [volume.zone for volume in found.volumes] == ["local-b", "", ""]
    assert [group.provision_seconds for group in found.node_groups] == [300, 300, 300, 300, 900]


def test_a_group_may_name_a_trainer_image_of_its_own() -> None:
    groups = platform(node_group("old", "local-a", trainerImage="ebb/trainer:cuda12")).node_groups
    assert {group.name: group.trainer_image for group in groups if group.trainer_image} == {"old": "ebb/trainer:cuda12"}


def test_a_group_may_have_a_fast_network() -> None:
    said: dict[str, Any] = {"name": "EFA", "resources": {"vpc.amazonaws.com/efa": "4"}, "environment": {"FI_PROVIDER": "efa"}}
    found = {group.name: group.network for group in platform(node_group("large", "local-a", network=said)).node_groups}
    assert {name: network for name, network in found.items() if network} == {"large": Network(**said)}


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("EFA", "nodeGroups[4].network must be an object, found 'EFA'"),
        ({"resources": {}, "environment": {}}, "nodeGroups[4].network.name is missing"),
        ({"name": "EFA", "claim": 8}, "nodeGroups[4].network.claim must be text, found 8"),
        ({"name": "EFA", "resources": {"a": 4}}, "nodeGroups[4].network.resources.a must be text, found 4"),
    ],
)
def test_a_network_that_cannot_be_understood_is_named(said: object, complaint: str) -> None:
    with pytest.raises(PlatformError, match=re.escape(complaint)):
        platform(node_group("large", "local-a", network=said))


def with_sidecar(said: object) -> Platform:
    value = platform_json()
    value["volumes"][2]["sidecar"] = said
    return parse({"schema": "1", "platform.json": json.dumps(value)})


def test_a_volume_may_be_served_by_a_container_that_the_cloud_adds() -> None:
    found = with_sidecar({"annotations": {"cloud/fuse": "true"}, "cpu": 0.25, "memoryGiB": 1})
    assert found.sidecars_in("elastic-job") == (Sidecar(annotations=(("cloud/fuse", "true"),), cpu=0.25, memory_gib=1.0),)
    assert platform().sidecars_in("elastic-job") == ()


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("fuse", "volumes[2].sidecar must be an object, found 'fuse'"),
        ({"annotations": {"a": True}, "cpu": 1, "memoryGiB": 1}, "volumes[2].sidecar.annotations.a must be text, found True"),
        ({"annotations": {}, "memoryGiB": 1}, "volumes[2].sidecar.cpu is missing"),
        ({"annotations": {}, "cpu": 1, "memoryGiB": "1Gi"}, "volumes[2].sidecar.memoryGiB must be a number of at least 0"),
    ],
)
def test_a_sidecar_that_cannot_be_understood_is_named(said: object, complaint: str) -> None:
    with pytest.raises(PlatformError, match=re.escape(complaint)):
        with_sidecar(said)


def test_an_older_etcd_is_there_if_the_stack_says_so() -> None:
    value = platform_json() | {"legacyEtcdEndpoint": "old:2379"}
    assert (platform().legacy_etcd_endpoint, parse(changed_to(value)).legacy_etcd_endpoint) == ("", "old:2379")


def changed_to(value: dict[str, Any]) -> dict[str, str]:
    return {"schema": "1", "platform.json": json.dumps(value)}


def test_prices_follow_the_capacity_type() -> None:
    group = platform().node_groups[1]
    assert group.usd_per_hour == pytest.approx(0.1578)
    assert platform().node_groups[0].usd_per_hour == 0.526


def test_gpu_groups_are_those_with_gpus_and_room() -> None:
    found = platform(node_group("full", "local-a", max=0), node_group("big", "local-b", gpuType="A100"))
    assert [group.name for group in found.gpu_groups()] == ["spot-t4-local-a", "spot-t4-local-b", "spot-t4-local-c", "big"]
    assert [group.name for group in found.gpu_groups(gpu_type="t4", zone="local-b")] == ["spot-t4-local-b"]
    assert found.gpu_groups(capacity_type="on-demand") == ()


def test_keys_of_a_newer_stack_are_ignored() -> None:
    value = platform_json() | {"quota": 3}
    assert parse({"schema": "1", "platform.json": json.dumps(value)}) == platform()


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, str]:
    value = platform_json()
    change(value)
    return {"schema": "1", "platform.json": json.dumps(value)}


DAMAGE = {
    "no schema": (
        {},
        "schema is None, this version of Ebb reads '1': bring `ebb` and the stack to one version, then run `pulumi up`.",
    ),
    "newer schema": (
        {"schema": "2"},
        "schema is '2', this version of Ebb reads '1': bring `ebb` and the stack to one version, then run `pulumi up`.",
    ),
    "no json": ({"schema": "1"}, "key platform.json is missing: run `pulumi up`."),
    "torn json": (
        {"schema": "1", "platform.json": "{"},
        "platform.json is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)): run "
        "`pulumi up`.",
    ),
    "a list": (
        {"schema": "1", "platform.json": "[]"},
        "platform.json must be an object, found []: run `pulumi up` with this version of Ebb.",
    ),
    "missing key": (
        changed(lambda value: value["nodeGroups"][2].pop("zone")),
        "nodeGroups[2].zone is missing: run `pulumi up` with this version of Ebb.",
    ),
    "text for a number": (
        changed(lambda value: value["nodeGroups"][0].update(cpu="four")),
        "nodeGroups[0].cpu must be a number of at least 0, found 'four': run `pulumi up` with this version of Ebb.",
    ),
    "a time that is none": (
        changed(lambda value: value["nodeGroups"][0].update(provisionSeconds=-1)),
        "nodeGroups[0].provisionSeconds must be a whole number of at least 0, found -1: run `pulumi up` with this version of "
        "Ebb.",
    ),
    "half a machine": (
        changed(lambda value: value["nodeGroups"][0].update(max=1.5)),
        "nodeGroups[0].max must be a whole number of at least 0, found 1.5: run `pulumi up` with this version of Ebb.",
    ),
    "unknown capacity": (
        changed(lambda value: value["nodeGroups"][1].update(capacityType="reserved")),
        "nodeGroups[1].capacityType must be 'spot' or 'on-demand' or 'capacity-block' or 'flex-start', found 'reserved': run "
        "`pulumi up` with this version of Ebb.",
    ),
    "discount in per cent": (
        changed(lambda value: value["nodeGroups"][1].update(spotDiscount=70)),
        "nodeGroups[1].spotDiscount must be a fraction from 0 to 1, found 70.0: run `pulumi up` with this version of Ebb.",
    ),
    "taint without key": (
        changed(lambda value: value["nodeGroups"][1]["taints"][0].pop("key")),
        "nodeGroups[1].taints[0].key is missing: run `pulumi up` with this version of Ebb.",
    ),
    "read only": (
        changed(lambda value: value["volumes"][0].update(readOnly="no")),
        "volumes[0].readOnly must be true or false, found 'no': run `pulumi up` with this version of Ebb.",
    ),
}


@pytest.mark.parametrize(("data", "sentence"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named(data: dict[str, str], sentence: str) -> None:
    with pytest.raises(PlatformError) as caught:
        parse(data)
    assert str(caught.value) == f"ConfigMap ebb-system/ebb-platform: {sentence}"
