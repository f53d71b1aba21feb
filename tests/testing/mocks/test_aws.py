"""The mock of AWS as a provider sees it called: checks, differences, outputs, refusals."""

import json
from typing import Any

import pytest

from testing.pulumi.mocks.aws import DEFAULTS, Aws
from testing.pulumi.mocks.kind import ACCOUNT
from testing.pulumi.mocks.package import UNKNOWN, Asked, Failure, MockError

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
QUEUE = "aws:sqs/queue:Queue"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def asked(token: str, name: str = "one") -> Asked:
    return Asked(f"urn:pulumi:dev::ebb::{token}::{name}", token, name)


def provider(**tags: str) -> Aws:
    made = Aws()
    made.configure({"region": "us-west-2", "defaultTags": json.dumps({"tags": tags})})
    return made


def group(**more: Any) -> dict[str, Any]:
    return {
        "clusterName": "ebb-dev", "nodeRoleArn": "arn:aws:iam::123456789012:role/node", "subnetIds": ["subnet-1"],
        "scalingConfig": {"desiredSize": 0, "minSize": 0, "maxSize": 8}, **more,
    }  # fmt: skip


def failures(token: str, inputs: dict[str, Any]) -> list[Failure]:
    return provider().check(asked(token), inputs, {}, b"")[1]


@pytest.mark.parametrize(
    ("token", "inputs", "path", "said"),
    [
        pytest.param(
            NODE_GROUP,
            group(capacityType="CHEAP"),
            "capacityType",
            "is 'CHEAP', and must be one of ON_DEMAND, SPOT, CAPACITY_BLOCK",
            id="enum",
        ),
        pytest.param(NODE_GROUP, group(amiType="AL2023_x86_64_GPU"), "amiType", "must be one of AL2_x86_64,", id="long enum"),
        pytest.param(
            NODE_GROUP,
            group(instanceTypes=["g4dn.xlarge", "g4dn.huge"]),
            "instanceTypes[1]",
            "is 'g4dn.huge', and must be one of",
            id="another service's enum",
        ),
        pytest.param(
            NODE_GROUP,
            group(scalingConfig={"desiredSize": 0, "minSize": 0, "maxSize": 0}),
            "scalingConfig.maxSize",
            "is 0, and must be at least 1",
            id="minimum",
        ),
        pytest.param(
            NODE_GROUP,
            group(scalingConfig={"desiredSize": 0, "minSize": 0}),
            "scalingConfig.maxSize",
            "is missing",
            id="nested missing",
        ),
        pytest.param(
            NODE_GROUP,
            group(scalingConfig={"desiredSize": 0, "minSize": 0, "maxSize": 1, "max": 3}),
            "scalingConfig.max",
            "there are maxSize",
            id="nested unknown",
        ),
        pytest.param(NODE_GROUP, group(labels={"a": "x" * 64}), 'labels["a"]', "and must have at most 63", id="map value"),
        pytest.param(NODE_GROUP, group(labels={"k" * 64: "x"}), "labels", "has a key that is", id="map key"),
        pytest.param(
            NODE_GROUP,
            group(taints=[{"key": "gpu", "effect": "NoSchedule"}]),
            "taints[0].effect",
            "is 'NoSchedule', and must be one of NO_SCHEDULE",
            id="Kubernetes' spelling",
        ),
        pytest.param(
            NODE_GROUP, group(subnets=["subnet-1"]), "subnets", "is not a property here; there are subnetIds", id="unknown"
        ),
        pytest.param(NODE_GROUP, group(subnetIds="subnet-1"), "subnetIds", "is 'subnet-1', and must be a list", id="kind"),
        pytest.param("aws:ec2/subnet:Subnet", {"cidrBlock": "10.0.0.0/24"}, "vpcId", "is missing", id="missing"),
        pytest.param(
            TEMPLATE,
            {"metadataOptions": {"httpTokens": "must"}},
            "metadataOptions.httpTokens",
            "one of optional, required",
            id="deep enum",
        ),
        pytest.param(
            TEMPLATE,
            {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeType": "gp9"}}]},
            "blockDeviceMappings[0].ebs.volumeType",
            "is 'gp9'",
            id="in a list",
        ),
        pytest.param(
            "aws:eks/cluster:Cluster",
            {"roleArn": "arn:aws:iam::123456789012:role/x", "vpcConfig": {"subnetIds": []}, "name": "_bad"},
            "name",
            "must match",
            id="pattern",
        ),
        pytest.param(
            "aws:eks/cluster:Cluster",
            {"roleArn": "x", "vpcConfig": {"subnetIds": []}, "enabledClusterLogTypes": ["apis"]},
            "enabledClusterLogTypes[0]",
            "one of api, audit",
            id="renamed member",
        ),
        pytest.param(
            "aws:eks/addon:Addon",
            {"addonName": "coredns", "clusterName": "c", "resolveConflictsOnUpdate": "FORCE"},
            "resolveConflictsOnUpdate",
            "one of OVERWRITE, NONE, PRESERVE",
            id="update's member",
        ),
        pytest.param(
            "aws:eks/addon:Addon",
            {"addonName": "coredns", "clusterName": "c", "resolveConflictsOnCreate": "PRESERVE"},
            "resolveConflictsOnCreate",
            "is 'PRESERVE', and must be one of NONE, OVERWRITE",
            id="stricter than the API",
        ),
        pytest.param(
            "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
            {"bucket": "b", "rules": [{"id": "one", "status": "Enabled"}]},
            "rules[0]",
            "needs exactly one of filter, prefix",
            id="one of two",
        ),
        pytest.param(
            "aws:fsx/lustreFileSystem:LustreFileSystem",
            {"subnetIds": "subnet-1", "deploymentType": "PERSISTENT_3"},
            "deploymentType",
            "is 'PERSISTENT_3'",
            id="fsx",
        ),
        pytest.param(
            "aws:fsx/lustreFileSystem:LustreFileSystem",
            {"subnetIds": "subnet-1", "importedFileChunkSize": 0},
            "importedFileChunkSize",
            "is 0, and must be at least 1",
            id="fsx range",
        ),
        pytest.param(
            "aws:efs/accessPoint:AccessPoint",
            {"fileSystemId": "fs-12345678", "rootDirectory": {"path": "data"}},
            "rootDirectory.path",
            "must match",
            id="efs pattern",
        ),
        pytest.param("aws:iam/role:Role", {"assumeRolePolicy": "{}", "name": "a b"}, "name", "must match", id="iam pattern"),
        pytest.param(
            "aws:ecr/repository:Repository",
            {"imageTagMutability": "FIXED"},
            "imageTagMutability",
            "one of MUTABLE, IMMUTABLE",
            id="ecr",
        ),
        pytest.param(
            "aws:codebuild/project:Project",
            {
                "serviceRole": "role",
                "artifacts": {"type": "NO_ARTIFACTS"},
                "source": {"type": "S3"},
                "environment": {"computeType": "BIG", "image": "i", "type": "LINUX_CONTAINER"},
            },
            "environment.computeType",
            "is 'BIG'",
            id="codebuild",
        ),
        pytest.param(
            "aws:dlm/lifecyclePolicy:LifecyclePolicy",
            {
                "description": "d",
                "executionRoleArn": "arn:aws:iam::123456789012:role/x",
                "policyDetails": {
                    "schedules": [
                        {"name": "daily", "createRule": {"interval": 24, "intervalUnit": "DAYS"}, "retainRule": {"count": 1}}
                    ]
                },
            },
            "policyDetails.schedules[0].createRule.intervalUnit",
            "one of HOURS",
            id="dlm",
        ),
        pytest.param(
            "aws:s3/bucketVersioning:BucketVersioning",
            {"bucket": "b", "versioningConfiguration": {"status": "On"}},
            "versioningConfiguration.status",
            "one of Enabled, Suspended",
            id="s3",
        ),
        pytest.param(QUEUE, {"name": "ebb.dev"}, "name", "must match", id="sqs name"),
        pytest.param(
            QUEUE,
            {"messageRetentionSeconds": 30},
            "messageRetentionSeconds",
            "is 30, and must be from 60 to 1209600",
            id="sqs range",
        ),
        pytest.param(
            "aws:cloudwatch/eventRule:EventRule",
            {"eventPattern": "{" + " " * 4096},
            "eventPattern",
            "must have at most 4096",
            id="events length",
        ),
        pytest.param(
            "aws:cloudwatch/eventTarget:EventTarget",
            {"rule": "a rule", "arn": "arn:aws:sqs:us-west-2:123456789012:x"},
            "rule",
            "must match",
            id="events pattern",
        ),
    ],
)
def test_wrong_inputs_are_told_with_what_is_allowed(token: str, inputs: dict[str, Any], path: str, said: str) -> None:
    found = failures(token, inputs)
    assert path in [one.path for one in found]
    assert said in next(one.reason for one in found if one.path == path)


def test_right_inputs_pass_and_unknown_ones_wait() -> None:
    good = group(
        capacityType="SPOT", amiType="AL2023_x86_64_NVIDIA", instanceTypes=["g4dn.xlarge"], nodeRepairConfig={"enabled": True}
    )
    assert failures(NODE_GROUP, good) == []
    assert (
        failures(NODE_GROUP, group(capacityType=UNKNOWN, subnetIds=UNKNOWN, launchTemplate={"id": UNKNOWN, "version": UNKNOWN}))
        == []
    )


def test_a_type_without_a_row_is_refused() -> None:
    with pytest.raises(MockError, match=r"aws:ec2/instance:Instance is not in the reviewed tables"):
        failures("aws:ec2/instance:Instance", {})


def test_a_name_is_made_up_once_and_its_successor_gets_another() -> None:
    mock, one = provider(), asked(NODE_GROUP, "spot")
    first, _ = mock.check(one, group(), {}, b"")
    assert first["nodeGroupName"].startswith("spot-")
    assert first[DEFAULTS] == ["nodeGroupName"]
    kept, _ = mock.check(one, group(version="1.35"), first, b"")
    assert kept["nodeGroupName"] == first["nodeGroupName"]
    successor, _ = mock.check(one, group(version="1.35"), {}, b"")
    assert successor["nodeGroupName"] != first["nodeGroupName"]
    given, _ = mock.check(one, group(nodeGroupName="mine"), {}, b"")
    assert (given["nodeGroupName"], given[DEFAULTS]) == ("mine", [])


@pytest.mark.parametrize(
    ("token", "old", "new", "expected"),
    [
        pytest.param(
            NODE_GROUP,
            {"scalingConfig": {"maxSize": 1}},
            {"scalingConfig": {"maxSize": 2}},
            ({"scalingConfig.maxSize": "update"}, (), False),
            id="max",
        ),
        pytest.param(
            NODE_GROUP,
            {"capacityType": "SPOT"},
            {"capacityType": "ON_DEMAND"},
            ({"capacityType": "update"}, ("capacityType",), False),
            id="capacity type",
        ),
        pytest.param(
            NODE_GROUP,
            {"capacityType": "SPOT", "nodeGroupName": "x"},
            {"capacityType": "ON_DEMAND", "nodeGroupName": "x"},
            ({"capacityType": "update"}, ("capacityType",), True),
            id="a given name stands in the way",
        ),
        pytest.param(NODE_GROUP, {"subnetIds": ["a", "b"]}, {"subnetIds": ["b", "a"]}, ({}, (), False), id="a set has no order"),
        pytest.param(
            NODE_GROUP,
            {"instanceTypes": ["a", "b"]},
            {"instanceTypes": ["b", "a"]},
            ({"instanceTypes[0]": "update", "instanceTypes[1]": "update"}, ("instanceTypes[0]", "instanceTypes[1]"), False),
            id="instance types have one",
        ),
        pytest.param(NODE_GROUP, {}, {"taints": [{"key": "a"}]}, ({"taints": "add"}, (), False), id="taints"),
        pytest.param(
            "aws:ec2/subnet:Subnet",
            {"cidrBlock": "10.0.0.0/24"},
            {"cidrBlock": UNKNOWN},
            ({"cidrBlock": "update"}, ("cidrBlock",), False),
            id="not known yet",
        ),
        pytest.param(
            "aws:efs/mountTarget:MountTarget",
            {"subnetId": "a"},
            {"subnetId": "b"},
            ({"subnetId": "update"}, ("subnetId",), True),
            id="one per zone",
        ),
        pytest.param(
            "aws:eks/cluster:Cluster",
            {"encryptionConfig": {"provider": {}}},
            {},
            ({"encryptionConfig": "delete"}, ("encryptionConfig",), False),
            id="encryption taken away",
        ),
        pytest.param(
            "aws:eks/cluster:Cluster",
            {},
            {"encryptionConfig": {"provider": {}}},
            ({"encryptionConfig": "add"}, (), False),
            id="encryption added",
        ),
        pytest.param(
            "aws:fsx/lustreFileSystem:LustreFileSystem",
            {"storageCapacity": 2400, "deploymentType": "PERSISTENT_2"},
            {"storageCapacity": 1200, "deploymentType": "PERSISTENT_2"},
            ({"storageCapacity": "update"}, ("storageCapacity",), False),
            id="shrunk",
        ),
        pytest.param(
            "aws:fsx/lustreFileSystem:LustreFileSystem",
            {"storageCapacity": 1200, "deploymentType": "PERSISTENT_2"},
            {"storageCapacity": 2400, "deploymentType": "PERSISTENT_2"},
            ({"storageCapacity": "update"}, (), False),
            id="grown",
        ),
        pytest.param(
            "aws:s3/bucketObjectv2:BucketObjectv2",
            {"source": {"hash": "a"}},
            {"source": {"hash": "b"}},
            ({"source.hash": "update"}, (), False),
            id="a changed file",
        ),
    ],
)
def test_differences(token: str, old: Any, new: Any, expected: Any) -> None:
    found = provider().diff(asked(token), old, {}, new)
    assert (dict(found.changes), found.replaces, found.delete_first) == expected


def test_other_default_tags_update_everything_that_has_tags() -> None:
    one = asked("aws:ec2/vpc:Vpc")
    _, outputs = provider(team="a").create(one, {"cidrBlock": "10.0.0.0/16"}, preview=False)
    assert outputs["tagsAll"] == {"team": "a"}
    same = provider(team="a").diff(one, {"cidrBlock": "10.0.0.0/16"}, outputs, {"cidrBlock": "10.0.0.0/16"})
    other = provider(team="b").diff(one, {"cidrBlock": "10.0.0.0/16"}, outputs, {"cidrBlock": "10.0.0.0/16"})
    assert (dict(same.changes), dict(other.changes)) == ({}, {"tagsAll": "update"})


def test_made_up_outputs_look_real_and_are_the_same_every_time() -> None:
    inputs, _ = provider().check(asked(NODE_GROUP, "spot"), group(nodeGroupName="spot"), {}, b"")
    first, second = (provider().create(asked(NODE_GROUP, "spot"), inputs, preview=False) for _ in range(2))
    assert first == second
    resource_id, outputs = first
    assert resource_id == "ebb-dev:spot"
    assert outputs["arn"].startswith(f"arn:aws:eks:us-west-2:{ACCOUNT}:nodegroup/ebb-dev/spot/")
    assert outputs["resources"][0]["autoscalingGroups"][0]["name"].startswith("eks-spot-")
    assert outputs["scalingConfig"]["maxSize"] == 8


def test_a_queue_is_addressed_as_in_aws() -> None:
    resource_id, outputs = provider().create(asked(QUEUE), {"name": "ebb-dev-karpenter"}, preview=False)
    assert resource_id == outputs["url"] == f"https://sqs.us-west-2.amazonaws.com/{ACCOUNT}/ebb-dev-karpenter"
    assert outputs["arn"] == f"arn:aws:sqs:us-west-2:{ACCOUNT}:ebb-dev-karpenter"


def test_a_preview_knows_inputs_only() -> None:
    _, outputs = provider().create(
        asked("aws:eks/cluster:Cluster"), {"name": "c", "vpcConfig": {"subnetIds": ["s"]}}, preview=True
    )
    assert (outputs["name"], outputs["endpoint"], outputs["arn"]) == ("c", UNKNOWN, UNKNOWN)
    assert outputs["vpcConfig"] == {"subnetIds": ["s"], "clusterSecurityGroupId": UNKNOWN, "vpcId": UNKNOWN}


@pytest.mark.parametrize(
    ("changed", "preview", "version"),
    [
        pytest.param({"imageId": "ami-2"}, False, 2, id="another image is another version"),
        pytest.param({"imageId": "ami-2"}, True, UNKNOWN, id="which a preview does not know"),
        pytest.param({"imageId": "ami-1", "tags": {"a": "b"}}, False, 1, id="tags make none"),
    ],
)
def test_versions_of_a_launch_template(changed: dict[str, Any], preview: bool, version: object) -> None:
    one = asked(TEMPLATE)
    first = {"imageId": "ami-1", "name": "x"}
    _, outputs = provider().create(one, first, preview=False)
    assert outputs["latestVersion"] == 1
    later = provider().update(one, outputs, first, {"name": "x", **changed}, preview=preview)
    assert later["latestVersion"] == version
    assert later["arn"] == outputs["arn"]


def test_only_what_depends_on_nothing_is_looked_up() -> None:
    assert provider().invoke("aws:index/getRegion:getRegion", {})["name"] == "us-west-2"
    assert provider().invoke("aws:index/getCallerIdentity:getCallerIdentity", {})["accountId"] == ACCOUNT
    image = provider().invoke("aws:ecr/getImage:getImage", {"repositoryName": "r", "imageDigest": "sha256:1"})
    assert image["imageUri"].endswith("/r@sha256:1")
    with pytest.raises(MockError, match="give imageDigest"):
        provider().invoke("aws:ecr/getImage:getImage", {"repositoryName": "r", "mostRecent": True})
    with pytest.raises(MockError, match=r"looks up aws:ec2/getAmi:getAmi while it runs"):
        provider().invoke("aws:ec2/getAmi:getAmi", {})


def test_the_provider_wants_a_region_and_knows_its_settings() -> None:
    assert [one.path for one in Aws().check_config({"profil": "x"})] == ["profil", "region"]
    assert Aws().check_config({"region": "us-west-2", "defaultTags": '{"tags": {}}', "skipCredentialsValidation": "true"}) == []
