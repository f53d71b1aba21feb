"""The policy pack's rules of Azure: what breaks each is named with its fix."""

from typing import Any

import pytest

from infra import config
from infra.clouds.azure.policies import RULES, TAGGED
from infra.config import Stack
from testing.pulumi.mocks import wheel
from tests.infra.azure import stacks
from tests.infra.azure.case import AGENT_POOL, CLUSTER
from tests.infra.policies import broken, check_sentences, declarations, derived

ACCOUNT, ACCESS = "azure-native:storage:StorageAccount", "apiServerAccessProfile"
OWNER = "/subscriptions/x/providers/Microsoft.Authorization/roleDefinitions/8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
OPEN = {"name": "all", "direction": "Inbound", "access": "Allow", "sourceAddressPrefix": "*"}

# The rule, the type of one of the stack's resources, its change, and words of the sentence.
BROKEN: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("azure-public-endpoint", CLUSTER, {ACCESS: None}, [f"{ACCESS}.authorizedIPRanges is not set", "the office"]),
    ("azure-public-endpoint", CLUSTER, {ACCESS: {"authorizedIPRanges": ["0.0.0.0/0"]}}, ["azure.cluster.authorizedRanges"]),
    ("azure-public-endpoint", CLUSTER, {ACCESS: {"authorizedIPRanges": ["203.0.113.0/24"]}}, ["203.0.113.0/24"]),
    (
        "azure-public-endpoint", CLUSTER, {ACCESS: {"enablePrivateCluster": True, "enablePrivateClusterPublicFQDN": True}},
        ["enablePrivateClusterPublicFQDN is true; allowed is false", "public DNS"],
    ),
    ("azure-accounts", CLUSTER, {"disableLocalAccounts": False}, ["disableLocalAccounts is false", "works for ever"]),
    ("azure-public-address", AGENT_POOL, {"enableNodePublicIP": True}, ["enableNodePublicIP is true", "NAT gateway"]),
    ("azure-public-address", CLUSTER, {"agentPoolProfiles": [{"enableNodePublicIP": True}]}, ["agentPoolProfiles.0"]),
    ("azure-open-port", ACCOUNT, {"allowSharedKeyAccess": None}, ["allowSharedKeyAccess is not set; allowed is false"]),
    ("azure-open-port", ACCOUNT, {"publicNetworkAccess": "Enabled"}, ['allowed is "Disabled"', "a private address"]),
    ("azure-open-port", "Disk", {"networkAccessPolicy": "AllowAll"}, ['networkAccessPolicy is "AllowAll"', "download the disk"]),
    ("azure-open-port", "Registry", {"adminUserEnabled": True}, ["adminUserEnabled is true", "their identity"]),
    (
        "azure-open-port", "NetworkSecurityGroup", {"securityRules": [OPEN]},
        ["securityRules.0.sourceAddressPrefix", "azure.storage.clients"],
    ),
    ("azure-encryption", ACCOUNT, {"minimumTlsVersion": "TLS1_0"}, ['allowed is "TLS1_2"', "older ones are broken"]),
    ("azure-encryption", ACCOUNT, {"kind": "StorageV2"}, ["enableHttpsTrafficOnly is false", "FileStorage"]),
    ("azure-tags", AGENT_POOL, {"tags": {"ebb-stack": "azure"}}, ["the keys ebb-project", "base.tags"]),
    (
        "azure-no-wildcard", "RoleAssignment", {"roleDefinitionId": OWNER},
        ['roleDefinitionId is "Owner"', "a role of one service"],
    ),
    ("azure-data-kept", ACCOUNT, {"retained": False}, ["retainOnDelete is false", "storage.data is keep", "data: delete"]),
    ("azure-data-kept", "FileShare", {"deleted_first": True}, ["deleteBeforeReplace is true"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def stack() -> Stack:
    return config.read("azure")


@pytest.mark.parametrize(("name", "type_", "changes", "words"), BROKEN)
def test_what_breaks_a_rule_is_named_with_its_fix(
    name: str, type_: str, changes: dict[str, Any], words: list[str], stack: Stack
) -> None:
    check_sentences(RULES, name, derived(declarations("azure"), type_, changes), stack, words)


def test_the_list_of_what_has_tags_is_the_sdk_s() -> None:
    made = {one.type for one in declarations("azure") if one.type.startswith("azure-native:")}
    assert {one for one in made if "tags" in wheel.args_of(one)} == made & set(TAGGED)


def test_a_private_endpoint_is_what_the_stack_asked_for() -> None:
    cluster = stacks.cluster(endpoint="private", upReachesNetwork=True, authorizedRanges=[])
    private = stacks.stack(cluster=cluster)
    ours = {ACCESS: {"authorizedIPRanges": ["203.0.113.9/32"]}}
    one = derived(declarations("azure"), CLUSTER, ours)
    assert "azure.cluster.endpoint: public" in broken(RULES, "azure-public-endpoint", one, private)


def test_a_role_of_one_s_own_lists_its_actions(stack: Stack) -> None:
    one = derived(declarations("azure"), "RoleAssignment", {"permissions": [{"actions": ["Microsoft.Compute/*"]}]})
    own = type(one)(type="azure-native:authorization:RoleDefinition", name="own", inputs=one.inputs)
    assert "permissions.0.actions" in broken(RULES, "azure-no-wildcard", own, stack)
