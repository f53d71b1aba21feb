"""The policy pack's rules of Google Cloud: what breaks each is named with its fix."""

from typing import Any

import pytest

from infra import config
from infra.clouds.gcp.policies import RULES
from infra.config import Stack
from tests.infra.gcp.case import CLUSTER, FILESTORE, POOL
from tests.infra.gcp.stacks import stack as asked
from tests.infra.policies import broken, check_sentences, declarations, derived

MEMBER = "gcp:projects/iAMMember:IAMMember"
NETWORKS, PRIVATE = "masterAuthorizedNetworksConfig", "privateClusterConfig"

# The rule, the type of one of the stack's resources, its change, and words of the sentence.
BROKEN: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("gcp-public-endpoint", CLUSTER, {NETWORKS: None}, [f"{NETWORKS} is not set", "the whole internet"]),
    (
        "gcp-public-endpoint", CLUSTER, {NETWORKS: {"cidrBlocks": [{"cidrBlock": "0.0.0.0/0"}]}},
        [f"{NETWORKS}.cidrBlocks", "gcp.cluster.authorizedCidrs", "the office"],
    ),
    (
        "gcp-public-endpoint", CLUSTER, {NETWORKS: {"cidrBlocks": []}},
        ["gcpPublicCidrsAccessEnabled is not set; allowed is false"],
    ),
    (
        "gcp-public-endpoint", CLUSTER, {"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"allowExternalTraffic": True}}},
        ["allowExternalTraffic is true", "asks no range"],
    ),
    ("gcp-public-address", CLUSTER, {PRIVATE: {"enablePrivateNodes": False}}, ["enablePrivateNodes is false", "Cloud NAT"]),
    (
        "gcp-open-port", FILESTORE, {"fileShares": {"nfsExportOptions": [{"ipRanges": ["10.0.0.0/8", "0.0.0.0/0"]}]}},
        ['fileShares.nfsExportOptions.0.ipRanges is "0.0.0.0/0"', "gcp.storage.clients"],
    ),
    ("gcp-open-port", FILESTORE, {"fileShares": {"name": "ebb"}}, ["nfsExportOptions is not set", "private ranges"]),
    (
        "gcp-public-bucket", "gcp:storage/bucket:Bucket", {"publicAccessPrevention": "inherited"},
        ['allowed is "enforced"', "a role"],
    ),
    ("gcp-metadata", POOL, {"nodeConfig": {}}, ["workloadMetadataConfig.mode is not set", "act as its machine"]),
    ("gcp-labels", POOL, {"nodeConfig": {}}, ["nodeConfig.resourceLabels", "ebb-project, ebb-stack", "pools.declare()"]),
    ("gcp-labels", FILESTORE, {"provider": {}}, ["defaultLabels is not set", "Part.child"]),
    ("gcp-no-wildcard", MEMBER, {"role": "roles/editor"}, ['role is "roles/editor"', "a role of one service"]),
    ("gcp-no-wildcard", MEMBER, {"member": "allUsers"}, ['member is "allUsers"', "name who it is"]),
    (
        "gcp-no-wildcard", MEMBER, {"role": "roles/storage.admin", "member": "serviceAccount:a@b"},
        ["gcp.cluster.administrators alone"],
    ),
    ("gcp-data-kept", FILESTORE, {"retained": False}, ["retainOnDelete is false", "data: delete"]),
    ("gcp-data-kept", FILESTORE, {"deleted_first": True}, ["deleteBeforeReplace is true"]),
    ("gcp-data-kept", CLUSTER, {"deletionProtection": True}, ["deletionProtection is true; allowed is false"]),
    (
        "gcp-data-kept", "gcp:compute/resourcePolicy:ResourcePolicy", {"snapshotSchedulePolicy": {"schedule": {}}},
        ["onSourceDiskDelete is not set", "snapshots for ever"],
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def stack() -> Stack:
    return config.read("gcp")


@pytest.mark.parametrize(("name", "type_", "changes", "words"), BROKEN)
def test_what_breaks_a_rule_is_named_with_its_fix(
    name: str, type_: str, changes: dict[str, Any], words: list[str], stack: Stack
) -> None:
    check_sentences(RULES, name, derived(declarations("gcp"), type_, changes), stack, words)


def test_a_private_endpoint_is_what_the_stack_asked_for() -> None:
    private = asked({"gcp.cluster.endpoint": "private", "gcp.cluster.upReachesNetwork": True})
    one = derived(declarations("gcp"), CLUSTER, {})
    assert "gcp.cluster.endpoint: public" in broken(RULES, "gcp-public-endpoint", one, private)


def test_an_existing_network_s_firewall_says_who_mounts(stack: Stack) -> None:
    existing = {
        "gcp.network": {"name": "theirs", "subnet": "sub", "podsRange": "pods-of-theirs", "servicesRange": "services-of-theirs"}
    }
    one = derived(declarations("gcp"), FILESTORE, {"fileShares": {"name": "ebb"}})
    (rule,) = [one for one in RULES if one.name == "gcp-open-port"]
    assert rule.broken_by(one, stack)
    assert rule.broken_by(one, asked(existing)) == []


def test_people_whom_the_stack_names_may_administer(stack: Stack) -> None:
    (administrator, *_) = stack.settings.cluster.administrators
    one = derived(declarations("gcp"), MEMBER, {"role": "roles/container.admin", "member": administrator})
    assert [text for rule in RULES for text in rule.broken_by(one, stack)] == []
