"""Replacements that hang on values: the same property changes in place or with the whole resource."""

from typing import Any

import pytest

from testing.pulumi.mocks.aws import Aws
from testing.pulumi.mocks.kind import ACCOUNT
from testing.pulumi.mocks.package import UNKNOWN, Asked
from testing.pulumi.mocks.tables.aws import TYPES

VPC, SUBNET, GATEWAY = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/natGateway:NatGateway"
ENDPOINT, RULE = "aws:ec2/vpcEndpoint:VpcEndpoint", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
CLUSTER, GROUP = "aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"
LUSTRE, SNAPSHOTS = "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:dlm/lifecyclePolicy:LifecyclePolicy"
VERSIONING = "aws:s3/bucketVersioning:BucketVersioning"
TENANCY, BLOCK, COUNT = "instanceTenancy", "ipv6CidrBlock", "secondaryPrivateIpAddressCount"
GIVEN, VERSION, OWNER = "USER_PROVISIONED", "fileSystemTypeVersion", "expectedBucketOwner"


def nodes(role: str | None, **more: Any) -> dict[str, Any]:
    return {"computeConfig": {"enabled": True, "nodePools": ["system"], **({"nodeRoleArn": role} if role else {}), **more}}


def egress(mode: str) -> dict[str, Any]:
    return {"vpcConfig": {"controlPlaneEgressMode": mode}}


def iops(number: int, mode: str = GIVEN) -> dict[str, Any]:
    return {"deploymentType": "PERSISTENT_2", "metadataConfiguration": {"mode": mode, "iops": number}}


def schedules(*each: dict[str, Any]) -> dict[str, Any]:
    return {"policyDetails": {"schedules": list(each)}}


CASES = [
    (VPC, {TENANCY: "dedicated"}, {}, ""),
    (VPC, {TENANCY: "dedicated"}, {TENANCY: "default"}, ""),
    (VPC, {}, {TENANCY: "default"}, ""),
    (VPC, {}, {TENANCY: "dedicated"}, TENANCY),
    (SUBNET, {BLOCK: "a"}, {BLOCK: "b"}, ""),
    (SUBNET, {BLOCK: "a", "assignIpv6AddressOnCreation": True}, {BLOCK: "b"}, BLOCK),
    (SUBNET, {BLOCK: "a", "assignIpv6AddressOnCreation": True}, {}, ""),
    (GATEWAY, {COUNT: 1, "connectivityType": "private"}, {COUNT: 2, "connectivityType": "private"}, COUNT),
    (GATEWAY, {COUNT: 1}, {COUNT: 2}, ""),
    (ENDPOINT, {}, {"privateDnsEnabled": True}, "privateDnsEnabled"),
    (ENDPOINT, {}, {"privateDnsEnabled": False}, ""),
    (ENDPOINT, {"vpcEndpointType": "Interface"}, {"vpcEndpointType": "Interface", "privateDnsEnabled": True}, ""),
    (RULE, {"cidrIpv4": "10.0.0.0/8"}, {"cidrIpv4": "10.0.0.0/16"}, ""),
    (RULE, {"cidrIpv4": "10.0.0.0/8"}, {"prefixListId": "pl-1"}, "cidrIpv4 prefixListId"),
    (CLUSTER, {"encryptionConfig": {"provider": {}}}, {}, "encryptionConfig"),
    (CLUSTER, {}, {"encryptionConfig": {"provider": {}}}, ""),
    (CLUSTER, egress("CUSTOMER_ROUTED"), egress("AWS_MANAGED"), "vpcConfig"),
    (CLUSTER, egress("AWS_MANAGED"), egress("CUSTOMER_ROUTED"), ""),
    (CLUSTER, nodes("a"), nodes("b"), "computeConfig"),
    (CLUSTER, nodes("a"), nodes(None), "computeConfig"),
    (CLUSTER, nodes("a"), nodes(None, nodePools=[]), ""),
    (CLUSTER, nodes("a"), nodes(None, enabled=False), ""),
    (CLUSTER, nodes("a"), nodes("b", enabled=False), "computeConfig"),
    (CLUSTER, nodes(None), nodes("b"), ""),
    (CLUSTER, nodes("a"), {}, ""),
    (GROUP, {}, {"launchTemplate": {"id": "lt-1"}}, "launchTemplate"),
    (GROUP, {"launchTemplate": {"id": "lt-1"}}, {}, ""),
    (LUSTRE, {"storageCapacity": 1200}, {"storageCapacity": 2400}, "storageCapacity"),
    (LUSTRE, {"storageCapacity": 1200}, {"storageCapacity": UNKNOWN}, ""),
    (LUSTRE, {VERSION: "2.12"}, {VERSION: "2.15"}, ""),
    (LUSTRE, {VERSION: "2.12"}, {VERSION: "2.9"}, VERSION),
    (LUSTRE, iops(6000), iops(1500), "metadataConfiguration"),
    (LUSTRE, iops(1500), iops(6000), ""),
    (LUSTRE, iops(6000), iops(1500, "AUTOMATIC"), ""),
    (SNAPSHOTS, schedules({}), schedules({}, {"copyTags": True}), "policyDetails"),
    (SNAPSHOTS, schedules({}), schedules({}, {}), ""),
    (SNAPSHOTS, schedules({"copyTags": True}, {}), schedules({"copyTags": True}), ""),
    (VERSIONING, {}, {OWNER: ACCOUNT}, ""),
    (VERSIONING, {OWNER: ACCOUNT}, {OWNER: ACCOUNT[::-1]}, OWNER),
    (VERSIONING, {OWNER: ACCOUNT}, {}, OWNER),
]


@pytest.mark.parametrize(("token", "old", "new", "replaced"), CASES)
def test_values_decide(token: str, old: dict[str, Any], new: dict[str, Any], replaced: str) -> None:
    condition = TYPES[token].sometimes
    assert condition is not None
    assert " ".join(condition(old, new)) == replaced
    assert condition(new, new) == ()


@pytest.mark.parametrize(
    ("token", "old", "new", "paths"),
    [
        (VPC, {}, {TENANCY: "dedicated"}, (TENANCY,)),
        (VPC, {TENANCY: "dedicated"}, {}, ()),
        (GROUP, {}, {"launchTemplate": {"id": "lt-1", "version": "1"}}, ("launchTemplate",)),
        (LUSTRE, iops(6000), iops(1500), ("metadataConfiguration.iops",)),
        (SNAPSHOTS, schedules({}), schedules({}, {"copyTags": True}), ("policyDetails.schedules[1]",)),
        (LUSTRE, {"perUnitStorageThroughput": 125}, {"perUnitStorageThroughput": 250}, ()),
    ],
)
def test_the_provider_asks_them(token: str, old: dict[str, Any], new: dict[str, Any], paths: tuple[str, ...]) -> None:
    asked = Asked(f"urn:pulumi:dev::ebb::{token}::one", token, "one")
    assert Aws().diff(asked, old, {}, new).replaces == paths
