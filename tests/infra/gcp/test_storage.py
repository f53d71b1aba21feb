"""File systems and disks on Google Cloud."""

import json
from typing import Any

import pytest

from tests.infra.declared import Declared, Registered
from tests.infra.gcp.stacks import EXISTING, outputs, usual, world


def volumes(made: Declared) -> dict[str, Any]:
    return {one.name: one.inputs["spec"] for one in made.all("PersistentVolume")}


def test_data_and_output_are_folders_of_the_share_that_the_platform_prepares() -> None:
    found = volumes(usual())
    assert {name: spec.get("nfs") for name, spec in found.items()} == {
        "volume-data": {"server": "10.0.0.2", "path": "/ebb/data"},
        "volume-output": {"server": "10.0.0.2", "path": "/ebb/output"},
        "volume-efs": {"server": "10.0.0.2", "path": "/ebb"},
        "volume-etcd": None,
    }
    prepare = usual().one("Job", "prepare-storage").inputs["spec"]["template"]["spec"]["containers"][0]
    assert prepare["command"][-3:] == ["/mnt/efs/data", "/mnt/efs/output", "/mnt/efs/output/elastic-job"]
    assert "--owner=1000" in prepare["command"]


def test_only_the_subnet_and_the_clients_may_mount() -> None:
    made = world({"gcp.storage.clients": ["10.20.0.0/16"]})
    [rule] = made.one("gcp:filestore/instance:Instance").inputs["fileShares"]["nfsExportOptions"]
    assert rule == {"ipRanges": ["10.64.0.0/20", "10.20.0.0/16"], "accessMode": "READ_WRITE", "squashMode": "NO_ROOT_SQUASH"}


def test_a_researcher_is_told_how_to_mount() -> None:
    assert outputs()["mountData"].endswith(" 10.0.0.2:/ebb/data /mnt/data")
    assert outputs()["mountOutput"].startswith("sudo mkdir -p /mnt/output && sudo mount -t nfs ")


@pytest.mark.parametrize(
    ("data", "kept", "protected"), [("keep", True, False), ("protect", False, True), ("delete", False, False)]
)
def test_what_destroy_does_to_the_data(data: str, kept: bool, protected: bool) -> None:
    """The network stays with a file system that stays on it."""
    made = world({"gcp.storage.data": data})
    file, network = made.one("gcp:filestore/instance:Instance"), made.one("Network", "ebb-gcp")
    assert (file.retain_on_delete, file.protect, network.retain_on_delete) == (kept, protected, kept)
    others: list[Registered] = [one for one in made.resources if one not in (file, network)]
    assert not [one.key for one in others if one.retain_on_delete or one.protect]


def test_an_existing_file_system_is_mounted_and_no_other_made() -> None:
    made = world({"gcp.network": EXISTING, "gcp.storage.filestore": {"address": "10.9.0.2", "share": "old"}})
    assert not made.all("gcp:filestore/instance:Instance")
    assert volumes(made)["volume-data"]["nfs"] == {"server": "10.9.0.2", "path": "/old/data"}


def test_etcd_has_a_disk_in_the_managers_zone_with_snapshots() -> None:
    spec, disk = volumes(usual())["volume-etcd"], usual().one("Disk").inputs
    assert spec["csi"]["volumeHandle"] == "projects/my-project-123/zones/us-central1-a/disks/ebb-gcp-etcd"
    term = spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
    assert (term["values"], disk["zone"]) == (["us-central1-a"], "us-central1-a")
    assert usual().one("DiskResourcePolicyAttachment").inputs["disk"] == "ebb-gcp-etcd"


def test_a_manager_that_takes_only_hyperdisk_gets_such_disks() -> None:
    made = world({"manager.instanceType": "n4-standard-4"})
    assert made.one("NodePool", "manager").inputs["nodeConfig"]["diskType"] == "hyperdisk-balanced"
    assert made.one("Disk").inputs["type"] == "hyperdisk-balanced"
    assert usual().one("Disk").inputs["type"] == "pd-balanced"


def test_lustre_is_a_third_volume_in_its_zone() -> None:
    made = world({"gcp.storage.lustre": {"zone": "us-central1-b"}})
    csi = volumes(made)["volume-lustre"]["csi"]
    assert csi["volumeAttributes"] == {"ip": "10.1.0.2", "filesystem": "ebb"}
    assert csi["volumeHandle"] == "my-project-123/us-central1-b/ebb-gcp-lustre"
    assert made.one("Cluster").inputs["addonsConfig"]["lustreCsiDriverConfig"] == {"enabled": True}
    told = json.loads(made.one("ConfigMap", "ebb-platform").inputs["data"]["platform.json"])
    assert {"name": "lustre", "zone": "us-central1-b"}.items() <= told["volumes"][2].items()
    assert outputs({"gcp.storage.lustre": {"zone": "us-central1-b"}})["mountLustre"].endswith("10.1.0.2@tcp:/ebb /mnt/lustre")


def test_a_team_has_folders_of_its_own() -> None:
    made = world({"teams.vision": {"researchers": ["user:ada@lab.example"]}})
    data = volumes(made)["volume-team-vision-data"]
    assert (data["nfs"]["path"], data["claimRef"]["namespace"]) == ("/ebb/teams/vision/data", "ebb-team-vision")
