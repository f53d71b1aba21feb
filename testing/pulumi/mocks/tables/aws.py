"""The reviewed tables: every AWS type that the stack uses, by token.

Sources that comments of the rows name, read 2026-11:
"tf" is terraform-provider-aws v6.58.0, which pulumi-aws is built on, with the function or method read. It was read in
github.com/lonegunmanb/terraform-provider-aws-index, tag v6.58.0 of 2026-08-05 (commit 2f6e22c42759323d69500964ed1d284e5f4dea97),
which holds its source symbol by symbol. ForceNew and RequiresReplace of every attribute of every type here, nested ones too, were
taken from it by a script and compared with what the rows say; tests/testing/mocks/test_tables.py has the result written out.
CustomizeDiff and ModifyPlan were read by eye: conditions.py. That a change of region replaces: forceNewIfRegionChanges of
internal/provider/sdkv2, resourceForceNewIfRegionChangesInterceptor of internal/provider/framework.
"pulumi-aws" is its provider/resource_overrides.go at commit 015d343812852f40a045a28e7f6e04bca69548f3 (of major version 7), whole:
DeleteBeforeReplace stands at exactly the types here that say `delete_first`, and no ForceNew at any.

Not read: the newer terraform-provider-aws of the installed pulumi_aws 7.51.1 (which of them it is, the wheel does not tell) and
pulumi-aws' patches of it, but for an old one that adds defaultAddonsToRemoves (Optional, without ForceNew). v6.58.0 lacks
eks.Cluster kubeApiServerConfig, kubeControllerManagerConfig and kubeSchedulerConfig, dlm.LifecyclePolicy
policyDetails.parameters.excludeDataVolumeTags, and s3.Bucket serverSideEncryptionConfiguration.rule.blockedEncryptionTypes: for
these the rows say what follows from the API's model alone.
ForceNew of EVENTS_ROWS was compared by eye, in the same sources.
"""

import re
from collections.abc import Mapping

from testing.pulumi.mocks.kind import AwsType
from testing.pulumi.mocks.tables import conditions

EC2 = "arn:aws:ec2:{region}:{account}"
TAGS = ("CreateTags",)
_RULE = {
    "ipProtocol": "IpPermissions.IpProtocol",
    "fromPort": "IpPermissions.FromPort",
    "toPort": "IpPermissions.ToPort",
    "securityGroupId": "GroupId",
    "cidrIpv4": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.CidrIpv4",
    "cidrIpv6": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.CidrIpv6",
    "prefixListId": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.PrefixListId",
    "referencedSecurityGroupId": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.ReferencedGroupId",
    "description": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.Description",
}
# tf, securityGroupRuleResource.Schema: no RequiresReplace but of the group. Another kind of source replaces: conditions.py.
_RULE_UPDATED = ("ipProtocol", "fromPort", "toPort")
_RULE_OUTPUTS = {"arn": EC2 + ":security-group-rule/{id}", "securityGroupRuleId": "{id}"}

# The network: VPC, subnets, gateways, routes, endpoints, security groups.
NETWORK_ROWS = (
    AwsType(
        "aws:ec2/vpc:Vpc", create="ec2/CreateVpc", updates=("ModifyVpcAttribute", *TAGS), delete="DeleteVpc",
        id="vpc-{hash}",
        members={
            "assignGeneratedIpv6CidrBlock": "AmazonProvidedIpv6CidrBlock",
            "enableDnsHostnames": "ModifyVpcAttribute:EnableDnsHostnames",
            "enableDnsSupport": "ModifyVpcAttribute:EnableDnsSupport",
            "enableNetworkAddressUsageMetrics": "ModifyVpcAttribute:EnableNetworkAddressUsageMetrics",
        },
        # tf, resourceVPC, resourceVPCUpdate: IPv6 blocks are associated and disassociated in place.
        updated=("assignGeneratedIpv6CidrBlock", "ipv6CidrBlock", "ipv6IpamPoolId", "ipv6NetmaskLength",
                 "ipv6CidrBlockNetworkBorderGroup", "instanceTenancy"),
        sometimes=conditions.vpc,
        outputs={
            "arn": EC2 + ":vpc/{id}", "ownerId": "{account}", "mainRouteTableId": "rtb-{hash}",
            "defaultRouteTableId": "rtb-{hash}", "defaultSecurityGroupId": "sg-{hash}", "defaultNetworkAclId": "acl-{hash}",
        },
    ),
    AwsType(
        "aws:ec2/subnet:Subnet", create="ec2/CreateSubnet", updates=("ModifySubnetAttribute", *TAGS),
        delete="DeleteSubnet", id="subnet-{hash}",
        members={
            "assignIpv6AddressOnCreation": "ModifySubnetAttribute:AssignIpv6AddressOnCreation",
            "customerOwnedIpv4Pool": "ModifySubnetAttribute:CustomerOwnedIpv4Pool",
            "enableDns64": "ModifySubnetAttribute:EnableDns64",
            "enableLniAtDeviceIndex": "ModifySubnetAttribute:EnableLniAtDeviceIndex",
            "enableResourceNameDnsARecordOnLaunch": "ModifySubnetAttribute:EnableResourceNameDnsARecordOnLaunch",
            "enableResourceNameDnsAaaaRecordOnLaunch": "ModifySubnetAttribute:EnableResourceNameDnsAAAARecordOnLaunch",
            "mapCustomerOwnedIpOnLaunch": "ModifySubnetAttribute:MapCustomerOwnedIpOnLaunch",
            "mapPublicIpOnLaunch": "ModifySubnetAttribute:MapPublicIpOnLaunch",
            "privateDnsHostnameTypeOnLaunch": "ModifySubnetAttribute:PrivateDnsHostnameTypeOnLaunch",
        },
        updated=("ipv6CidrBlock",), sometimes=conditions.subnet,  # tf, resourceSubnetUpdate: associated in place
        outputs={"arn": EC2 + ":subnet/{id}", "ownerId": "{account}", "availabilityZoneId": "use1-az-{short}"},
    ),
    AwsType(
        "aws:ec2/internetGateway:InternetGateway", create="ec2/CreateInternetGateway", updates=TAGS,
        delete="DeleteInternetGateway", id="igw-{hash}", members={"vpcId": "AttachInternetGateway:VpcId"},
        outputs={"arn": EC2 + ":internet-gateway/{id}", "ownerId": "{account}"},
    ),
    AwsType(
        "aws:ec2/eip:Eip", create="ec2/AllocateAddress", updates=TAGS, delete="ReleaseAddress",
        id="eipalloc-{hash}",
        members={
            "associateWithPrivateIp": "AssociateAddress:PrivateIpAddress", "instance": "AssociateAddress:InstanceId",
            "networkInterface": "AssociateAddress:NetworkInterfaceId",
        },
        updated=("customerOwnedIpv4Pool",),  # tf, resourceEIP: no ForceNew; a change does nothing
        outputs={"allocationId": "{id}", "arn": EC2 + ":elastic-ip/{id}", "publicIp": "198.51.100.7"},
    ),
    AwsType(
        "aws:ec2/natGateway:NatGateway", create="ec2/CreateNatGateway", updates=TAGS, delete="DeleteNatGateway",
        id="nat-{hash}", members={"privateIp": "PrivateIpAddress"},
        # tf, resourceNATGateway: no ForceNew; secondary addresses are associated in place.
        updated=("secondaryAllocationIds", "secondaryPrivateIpAddresses", "secondaryPrivateIpAddressCount",
                 "availabilityZoneAddresses"),
        sometimes=conditions.nat_gateway,
        sets=("secondaryAllocationIds", "secondaryPrivateIpAddresses", "availabilityZoneAddresses.allocationIds"),
        outputs={"publicIp": "198.51.100.7", "networkInterfaceId": "eni-{hash}", "associationId": "eipassoc-{hash}"},
    ),
    AwsType(
        "aws:ec2/routeTable:RouteTable", create="ec2/CreateRouteTable",
        updates=("CreateRoute", "ReplaceRoute", *TAGS), delete="DeleteRouteTable", id="rtb-{hash}",
        members={"propagatingVgws": "EnableVgwRoutePropagation:GatewayId", "routes": None},
        updated=("routes", "propagatingVgws"),
        replaces=("vpcId",), sets=("propagatingVgws",),
        outputs={"arn": EC2 + ":route-table/{id}", "ownerId": "{account}"},
    ),
    AwsType(
        "aws:ec2/route:Route", create="ec2/CreateRoute", updates=("ReplaceRoute",), delete="DeleteRoute",
        id="r-{routeTableId}{short}", members={"egressOnlyGatewayId": "EgressOnlyInternetGatewayId"},
        outputs={"origin": "CreateRoute", "state": "active", "instanceId": "", "instanceOwnerId": ""},
    ),
    AwsType(
        "aws:ec2/routeTableAssociation:RouteTableAssociation", create="ec2/AssociateRouteTable",
        updates=("ReplaceRouteTableAssociation",), delete="DisassociateRouteTable", id="rtbassoc-{hash}",
    ),
    AwsType(
        "aws:ec2/vpcEndpoint:VpcEndpoint", create="ec2/CreateVpcEndpoint", updates=("ModifyVpcEndpoint", *TAGS),
        delete="DeleteVpcEndpoints", id="vpce-{hash}",
        members={"autoAccept": None, "policy": "PolicyDocument"},
        updated=("routeTableIds", "subnetIds", "securityGroupIds"),  # ModifyVpcEndpoint has Add... and Remove... of them
        # tf, resourceVPCEndpoint: ForceNew, though ModifyVpcEndpoint takes them.
        replaces=("dnsOptions.privateDnsPreference", "dnsOptions.privateDnsSpecifiedDomains"),
        sometimes=conditions.endpoint,
        sets=("routeTableIds", "subnetIds", "securityGroupIds", "dnsOptions.privateDnsSpecifiedDomains"),
        outputs={"arn": EC2 + ":vpc-endpoint/{id}", "ownerId": "{account}", "state": "available", "prefixListId": "pl-{short}"},
    ),
    AwsType(
        "aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation", create="ec2/ModifyVpcEndpoint",
        id="a-{vpcEndpointId}{short}", members={"routeTableId": "AddRouteTableIds"},
    ),
    AwsType(
        "aws:ec2/securityGroup:SecurityGroup", create="ec2/CreateSecurityGroup", updates=TAGS,
        delete="DeleteSecurityGroup", autoname="name", id="sg-{hash}",
        members={
            "name": "GroupName", "namePrefix": "GroupName", "revokeRulesOnDelete": None,
            "ingress": "AuthorizeSecurityGroupIngress:IpPermissions", "egress": "AuthorizeSecurityGroupEgress:IpPermissions",
            **{
                f"{way}.{name}": None
                for way in ("ingress", "egress")
                for name in ("cidrBlocks", "description", "ipv6CidrBlocks", "securityGroups", "self")
            },
            "ingress.protocol": "IpProtocol", "egress.protocol": "IpProtocol",
        },
        outputs={"arn": EC2 + ":security-group/{id}", "ownerId": "{account}"},
    ),
    # Adopted, not made: what it says is put onto the group that the VPC came with.
    AwsType(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", create="ec2/CreateSecurityGroup", updates=TAGS, id="sg-{hash}",
        members={"ingress": None, "egress": None, "revokeRulesOnDelete": None},
        outputs={"arn": EC2 + ":security-group/{id}", "ownerId": "{account}", "name": "default", "description": "default group"},
    ),
    AwsType(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", create="ec2/AuthorizeSecurityGroupIngress",
        updates=("ModifySecurityGroupRules", *TAGS), members=_RULE, replaces=("securityGroupId",), updated=_RULE_UPDATED,
        sometimes=conditions.group_rule, id="sgr-{hash}", outputs=_RULE_OUTPUTS,
    ),
    AwsType(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", create="ec2/AuthorizeSecurityGroupEgress",
        updates=("ModifySecurityGroupRules", *TAGS), members=_RULE, replaces=("securityGroupId",), updated=_RULE_UPDATED,
        sometimes=conditions.group_rule, id="sgr-{hash}", outputs=_RULE_OUTPUTS,
    ),
    # Made by pulumi_eks.Cluster unless it is told to skip its security groups.
    AwsType(
        "aws:ec2/securityGroupRule:SecurityGroupRule", create="ec2/AuthorizeSecurityGroupIngress", id="sgrule-{short}",
        members={
            "protocol": "IpPermissions.IpProtocol", "fromPort": "IpPermissions.FromPort", "toPort": "IpPermissions.ToPort",
            "cidrBlocks": None, "ipv6CidrBlocks": None, "prefixListIds": None, "self": None, "type": None,
            "sourceSecurityGroupId": "IpPermissions.UserIdGroupPairs.GroupId", "securityGroupId": "GroupId",
            "description": "IpPermissions.IpRanges.Description",
        },
        replaces=("cidrBlocks", "ipv6CidrBlocks", "prefixListIds", "self", "type"),
        updated=("description",),
        delete_first=True,  # pulumi-aws
        outputs={"securityGroupRuleId": "sgr-{hash}"},
    ),
)  # fmt: skip


_DATA = "LaunchTemplateData"

# Machines: launch templates, placement groups, volumes, tags of autoscaling groups, the drill.
COMPUTE_ROWS = (
    AwsType(
        "aws:ec2/launchTemplate:LaunchTemplate", create="ec2/CreateLaunchTemplate",
        updates=("CreateLaunchTemplateVersion", "ModifyLaunchTemplate", *TAGS), delete="DeleteLaunchTemplate",
        autoname="name", autoname_length=125, id="lt-{hash}", counters=("latestVersion",),
        # tf, resourceLaunchTemplateUpdate: what is not in its list makes no new version.
        quiet=("tags", "defaultVersion", "updateDefaultVersion", "maintenanceOptions"),
        members={
            **{
                name: f"{_DATA}.{name[0].upper()}{name[1:]}"
                for name in (
                    *("blockDeviceMappings", "capacityReservationSpecification", "cpuOptions", "creditSpecification"),
                    *("disableApiStop", "disableApiTermination", "ebsOptimized", "enclaveOptions", "hibernationOptions"),
                    *("iamInstanceProfile", "imageId", "instanceInitiatedShutdownBehavior", "instanceMarketOptions"),
                    *("instanceRequirements", "instanceType", "kernelId", "keyName", "licenseSpecifications"),
                    *("maintenanceOptions", "metadataOptions", "monitoring", "networkInterfaces"),
                    *("networkPerformanceOptions", "placement", "privateDnsNameOptions", "ramDiskId", "secondaryInterfaces"),
                    *("tagSpecifications", "userData"),
                )
            },
            "name": "LaunchTemplateName", "namePrefix": "LaunchTemplateName", "description": "VersionDescription",
            "securityGroupNames": f"{_DATA}.SecurityGroups", "vpcSecurityGroupIds": f"{_DATA}.SecurityGroupIds",
            "defaultVersion": "ModifyLaunchTemplate:DefaultVersion", "updateDefaultVersion": None,
            "networkInterfaces.securityGroups": "Groups", "networkInterfaces.ipv4AddressCount": "SecondaryPrivateIpAddressCount",
            "networkInterfaces.ipv4Addresses": "PrivateIpAddresses.PrivateIpAddress",
            "networkInterfaces.ipv6Addresses": "Ipv6Addresses.Ipv6Address",
            "networkInterfaces.ipv4Prefixes": "Ipv4Prefixes.Ipv4Prefix",
            "networkInterfaces.ipv6Prefixes": "Ipv6Prefixes.Ipv6Prefix",
            "tagSpecifications.tags": None,
        },
        # Everything but the name changes the same template (CreateLaunchTemplateVersion; tf, resourceLaunchTemplate: ForceNew).
        replaces=("name", "namePrefix"), updated=("description",),
        sets=(
            "vpcSecurityGroupIds", "securityGroupNames", "secondaryInterfaces.privateIpAddresses",
            *(f"networkInterfaces.{name}" for name in (
                "securityGroups", "ipv4Addresses", "ipv4Prefixes", "ipv6Addresses", "ipv6Prefixes",
            )),
            *(f"instanceRequirements.{name}" for name in (
                "acceleratorManufacturers", "acceleratorNames", "acceleratorTypes", "allowedInstanceTypes", "cpuManufacturers",
                "excludedInstanceTypes", "instanceGenerations", "localStorageTypes",
            )),
        ),
        outputs={"arn": EC2 + ":launch-template/{id}", "defaultVersion": 1},
    ),
    AwsType(
        "aws:ec2/placementGroup:PlacementGroup", create="ec2/CreatePlacementGroup", updates=TAGS,
        delete="DeletePlacementGroup", autoname="name", id="{name}", members={"name": "GroupName"},
        outputs={"arn": EC2 + ":placement-group/{name}", "placementGroupId": "pg-{hash}"},
    ),
    AwsType(
        "aws:ebs/volume:Volume", create="ec2/CreateVolume", updates=("ModifyVolume", *TAGS), delete="DeleteVolume",
        id="vol-{hash}", members={"type": "VolumeType", "finalSnapshot": None},
        # tf, resourceEBSVolume: ForceNew, though ModifyVolume takes it; no ForceNew, and a change does nothing.
        replaces=("multiAttachEnabled",), updated=("volumeInitializationRate",),
        outputs={"arn": EC2 + ":volume/{id}", "createTime": "2026-01-01T00:00:00Z"},
    ),
    AwsType(
        "aws:autoscaling/tag:Tag", create="autoscaling/CreateOrUpdateTags", updates=("CreateOrUpdateTags",),
        id="{autoscalingGroupName},{short}",
        members={"autoscalingGroupName": "Tags.ResourceId", "tag": "Tags"},
        replaces=("autoscalingGroupName", "tag.key"),  # the identity, in one structure with the rest (tf, resourceGroupTag)
    ),
    AwsType(
        "aws:fis/experimentTemplate:ExperimentTemplate", create="fis/CreateExperimentTemplate",
        updates=("UpdateExperimentTemplate", "TagResource"), delete="DeleteExperimentTemplate", id="EXT{hash}",
        # Lists with names in them, where the API has maps by name.
        members={
            "actions.name": None, "actions.actionId": "CreateExperimentTemplate:actions", "actions.parameters": None,
            "actions.startAfters": None, "actions.target": None, "actions.description": None,
            "targets.name": None, "targets.resourceType": None, "targets.resourceTags": None, "targets.filters": None,
            "targets.selectionMode": None, "targets.resourceArns": None, "targets.parameters": None,
        },
        updated=("experimentOptions",),
        sets=("actions.startAfters", "targets.resourceArns", "targets.filters.values"),
    ),
)  # fmt: skip


EKS = "arn:aws:eks:{region}:{account}"

# EKS: cluster, node groups, add-ons, access.
EKS_ROWS = (
    AwsType(
        "aws:eks/cluster:Cluster", create="eks/CreateCluster",
        updates=("UpdateClusterConfig", "UpdateClusterVersion", "AssociateEncryptionConfig", "TagResource"),
        delete="DeleteCluster", autoname="name", autoname_length=100, id="{name}",
        members={
            "vpcConfig": "resourcesVpcConfig", "enabledClusterLogTypes": "CreateCluster:logging.clusterLogging.types",
            "defaultAddonsToRemoves": None, "forceUpdateVersion": "UpdateClusterVersion:force",
        },
        # tf, resourceCluster: ForceNew.
        replaces=("kubernetesNetworkConfig.ipFamily", "kubernetesNetworkConfig.serviceIpv4Cidr", "roleArn", "outpostConfig"),
        updated=("enabledClusterLogTypes", "encryptionConfig", "outpostConfig.outpostArns"),
        sometimes=conditions.cluster,
        sets=("vpcConfig.subnetIds", "vpcConfig.securityGroupIds", "vpcConfig.publicAccessCidrs", "enabledClusterLogTypes",
              "computeConfig.nodePools", "encryptionConfig.resources", "outpostConfig.outpostArns",
              "remoteNetworkConfig.remoteNodeNetworks.cidrs", "remoteNetworkConfig.remotePodNetworks.cidrs"),
        outputs={
            "arn": EKS + ":cluster/{name}", "status": "ACTIVE", "platformVersion": "eks.1", "createdAt": "2026-01-01T00:00:00Z",
            "endpoint": "https://{hash}.gr7.{region}.eks.amazonaws.com",
            "certificateAuthority": {"data": "ZWNobyBjZXJ0aWZpY2F0ZQ=="},
            "identities": [{"oidcs": [{"issuer": "https://oidc.eks.{region}.amazonaws.com/id/{hash}"}]}],
            "clusterId": "", "vpcConfig": {"clusterSecurityGroupId": "sg-{hash}", "vpcId": "vpc-{short}"},
        },
    ),
    AwsType(
        "aws:eks/nodeGroup:NodeGroup", create="eks/CreateNodegroup",
        updates=("UpdateNodegroupConfig", "UpdateNodegroupVersion", "TagResource"), delete="DeleteNodegroup",
        autoname="nodeGroupName", autoname_length=63, id="{clusterName}:{nodeGroupName}",
        members={
            "nodeRoleArn": "nodeRole", "subnetIds": "subnets", "nodeGroupName": "nodegroupName",
            "nodeGroupNamePrefix": "nodegroupName", "forceUpdateVersion": "UpdateNodegroupVersion:force",
            "instanceTypes": "ec2/RunInstances:InstanceType", "remoteAccess.sourceSecurityGroupIds": "sourceSecurityGroups",
        },
        updated=("labels", "taints"),  # UpdateNodegroupConfig has other structures for them
        replaces=(
            "instanceTypes",  # the API has them in CreateNodegroup only; tf, resourceNodeGroup: ForceNew
            "launchTemplate.id", "launchTemplate.name",  # tf, resourceNodeGroup: ForceNew
        ),
        sometimes=conditions.node_group,
        sets=("subnetIds", "remoteAccess.sourceSecurityGroupIds", "taints"),
        outputs={
            "arn": EKS + ":nodegroup/{clusterName}/{nodeGroupName}/{uuid}", "status": "ACTIVE",
            "resources": [{"autoscalingGroups": [{"name": "eks-{nodeGroupName}-{uuid}"}], "remoteAccessSecurityGroupId": ""}],
        },
    ),
    AwsType(
        "aws:eks/addon:Addon", create="eks/CreateAddon", updates=("UpdateAddon", "TagResource"), delete="DeleteAddon",
        id="{clusterName}:{addonName}",
        members={
            "resolveConflictsOnCreate": "resolveConflicts", "resolveConflictsOnUpdate": "UpdateAddon:resolveConflicts",
            "preserve": None,
        },
        allowed={"resolveConflictsOnCreate": ("NONE", "OVERWRITE")},  # tf, resourceAddon: PRESERVE is for updates
        sets=("podIdentityAssociations",),
        outputs={
            "arn": EKS + ":addon/{clusterName}/{addonName}/{uuid}", "createdAt": "2026-01-01T00:00:00Z",
            "modifiedAt": "2026-01-01T00:00:00Z",
        },
    ),
    AwsType(
        "aws:eks/accessEntry:AccessEntry", create="eks/CreateAccessEntry", updates=("UpdateAccessEntry", "TagResource"),
        delete="DeleteAccessEntry", id="{clusterName}:{principalArn}", sets=("kubernetesGroups",),
        outputs={"accessEntryArn": EKS + ":access-entry/{clusterName}/role/{account}/{uuid}"},
    ),
    AwsType(
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation", create="eks/AssociateAccessPolicy",
        delete="DisassociateAccessPolicy", id="{clusterName}#{principalArn}#{policyArn}", sets=("accessScope.namespaces",),
    ),
    AwsType(
        "aws:eks/podIdentityAssociation:PodIdentityAssociation", create="eks/CreatePodIdentityAssociation",
        updates=("UpdatePodIdentityAssociation", "TagResource"), delete="DeletePodIdentityAssociation", id="a-{hash}",
        outputs={
            "associationId": "{id}", "associationArn": EKS + ":podidentityassociation/{clusterName}/{id}", "externalId": "{uuid}",
        },
    ),
)  # fmt: skip


IAM = "arn:aws:iam::{account}"
STAMP = {"createDate": "2026-01-01T00:00:00Z"}

# Identity and keys: IAM, KMS.
ACCESS_ROWS = (
    AwsType(
        "aws:iam/role:Role", create="iam/CreateRole",
        updates=("UpdateRole", "UpdateAssumeRolePolicy", "PutRolePermissionsBoundary", "TagRole"), delete="DeleteRole",
        autoname="name", autoname_length=64, id="{name}",
        members={
            "name": "RoleName", "namePrefix": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument",
            "forceDetachPolicies": None, "inlinePolicies": None, "inlinePolicies.name": "PutRolePolicy:PolicyName",
            "managedPolicyArns": "AttachRolePolicy:PolicyArn",
        },
        updated=("assumeRolePolicy",),  # UpdateAssumeRolePolicy calls it PolicyDocument
        sets=("managedPolicyArns",),
        outputs={"arn": IAM + ":role/{name}", "uniqueId": "AROA{short}", **STAMP},
    ),
    AwsType(
        "aws:iam/rolePolicy:RolePolicy", create="iam/PutRolePolicy", updates=("PutRolePolicy",), delete="DeleteRolePolicy",
        autoname="name", autoname_length=128, id="{role}:{name}",
        members={"name": "PolicyName", "namePrefix": "PolicyName", "role": "RoleName", "policy": "PolicyDocument"},
    ),
    AwsType(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment", create="iam/AttachRolePolicy", delete="DetachRolePolicy",
        id="{role}-{short}", members={"role": "RoleName"},
        delete_first=True,  # pulumi-aws: made before, it would be the one that is then deleted
    ),
    AwsType(
        "aws:iam/policy:Policy", create="iam/CreatePolicy", updates=("CreatePolicyVersion", "TagPolicy"),
        delete="DeletePolicy", autoname="name", autoname_length=128, id=IAM + ":policy/{name}",
        members={
            "name": "PolicyName", "namePrefix": "PolicyName", "policy": "PolicyDocument", "delayAfterPolicyCreationInMs": None,
        },
        outputs={"arn": IAM + ":policy/{name}", "policyId": "ANPA{short}", "attachmentCount": 0},
    ),
    AwsType(
        "aws:iam/serviceLinkedRole:ServiceLinkedRole", create="iam/CreateServiceLinkedRole",
        updates=("UpdateRole", "TagRole"), delete="DeleteServiceLinkedRole",
        id=IAM + ":role/aws-service-role/{awsServiceName}/AWSServiceRoleForMock",
        outputs={"arn": "{id}", "name": "AWSServiceRoleForMock", "path": "/aws-service-role/{awsServiceName}/", **STAMP},
    ),
    AwsType(
        "aws:iam/instanceProfile:InstanceProfile", create="iam/CreateInstanceProfile", updates=("TagInstanceProfile",),
        delete="DeleteInstanceProfile", autoname="name", autoname_length=128, id="{name}",
        members={
            "name": "InstanceProfileName", "namePrefix": "InstanceProfileName", "role": "AddRoleToInstanceProfile:RoleName",
        },
        outputs={"arn": IAM + ":instance-profile/{name}", "uniqueId": "AIPA{short}", **STAMP},
    ),
    AwsType(
        "aws:kms/key:Key", create="kms/CreateKey",
        updates=("UpdateKeyDescription", "PutKeyPolicy", "TagResource"), id="{uuid}",
        members={
            "bypassPolicyLockoutSafetyCheck": "BypassPolicyLockoutSafetyCheck", "deletionWindowInDays": None,
            "enableKeyRotation": None, "isEnabled": None, "rotationPeriodInDays": "EnableKeyRotation:RotationPeriodInDays",
        },
        outputs={"arn": "arn:aws:kms:{region}:{account}:key/{id}", "keyId": "{id}"},
    ),
    AwsType(
        "aws:kms/alias:Alias", create="kms/CreateAlias", updates=("UpdateAlias",), delete="DeleteAlias", autoname="name",
        id="{name}", members={"name": "AliasName", "namePrefix": "AliasName"},
        outputs={
            "arn": "arn:aws:kms:{region}:{account}:{name}", "targetKeyArn": "arn:aws:kms:{region}:{account}:key/{targetKeyId}",
        },
    ),
)  # fmt: skip


EFS = "arn:aws:elasticfilesystem:{region}:{account}"
FSX = "arn:aws:fsx:{region}:{account}"
_LUSTRE = {
    name: f"LustreConfiguration.{name[0].upper()}{name[1:]}"
    for name in (
        *("autoImportPolicy", "automaticBackupRetentionDays", "copyTagsToBackups", "dailyAutomaticBackupStartTime"),
        *("dataCompressionType", "dataReadCacheConfiguration", "deploymentType", "driveCacheType", "efaEnabled", "exportPath"),
        *("importPath", "importedFileChunkSize", "logConfiguration", "metadataConfiguration", "perUnitStorageThroughput"),
        *("rootSquashConfiguration", "throughputCapacity", "weeklyMaintenanceStartTime"),
    )
}

# File systems and backups: EFS, FSx for Lustre, the lifecycle manager of snapshots.
STORAGE_ROWS = (
    AwsType(
        "aws:efs/fileSystem:FileSystem", create="efs/CreateFileSystem", updates=("UpdateFileSystem", "TagResource"),
        delete="DeleteFileSystem", autoname="creationToken", autoname_length=64, id="fs-{hash}",
        members={
            "lifecyclePolicies": "PutLifecycleConfiguration:LifecyclePolicies",
            "protection": None, "protection.replicationOverwrite": "UpdateFileSystemProtection:ReplicationOverwriteProtection",
        },
        outputs={
            "arn": EFS + ":file-system/{id}", "dnsName": "{id}.efs.{region}.amazonaws.com", "ownerId": "{account}",
            "numberOfMountTargets": 0, "sizeInBytes": [{"value": 6144, "valueInIa": 0, "valueInStandard": 6144}],
        },
    ),
    AwsType(
        "aws:efs/mountTarget:MountTarget", create="efs/CreateMountTarget", updates=("ModifyMountTargetSecurityGroups",),
        delete="DeleteMountTarget", id="fsmt-{hash}", sets=("securityGroups",),
        delete_first=True,  # pulumi-aws: one per zone
        outputs={
            "dnsName": "{fileSystemId}.efs.{region}.amazonaws.com", "networkInterfaceId": "eni-{hash}", "ownerId": "{account}",
            "fileSystemArn": EFS + ":file-system/{fileSystemId}",
        },
    ),
    AwsType(
        "aws:efs/accessPoint:AccessPoint", create="efs/CreateAccessPoint", updates=("TagResource",),
        delete="DeleteAccessPoint", id="fsap-{hash}", members={
            "posixUser.secondaryGids": "SecondaryGids", "rootDirectory.creationInfo": "CreationInfo",
        },
        sets=("posixUser.secondaryGids",),
        outputs={
            "arn": EFS + ":access-point/{id}", "fileSystemArn": EFS + ":file-system/{fileSystemId}", "ownerId": "{account}",
        },
    ),
    AwsType(
        "aws:efs/backupPolicy:BackupPolicy", create="efs/PutBackupPolicy", updates=("PutBackupPolicy",), id="{fileSystemId}",
        replaces=("fileSystemId",),
    ),
    AwsType(
        "aws:efs/fileSystemPolicy:FileSystemPolicy", create="efs/PutFileSystemPolicy", updates=("PutFileSystemPolicy",),
        delete="DeleteFileSystemPolicy", id="{fileSystemId}",
    ),
    AwsType(
        "aws:fsx/lustreFileSystem:LustreFileSystem", create="fsx/CreateFileSystem",
        updates=("UpdateFileSystem", "TagResource"), delete="DeleteFileSystem", id="fs-{hash}",
        members={
            **_LUSTRE, "dataReadCacheConfiguration.size": "SizeGiB", "backupId": "CreateFileSystemFromBackup:BackupId",
            "finalBackupTags": "DeleteFileSystem:LustreConfiguration.FinalBackupTags",
            "skipFinalBackup": "DeleteFileSystem:LustreConfiguration.SkipFinalBackup",
        },
        # tf, resourceLustreFileSystem: ForceNew, though UpdateFileSystem takes some (it changes them for other kinds of systems).
        replaces=("backupId", "storageType", "importedFileChunkSize"),
        sets=("securityGroupIds", "rootSquashConfiguration.noSquashNids"), sometimes=conditions.lustre,
        allowed={"perUnitStorageThroughput": ("12", "40", "50", "100", "125", "200", "250", "500", "1000")},  # tf, the same
        outputs={
            "arn": FSX + ":file-system/{id}", "dnsName": "{id}.fsx.{region}.amazonaws.com", "mountName": "{short}",
            "networkInterfaceIds": ["eni-{hash}"], "ownerId": "{account}", "vpcId": "vpc-{hash}",
        },
    ),
    AwsType(
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", create="fsx/CreateDataRepositoryAssociation",
        updates=("UpdateDataRepositoryAssociation", "TagResource"), delete="DeleteDataRepositoryAssociation", id="dra-{hash}",
        members={"deleteDataInFilesystem": "DeleteDataRepositoryAssociation:DeleteDataInFileSystem"},
        updated=("batchImportMetaDataOnCreate",),  # tf, resourceDataRepositoryAssociation: no ForceNew; a change does nothing
        outputs={"arn": FSX + ":association/{fileSystemId}/{id}", "associationId": "{id}"},
    ),
    AwsType(
        "aws:dlm/lifecyclePolicy:LifecyclePolicy", create="dlm/CreateLifecyclePolicy",
        updates=("UpdateLifecyclePolicy", "TagResource"), delete="DeleteLifecyclePolicy", id="policy-{hash}",
        members={"policyDetails.schedules.archiveRule.archiveRetainRule": "RetainRule"},
        # tf, resourceLifecyclePolicy: ForceNew, though UpdateLifecyclePolicy takes it; no ForceNew, though it does not.
        replaces=("policyDetails.schedules.copyTags",), updated=("defaultPolicy",), sometimes=conditions.snapshot_policy,
        sets=(
            "policyDetails.eventSource.parameters.snapshotOwners", "policyDetails.schedules.fastRestoreRule.availabilityZones",
            "policyDetails.schedules.shareRule.targetAccounts",
        ),
        outputs={"arn": "arn:aws:dlm:{region}:{account}:policy/{id}"},
    ),
)  # fmt: skip


_OBJECT = {
    "content": None, "contentBase64": None, "source": None, "sourceHash": None, "etag": None, "forceDestroy": None,
    "overrideProvider": None, "kmsKeyId": "SSEKMSKeyId", "websiteRedirect": "WebsiteRedirectLocation",
    "overrideProvider.defaultTags": None,
}  # fmt: skip

# Buckets and logs.
OBJECTS_ROWS = (
    AwsType(
        "aws:s3/bucket:Bucket", create="s3/CreateBucket", updates=("PutBucketTagging",), delete="DeleteBucket", autoname="bucket",
        autoname_length=63, id="{bucket}",
        members={
            # Each of these is a resource of its own today; what the bucket still takes is put by another operation.
            "accelerationStatus": None, "bucketPrefix": "Bucket", "corsRules": None, "forceDestroy": None, "grants": None,
            "lifecycleRules": None, "logging": None, "objectLockConfiguration": None,
            "objectLockEnabled": "ObjectLockEnabledForBucket", "policy": "PutBucketPolicy:Policy",
            "replicationConfiguration": None, "requestPayer": None, "serverSideEncryptionConfiguration": None,
            "versioning": None, "website": None,
        },
        updated=("acl",), replaces=("objectLockConfiguration.objectLockEnabled",),  # tf, resourceBucket: ForceNew
        sets=("grants.permissions",),
        outputs={
            "arn": "arn:aws:s3:::{bucket}", "bucketDomainName": "{bucket}.s3.amazonaws.com", "bucketRegion": "{region}",
            "bucketRegionalDomainName": "{bucket}.s3.{region}.amazonaws.com", "hostedZoneId": "Z3AQBSTGFYJSTF",
        },
    ),
    AwsType(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", create="s3/PutPublicAccessBlock",
        updates=("PutPublicAccessBlock",), delete="DeletePublicAccessBlock", id="{bucket}",
        members={
            name: f"PublicAccessBlockConfiguration.{name[0].upper()}{name[1:]}"
            for name in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
        } | {"skipDestroy": None},
    ),
    AwsType(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        create="s3/PutBucketEncryption", updates=("PutBucketEncryption",), delete="DeleteBucketEncryption", id="{bucket}",
        members={
            "rules": "ServerSideEncryptionConfiguration.Rules",
            "rules.applyServerSideEncryptionByDefault.kmsMasterKeyId": "KMSMasterKeyID",
        },
        updated=("expectedBucketOwner",), sometimes=conditions.bucket_owner,
    ),
    AwsType(
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", create="s3/PutBucketLifecycleConfiguration",
        updates=("PutBucketLifecycleConfiguration",), delete="DeleteBucketLifecycle", id="{bucket}",
        members={"rules": "LifecycleConfiguration.Rules", "timeouts": None},
        # tf, resourceBucketLifecycleConfiguration: a warning that says it will become an error (tf issue #41710).
        exactly_one={"rules": ("filter", "prefix")},
    ),
    AwsType(
        "aws:s3/bucketVersioning:BucketVersioning", create="s3/PutBucketVersioning", updates=("PutBucketVersioning",),
        id="{bucket}", replaces=("bucket",),  # the identity: versioning has no delete operation
        updated=("expectedBucketOwner",), sometimes=conditions.bucket_owner,
        members={"versioningConfiguration.mfaDelete": "MFADelete"},
    ),
    AwsType(
        "aws:s3/bucketPolicy:BucketPolicy", create="s3/PutBucketPolicy", updates=("PutBucketPolicy",),
        delete="DeleteBucketPolicy", id="{bucket}",
    ),
    AwsType(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls", create="s3/PutBucketOwnershipControls",
        updates=("PutBucketOwnershipControls",), delete="DeleteBucketOwnershipControls", id="{bucket}",
        members={"rule": "OwnershipControls.Rules"},
    ),
    AwsType(
        "aws:s3/bucketObjectv2:BucketObjectv2", create="s3/PutObject", updates=("PutObject", "PutObjectTagging"),
        delete="DeleteObject", id="{bucket}/{key}", members=_OBJECT,
        replaces=("bucket", "key"), updated=("bucketKeyEnabled",),
        outputs={"arn": "arn:aws:s3:::{bucket}/{key}", "versionId": "{short}"},
    ),
    AwsType(
        "aws:cloudwatch/logGroup:LogGroup", create="logs/CreateLogGroup",
        updates=("PutRetentionPolicy", "AssociateKmsKey", "PutLogGroupDeletionProtection", "TagResource"),
        delete="DeleteLogGroup", autoname="name", autoname_length=512, id="{name}",
        members={
            "name": "logGroupName", "namePrefix": "logGroupName", "retentionInDays": "PutRetentionPolicy:retentionInDays",
            "skipDestroy": None,
        },
        outputs={"arn": "arn:aws:logs:{region}:{account}:log-group:{name}"},
    ),
)  # fmt: skip


# Images: registries and builds.
IMAGES_ROWS = (
    AwsType(
        "aws:ecr/repository:Repository", create="ecr/CreateRepository",
        updates=("PutImageTagMutability", "PutImageScanningConfiguration", "TagResource"), delete="DeleteRepository",
        autoname="name", autoname_length=256, id="{name}",
        members={"name": "repositoryName", "encryptionConfigurations": "encryptionConfiguration", "forceDelete": None},
        outputs={
            "arn": "arn:aws:ecr:{region}:{account}:repository/{name}", "registryId": "{account}",
            "repositoryUrl": "{account}.dkr.ecr.{region}.amazonaws.com/{name}",
        },
    ),
    AwsType(
        "aws:ecr/lifecyclePolicy:LifecyclePolicy", create="ecr/PutLifecyclePolicy", delete="DeleteLifecyclePolicy",
        id="{repository}", members={"repository": "repositoryName", "policy": "lifecyclePolicyText"},
        delete_first=True,  # pulumi-aws
        outputs={"registryId": "{account}"},
    ),
    AwsType(
        "aws:codebuild/project:Project", create="codebuild/CreateProject", updates=("UpdateProject",),
        delete="DeleteProject", autoname="name", id="arn:aws:codebuild:{region}:{account}:project/{name}",
        members={
            "buildTimeout": "timeoutInMinutes", "queuedTimeout": "queuedTimeoutInMinutes",
            "projectVisibility": "UpdateProjectVisibility:projectVisibility",
            "resourceAccessRole": "UpdateProjectVisibility:resourceAccessRole",
        },
        updated=("tags",),  # UpdateProject takes them
        sets=("vpcConfig.securityGroupIds", "vpcConfig.subnets"),
        outputs={"arn": "{id}", "badgeUrl": "", "publicProjectAlias": ""},
    ),
)  # fmt: skip

# What Karpenter hears of: a queue of EC2's warnings. To the API a queue's attributes are one map, whose limits the model lacks.
_ATTRIBUTES = "SetQueueAttributes:Attributes"
_QUEUE_POLICY = ("policy", "redrivePolicy", "redriveAllowPolicy")
EVENTS_ROWS = (
    AwsType(
        "aws:sqs/queue:Queue", create="sqs/CreateQueue", updates=("SetQueueAttributes", "TagQueue"), delete="DeleteQueue",
        autoname="name", autoname_length=80, id="https://sqs.{region}.amazonaws.com/{account}/{name}",
        members={
            "name": "QueueName", "namePrefix": "QueueName",
            **dict.fromkeys(
                (
                    *("contentBasedDeduplication", "deduplicationScope", "delaySeconds", "fifoQueue", "fifoThroughputLimit"),
                    *("kmsDataKeyReusePeriodSeconds", "kmsMasterKeyId", "maxMessageSize", "messageRetentionSeconds"),
                    *("receiveWaitTimeSeconds", "sqsManagedSseEnabled", "visibilityTimeoutSeconds", *_QUEUE_POLICY),
                ),
                _ATTRIBUTES,
            ),
        },
        replaces=("fifoQueue",),  # tf, queueSchema: ForceNew
        # tf, queueSchema (ValidateFunc), resourceQueueCustomizeDiff (the name); SetQueueAttributes' own words for the wait.
        allowed={
            "name": re.compile(r"[0-9A-Za-z_-]{1,80}|[0-9A-Za-z_-]{1,75}\.fifo"),
            "delaySeconds": range(901),
            "kmsDataKeyReusePeriodSeconds": range(60, 86_401),
            "maxMessageSize": range(1024, 1_048_577),
            "messageRetentionSeconds": range(60, 1_209_601),
            "receiveWaitTimeSeconds": range(21),
            "visibilityTimeoutSeconds": range(43_201),
            "deduplicationScope": ("messageGroup", "queue"),
            "fifoThroughputLimit": ("perQueue", "perMessageGroupId"),
        },
        outputs={
            "arn": "arn:aws:sqs:{region}:{account}:{name}", "url": "{id}", "kmsDataKeyReusePeriodSeconds": 300,
            "sqsManagedSseEnabled": True, **dict.fromkeys(("deduplicationScope", "fifoThroughputLimit", *_QUEUE_POLICY), ""),
        },
    ),
    AwsType(
        "aws:sqs/queuePolicy:QueuePolicy", create="sqs/SetQueueAttributes", updates=("SetQueueAttributes",), id="{queueUrl}",
        members={"policy": "Attributes"}, replaces=("queueUrl",),  # tf, resourceQueuePolicy: ForceNew
    ),
    # Their ids as on the default event bus: on another one its name stands before (tf, ruleCreateResourceID,
    # targetCreateResourceID).
    AwsType(
        "aws:cloudwatch/eventRule:EventRule", create="events/PutRule", updates=("PutRule", "TagResource"), delete="DeleteRule",
        autoname="name", autoname_length=64, id="{name}",
        members={"namePrefix": "Name", "isEnabled": None, "forceDestroy": None},
        outputs={"arn": "arn:aws:events:{region}:{account}:rule/{name}"},
    ),
    AwsType(
        "aws:cloudwatch/eventTarget:EventTarget", create="events/PutTargets", updates=("PutTargets",), delete="RemoveTargets",
        autoname="targetId", id="{rule}-{targetId}",
        members={
            "forceDestroy": None, "targetId": "Targets.Id", "appsyncTarget": "Targets.AppSyncParameters",
            "redshiftTarget": "Targets.RedshiftDataParameters", "runCommandTargets": "Targets.RunCommandParameters",
            "runCommandTargets.key": "RunCommandTargets.Key", "runCommandTargets.values": "RunCommandTargets.Values",
            **{
                f"{name[0].lower()}{name[1:]}Target": f"Targets.{member}Parameters"
                for name, member in (
                    *(("Batch", "Batch"), ("Ecs", "Ecs"), ("Http", "Http"), ("Kinesis", "Kinesis"), ("Sqs", "Sqs")),
                    ("SagemakerPipeline", "SageMakerPipeline"),
                )
            },
            **{
                f"{name[0].lower()}{name[1:]}": f"Targets.{name}"
                for name in ("Arn", "DeadLetterConfig", "Input", "InputPath", "InputTransformer", "RetryPolicy", "RoleArn")
            },
        },
        replaces=("targetId",),  # tf, resourceTarget: ForceNew
    ),
)  # fmt: skip


TYPES: Mapping[str, AwsType] = {
    row.token: row
    for rows in (NETWORK_ROWS, COMPUTE_ROWS, EKS_ROWS, ACCESS_ROWS, STORAGE_ROWS, OBJECTS_ROWS, IMAGES_ROWS, EVENTS_ROWS)
    for row in rows
}
