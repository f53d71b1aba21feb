"""The rights of the platform in the account: every role, what it may do, on what, and why. Nothing is declared here.

identity.py makes roles of it, table() a part of docs/aws.md, and a test refuses any policy that is not in it. Words in braces
are filled in when a role is made: {name} is the cluster's name (ebb-<stack>), {stack} the stack's, the others are what the role's
maker gives.

Not here, as AWS makes them itself, once per account: the service-linked roles of EKS, its node groups, Auto Scaling, Spot, FSx
(which reads and writes the data repository's bucket) and FIS. No role is for kube-proxy, CoreDNS, metrics-server, the node
monitoring agent and the device plugins, which ask AWS for nothing; nor for the EFS and FSx drivers: all volumes are static, so
drivers create, resize and delete nothing, and a mount asks for none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from infra.config import ROOT
from workloads.cluster import COPY_ACCOUNT

EVERYTHING = "*"
# As documented in the service authorization reference: the action knows no resources, so a policy cannot name any.
_NO_RESOURCES = "The API knows no narrower resource."

Conditions = Mapping[str, Mapping[str, str | tuple[str, ...]]]  # several values: one of them


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Actions on resources, under conditions. `everything`: why the resource is `*`, if it is."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions = field(default_factory=dict)
    reason: str
    everything: str = ""


@dataclass(frozen=True, kw_only=True)
class Managed:
    """A policy that AWS writes, and may widen. `reason` says why a list of our own would not do; `only_with`: the setting without
    which nobody gets it."""

    name: str
    reason: str
    only_with: str = ""


@dataclass(frozen=True, kw_only=True)
class Role:
    """`service` or `principals` may take it, under conditions. `who`: whose hands it is in, in words."""

    who: str
    service: str = ""
    principals: str = ""
    actions: tuple[str, ...] = ("sts:AssumeRole",)
    conditions: Conditions = field(default_factory=dict)
    managed: tuple[Managed, ...] = ()
    statements: tuple[Statement, ...] = ()


def _tagged(**tags: str) -> Conditions:
    """Only what carries the tags. Words in keys: volume -> ebb.dev/volume, node_group -> ebb.dev/node-group."""
    return {"StringEquals": {f"aws:ResourceTag/ebb.dev/{key.replace('_', '-')}": value for key, value in tags.items()}}


def _of_pods(
    who: str, namespace: str, account: str, *, managed: tuple[Managed, ...] = (), statements: tuple[Statement, ...] = ()
) -> Role:
    """For one service account of this cluster: EKS says who asks, in session tags that nobody else can set
    (https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html and pod-id-abac.html, read 2026-11-21)."""
    tags = {"eks-cluster-name": "{name}", "kubernetes-namespace": namespace, "kubernetes-service-account": account}
    return Role(
        who=who,
        service="pods.eks.amazonaws.com",
        actions=("sts:AssumeRole", "sts:TagSession"),
        conditions={"StringEquals": {f"aws:RequestTag/{key}": value for key, value in tags.items()}},
        managed=managed,
        statements=statements,
    )


_KARPENTERS: Conditions = {
    "StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/{name}": "owned"},
    "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"},
}
_KARPENTERS_NEW: Conditions = {
    "StringEquals": {"aws:RequestTag/kubernetes.io/cluster/{name}": "owned", "aws:RequestTag/eks:eks-cluster-name": "{name}"},
    "StringLike": {"aws:RequestTag/karpenter.sh/nodepool": "*"},
}
_MADE_BY_KARPENTER = tuple(
    f"arn:aws:ec2:*:*:{kind}/*"
    for kind in ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
)

_READ_BUCKETS = (
    Statement(
        actions=("s3:ListBucket",),
        resources=("{buckets}",),
        reason="Folders of the buckets that the stack's file names, and of no other.",
    ),
    Statement(
        actions=("s3:GetObject",),
        resources=("{objects}",),
        reason="Files below the folders that it names. Nothing may be written or deleted.",
    ),
)


class _Named(Protocol):
    """A bucket of the stack's file."""

    @property
    def bucket(self) -> str: ...
    @property
    def prefix(self) -> str: ...


def bucket_words(buckets: Iterable[_Named]) -> dict[str, Any]:
    """The words in braces of the roles that read buckets."""
    named = list(buckets)
    return {
        "buckets": sorted({f"arn:aws:s3:::{one.bucket}" for one in named}),
        "objects": [f"arn:aws:s3:::{one.bucket}/{one.prefix}*" for one in named],
    }


ROLES: Mapping[str, Role] = {
    "cluster": Role(
        who="the EKS control plane",
        service="eks.amazonaws.com",
        managed=(
            Managed(
                name="AmazonEKSClusterPolicy",
                reason="EKS asks for this very policy: it keeps the cluster's network interfaces, its security group and what it "
                "knows of machines. It names each action; only the EKS service can take the role.",
            ),
        ),
    ),
    "machine": Role(
        who="every machine: kubelet, and the program that joins it to the cluster",
        service="ec2.amazonaws.com",
        managed=(
            Managed(
                name="AmazonEKSWorkerNodePolicy",
                reason="What joining takes: look at itself and at the cluster (no change of anything), and credentials for its "
                "own pods. EKS extends it when a release of the AMI needs more, and machines of an old list would then not join.",
            ),
            Managed(
                name="AmazonEC2ContainerRegistryPullOnly",
                reason="Pull images, from the stack's repositories and from those of the EKS add-ons, whose account differs by "
                "region. It cannot push, list or delete.",
            ),
            Managed(
                name="AmazonSSMManagedInstanceCore",
                reason="What the agent in the AMI asks of Systems Manager to offer a shell. It also reads every parameter of the "
                "account's Parameter Store, so it is left out unless asked for.",
                only_with="aws.nodes.ssm",
            ),
        ),
    ),
    "vpc-cni": _of_pods(
        "the network plugin (pods aws-node)",
        "kube-system",
        "aws-node",
        managed=(
            Managed(
                name="AmazonEKS_CNI_Policy",
                reason="Addresses for pods: makes, attaches and deletes network interfaces of machines that do not exist yet, so "
                "they cannot be named. AWS keeps it with the plugin. Held by the plugin's pods and not by machines, so no other "
                "process on a machine has it.",
            ),
        ),
    ),
    "ebs-csi": _of_pods(
        "the EBS driver's controller, on the manager machine",
        "kube-system",
        "ebs-csi-controller-sa",
        statements=(
            Statement(
                actions=("ec2:AttachVolume", "ec2:DetachVolume"),
                resources=("arn:aws:ec2:*:*:volume/*",),
                conditions=_tagged(stack="{stack}", volume="etcd"),
                reason="Attach the one volume that there is, etcd's; AWS's own policy would let it delete and make any.",
            ),
            Statement(
                actions=("ec2:AttachVolume", "ec2:DetachVolume"),
                resources=("arn:aws:ec2:*:*:instance/*",),
                conditions=_tagged(stack="{stack}", node_group="manager"),
                reason="To the manager machine alone.",
            ),
            Statement(
                actions=(
                    "ec2:DescribeVolumes",
                    "ec2:DescribeInstances",
                    "ec2:DescribeInstanceTypes",
                    "ec2:DescribeAvailabilityZones",
                ),
                resources=(EVERYTHING,),
                reason="See whether the volume is attached, to what, and how many fit; its health check asks for the zones.",
                everything=_NO_RESOURCES,
            ),
        ),
    ),
    "s3-csi": _of_pods(
        "the S3 driver on every machine, with mounted `aws.storage.buckets`",
        "kube-system",
        "s3-csi-driver-sa",
        statements=_READ_BUCKETS,
    ),
    "s3-copy": _of_pods(
        "pods that copy a bucket before a job's workers exist, with `aws.storage.buckets`",
        "{namespace}",
        COPY_ACCOUNT,
        statements=_READ_BUCKETS,
    ),
    # Narrower than AWS's own CloudWatchAgentServerPolicy, which writes to every group and metric of the account.
    "insights": _of_pods(
        "the agent of Container Insights, with `monitoring.managed`",
        "amazon-cloudwatch",
        "cloudwatch-agent",
        statements=(
            Statement(
                actions=("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"),
                resources=("arn:aws:logs:*:*:log-group:/aws/containerinsights/{name}/*",),
                reason="Write the figures: CloudWatch makes metrics of them. The group is the stack's own.",
            ),
            Statement(
                actions=("ec2:DescribeTags", "ec2:DescribeVolumes"),
                resources=(EVERYTHING,),
                reason="Know the group of a machine, and the volumes of its pods.",
                everything=_NO_RESOURCES,
            ),
        ),
    ),
    # Narrower than CloudWatchAgentServerPolicy, too: it makes no group, and reads nothing.
    "logs": _of_pods(
        "Fluent Bit on every machine, with `logs.ship`",
        "kube-system",
        "ebb-logs",
        statements=(
            Statement(
                actions=("logs:CreateLogStream", "logs:PutLogEvents"),
                resources=("arn:aws:logs:*:*:log-group:/{name}/pods:*",),
                reason="Write lines of pods to the stack's own log group, a stream for each container.",
            ),
        ),
    ),
    "autoscaler": _of_pods(
        "cluster-autoscaler",
        "ebb-system",
        "cluster-autoscaler",
        statements=(
            Statement(
                actions=("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"),
                resources=("arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/eks-*",),
                conditions={"StringEquals": {"aws:ResourceTag/k8s.io/cluster-autoscaler/{name}": "owned"}},
                reason="Add and remove machines, in this cluster's node groups alone: EKS puts the tag on their groups.",
            ),
            Statement(
                actions=("eks:DescribeNodegroup",),
                resources=("arn:aws:eks:*:*:nodegroup/{name}/*/*",),
                reason="Labels and taints of machines that do not exist yet.",
            ),
            Statement(
                actions=(
                    "autoscaling:DescribeAutoScalingGroups",
                    "autoscaling:DescribeAutoScalingInstances",
                    "autoscaling:DescribeLaunchConfigurations",
                    "autoscaling:DescribeScalingActivities",
                    "ec2:DescribeImages",
                    "ec2:DescribeInstanceTypes",
                    "ec2:DescribeLaunchTemplateVersions",
                    "ec2:GetInstanceTypesFromInstanceRequirements",
                ),
                resources=(EVERYTHING,),
                reason="Find the groups by tag, see why a request for spot machines failed, and know what a machine would have.",
                everything=_NO_RESOURCES,
            ),
        ),
    ),
    # The policy that Karpenter documents (cloudformation.yaml of "Getting Started with Karpenter",
    # https://github.com/aws/karpenter-provider-aws at v1.14.1), without the making of instance profiles: the stack has one.
    "karpenter": _of_pods(
        "Karpenter (aws.autoscaler.kind: karpenter)",
        "kube-system",
        "karpenter",
        statements=(
            Statement(
                actions=("ec2:RunInstances", "ec2:CreateFleet"),
                resources=(
                    "arn:aws:ec2:*:*:security-group/*",
                    "arn:aws:ec2:*:*:subnet/*",
                    "arn:aws:ec2:*:*:placement-group/*",
                    "arn:aws:ec2:*:*:capacity-reservation/*",
                    "arn:aws:ec2:*::image/*",
                    "arn:aws:ec2:*::snapshot/*",
                ),
                reason="What a machine is made of. This alone starts none: a start needs the next two as well, which are the "
                "cluster's.",
            ),
            Statement(
                actions=("ec2:RunInstances", "ec2:CreateFleet"),
                resources=("arn:aws:ec2:*:*:launch-template/*",),
                conditions=_KARPENTERS,
                reason="By launch templates of its own.",
            ),
            Statement(
                actions=("ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"),
                resources=_MADE_BY_KARPENTER,
                conditions=_KARPENTERS_NEW,
                reason="Start machines, which carry the cluster's name from the first moment on.",
            ),
            Statement(
                actions=("ec2:CreateTags",),
                resources=_MADE_BY_KARPENTER,
                conditions={
                    "StringEquals": {
                        **_KARPENTERS_NEW["StringEquals"],
                        "ec2:CreateAction": ("RunInstances", "CreateFleet", "CreateLaunchTemplate"),
                    },
                    "StringLike": _KARPENTERS_NEW["StringLike"],
                },
                reason="In that very call.",
            ),
            Statement(
                actions=("ec2:CreateTags",),
                resources=("arn:aws:ec2:*:*:instance/*",),
                conditions={
                    **_KARPENTERS,
                    "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": "{name}"},
                    "ForAllValues:StringEquals": {"aws:TagKeys": ("eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name")},
                },
                reason="Name a machine after its Node, once there is one.",
            ),
            Statement(
                actions=("ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"),
                resources=("arn:aws:ec2:*:*:instance/*", "arn:aws:ec2:*:*:launch-template/*"),
                conditions=_KARPENTERS,
                reason="End its own machines, and no others.",
            ),
            Statement(
                actions=("iam:PassRole",),
                resources=("arn:aws:iam::*:role/{name}-machine-*",),
                conditions={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
                reason="Give machines the role that the machines of managed node groups have.",
            ),
            Statement(
                actions=("sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"),
                resources=("arn:aws:sqs:*:*:{name}-karpenter",),
                reason="Hear that EC2 takes machines back.",
            ),
            Statement(
                actions=("eks:DescribeCluster",),
                resources=("arn:aws:eks:*:*:cluster/{name}",),
                reason="The cluster's address, which machines are told.",
            ),
            Statement(
                actions=("ssm:GetParameter",),
                resources=("arn:aws:ssm:*::parameter/aws/service/*",),
                reason="The AMI of a pinned release.",
            ),
            Statement(
                actions=(
                    "ec2:DescribeCapacityReservations",
                    "ec2:DescribeImages",
                    "ec2:DescribeInstances",
                    "ec2:DescribeInstanceStatus",
                    "ec2:DescribeInstanceTypeOfferings",
                    "ec2:DescribeInstanceTypes",
                    "ec2:DescribeLaunchTemplates",
                    "ec2:DescribePlacementGroups",
                    "ec2:DescribeSecurityGroups",
                    "ec2:DescribeSpotPriceHistory",
                    "ec2:DescribeSubnets",
                ),
                resources=(EVERYTHING,),
                reason="What there is, what it costs, and what runs.",
                everything=_NO_RESOURCES,
            ),
            Statement(
                actions=("iam:ListInstanceProfiles", "pricing:GetProducts"),
                resources=(EVERYTHING,),
                reason="Look for instance profiles of its own, which it never has here, and for list prices.",
                everything=_NO_RESOURCES,
            ),
        ),
    ),
    "codebuild": Role(
        who="CodeBuild, while it builds an image (images.build: codebuild)",
        service="codebuild.amazonaws.com",
        statements=(
            Statement(
                actions=("logs:CreateLogStream", "logs:PutLogEvents"),
                resources=("arn:aws:logs:*:*:log-group:/aws/codebuild/{name}-images:*",),
                reason="The log of a build; Pulumi owns the group.",
            ),
            Statement(
                actions=("s3:GetObject", "s3:GetObjectVersion"),
                resources=("arn:aws:s3:::{name}-sources-*/*",),
                reason="Read the sources that `pulumi up` has packed.",
            ),
            Statement(
                actions=("s3:GetBucketAcl", "s3:GetBucketLocation"),
                resources=("arn:aws:s3:::{name}-sources-*",),
                reason="CodeBuild looks at the bucket before it reads from it.",
            ),
            Statement(
                actions=(
                    "ecr:BatchCheckLayerAvailability",
                    "ecr:BatchGetImage",
                    "ecr:CompleteLayerUpload",
                    "ecr:GetDownloadUrlForLayer",
                    "ecr:InitiateLayerUpload",
                    "ecr:PutImage",
                    "ecr:UploadLayerPart",
                ),
                resources=("arn:aws:ecr:*:*:repository/{name}/*",),
                reason="Push to the stack's repositories, and pull from there what a build has cached.",
            ),
            Statement(
                actions=("ecr:GetAuthorizationToken",),
                resources=(EVERYTHING,),
                reason="Log in to the registry; what a login may do, the statement before says.",
                everything=_NO_RESOURCES,
            ),
        ),
    ),
    "snapshots": Role(
        who="Data Lifecycle Manager, which takes a snapshot of etcd's volume every night",
        service="dlm.amazonaws.com",
        statements=(
            Statement(
                actions=("ec2:CreateSnapshot",),
                resources=("arn:aws:ec2:*:*:volume/*",),
                conditions=_tagged(backup="{name}"),
                reason="Of the stack's volume alone. AWS's own policy may snapshot, share and delete anything.",
            ),
            Statement(
                actions=("ec2:CreateSnapshot", "ec2:CreateTags"),
                resources=("arn:aws:ec2:*::snapshot/*",),
                reason="The snapshot to be, which has no tag yet, and the volume's tags on it, in whichever call DLM sets them.",
            ),
            Statement(
                actions=("ec2:DeleteSnapshot",),
                resources=("arn:aws:ec2:*::snapshot/*",),
                conditions=_tagged(backup="{name}"),
                reason="The oldest, once there are enough: snapshots carry the volume's tags.",
            ),
            Statement(
                actions=("ec2:DescribeInstances", "ec2:DescribeSnapshots", "ec2:DescribeVolumes"),
                resources=(EVERYTHING,),
                reason="Find the volume by its tag, and the snapshots that it has.",
                everything=_NO_RESOURCES,
            ),
        ),
    ),
    "drill": Role(
        who="Fault Injection Service, while a drill runs (aws.drill)",
        service="fis.amazonaws.com",
        statements=(
            Statement(
                actions=("ec2:SendSpotInstanceInterruptions",),
                resources=("arn:aws:ec2:*:*:instance/*",),
                conditions=_tagged(stack="{stack}", node_group="{group}"),
                reason="Reclaim spot machines of the drill's node group, and no others.",
            ),
            Statement(
                actions=("ec2:DescribeInstances",),
                resources=(EVERYTHING,),
                reason="Find them by their tags.",
                everything=_NO_RESOURCES,
            ),
        ),
    ),
    "researcher": Role(
        who="whom aws.cluster.researchers names",
        principals="{researchers}",
        statements=(
            Statement(
                actions=("eks:DescribeCluster",),
                resources=("{cluster}",),
                reason="Address and certificate of the cluster, for `aws eks update-kubeconfig`. What they may do in the "
                "cluster, Kubernetes says (group ebb:researchers).",
            ),
        ),
    ),
}


# ------------------------------------------------------------------------------------------------------ docs/aws.md

PATH = ROOT / "docs" / "aws.md"
BEGIN, END = "<!-- rights: generated by `make manifests` from infra/clouds/aws/iam/rights.py -->\n", "<!-- /rights -->\n"


def table() -> str:
    """All rights as Markdown, one row for each statement and managed policy."""
    lines = ["| role | taken by | may | on | if | why |", "|---|---|---|---|---|---|"]
    for key, role in ROLES.items():
        lines += [_row(key, role, f"managed policy `{policy.name}`", "", _when(policy), policy.reason) for policy in role.managed]
        for one in role.statements:
            actions = ", ".join(f"`{action}`" for action in one.actions)
            resources = ", ".join(f"`{resource}`" for resource in one.resources)
            lines.append(_row(key, role, actions, resources, _words(one.conditions), f"{one.reason} {one.everything}".strip()))
    return "\n".join(lines) + "\n"


def _when(policy: Managed) -> str:
    return f"`{policy.only_with}: true`" if policy.only_with else ""


def _row(key: str, role: Role, *cells: str) -> str:
    taken = f"{role.who}; {_words(role.conditions)}" if role.conditions else role.who
    return f"| {' | '.join((key, taken, *cells))} |"


def _words(conditions: Conditions) -> str:
    return ", ".join(f"`{key}` is {_values(value)}" for tests in conditions.values() for key, value in tests.items())


def _values(value: str | tuple[str, ...]) -> str:
    return f"`{value}`" if isinstance(value, str) else " or ".join(f"`{one}`" for one in value)


def text(page: str = "") -> str:
    """The page with the table of today between its marks; `page`: its present text, if not that of the file."""
    before, _, rest = (page or PATH.read_text()).partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"
