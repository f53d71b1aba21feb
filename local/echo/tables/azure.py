"""The reviewed rows of Azure: every type of azure-native that the stack uses.

What replaces comes from three places:
- Derived by code, from the installed SDK: the parts of a resource's id (names of it and of what it is in). They are the inputs
  that are no outputs, as the id holds them; the provider replaces a resource whose id would change.
- Reviewed by hand: `forceNewMap` of provider/pkg/gen/replacement.go in https://github.com/pulumi/pulumi-azure-native at commit
  1b7112af33c62b247daed1028686bf279f4d5e69, read whole; a name in it counts at every depth of its type (properties.go, forceNew).
- Reviewed by hand: what the API's specification calls unchangeable (x-ms-mutability without `update`). Rows that say so have it
  from the services' documentation, as the specifications themselves were not at hand.
What is deleted first: everything whose name the program gives (provider/pkg/provider/provider.go, Diff, at commit
006a62afe453b416e5d5c98d2d91c4c7281f52f9), and the program gives all names. Values are held to the SDK's enumerations, by code.

Not proven: x-ms-mutability of what no row names, above all of `location`, which is taken for unchangeable everywhere; that the
installed provider 3.29.0 has the very forceNewMap of that commit; what the provider updates in place and Azure then refuses, such
as scaleSetPriority of an agent pool; any rule between properties; any length or pattern of a value.
"""

from collections.abc import Mapping

from local.echo.azure_types import AzureRow, Values

SUBSCRIPTION = "/subscriptions/{subscription}"
GROUP = SUBSCRIPTION + "/resourceGroups/{resourceGroupName}"
NETWORK = GROUP + "/providers/Microsoft.Network"
ACCOUNT = GROUP + "/providers/Microsoft.Storage/storageAccounts/{accountName}"
CLUSTER = GROUP + "/providers/Microsoft.ContainerService/managedClusters/{resourceName}"
_KUBELET = {"kubeletidentity": {"objectId": "{uuid}", "clientId": "{uuid}", "resourceId": CLUSTER + "/kubelet"}}


def _row(kind: str, id: str, name: str, *, anywhere: tuple[str, ...] = ("location",), **more: Mapping[str, object]) -> AzureRow:
    """`name`: the input that is the resource's name, which is an output too."""
    token = f"azure-native:{kind}"
    outputs = {"name": f"{{{name}}}", "provisioningState": "Succeeded", **more.get("outputs", {})}
    return AzureRow(token, delete_first=True, id=id, anywhere=anywhere, outputs=outputs, allowed=Values(token), autoname="")


ROWS: tuple[AzureRow, ...] = (
    _row("resources:ResourceGroup", GROUP, "resourceGroupName"),
    _row("network:VirtualNetwork", NETWORK + "/virtualNetworks/{virtualNetworkName}", "virtualNetworkName"),
    _row(
        "network:Subnet", NETWORK + "/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}", "subnetName", anywhere=()
    ),  # forceNewMap: none
    _row("network:NatGateway", NETWORK + "/natGateways/{natGatewayName}", "natGatewayName"),
    _row(
        "network:PublicIPAddress",
        NETWORK + "/publicIPAddresses/{publicIpAddressName}",
        "publicIpAddressName",
        anywhere=("location", "publicIPAddressVersion", "publicIPPrefix", "sku"),
        outputs={"ipAddress": "203.0.113.9"},
    ),
    _row(
        "network:NetworkSecurityGroup", NETWORK + "/networkSecurityGroups/{networkSecurityGroupName}", "networkSecurityGroupName"
    ),
    _row(
        "network:PrivateEndpoint",
        NETWORK + "/privateEndpoints/{privateEndpointName}",
        "privateEndpointName",
        anywhere=("location", "subnet"),
        outputs={"customDnsConfigs": [{"fqdn": "{short}.file.core.windows.net", "ipAddresses": ["10.80.255.228"]}]},
    ),
    _row(
        "network:PrivateDnsZoneGroup",
        NETWORK + "/privateEndpoints/{privateEndpointName}/privateDnsZoneGroups/{privateDnsZoneGroupName}",
        "privateDnsZoneGroupName",
    ),
    _row("privatedns:PrivateZone", NETWORK + "/privateDnsZones/{privateZoneName}", "privateZoneName"),
    _row(
        "privatedns:VirtualNetworkLink",
        NETWORK + "/privateDnsZones/{privateZoneName}/virtualNetworkLinks/{virtualNetworkLinkName}",
        "virtualNetworkLinkName",
        # A link is to one network: https://learn.microsoft.com/rest/api/dns/privatedns/virtual-network-links/update
        anywhere=("location", "virtualNetwork"),
    ),
    _row(
        "managedidentity:UserAssignedIdentity",
        GROUP + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}",
        "resourceName",
        outputs={"principalId": "{uuid}", "clientId": "{uuid}", "tenantId": "{uuid}"},
    ),
    _row(
        "authorization:RoleAssignment",
        "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
        "roleAssignmentName",
        # roleDefinitionId: an assignment's role cannot be changed
        # (https://learn.microsoft.com/azure/role-based-access-control/troubleshooting, "cannot update role assignment")
        anywhere=("principalId", "scope", "roleDefinitionId", "principalType"),
    ),
    _row(
        "containerservice:ManagedCluster",
        CLUSTER,
        "resourceName",
        anywhere=(
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
        anywhere=("gpuInstanceProfile", "vmSize", "nodePublicIPTags"),
        outputs={"currentOrchestratorVersion": "{orchestratorVersion}.0", "nodeImageVersion": "AKSUbuntu-2204gen2containerd"},
    ),
    # What a disk is made from, and its zone: https://learn.microsoft.com/rest/api/compute/disks/update has neither.
    _row(
        "compute:Disk",
        GROUP + "/providers/Microsoft.Compute/disks/{diskName}",
        "diskName",
        anywhere=("location", "creationData", "zones"),
    ),
    _row(
        "compute:ProximityPlacementGroup",
        GROUP + "/providers/Microsoft.Compute/proximityPlacementGroups/{proximityPlacementGroupName}",
        "proximityPlacementGroupName",
    ),
    _row("storage:StorageAccount", ACCOUNT, "accountName", anywhere=("isHnsEnabled", "location")),
    # The protocol can be set at creation alone: https://learn.microsoft.com/rest/api/storagerp/file-shares/create
    _row("storage:FileShare", ACCOUNT + "/fileServices/default/shares/{shareName}", "shareName", anywhere=("enabledProtocols",)),
    _row(
        "containerregistry:Registry",
        GROUP + "/providers/Microsoft.ContainerRegistry/registries/{registryName}",
        "registryName",
        outputs={"loginServer": "{registryName}.azurecr.io"},
    ),
)
