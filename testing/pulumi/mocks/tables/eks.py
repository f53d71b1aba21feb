"""EKS: cluster, node groups, add-ons, access."""

from testing.pulumi.mocks.kind import AwsType
from testing.pulumi.mocks.tables import conditions

EKS = "arn:aws:eks:{region}:{account}"

ROWS = (
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
