"""The control plane: who reaches it, who may do what, and what AKS may not do by itself."""

import json
from typing import Any

import pytest
import yaml

from infra.clouds.azure.cluster import SERVER_ID, rewritten
from tests.infra.azure import stacks
from tests.infra.azure.answers import IDENTITY, KUBECONFIG
from tests.infra.azure.world import inputs, world
from tests.infra.declared import Declared


def cluster(found: Declared | None = None) -> dict[str, Any]:
    return inputs(found or world(), "ManagedCluster")


def test_nobody_comes_in_but_by_entra() -> None:
    made = cluster()
    assert made["disableLocalAccounts"] is True
    assert made["aadProfile"] == {"managed": True, "enableAzureRBAC": False, "adminGroupObjectIDs": [stacks.ADMINISTRATORS]}
    profile = made["apiServerAccessProfile"]
    assert profile["enablePrivateCluster"] is False
    assert profile["authorizedIPRanges"] == ["198.51.100.0/24", "203.0.113.9/32"], "machines come by the NAT gateway's address"


def test_a_private_endpoint() -> None:
    wanted = stacks.cluster(endpoint="private", upReachesNetwork=True, authorizedRanges=[])
    made = cluster(world(stacks.stack(cluster=wanted)))
    assert made["apiServerAccessProfile"]["enablePrivateCluster"] is True
    assert "authorizedIPRanges" not in made["apiServerAccessProfile"]


def test_network_policies_are_enforced_and_pods_have_their_own_addresses() -> None:
    profile = cluster()["networkProfile"]
    assert (profile["networkPlugin"], profile["networkPluginMode"]) == ("azure", "overlay")
    assert (profile["networkPolicy"], profile["networkDataplane"]) == ("cilium", "cilium")


def test_workload_identity_and_the_drivers_are_on() -> None:
    made = cluster()
    assert made["oidcIssuerProfile"]["enabled"] is made["securityProfile"]["workloadIdentity"]["enabled"] is True
    on = {name: driver["enabled"] for name, driver in made["storageProfile"].items()}
    assert on == {"diskCSIDriver": True, "fileCSIDriver": True, "blobCSIDriver": False, "snapshotController": False}
    with_buckets = cluster(world(stacks.stack(storage={"files": {}, "buckets": [stacks.BUCKET]})))
    assert with_buckets["storageProfile"]["blobCSIDriver"]["enabled"] is True


def test_azure_replaces_no_machines_by_itself() -> None:
    assert cluster()["autoUpgradeProfile"] == {"upgradeChannel": "none", "nodeOSUpgradeChannel": "None"}


def test_the_autoscaler_takes_spot_first_and_keeps_jobs_in_a_zone() -> None:
    profile = cluster()["autoScalerProfile"]
    assert (profile["expander"], profile["balanceSimilarNodeGroups"]) == ("priority", "false")
    assert (profile["maxNodeProvisionTime"], profile["scaleDownUnneededTime"]) == ("12m", "10m")
    assert profile["maxTotalUnreadyPercentage"] == "100"


def test_the_system_pool_is_the_manager_machine() -> None:
    found = world()
    [pool] = cluster(found)["agentPoolProfiles"]
    assert (pool["name"], pool["mode"], pool["count"], pool["enableAutoScaling"]) == ("manager", "System", 1, False)
    assert (pool["vmSize"], pool["availabilityZones"]) == ("Standard_D4s_v5", ["1"])
    assert pool["nodeLabels"] == {"ebb.dev/node-group": "manager", "ebb.dev/capacity-type": "on-demand"}
    assert "scaleSetPriority" not in pool
    assert pool["localDNSProfile"] == {"mode": "Disabled"}
    # AKS tells of all pools there; a refresh would take them for changes of this one.
    assert found.one("ManagedCluster").ignore_changes == ("agentPoolProfiles",)


def test_the_control_plane_may_do_two_things_and_machines_one() -> None:
    """What Azure gives to AKS's own resource group is not ours to say."""
    given = {one.name: one.inputs for one in world().all("RoleAssignment")}
    roles = {name: (one["principalId"], one["roleDefinitionId"].rpartition("/")[2], one["scope"]) for name, one in given.items()}
    assert roles == {
        "ebb-dev-network": (IDENTITY, "4d97b98b-1d4f-4787-a291-c67834d212e7", "ResourceGroup-ebb-dev"),
        "ebb-dev-etcd-disk": (IDENTITY, "9980e02c-c2be-4d73-94e8-173b1dc7cf3c", "Disk-ebb-dev-etcd"),
        "ebb-dev-pull": ("id-kubelet", "7f951dda-4ed3-4680-a7ca-43fe172d538d", "Registry-ebb-dev-images"),
        "ebb-dev-user-11111111": (
            stacks.ADMINISTRATORS, "4abbcc35-e782-43d8-92c5-2d3f1bd2253f", "ManagedCluster-ebb-dev",
        ),
        "ebb-dev-user-66666666": (stacks.RESEARCHERS, "4abbcc35-e782-43d8-92c5-2d3f1bd2253f", "ManagedCluster-ebb-dev"),
    }  # fmt: skip
    kinds = {name: one["principalType"] for name, one in given.items()}
    assert {name for name, kind in kinds.items() if kind == "Group"} == {"ebb-dev-user-11111111", "ebb-dev-user-66666666"}
    assert len({one["roleAssignmentName"] for one in given.values()}) == len(given)


def test_the_control_planes_right_to_the_network_is_there_before_it_and_outlives_it() -> None:
    found = world()
    assert found.one("RoleAssignment", "ebb-dev-network").key in found.before(found.one("ManagedCluster"))


def test_the_control_planes_right_waits_for_no_part_of_the_network() -> None:
    """It counts only after a while, and AKS refuses the cluster until then: so the network is made meanwhile."""
    found = world()
    before = found.before(found.one("RoleAssignment", "ebb-dev-network"))
    assert not [key for key in before if key.startswith("azure-native:network:")]


def test_the_researchers_group_is_bound_in_kubernetes() -> None:
    found = world()
    bindings = [one.inputs for one in found.resources if one.kind in ("RoleBinding", "ClusterRoleBinding")]
    subjects = [subject for one in bindings for subject in one["subjects"] if subject["kind"] == "Group"]
    assert subjects
    assert {subject["name"] for subject in subjects} == {stacks.RESEARCHERS}


def test_a_kubeconfig_holds_no_secret() -> None:
    """What AKS gives out may hold one; what is written of it is the server alone, and a program that asks the CLI's login."""
    written = yaml.safe_load(rewritten("ebb-dev", json.dumps(KUBECONFIG)))
    assert written["clusters"] == [{"name": "ebb-dev", "cluster": KUBECONFIG["clusters"][0]["cluster"]}]
    [user] = written["users"]
    assert set(user["user"]) == {"exec"}
    assert user["user"]["exec"]["command"] == "kubelogin"
    assert user["user"]["exec"]["args"] == ["get-token", "--login", "azurecli", "--server-id", SERVER_ID]
    assert "secret" not in world().returned["kubeconfig"]


def test_everything_is_in_the_one_subscription_and_carries_the_tags() -> None:
    found = world()
    azure = [one for one in found.resources if one.type.startswith("azure-native:")]
    assert {one.provider for one in azure} == {"pulumi:providers:azure-native::azure"}
    [provider] = [one for one in found.resources if one.type == "pulumi:providers:azure-native"]
    assert (provider.inputs["subscriptionId"], provider.inputs["location"]) == (stacks.SUBSCRIPTION, "westus2")
    untagged = {one.kind for one in azure if one.inputs.get("tags") != {"ebb-project": "ebb", "ebb-stack": "dev"}}
    # These have no tags in Azure.
    assert untagged == {"Subnet", "RoleAssignment", "FileShare", "PrivateDnsZoneGroup"}


@pytest.mark.parametrize(
    "kind", ["ManagedCluster", "AgentPool", "StorageAccount", "FileShare", "Registry", "Disk", "PrivateEndpoint"]
)
def test_no_name_is_left_to_chance(kind: str) -> None:
    """Or what an earlier destroy has kept would stand beside a second one of another name."""
    named = {
        "ManagedCluster": "resourceName",
        "AgentPool": "agentPoolName",
        "StorageAccount": "accountName",
        "FileShare": "shareName",
        "Registry": "registryName",
        "Disk": "diskName",
        "PrivateEndpoint": "privateEndpointName",
    }
    assert all(one.inputs[named[kind]] for one in world().all(kind))
