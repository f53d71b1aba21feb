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
What the real provider makes of those names is the rule of provider/pkg/provider/diff.go in the same repository (read at
03707ff7fc10b70f7dd23ec847a3ce1e9264c124 and in a later version, which have the same one), and AzureRow.forces does as it does,
also where that surprises: an item of a list of texts replaces nothing, nor does a block that comes or goes for what is inside
it. What Azure then refuses, the program has to say by `replace_on_changes`. What is deleted first: all that replaces, as no
name is made up by the provider (provider/pkg/provider/provider.go, Diff). Values are held to the SDK's enumerations, by code.

Not proven: x-ms-mutability of own properties of NatGateway, PublicIPAddress, PrivateEndpoint, PrivateDnsZoneGroup and
ResourceGroup, which were not read; that the installed provider has this very forceNewMap; what the provider fills in by itself
(defaults of the specification), and lists that it compares by key, not by place; any rule between properties; any length or
pattern of a value. What the provider changes in place and Azure refuses is not in it at all: where settings can ask for that, the
program says `replace_on_changes` (only_new in infra/clouds/azure/base.py), and the engine replaces.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

from testing.pulumi.mocks import wheel
from testing.pulumi.mocks.package import Change
from testing.pulumi.mocks.rows import Row
from testing.pulumi.mocks.wheel import Property

NOT_OF_THE_ID = ("id", "expand")  # inputs that are no outputs, and yet no part of the id
_NAMED = re.compile(r'@pulumi\.getter\(name="(\w+)"\)\n    def (\w+)\(')
_ENUMERATION = re.compile(r"^ +(\w+): .*'(\w+)'\]*(?: = None)?[,)]?", re.MULTILINE)
_VALUE = re.compile(r'^    [A-Z_0-9]+ = "(.*)"$', re.MULTILINE)


@dataclass(frozen=True)
class AzureRow(Row):
    """`fixed`: names of properties, not paths, which is how the provider has them. All else as in Row, but that `replaces` is
    not used."""

    fixed: tuple[str, ...] = ()
    autoname: str = ""

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """The inputs that the id is made of."""
        outputs = wheel.outputs_of(self.token)
        return tuple(sorted(name for name in self.properties if name not in outputs and name not in NOT_OF_THE_ID))

    @cached_property
    def forcing(self) -> frozenset[str]:
        """Paths whose change needs a new resource: parts of the id, properties, and properties one level further down."""
        own = {*self.identity, *(set(self.properties) & set(self.fixed))}
        return frozenset(own | {path for name, one in self.properties.items() for path in _below(name, one, self.fixed)})

    def forces(self, path: str, change: Change) -> bool:
        """Of a change as compare() has it, with indices: the property itself, or a value inside an object that is one."""
        plain = re.sub(r"\[\d+\]", "[]", path)
        steps = plain.split(".")
        above = {".".join(steps[:depth]) for depth in range(1, len(steps))}
        return plain in self.forcing or (change == "update" and bool(above & self.forcing))


class Values(Mapping[str, tuple[str, ...]]):
    """Path of an input -> the values of its enumeration. Looked up one by one: types of networks contain each other."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __getitem__(self, path: str) -> tuple[str, ...]:
        """Raises KeyError where there is none."""
        module, kind = self._token.split(":")[1:]
        known, file, name = wheel.args_of(self._token), wheel._file_of(self._token), kind
        *parents, last = path.split(".")
        for parent in parents:
            one = known[parent]
            while one.item:
                one = one.item
            if one.fields is None:
                raise KeyError(path)
            known, file, name = wheel.fields_of(one.fields), "_inputs", one.fields.name
        enumeration = _enumerations(module, file, name if file == "_inputs" else f"{name}Args").get(last)
        if enumeration is None:
            raise KeyError(path)
        return _values(module, enumeration)

    def __iter__(self) -> Iterator[str]:
        """Those of the type itself."""
        return (name for name in wheel.args_of(self._token) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _below(name: str, one: Property, wanted: Collection[str]) -> Iterator[str]:
    """Paths of the wanted properties of an object, or of the objects in a list."""
    path, inner = (f"{name}[]", one.item) if one.kind == "list" and one.item else (name, one)
    if inner.fields:
        yield from (f"{path}.{known}" for known in wheel.fields_of(inner.fields) if known in wanted)


@cache
def _enumerations(module: str, file: str, name: str) -> Mapping[str, str]:
    """Property of a class -> the enumeration of its values."""
    text = _text(module, file)
    start = re.search(rf"^class {name.removesuffix('Args')}(Init)?Args:$", text, re.MULTILINE)
    if start is None:
        return {}
    body = text[start.end() :].partition("\nclass ")[0]
    camel = {snake: given for given, snake in _NAMED.findall(body)}
    header = body.partition("def __init__(__self__")[2].partition("):\n")[0] + ","
    found = {camel.get(snake, snake): kind for snake, kind in _ENUMERATION.findall(header)}
    return {
        property: kind for property, kind in found.items() if f"class {kind}(_builtins.str, Enum):" in _text(module, "_enums")
    }


@cache
def _values(module: str, name: str) -> tuple[str, ...]:
    text = _text(module, "_enums").partition(f"class {name}(_builtins.str, Enum):")[2]
    return tuple(_VALUE.findall(text.partition("\n\n\n")[0]))


@cache
def _text(module: str, file: str) -> str:
    spec = find_spec("pulumi_azure_native")  # does not import it
    assert spec is not None, "pulumi-azure-native is in the dependency group azure (make install)"
    assert spec.origin is not None, spec
    return (Path(spec.origin).parent / module / f"{file}.py").read_text()


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


def _open_row(kind: str, id: str, name: str, *, fixed: tuple[str, ...] = ()) -> AzureRow:
    """The same of a type whose values are not held to enumerations."""
    return replace(_row(kind, id, name, fixed=fixed), allowed={})


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
        # Empty as soon as a zone group is attached, which the stack's own is: only the answer to the creation has some
        # (custom_dns_configs in the documentation of terraform-provider-azurerm's azurerm_private_endpoint).
        outputs={"customDnsConfigs": []},
    ),
    _row(
        "network:PrivateDnsZoneGroup",
        NETWORK + "/privateEndpoints/{privateEndpointName}/privateDnsZoneGroups/{privateDnsZoneGroupName}",
        "privateDnsZoneGroupName",
        # examples/PrivateEndpointDnsZoneGroupCreate.json of Microsoft.Network 2024-05-01, in the specification above.
        outputs={
            "privateDnsZoneConfigs": [
                {
                    "recordSets": [
                        {
                            "recordType": "A",
                            "recordSetName": "{short}",
                            "ipAddresses": ["10.80.255.228"],
                            "provisioningState": "Succeeded",
                        }
                    ]
                }
            ]
        },
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
    # Its own properties were not read: the API updates a credential in place, by a put of its whole.
    _row(
        "managedidentity:FederatedIdentityCredential",
        GROUP
        + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}/federatedIdentityCredentials"
        + "/{federatedIdentityCredentialResourceName}",
        "federatedIdentityCredentialResourceName",
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
    # `location` alone, as of every tracked resource; their own properties were not read. Their enumerations are open ones of the
    # items of lists, which hold nobody to a value.
    *(
        _open_row(f"{module}:{kind}", f"{GROUP}/providers/Microsoft.{provider}/{{{name}}}", name, fixed=("location",))
        for module, kind, provider, name in (
            ("monitor", "AzureMonitorWorkspace", "Monitor/accounts", "azureMonitorWorkspaceName"),
            ("monitor", "DataCollectionEndpoint", "Insights/dataCollectionEndpoints", "dataCollectionEndpointName"),
            ("monitor", "DataCollectionRule", "Insights/dataCollectionRules", "dataCollectionRuleName"),
            ("operationalinsights", "Workspace", "OperationalInsights/workspaces", "workspaceName"),
            ("alertsmanagement", "PrometheusRuleGroup", "AlertsManagement/prometheusRuleGroups", "ruleGroupName"),
        )
    ),
    _open_row(
        "monitor:DataCollectionRuleAssociation",
        "{resourceUri}/providers/Microsoft.Insights/dataCollectionRuleAssociations/{associationName}",
        "associationName",
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
