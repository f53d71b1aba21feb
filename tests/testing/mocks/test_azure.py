"""The mock of Azure: what replaces, what is wrong, and what is made up. What is derived from the SDK is written out whole."""

from typing import Any

import pytest

from testing.pulumi.mocks import wheel
from testing.pulumi.mocks.azure import CREDENTIALS, Azure
from testing.pulumi.mocks.package import UNKNOWN, Asked, Failure, MockError
from testing.pulumi.mocks.tables.azure import ROWS, AzureRow

BY_KIND = {row.token.removeprefix("azure-native:"): row for row in ROWS}
POOL, CLUSTER = "azure-native:containerservice:AgentPool", "azure-native:containerservice:ManagedCluster"
DISK, NETWORK = "azure-native:compute:Disk", "azure-native:network"
SUBSCRIPTION = "01234567-89ab-cdef-0123-456789abcdef"
# The parts of each id, as the SDK has them; every one of these replaces.
IDENTITIES = {
    "resources:ResourceGroup": "resourceGroupName",
    "network:VirtualNetwork": "resourceGroupName virtualNetworkName",
    "network:Subnet": "resourceGroupName subnetName virtualNetworkName",
    "network:NatGateway": "natGatewayName resourceGroupName",
    "network:PublicIPAddress": "publicIpAddressName resourceGroupName",
    "network:NetworkSecurityGroup": "networkSecurityGroupName resourceGroupName",
    "network:PrivateEndpoint": "privateEndpointName resourceGroupName",
    "network:PrivateDnsZoneGroup": "privateDnsZoneGroupName privateEndpointName resourceGroupName",
    "privatedns:PrivateZone": "privateZoneName resourceGroupName",
    "privatedns:VirtualNetworkLink": "privateZoneName resourceGroupName virtualNetworkLinkName",
    "managedidentity:UserAssignedIdentity": "resourceGroupName resourceName",
    "managedidentity:FederatedIdentityCredential": "federatedIdentityCredentialResourceName resourceGroupName resourceName",
    "authorization:RoleAssignment": "roleAssignmentName",
    "containerservice:ManagedCluster": "resourceGroupName resourceName",
    "containerservice:AgentPool": "agentPoolName resourceGroupName resourceName",
    "compute:Disk": "diskName resourceGroupName",
    "compute:ProximityPlacementGroup": "proximityPlacementGroupName resourceGroupName",
    "storage:StorageAccount": "accountName resourceGroupName",
    "storage:FileShare": "accountName resourceGroupName shareName",
    "containerregistry:Registry": "registryName resourceGroupName",
    "monitor:AzureMonitorWorkspace": "azureMonitorWorkspaceName resourceGroupName",
    "monitor:DataCollectionEndpoint": "dataCollectionEndpointName resourceGroupName",
    "monitor:DataCollectionRule": "dataCollectionRuleName resourceGroupName",
    "monitor:DataCollectionRuleAssociation": "associationName resourceUri",
    "operationalinsights:Workspace": "resourceGroupName workspaceName",
    "alertsmanagement:PrometheusRuleGroup": "resourceGroupName ruleGroupName",
}
# What replaces beside them, as the provider's own rule makes paths of names.
NETWORK_PROFILE = "dnsServiceIP networkDataplane networkMode networkPlugin networkPluginMode networkPolicy outboundType podCidr"
LINKED = [f"{kind}PublicIPAddress.{name}" for kind in ("linked", "service") for name in ("location", "publicIPAddressVersion")]
FIXED = {
    "resources:ResourceGroup": ["location"],
    "network:VirtualNetwork": ["location"],
    "network:PublicIPAddress": [
        *("location", "publicIPAddressVersion", "publicIPPrefix", "sku", "natGateway.location", "natGateway.sku"),
        *LINKED,
        *(f"{kind}PublicIPAddress.{name}" for kind in ("linked", "service") for name in ("publicIPPrefix", "sku")),
    ],
    "network:PrivateEndpoint": ["subnet"],
    "privatedns:PrivateZone": ["location"],
    "privatedns:VirtualNetworkLink": ["location"],
    "managedidentity:UserAssignedIdentity": ["location"],
    "authorization:RoleAssignment": ["principalId", "scope"],
    "containerservice:ManagedCluster": [
        *("agentPoolProfiles[].windowsProfile", "diskEncryptionSetID", "dnsPrefix", "fqdnSubdomain", "linuxProfile", "location"),
        *("nodeResourceGroup", "windowsProfile", "networkProfile.serviceCidr", "networkProfile.serviceCidrs"),
        *(f"networkProfile.{name}" for name in NETWORK_PROFILE.split()),
    ],
    "containerservice:AgentPool": ["gpuInstanceProfile", "vmSize", "networkProfile.nodePublicIPTags"],
    "storage:StorageAccount": ["isHnsEnabled", "location"],
    "storage:FileShare": ["enabledProtocols"],
    "containerregistry:Registry": ["location"],
    "monitor:AzureMonitorWorkspace": ["location"],
    "monitor:DataCollectionEndpoint": ["location"],
    "monitor:DataCollectionRule": ["location"],
    "operationalinsights:Workspace": ["location"],
    "alertsmanagement:PrometheusRuleGroup": ["location"],
}


def provider() -> Azure:
    made = Azure()
    made.configure({"subscriptionId": SUBSCRIPTION, "location": "westus2"})
    return made


def asked(token: str) -> Asked:
    return Asked(f"urn:pulumi:dev::ebb::{token}::one", token, "one")


def pool(**more: Any) -> dict[str, Any]:
    return {"agentPoolName": "st41", "resourceName": "ebb-dev", "resourceGroupName": "ebb-dev", "maxCount": 8, **more}


def test_every_identity_is_what_the_sdk_says() -> None:
    assert {kind: " ".join(row.identity) for kind, row in BY_KIND.items()} == IDENTITIES


def test_what_replaces_beside_the_identities_is_written_out() -> None:
    found = {kind: row.forcing - set(row.identity) for kind, row in BY_KIND.items()}
    assert {kind: paths for kind, paths in found.items() if paths} == {kind: frozenset(paths) for kind, paths in FIXED.items()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.token)
def test_names_outputs_and_ids_of_a_row_are_the_sdks(row: AzureRow) -> None:
    """A name that is misspelt would replace nothing, and nobody would know."""
    inputs, outputs = wheel.args_of(row.token), wheel.outputs_of(row.token)
    # The provider's list has it for clusters too, whose pools have it two levels down, where the provider does not look.
    found = {path.rpartition(".")[2] for path in row.forcing} | {"nodePublicIPTags"}
    assert set(row.fixed) <= found
    assert set(row.outputs) <= set(outputs) | {"name", "provisioningState"}
    named = {word.partition("}")[0] for word in row.id.split("{")[1:]}
    assert named <= {*inputs, "subscription"}


@pytest.mark.parametrize(
    ("token", "old", "new", "changes", "replaces"),
    [
        pytest.param(POOL, pool(), pool(maxCount=9), {"maxCount": "update"}, (), id="max"),
        pytest.param(POOL, pool(), pool(agentPoolName="dt41"), {"agentPoolName": "update"}, ("agentPoolName",), id="name"),
        pytest.param(POOL, pool(vmSize="a"), pool(vmSize="b"), {"vmSize": "update"}, ("vmSize",), id="machine"),
        pytest.param(POOL, pool(nodeTaints=["a"]), pool(nodeTaints=["b"]), {"nodeTaints[0]": "update"}, (), id="taints"),
        pytest.param(
            CLUSTER,
            {"networkProfile": {"podCidr": "a", "loadBalancerSku": "standard"}},
            {"networkProfile": {"podCidr": "b", "loadBalancerSku": "standard"}},
            {"networkProfile.podCidr": "update"},
            ("networkProfile.podCidr",),
            id="inside",
        ),
        pytest.param(
            CLUSTER,
            {"kubernetesVersion": "1.35"},
            {"kubernetesVersion": "1.36"},
            {"kubernetesVersion": "update"},
            (),
            id="version",
        ),
        pytest.param(CLUSTER, {}, {"networkProfile": {"podCidr": "b"}}, {"networkProfile": "add"}, (), id="a block comes"),
        pytest.param(CLUSTER, {}, {"linuxProfile": {}}, {"linuxProfile": "add"}, ("linuxProfile",), id="a fixed block comes"),
        pytest.param(
            CLUSTER,
            {"linuxProfile": {"ssh": {"publicKeys": [{"keyData": "a"}]}}},
            {"linuxProfile": {"ssh": {"publicKeys": [{"keyData": "b"}]}}},
            {"linuxProfile.ssh.publicKeys[0].keyData": "update"},
            ("linuxProfile.ssh.publicKeys[0].keyData",),
            id="deep in a fixed block",
        ),
        pytest.param(
            CLUSTER,
            {"agentPoolProfiles": [{"vmSize": "a"}]},
            {"agentPoolProfiles": [{"vmSize": "b"}]},
            {"agentPoolProfiles[0].vmSize": "update"},
            (),
            id="of the same name in a list",
        ),
        pytest.param(
            f"{NETWORK}:PrivateEndpoint",
            {"subnet": {"id": "a"}},
            {"subnet": {"id": "b"}},
            {"subnet.id": "update"},
            ("subnet.id",),
            id="in a fixed object",
        ),
        # In place, so the provider; Azure refuses these, so the program says that it is to be replaced.
        pytest.param(DISK, {"zones": ["1"]}, {"zones": ["2"]}, {"zones[0]": "update"}, (), id="a disk's zone"),
        pytest.param(
            f"{NETWORK}:Subnet",
            {"addressPrefix": "a"},
            {"addressPrefix": "b"},
            {"addressPrefix": "update"},
            (),
            id="a subnet's range",
        ),
        pytest.param(
            "azure-native:authorization:RoleAssignment",
            {"roleDefinitionId": "a"},
            {"roleDefinitionId": "b"},
            {"roleDefinitionId": "update"},
            (),
            id="a role",
        ),
    ],
)
def test_what_replaces(token: str, old: Any, new: Any, changes: dict[str, str], replaces: tuple[str, ...]) -> None:
    found = provider().diff(asked(token), old, old, new)
    assert (dict(found.changes), found.replaces, found.delete_first) == (changes, replaces, bool(replaces))


@pytest.mark.parametrize(
    ("token", "inputs", "path", "said"),
    [
        pytest.param(POOL, pool(scaleSetPriority="spot"), "scaleSetPriority", "must be one of Spot, Regular", id="enumeration"),
        pytest.param(POOL, pool(gpuProfile={"driver": "Yes"}), "gpuProfile.driver", "must be one of Install, None", id="inside"),
        pytest.param(POOL, pool(maxcount=8), "maxcount", "is not a property here; there are maxCount", id="unknown"),
        pytest.param(POOL, pool(maxCount="many"), "maxCount", "must be an integer", id="kind"),
        pytest.param(POOL, {"resourceName": "x"}, "resourceGroupName", "is missing", id="missing"),
        pytest.param(
            CLUSTER,
            {"resourceGroupName": "x", "agentPoolProfiles": [{"name": "manager", "mode": "Main"}]},
            "agentPoolProfiles[0].mode",
            "must be one of System, User",
            id="in a list",
        ),
    ],
)
def test_wrong_inputs_are_told_with_what_is_allowed(token: str, inputs: dict[str, Any], path: str, said: str) -> None:
    failures: list[Failure] = provider().check(asked(token), inputs, {}, b"")[1]
    assert path in [one.path for one in failures]
    assert said in next(one.reason for one in failures if one.path == path)


def test_ids_are_azures_and_the_same_at_every_run() -> None:
    made = [provider().create(asked(POOL), pool(), preview=False) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0][0] == (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/ebb-dev/providers/Microsoft.ContainerService/managedClusters/ebb-dev"
        "/agentPools/st41"
    )


def test_a_preview_knows_inputs_alone() -> None:
    _, outputs = provider().create(
        asked(CLUSTER), {"resourceName": "c", "resourceGroupName": "g", "dnsPrefix": "d"}, preview=True
    )
    assert (outputs["dnsPrefix"], outputs["fqdn"], outputs["identityProfile"]) == ("d", UNKNOWN, UNKNOWN)


def test_an_update_keeps_what_azure_made_up() -> None:
    """identityProfile is an output and an input that no program of ours gives."""
    given = {"resourceName": "c", "resourceGroupName": "g", "kubernetesVersion": "1.35"}
    mock, later = provider(), {**given, "kubernetesVersion": "1.36"}
    _, outputs = mock.create(asked(CLUSTER), given, preview=False)
    updated = mock.update(asked(CLUSTER), outputs, given, later, preview=False)
    assert updated == {**outputs, "kubernetesVersion": "1.36"}
    assert set(updated["identityProfile"]) == {"kubeletidentity"}
    planned = mock.update(asked(CLUSTER), outputs, given, later, preview=True)
    assert (planned["name"], planned["kubernetesVersion"], planned["identityProfile"]) == ("c", "1.36", UNKNOWN)


def test_it_wants_a_subscription_and_answers_one_look_up() -> None:
    assert [one.path for one in provider().check_config({"location": "westus2"})] == ["subscriptionId"]
    assert provider().invoke(CREDENTIALS, {"resourceName": "ebb-dev"})["kubeconfigs"][0]["name"] == "clusterUser"
    with pytest.raises(MockError, match="put the value into the stack's settings"):
        provider().invoke("azure-native:resources:getResourceGroup", {})


def test_a_type_that_nobody_has_reviewed_is_refused() -> None:
    with pytest.raises(MockError, match="not in the reviewed tables"):
        provider().check(asked("azure-native:web:WebApp"), {}, {}, b"")
