"""The tables agree with the installed SDK and with botocore; what replaces is pinned, for every type."""

from collections.abc import Iterator, Mapping

import pytest

from testing.pulumi.mocks import models, wheel
from testing.pulumi.mocks.kind import AwsType
from testing.pulumi.mocks.tables.aws import TYPES
from testing.pulumi.mocks.wheel import Property

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


# Written out whole, the outermost property first met: who changes a row sees here what else changes. Compared with ForceNew and
# RequiresReplace of terraform-provider-aws v6.58.0 by a script (testing/pulumi/mocks/tables/aws.py); one differs on purpose:
# it has ForceNew at every property inside outpostConfig but outpostArns, and a block that comes or goes takes these with it.
REPLACED = {
    "aws:ec2/vpc:Vpc": "cidrBlock ipv4IpamPoolId ipv4NetmaskLength region",
    "aws:ec2/subnet:Subnet": "availabilityZone availabilityZoneId cidrBlock ipv4IpamPoolId ipv4NetmaskLength ipv6IpamPoolId"
    " ipv6Native ipv6NetmaskLength outpostArn region vpcId",
    "aws:ec2/internetGateway:InternetGateway": "region",
    "aws:ec2/eip:Eip": "address domain ipamPoolId networkBorderGroup publicIpv4Pool region",
    "aws:ec2/natGateway:NatGateway": "allocationId availabilityMode connectivityType privateIp region subnetId vpcId",
    "aws:ec2/routeTable:RouteTable": "region vpcId",
    "aws:ec2/route:Route": "destinationCidrBlock destinationIpv6CidrBlock destinationPrefixListId region routeTableId",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "gatewayId region subnetId",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "dnsOptions.privateDnsPreference dnsOptions.privateDnsSpecifiedDomains region"
    " resourceConfigurationArn serviceName serviceNetworkArn serviceRegion vpcEndpointType vpcId",
    "aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation": "region routeTableId vpcEndpointId",
    "aws:ec2/securityGroup:SecurityGroup": "description name namePrefix region vpcId",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "region vpcId",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "region securityGroupId",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "region securityGroupId",
    "aws:ec2/securityGroupRule:SecurityGroupRule": "cidrBlocks fromPort ipv6CidrBlocks prefixListIds protocol region"
    " securityGroupId self sourceSecurityGroupId toPort type",
    "aws:ec2/launchTemplate:LaunchTemplate": "name namePrefix region",
    "aws:ec2/placementGroup:PlacementGroup": "name partitionCount region spreadLevel strategy",
    "aws:ebs/volume:Volume": "availabilityZone encrypted kmsKeyId multiAttachEnabled outpostArn region snapshotId",
    "aws:autoscaling/tag:Tag": "autoscalingGroupName region tag.key",
    "aws:fis/experimentTemplate:ExperimentTemplate": "region",
    "aws:eks/cluster:Cluster": "accessConfig.bootstrapClusterCreatorAdminPermissions bootstrapSelfManagedAddons"
    " kubernetesNetworkConfig.ipFamily kubernetesNetworkConfig.serviceIpv4Cidr name outpostConfig region roleArn",
    "aws:eks/nodeGroup:NodeGroup": "amiType capacityType clusterName diskSize instanceTypes launchTemplate.id"
    " launchTemplate.name nodeGroupName nodeGroupNamePrefix nodeRoleArn region remoteAccess subnetIds",
    "aws:eks/addon:Addon": "addonName clusterName namespaceConfig region",
    "aws:eks/accessEntry:AccessEntry": "clusterName principalArn region type",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "accessScope clusterName policyArn principalArn region",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": "clusterName namespace region serviceAccount",
    "aws:iam/role:Role": "name namePrefix path",
    "aws:iam/rolePolicy:RolePolicy": "name namePrefix role",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "policyArn role",
    "aws:iam/policy:Policy": "description name namePrefix path",
    "aws:iam/serviceLinkedRole:ServiceLinkedRole": "awsServiceName customSuffix",
    "aws:iam/instanceProfile:InstanceProfile": "name namePrefix path",
    "aws:kms/key:Key": "customKeyStoreId customerMasterKeySpec keyUsage multiRegion region xksKeyId",
    "aws:kms/alias:Alias": "name namePrefix region",
    "aws:efs/fileSystem:FileSystem": "availabilityZoneName creationToken encrypted kmsKeyId performanceMode region",
    "aws:efs/mountTarget:MountTarget": "fileSystemId ipAddress ipAddressType ipv6Address region subnetId",
    "aws:efs/accessPoint:AccessPoint": "fileSystemId posixUser region rootDirectory",
    "aws:efs/backupPolicy:BackupPolicy": "fileSystemId region",
    "aws:efs/fileSystemPolicy:FileSystemPolicy": "fileSystemId region",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "backupId copyTagsToBackups deploymentType driveCacheType efaEnabled"
    " exportPath importPath importedFileChunkSize kmsKeyId region securityGroupIds storageType subnetIds",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "dataRepositoryPath fileSystemId fileSystemPath region",
    "aws:dlm/lifecyclePolicy:LifecyclePolicy": "policyDetails.schedules.copyTags region",
    "aws:s3/bucket:Bucket": "bucket bucketNamespace bucketPrefix objectLockConfiguration.objectLockEnabled objectLockEnabled"
    " region",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "bucket region",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": "bucket region",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": "bucket expectedBucketOwner region",
    "aws:s3/bucketVersioning:BucketVersioning": "bucket region",
    "aws:s3/bucketPolicy:BucketPolicy": "bucket region",
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": "bucket region",
    "aws:s3/bucketObjectv2:BucketObjectv2": "bucket key region",
    "aws:cloudwatch/logGroup:LogGroup": "logGroupClass name namePrefix region",
    "aws:ecr/repository:Repository": "encryptionConfigurations name region",
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": "policy region repository",
    "aws:codebuild/project:Project": "name region",
    "aws:sqs/queue:Queue": "fifoQueue name namePrefix region",
    "aws:sqs/queuePolicy:QueuePolicy": "queueUrl region",
    "aws:cloudwatch/eventRule:EventRule": "eventBusName name namePrefix region",
    "aws:cloudwatch/eventTarget:EventTarget": "eventBusName region rule targetId",
}


def _replaced(row: AwsType, properties: Mapping[str, Property], path: str = "") -> Iterator[str]:
    for name, found in properties.items():
        full = f"{path}.{name}".lstrip(".")
        inner: Property = found
        while inner.item is not None:
            inner = inner.item
        if row.replaced_by(full):
            yield full
        elif inner.fields is not None:
            yield from _replaced(row, wheel.fields_of(inner.fields), full)


@rows
def test_what_replaces(row: AwsType) -> None:
    assert sorted(_replaced(row, row.properties)) == sorted(REPLACED[row.token].split())


DELETED_FIRST = {
    "aws:ec2/securityGroupRule:SecurityGroupRule",
    "aws:ecr/lifecyclePolicy:LifecyclePolicy",
    "aws:efs/mountTarget:MountTarget",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
}


def test_what_is_deleted_before_its_successor() -> None:
    """As in pulumi-aws' provider/resource_overrides.go (DeleteBeforeReplace)."""
    assert {token for token, row in TYPES.items() if row.delete_first} == DELETED_FIRST


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
        ("aws:eks/cluster:Cluster", "outpostConfig.outpostArns", False),
        ("aws:eks/cluster:Cluster", "outpostConfig.controlPlanePlacement.groupName", True),
    ],
)
def test_what_replaces_inside_an_object(token: str, path: str, replaced: bool) -> None:
    assert TYPES[token].replaced_by(path) is replaced
