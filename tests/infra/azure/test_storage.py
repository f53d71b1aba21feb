"""The share and etcd's disk: where they are, who may reach them, and what a destroy leaves."""

from typing import Any

import pytest

from infra.clouds.azure import names
from tests.infra.azure import stacks
from tests.infra.azure.world import inputs, world
from tests.infra.declared import Declared


def volumes(found: Declared) -> dict[str, Any]:
    return {one.inputs["metadata"]["name"]: one.inputs["spec"] for one in found.all("PersistentVolume")}


def test_a_premium_share_over_nfs_with_a_private_address_alone() -> None:
    found = world()
    account = inputs(found, "StorageAccount")
    assert (account["kind"], account["sku"]) == ("FileStorage", {"name": "Premium_ZRS"})
    assert (account["publicNetworkAccess"], account["allowSharedKeyAccess"]) == ("Disabled", False)
    assert account["accountName"] == names.world_wide("dev", stacks.SUBSCRIPTION)
    share = inputs(found, "FileShare")
    assert (share["enabledProtocols"], share["rootSquash"], share["shareQuota"]) == ("NFS", "NoRootSquash", 150)
    endpoint = inputs(found, "PrivateEndpoint")
    assert endpoint["privateLinkServiceConnections"] == [
        {"name": "files", "privateLinkServiceId": "StorageAccount-ebb-dev-data", "groupIds": ["file"]}
    ]
    assert inputs(found, "PrivateZone")["privateZoneName"] == "privatelink.file.core.windows.net"
    zone_group = inputs(found, "PrivateDnsZoneGroup")["privateDnsZoneConfigs"]
    assert zone_group == [{"name": "files", "privateDnsZoneId": "PrivateZone-ebb-dev-files"}]


def test_local_redundancy() -> None:
    found = world(stacks.stack(storage={"files": {"redundancy": "local"}}))
    assert inputs(found, "StorageAccount")["sku"] == {"name": "Premium_LRS"}


def test_names_of_accounts_are_what_azure_takes() -> None:
    name = names.world_wide("a-stack-with-a-long-name", stacks.SUBSCRIPTION)
    assert name.isalnum()
    assert name == name.lower()
    assert 3 <= len(name) <= 24
    assert name != names.world_wide("a-stack-with-a-long-name", stacks.SUBSCRIPTION.replace("0", "9"))


def test_data_and_output_are_folders_of_the_share() -> None:
    found = volumes(world())
    account = names.world_wide("dev", stacks.SUBSCRIPTION)
    assert set(found) == {"ebb-dev-data", "ebb-dev-output", "ebb-dev-efs", "ebb-dev-etcd"}
    data = found["ebb-dev-data"]
    assert data["csi"] == {
        "driver": "file.csi.azure.com",
        "volumeHandle": f"{account}#ebb#data",
        "volumeAttributes": {
            "protocol": "nfs",
            "storageAccount": account,
            "shareName": "ebb",
            "server": f"{account}.file.core.windows.net",
            "folderName": "data",
            "mountPermissions": "0",
            "fsGroupChangePolicy": "None",
        },
    }
    assert data["mountOptions"] == ["nconnect=4", "noresvport"]
    assert data["capacity"] == {"storage": "100Gi"}
    assert "folderName" not in found["ebb-dev-efs"]["csi"]["volumeAttributes"]
    handles = [one["csi"]["volumeHandle"] for one in found.values()]
    assert len(set(handles)) == len(handles), "the kubelet takes two volumes of one handle for one"


def test_the_folders_are_made_before_anything_mounts_them() -> None:
    """The driver fails on a folder that is not there."""
    found = world()
    prepare = found.one("Job", "prepare-storage")
    mounted = {one["persistentVolumeClaim"]["claimName"] for one in prepare.inputs["spec"]["template"]["spec"]["volumes"]}
    assert mounted == {"efs-claim"}, "not the folders, which it is to make"
    for name in ("prepare-digits", "deployment-ebb-controller"):
        later = [one for one in found.resources if one.name == name]
        assert all(prepare.key in found.before(one) for one in later), name


def test_etcds_disk_is_in_the_managers_zone_and_may_be_attached_before_it_is() -> None:
    found = world()
    disk = inputs(found, "Disk")
    assert (disk["zones"], disk["sku"], disk["diskSizeGB"]) == (["1"], {"name": "Premium_LRS"}, 16)
    assert disk["publicNetworkAccess"] == "Disabled"
    volume = volumes(found)["ebb-dev-etcd"]
    assert volume["csi"]["volumeHandle"] == "Disk-ebb-dev-etcd"
    [term] = volume["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["westus2-1"]}]
    allowed = found.one("RoleAssignment", "ebb-dev-etcd-disk").key
    assert allowed in found.before(found.one("StatefulSet", "etcd"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param("keep", (True, False), id="keep"),
        pytest.param("protect", (False, True), id="protect"),
        pytest.param("delete", (False, False), id="delete"),
    ],
)
def test_what_a_destroy_does_to_the_data(data: str, expected: tuple[bool, bool]) -> None:
    """The group too: a group that goes takes all that is in it along."""
    found = world(stacks.stack(storage={"files": {}, "data": data}))
    for kind in ("StorageAccount", "FileShare"):
        one = found.one(kind)
        assert (one.retain_on_delete, one.protect) == expected, kind
        assert one.inputs["resourceGroupName"] == "ebb-dev-data"
    group = found.one("ResourceGroup", "ebb-dev-data")
    assert (group.retain_on_delete, group.protect) == expected


def test_what_is_not_data_goes_and_is_in_another_group() -> None:
    found = world()
    others = [one for one in found.resources if one.type.startswith("azure-native:") and not one.name.endswith("-data")]
    assert {one.inputs["resourceGroupName"] for one in others if "resourceGroupName" in one.inputs} == {"ebb-dev"}
    assert not any(one.retain_on_delete or one.protect for one in others)


def test_a_share_that_was_kept_is_taken_back() -> None:
    found = world(stacks.stack(storage={"files": {"shareId": stacks.SHARE}}))
    assert found.all("StorageAccount") == found.all("FileShare") == []
    attributes = volumes(found)["ebb-dev-data"]["csi"]["volumeAttributes"]
    assert (attributes["storageAccount"], attributes["shareName"]) == ("ebbold1a2b3c4d", "ebb")
    endpoint = inputs(found, "PrivateEndpoint")["privateLinkServiceConnections"][0]
    assert endpoint["privateLinkServiceId"] == stacks.ACCOUNT, "its address went with the stack that had it"


def test_the_outputs_say_how_to_mount_from_elsewhere() -> None:
    told = world().returned
    account = names.world_wide("dev", stacks.SUBSCRIPTION)
    assert told["mountData"] == (
        "sudo mkdir -p /mnt/data && sudo mount -t nfs -o vers=4,minorversion=1,sec=sys,nconnect=4,noresvport "
        f"{account}.file.core.windows.net:/{account}/ebb/data /mnt/data"
    )
    assert told["mountHosts"] == f"10.80.255.228 {account}.file.core.windows.net"
    assert told["researcherCommand"] == (
        f"az aks get-credentials --subscription {stacks.SUBSCRIPTION} --resource-group ebb-dev --name ebb-dev "
        "&& kubelogin convert-kubeconfig -l azurecli"
    )
