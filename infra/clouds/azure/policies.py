"""Rules of the policy pack for Azure: infra/policies/rules.py says what a rule is.

Azure encrypts what it stores by itself; its rule is of what travels. Temporary disks of machines are encrypted by the machine
type (those of generation 6) or by nothing: docs/threat-model.md says so. Azure has no setting that keeps pods from the metadata
address; network policies do (workloads/manifests/namespaces.yaml).
"""

from collections.abc import Iterable, Iterator

from infra.clouds.azure import names
from infra.clouds.azure.settings import Settings
from infra.config import Stack
from infra.policies.rules import (
    ANYWHERE,
    UNKNOWN,
    Declaration,
    Rule,
    Violation,
    data_kept,
    from_anywhere,
    missing_tags,
    refused,
    required,
)

TAGS = (names.PROJECT, names.STACK)
# Built-in roles for everything, and for giving roles, by their ids
# (https://learn.microsoft.com/azure/role-based-access-control/built-in-roles, as remembered).
WIDE = {
    "8e3af657-a8ff-443c-a75c-2fe8c4bcb635": "Owner",
    "b24988ac-6180-42a0-ab88-20f7382dd24c": "Contributor",
    "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9": "User Access Administrator",
    "f58310d9-a9f6-439a-9e8d-f62e7b41a168": "Role Based Access Control Administrator",
}
# What Azure tags, of what the program makes; a test holds the list to the SDK.
TAGGED = tuple(
    f"azure-native:{one}"
    for one in (
        "compute:Disk", "compute:ProximityPlacementGroup", "containerregistry:Registry", "containerservice:AgentPool",
        "containerservice:ManagedCluster", "managedidentity:UserAssignedIdentity", "network:NatGateway",
        "network:NetworkSecurityGroup", "network:PrivateEndpoint", "network:PublicIPAddress", "network:VirtualNetwork",
        "privatedns:PrivateZone", "privatedns:VirtualNetworkLink", "resources:ResourceGroup", "storage:StorageAccount",
    )
)  # fmt: skip
_CLUSTER, _POOL = "azure-native:containerservice:ManagedCluster", "azure-native:containerservice:AgentPool"
_ACCOUNT, _DISK = "azure-native:storage:StorageAccount", "azure-native:compute:Disk"
_REGISTRY, _FIREWALL = "azure-native:containerregistry:Registry", "azure-native:network:NetworkSecurityGroup"


def _settings(stack: Stack) -> Settings:
    assert isinstance(stack.settings, Settings), "a stack of another cloud"
    return stack.settings


def _endpoint(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """A public endpoint without ranges is open to the internet. Beside the stack's own ranges there is one more: the address by
    which machines go out."""
    wanted, at = _settings(stack).cluster, "apiServerAccessProfile"
    closed = declaration.get(f"{at}.enablePrivateCluster", False)
    if closed == UNKNOWN:
        return
    if closed:
        yield from required(
            declaration, {f"{at}.enablePrivateClusterPublicFQDN": False}, "or its private address is in public DNS"
        )
        return
    if wanted.endpoint != "public":
        fix = "set it to true, or say so in the stack's file: azure.cluster.endpoint: public"
        yield Violation(property=f"{at}.enablePrivateCluster", found=False, allowed="true", fix=fix)
    ranges = declaration.get(f"{at}.authorizedIPRanges")
    if ranges == UNKNOWN:
        return
    strange = set(ranges or ANYWHERE) - set(wanted.authorized_ranges) - {UNKNOWN}
    if set(ranges or ANYWHERE) & ANYWHERE or any(not one.endswith("/32") for one in strange):
        yield Violation(
            property=f"{at}.authorizedIPRanges", found=ranges, allowed="those of azure.cluster.authorizedRanges, never 0.0.0.0/0",
            fix="list the addresses of the office and of CI there",
        )  # fmt: skip


def _accounts(declaration: Declaration, stack: Stack) -> Iterable[Violation]:
    return required(declaration, {"disableLocalAccounts": True}, "or a kubeconfig with a certificate works for ever")


def _address(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    fix = "machines reach out by the NAT gateway and need no public address"
    yield from refused(declaration, {"enableNodePublicIP": True}, fix)
    paths = declaration.each("agentPoolProfiles")
    yield from refused(declaration, {f"{path}.enableNodePublicIP": True for path in paths}, fix)


def _reached(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """From private addresses, and by identities: no keys and passwords that work for who has found them."""
    if declaration.type == _ACCOUNT:
        wanted = {"publicNetworkAccess": "Disabled", "allowBlobPublicAccess": False, "allowSharedKeyAccess": False}
        yield from required(declaration, wanted, "the share has a private address, and Entra's identities")
    elif declaration.type == _DISK:
        wanted = {"publicNetworkAccess": "Disabled", "networkAccessPolicy": "DenyAll"}
        yield from required(declaration, wanted, "or who may ask for an address can download the disk")
    elif declaration.type == _REGISTRY:
        wanted = {"adminUserEnabled": False, "anonymousPullEnabled": False}
        yield from required(declaration, wanted, "machines pull with their identity")
    else:
        fix = "list who mounts the data in azure.storage.clients"
        for path in declaration.each("securityRules"):
            if [declaration.get(f"{path}.{key}") for key in ("direction", "access")] == ["Inbound", "Allow"]:
                for key in ("sourceAddressPrefix", "sourceAddressPrefixes"):
                    yield from from_anywhere(f"{path}.{key}", declaration.get(f"{path}.{key}"), "private ranges", fix)


def _encrypted(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """NFS knows no HTTPS: so an account for files alone may do without, as it has no public address."""
    yield from required(declaration, {"minimumTlsVersion": "TLS1_2"}, "older ones are broken")
    kind, public = declaration.get("kind"), declaration.get("publicNetworkAccess")
    if kind not in ("FileStorage", UNKNOWN) or public not in ("Disabled", UNKNOWN):
        yield from refused(
            declaration, {"enableHttpsTrafficOnly": False}, "leave it out, or make it a FileStorage with a private address alone"
        )


def _tagged(declaration: Declaration, stack: Stack) -> Iterable[Violation]:
    return missing_tags("tags", declaration.get("tags"), TAGS, "give base.tags")


def _rights(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    if declaration.type.endswith(":RoleDefinition"):
        for path in declaration.each("permissions"):
            for key in ("actions", "dataActions"):
                found = declaration.get(f"{path}.{key}", ())
                if found != UNKNOWN and any("*" in action for action in found):
                    fix = "list the actions"
                    yield Violation(property=f"{path}.{key}", found=found, allowed="actions without *", fix=fix)
        return
    found = str(declaration.get("roleDefinitionId"))
    name = WIDE.get(found.rpartition("/")[2].lower())
    if name:
        yield Violation(
            property="roleDefinitionId", found=name, allowed="a role of one service",
            fix="give one of ROLES in infra/clouds/azure/base.py, or add one there with its reason",
        )  # fmt: skip


def _protect_data(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """The group with the data is another than that of the rest, which goes."""
    if declaration.type.endswith(":ResourceGroup") and not declaration.name.endswith("-data"):
        return
    fix = "give it the options that infra/clouds/azure/storage.py makes of storage.data, or say `data: delete`"
    yield from data_kept(declaration, _settings(stack).storage.data, fix)


RULES: tuple[Rule, ...] = (
    Rule(
        name="azure-public-endpoint",
        title="The API server is reached from the ranges that the stack names",
        types=(_CLUSTER,),
        check=_endpoint,
    ),
    Rule(name="azure-accounts", title="Everybody comes with an identity of Entra", types=(_CLUSTER,), check=_accounts),
    Rule(name="azure-public-address", title="No machine has a public address", types=(_CLUSTER, _POOL), check=_address),
    Rule(
        name="azure-open-port",
        title="What is stored is reached by private addresses and identities",
        types=(_ACCOUNT, _DISK, _REGISTRY, _FIREWALL),
        check=_reached,
    ),
    Rule(name="azure-encryption", title="What travels is encrypted, but for NFS", types=(_ACCOUNT,), check=_encrypted),
    Rule(name="azure-tags", title="Everything says which stack it is of", types=TAGGED, check=_tagged),
    Rule(
        name="azure-no-wildcard",
        title="Roles are of one service",
        types=("azure-native:authorization:RoleAssignment", "azure-native:authorization:RoleDefinition"),
        check=_rights,
    ),
    Rule(
        name="azure-data-kept",
        title="A destroy leaves the data as the stack says",
        types=(_ACCOUNT, "azure-native:storage:FileShare", "azure-native:resources:ResourceGroup"),
        check=_protect_data,
    ),
)
