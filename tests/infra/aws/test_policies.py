"""The policy pack's rules of AWS: what breaks each is named with its fix."""

import json
from typing import Any

import pytest

from infra import config
from infra.clouds.aws.policies import RULES
from infra.config import Stack
from infra.policies.rules import UNKNOWN, Declaration
from tests.infra.aws import stacks
from tests.infra.aws.test_karpenter import whole
from tests.infra.policies import broken, check_sentences, declarations, derived
from tests.infra.stacks import changed

TEMPLATE, EFS, DISK = "LaunchTemplate", "aws:efs/fileSystem:FileSystem", "aws:ebs/volume:Volume"
ALLOW_ALL = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:Get*", "ec2:RunInstances"], "Resource": "*"}],
}
TRUST = {"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}]}

# The rule, the type of one of the stack's resources, its change, and words of the sentence.
BROKEN: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("aws-public-endpoint", "eks:index:Cluster", {"publicAccessCidrs": ["0.0.0.0/0"]}, ["publicAccessCidrs", "never 0.0.0.0/0"]),
    ("aws-public-endpoint", "eks:index:Cluster", {"publicAccessCidrs": None}, ["publicAccessCidrs is not set", "the office"]),
    ("aws-public-endpoint", "eks:index:Cluster", {"publicAccessCidrs": ["203.0.113.0/24"]}, ['["203.0.113.0/24"]']),
    (
        "aws-public-endpoint", "aws:eks/cluster:Cluster", {"vpcConfig": {"endpointPublicAccess": True}},
        ["vpcConfig.publicAccessCidrs is not set"],
    ),
    ("aws-open-port", "SecurityGroupIngressRule", {"cidrIpv4": "0.0.0.0/0"}, ['cidrIpv4 is "0.0.0.0/0"', "storage.clients"]),
    ("aws-open-port", "SecurityGroupIngressRule", {"cidrIpv6": "::/0"}, ['cidrIpv6 is "::/0"']),
    ("aws-open-port", "SecurityGroup", {"ingress": [{"cidrBlocks": ["0.0.0.0/0"]}]}, ["ingress.0.cidrBlocks", "a private range"]),
    (
        "aws-public-address", "aws:ec2/subnet:Subnet", {"mapPublicIpOnLaunch": True},
        ["mapPublicIpOnLaunch is true", "NAT gateway"],
    ),
    ("aws-public-address", TEMPLATE, {"networkInterfaces": [{}]}, ["networkInterfaces.0.associatePublicIpAddress is not set"]),
    ("aws-public-bucket", "BucketPublicAccessBlock", {"blockPublicPolicy": False}, ["blockPublicPolicy is false", "gets a role"]),
    ("aws-encryption", EFS, {"encrypted": None}, ["encrypted is not set; allowed is true", "costs nothing"]),
    ("aws-encryption", DISK, {"encrypted": False}, ["encrypted is false; allowed is true"]),
    (
        "aws-encryption", TEMPLATE, {"blockDeviceMappings": [{"ebs": {"encrypted": "false"}}]},
        ["blockDeviceMappings.0.ebs.encrypted"],
    ),
    ("aws-encryption", TEMPLATE, {"blockDeviceMappings": None}, ["blockDeviceMappings is not set", "the system disk"]),
    ("aws-encryption", "BucketServerSideEncryptionConfiguration", {"rules": []}, ["sseAlgorithm is not set", "AES256"]),
    (
        "aws-imdsv2", TEMPLATE, {"metadataOptions": {"httpTokens": "optional", "httpPutResponseHopLimit": 1}},
        ['metadataOptions.httpTokens is "optional"; allowed is "required"', "act as its machine"],
    ),
    (
        "aws-imdsv2", TEMPLATE, {"metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2}},
        ["metadataOptions.httpPutResponseHopLimit is 2; allowed is 1"],
    ),
    ("aws-tags", TEMPLATE, {"tagSpecifications": []}, ["the keys ebb.dev/project, ebb.dev/stack", "machine_tags()"]),
    ("aws-no-wildcard", "aws:iam/rolePolicy:RolePolicy", {"policy": json.dumps(ALLOW_ALL)}, ["Statement.0.Action", "rights.py"]),
    (
        "aws-no-wildcard", "aws:iam/role:Role", {"assumeRolePolicy": json.dumps(TRUST)},
        ["Statement.0.Principal", "name who it is"],
    ),
    (
        "aws-no-wide-policy", "RolePolicyAttachment", {"policyArn": "arn:aws:iam::aws:policy/AdministratorAccess"},
        ["policyArn", "a policy without service:*", "rights.py"],
    ),
    (
        "aws-no-wide-policy", "RolePolicyAttachment", {"policyArn": "arn:aws:iam::aws:policy/AmazonS3FullAccess"},
        ["AmazonS3FullAccess"],
    ),
    ("aws-data-kept", EFS, {"retained": False}, ["retainOnDelete is false", "storage.data is keep", "data: delete"]),
    ("aws-data-kept", EFS, {"deleted_first": True}, ["deleteBeforeReplace is true", "would delete the data"]),
    ("aws-data-kept", DISK, {"tags": {"Name": "x"}}, ["the keys ebb.dev/backup", "snapshots leave the disk out"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def stack() -> Stack:
    return config.read("dev")


@pytest.mark.parametrize(("name", "type_", "changes", "words"), BROKEN)
def test_what_breaks_a_rule_is_named_with_its_fix(
    name: str, type_: str, changes: dict[str, Any], words: list[str], stack: Stack
) -> None:
    check_sentences(RULES, name, derived(declarations("dev"), type_, changes), stack, words)


def test_a_private_endpoint_is_what_the_stack_asked_for() -> None:
    """The same cluster, when the stack's file says private."""
    private = stacks.values()
    changed(changed(private, "aws.cluster.endpoint", "private"), "aws.cluster.upReachesVpc", True)
    asked = config.parse(changed(private, "aws.cluster.publicAccessCidrs", []), config.ROOT)
    one = derived(declarations("dev"), "eks:index:Cluster", {"publicAccessCidrs": UNKNOWN})
    assert "aws.cluster.endpoint: public" in broken(RULES, "aws-public-endpoint", one, asked)
    closed = derived(declarations("dev"), "eks:index:Cluster", {"endpointPublicAccess": False, "publicAccessCidrs": None})
    assert not [text for rule in RULES if rule.name == "aws-public-endpoint" for text in rule.broken_by(closed, asked)]


def test_a_provider_that_tags_nothing_is_named(stack: Stack) -> None:
    one = derived(declarations("dev"), EFS, {"provider": {"region": "us-west-2"}})
    text = broken(RULES, "aws-tags", one, stack)
    assert "the provider's defaultTags.tags is not set" in text
    assert "Part.child" in text


@pytest.mark.parametrize(
    ("on_destroy", "protect", "keeps"),
    [("protect", True, True), ("protect", False, False), ("keep", False, True), ("delete", False, True)],
)
def test_data_is_kept_as_the_stack_says(on_destroy: str, protect: bool, keeps: bool) -> None:
    asked = config.parse(changed(stacks.values(), "aws.storage.data", on_destroy), config.ROOT)
    one = derived(declarations("dev"), EFS, {"protect": protect})  # the usual stack's is retained
    assert (not [text for rule in RULES if rule.name == "aws-data-kept" for text in rule.broken_by(one, asked)]) is keeps


def test_machines_of_karpenter_keep_the_rules_too(stack: Stack) -> None:
    classes = [one for one in whole().resources if one.kind == "EC2NodeClass"]
    assert classes
    asked = {"aws-imdsv2", "aws-encryption", "aws-public-address", "aws-tags"}
    for one in classes:
        good = Declaration(type=one.type, name=one.name, inputs=one.inputs)
        assert [text for rule in RULES for text in rule.broken_by(good, stack)] == []
        bare = Declaration(type=one.type, name=one.name, inputs={"spec": {}})
        assert {rule.name for rule in RULES if rule.broken_by(bare, stack)} == asked
