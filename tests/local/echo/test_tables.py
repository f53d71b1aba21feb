"""The tables agree with the installed SDK and with botocore; what replaces the stack's main types is pinned."""

import pytest

from local.echo import models, wheel
from local.echo.kind import AwsType
from local.echo.tables import TYPES

rows = pytest.mark.parametrize("row", TYPES.values(), ids=list(TYPES))


@rows
def test_every_property_has_its_place(row: AwsType) -> None:
    """In the API's model by its name, or in the table: none is passed over in silence."""
    assert [name for name in row.properties if not row.resolved(name)] == []


@rows
def test_the_table_names_nothing_that_does_not_exist(row: AwsType) -> None:
    for operation in (row.operation, *row.updates, *filter(None, [row.delete])):
        assert operation in models.service(row.service).operation_names
    for path in (*row.members, *row.replaces, *row.updated, *row.quiet, *row.sets, *row.allowed, *filter(None, [row.autoname])):
        assert path.split(".")[0] in row.properties, path
    for path, target in row.members.items():
        assert target is None or row.shape_of(path) is not None, path
    assert set(row.outputs) | set(row.counters) <= set(wheel.outputs_of(row.token))


@rows
def test_region_replaces_wherever_there_is_one(row: AwsType) -> None:
    assert row.replaced_by("region") or "region" not in row.properties


# Written out whole: who changes a row sees here what else changes. Sources: AWS API reference, terraform-provider-aws (ForceNew).
REPLACED = {
    "aws:ec2/vpc:Vpc": "cidrBlock instanceTenancy ipv4IpamPoolId ipv4NetmaskLength region",
    "aws:ec2/subnet:Subnet": "availabilityZone availabilityZoneId cidrBlock ipv4IpamPoolId ipv4NetmaskLength ipv6IpamPoolId"
    " ipv6Native ipv6NetmaskLength outpostArn region vpcId",
    "aws:ec2/launchTemplate:LaunchTemplate": "name namePrefix region",
    "aws:ec2/natGateway:NatGateway": "allocationId availabilityMode connectivityType privateIp region subnetId vpcId",
    "aws:ec2/securityGroup:SecurityGroup": "description name namePrefix region vpcId",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "region securityGroupId",
    "aws:eks/cluster:Cluster": "bootstrapSelfManagedAddons name outpostConfig region roleArn",
    "aws:eks/nodeGroup:NodeGroup": "amiType capacityType clusterName diskSize instanceTypes nodeGroupName nodeGroupNamePrefix"
    " nodeRoleArn region remoteAccess subnetIds",
    "aws:eks/addon:Addon": "addonName clusterName namespaceConfig region",
    "aws:eks/accessEntry:AccessEntry": "clusterName principalArn region type",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": "clusterName namespace region serviceAccount",
    "aws:efs/fileSystem:FileSystem": "availabilityZoneName creationToken encrypted kmsKeyId performanceMode region",
    "aws:efs/mountTarget:MountTarget": "fileSystemId ipAddress ipAddressType ipv6Address region subnetId",
    "aws:efs/accessPoint:AccessPoint": "fileSystemId posixUser region rootDirectory",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "backupId copyTagsToBackups deploymentType driveCacheType efaEnabled exportPath"
    " fileSystemTypeVersion importPath importedFileChunkSize kmsKeyId perUnitStorageThroughput region securityGroupIds"
    " storageType subnetIds",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "dataRepositoryPath fileSystemId fileSystemPath region",
    "aws:ebs/volume:Volume": "availabilityZone encrypted kmsKeyId multiAttachEnabled outpostArn region snapshotId"
    " volumeInitializationRate",
    "aws:s3/bucket:Bucket": "bucket bucketNamespace bucketPrefix objectLockEnabled region",
    "aws:ecr/repository:Repository": "encryptionConfigurations name region",
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": "policy region repository",
    "aws:iam/role:Role": "name namePrefix path",
    "aws:iam/policy:Policy": "description name namePrefix path",
    "aws:cloudwatch/logGroup:LogGroup": "logGroupClass name namePrefix region",
    "aws:codebuild/project:Project": "name region",
    "aws:kms/key:Key": "customKeyStoreId customerMasterKeySpec keyUsage multiRegion region xksKeyId",
}


@pytest.mark.parametrize(("token", "expected"), REPLACED.items(), ids=list(REPLACED))
def test_what_replaces(token: str, expected: str) -> None:
    row = TYPES[token]
    assert sorted(name for name in row.properties if row.replaced_by(name)) == sorted(expected.split())


@pytest.mark.parametrize(
    ("token", "path", "replaced"),
    [
        ("aws:eks/nodeGroup:NodeGroup", "scalingConfig.maxSize", False),
        ("aws:eks/nodeGroup:NodeGroup", "launchTemplate.version", False),
        ("aws:eks/nodeGroup:NodeGroup", "launchTemplate.id", True),
        ("aws:eks/nodeGroup:NodeGroup", "labels.any", False),
        ("aws:eks/nodeGroup:NodeGroup", "taints.value", False),
        ("aws:eks/cluster:Cluster", "accessConfig.authenticationMode", False),
        ("aws:eks/cluster:Cluster", "accessConfig.bootstrapClusterCreatorAdminPermissions", True),
        ("aws:eks/cluster:Cluster", "vpcConfig.subnetIds", False),
        ("aws:eks/cluster:Cluster", "kubernetesNetworkConfig.ipFamily", True),
        ("aws:autoscaling/tag:Tag", "tag.key", True),
        ("aws:autoscaling/tag:Tag", "tag.value", False),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", "metadataConfiguration.iops", False),
    ],
)
def test_what_replaces_inside_an_object(token: str, path: str, replaced: bool) -> None:
    assert TYPES[token].replaced_by(path) is replaced
