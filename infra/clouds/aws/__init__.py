"""Amazon Web Services: EKS in an own or an existing VPC, machines in managed node groups, EFS and FSx for Lustre, ECR.

Settings and instance types are here for every reader of a stack's file; what needs an SDK is imported when it is asked for.
"""

# ruff: noqa: PLC0415 - what needs an SDK, or much time, is imported by those who need it

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from infra.account.records import ACCOUNT, GITHUB, Check, Offered, Pattern, Seen, Sheet
from infra.cloud import Cloud, Infrastructure, Reclaims
from infra.clouds.aws import catalog, checks, settings
from infra.config import Problem, Stack
from infra.policies.rules import Rule
from workloads.cluster import CAPACITY_BLOCK, ON_DEMAND, SPOT, InstanceType, NodeGroup

_DIFFERENCES = {
    "cluster": "EKS, add-ons with pinned versions",
    "network": "a public and a private subnet per zone, NAT gateway, S3 endpoint",
    "node group": "launch template and managed node group in one zone, or a NodePool",
    "autoscaler": "cluster-autoscaler or Karpenter, run by Ebb",
    "GPU driver": "in the AMI; device plugin run by Ebb",
    "between machines": "TCP; EFA, device plugin by the stack",
    "spot": "Spot node group, rebalanced by EKS",
    "notice": "120 s",
    "maximum machine age": "none; capacity-block by its reservation",
    "data and output": "EFS in all zones, or FSx for Lustre",
    "fast file system": "FSx for Lustre, filled from S3",
    "etcd's disk": "EBS gp3, nightly snapshots",
    "images": "ECR; CodeBuild or local Docker",
    "who reaches the API": "public ranges, or the VPC alone",
    "identities": "one IAM role that they take; group ebb:researchers",
    "what a destroy keeps": "EFS",
    "source of the mocks": "botocore's models and ForceNew of terraform-provider-aws",
}


_PINS = (
    Pattern(
        files="Pulumi.*.yaml",
        text=r"^    autoscaler:\n(?:      .*\n)*?      version: (?P<version>v[\d.]+)",
        index=GITHUB,
        name="cluster-autoscaler",
        source="kubernetes/autoscaler",
        versions=r"cluster-autoscaler-(\d+(?:\.\d+)+)",
    ),
    Pattern(
        files="infra/clouds/aws/settings.py",
        text=r'^KARPENTER = "(?P<version>[\d.]+)"',
        index=GITHUB,
        name="karpenter",
        source="aws/karpenter-provider-aws",
    ),
    Pattern(
        files="Pulumi.*.yaml",
        text=r"(?P<name>\w+): [\d.]+-(?P<version>\d{8}) +# https://github\.com/(?P<source>[\w.-]+/[\w.-]+)",
        index=GITHUB,
        versions=r"v(\d{8})",
    ),
    Pattern(files="Pulumi.*.yaml", text=r"^        (?P<name>[a-z0-9-]+): (?P<version>v[\d.]+-eksbuild\.\d+)", index=ACCOUNT),
)


class AwsCloud(Cloud):
    """See infra.cloud.Cloud."""

    TYPES = catalog.TYPES
    CAPACITIES = (SPOT, ON_DEMAND, CAPACITY_BLOCK)
    Settings = settings.Settings
    GroupSettings = settings.GroupSettings
    DIFFERENCES = _DIFFERENCES
    MANAGED_MONITORING = "Container Insights with GPU metrics"
    LOG_SERVICE = "CloudWatch Logs"
    PINS = _PINS

    def problems(self, stack: Stack) -> Iterable[Problem]:
        return checks.problems(stack, stack.settings)

    def make(self, stack: Stack) -> Infrastructure:
        from infra.clouds.aws.cloud import Aws

        return Aws(stack, stack.settings)

    def upstream_images(self, stack: Stack, groups: Sequence[NodeGroup]) -> Iterable[str]:
        from infra import images as shared
        from infra.clouds.aws.builds import images
        from infra.clouds.aws.machines import in_cluster

        built = [] if stack.settings.images.build == "none" else images.recipes(stack)
        return [*shared.bases(built), *in_cluster.images(stack.settings, groups)]

    def preflight(self, stack_name: str, stack: Stack) -> Sequence[Check]:
        from infra.clouds.aws import preflight

        return preflight.checks(stack_name, stack)

    def leftovers(self, stack_name: str, stack: Stack, say: Callable[[str], None]) -> Seen:
        from infra.clouds.aws import leftovers

        return leftovers.seen(stack_name, stack, say)

    def costs(self, stack: Stack, groups: Sequence[NodeGroup]) -> Sheet:
        from infra.clouds.aws import costs

        return costs.sheet(stack, groups)

    def spot_prices(self, stack: Stack, types: Sequence[InstanceType]) -> Offered:
        from infra.clouds.aws import prices

        return prices.read(stack, types)

    def reclaims(self) -> Reclaims:
        from infra.clouds.aws import reclaim

        return reclaim

    def rules(self) -> Sequence[Rule]:
        from infra.clouds.aws import policies

        return policies.RULES

    def pages(self) -> Mapping[Path, Callable[[], str]]:
        from infra.clouds.aws.iam import rights

        return {rights.PATH: rights.text}


CLOUD = AwsCloud()
