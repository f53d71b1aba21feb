"""The reviewed rows of Azure: every type of azure-native that the stack uses.

What replaces comes from three places:
- Derived by code, from the installed SDK: the parts of a resource's id (names of it and of what it is in). They are the inputs
  that are no outputs, as the id holds them; the provider replaces a resource whose id would change.
- Reviewed by hand: `forceNewMap` of provider/pkg/gen/replacement.go in https://github.com/pulumi/pulumi-azure-native at commit
  1b7112af33c62b247daed1028686bf279f4d5e69, read whole. Its newest entries (networkProfile of clusters) came with pull request
  4771 in July 2026, and the installed 3.29.0 is of October 2026.
- Reviewed by hand: top-level properties that the API's specification lets be set at creation alone (x-ms-mutability without
  `update`), in https://github.com/Azure/azure-rest-api-specs at the SDK's API versions. Read whole: FileShare, RoleAssignment,
  AgentPool, Disk, PrivateZone, VirtualNetworkLink, UserAssignedIdentity (`location`, as of every tracked resource), and what is
  common in Network, Compute and ContainerRegistry (`location` of the last alone). Read, and nothing fixed in them: what creates a
  StorageAccount, own properties of Registry, NetworkSecurityGroup, VirtualNetwork, Subnet and ProximityPlacementGroup. Of
  ManagedCluster, what the provider generates of all this is in provider/pkg/gen/__snapshots__/gen_managedcluster_test.snap (at
  080cda17eb4b5115258d794289841cd79404b64d; API 2025-10-01, the SDK has 2025-09-01), read whole.
How a name replaces is said in azure_types.py. What is deleted first: all that replaces, as no name is made up by the provider
(provider/pkg/provider/provider.go, Diff). Values are held to the SDK's enumerations, by code.

Not proven: x-ms-mutability of own properties of NatGateway, PublicIPAddress, PrivateEndpoint, PrivateDnsZoneGroup and
ResourceGroup, which were not read; that the installed provider has this very forceNewMap; what the provider fills in by itself
(defaults of the specification), and lists that it compares by key, not by place; any rule between properties; any length or
pattern of a value. What the provider changes in place and Azure refuses is not in it at all: where settings can ask for that, the
program says `replace_on_changes` (only_new in infra/clouds/azure/base.py), and the engine replaces.
"""

from collections.abc import Mapping

from testing.pulumi.mocks.azure_types import AzureRow, Values

SUBSCRIPTION = "/subscriptions/{subscription}"
GROUP = SUBSCRIPTION + "/resourceGroups/{resourceGroupName}"
NETWORK = GROUP + "/providers/Microsoft.Network"
ACCOUNT = GROUP + "/providers/Microsoft.Storage/storageAccounts/{accountName}"
CLUSTER = GROUP + "/providers/Microsoft.ContainerService/managedClusters/{resourceName}"
_KUBELET = {"kubeletidentity": {"objectId": "{uuid}", "clientId": "{uuid}", "resourceId": CLUSTER + "/kubelet"}}


def _row(kind: str, id: str, name: str, *, fixed: tuple[str, ...] = (), **more: Mapping[str, object]) -> AzureRow:
    """`name`: the input that is the resource's name, which is an output too."""
    token = f"azure-native:{kind}"
    outputs = {"name": f"{{{name}}}", "provisioningState": "Succeeded", **more.get("outputs", {})}
    return AzureRow(token, delete_first=True, id=id, fixed=fixed, outputs=outputs, allowed=Values(token), autoname="")


ROWS: tuple[AzureRow, ...] = (
    _row("resources:ResourceGroup", GROUP, "resourceGroupName", fixed=("location",)),
    _row("network:VirtualNetwork", NETWORK + "/virtualNetworks/{virtualNetworkName}", "virtualNetworkName", fixed=("location",)),
    _row("network:Subnet", NETWORK + "/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}", "subnetName"),
    _row("network:NatGateway", NETWORK + "/natGateways/{natGatewayName}", "natGatewayName"),
    _row(
        "network:PublicIPAddress",
        NETWORK + "/publicIPAddresses/{publicIpAddressName}",
        "publicIpAddressName",
        fixed=("location", "publicIPAddressVersion", "publicIPPrefix", "sku"),
        outputs={"ipAddress": "203.0.113.9"},
    ),
    _row(
        "network:NetworkSecurityGroup", NETWORK + "/networkSecurityGroups/{networkSecurityGroupName}", "networkSecurityGroupName"
    ),
    _row(
        "network:PrivateEndpoint",
        NETWORK + "/privateEndpoints/{privateEndpointName}",
        "privateEndpointName",
        fixed=("subnet",),
        outputs={"customDnsConfigs": [{"fqdn": "{short}.file.core.windows.net", "ipAddresses": ["10.80.255.228"]}]},
    ),
    _row(
        "network:PrivateDnsZoneGroup",
        NETWORK + "/privateEndpoints/{privateEndpointName}/privateDnsZoneGroups/{privateDnsZoneGroupName}",
        "privateDnsZoneGroupName",
    ),
    _row("privatedns:PrivateZone", NETWORK + "/privateDnsZones/{privateZoneName}", "privateZoneName", fixed=("location",)),
    _row(
        "privatedns:VirtualNetworkLink",
        NETWORK + "/privateDnsZones/{privateZoneName}/virtualNetworkLinks/{virtualNetworkLinkName}",
        "virtualNetworkLinkName",
        fixed=("location",),
    ),
    _row(
        "managedidentity:UserAssignedIdentity",
        GROUP + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}",
        "resourceName",
        fixed=("location",),
        outputs={"principalId": "{uuid}", "clientId": "{uuid}", "tenantId": "{uuid}"},
    ),
    _row(
        "authorization:RoleAssignment",
        "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
        "roleAssignmentName",
        fixed=("principalId", "scope"),
    ),
    _row(
        "containerservice:ManagedCluster",
        CLUSTER,
        "resourceName",
        fixed=(
            *("diskEncryptionSetID", "dnsPrefix", "fqdnSubdomain", "linuxProfile", "location", "nodeResourceGroup"),
            *("windowsProfile", "serviceCidr", "serviceCidrs", "dnsServiceIP", "networkMode", "networkPlugin"),
            *("networkPluginMode", "podCidr", "networkDataplane", "networkPolicy", "outboundType", "nodePublicIPTags"),
        ),
        outputs={
            "fqdn": "{dnsPrefix}-{short}.hcp.{location}.azmk8s.io",
            "identityProfile": _KUBELET,
            "oidcIssuerProfile": {"enabled": True, "issuerURL": "https://{location}.oic.prod-aks.azure.com/{uuid}/"},
        },
    ),
    _row(
        "containerservice:AgentPool",
        CLUSTER + "/agentPools/{agentPoolName}",
        "agentPoolName",
        fixed=("gpuInstanceProfile", "vmSize", "nodePublicIPTags"),
        outputs={"currentOrchestratorVersion": "{orchestratorVersion}.0", "nodeImageVersion": "AKSUbuntu-2204gen2containerd"},
    ),
    _row("compute:Disk", GROUP + "/providers/Microsoft.Compute/disks/{diskName}", "diskName"),
    _row(
        "compute:ProximityPlacementGroup",
        GROUP + "/providers/Microsoft.Compute/proximityPlacementGroups/{proximityPlacementGroupName}",
        "proximityPlacementGroupName",
    ),
    _row("storage:StorageAccount", ACCOUNT, "accountName", fixed=("isHnsEnabled", "location")),
    _row("storage:FileShare", ACCOUNT + "/fileServices/default/shares/{shareName}", "shareName", fixed=("enabledProtocols",)),
    _row(
        "containerregistry:Registry",
        GROUP + "/providers/Microsoft.ContainerRegistry/registries/{registryName}",
        "registryName",
        fixed=("location",),
        outputs={"loginServer": "{registryName}.azurecr.io"},
    ),
)
