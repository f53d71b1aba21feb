"""Amazon Web Services: EKS in an own or an existing VPC, machines in managed node groups, EFS and FSx for Lustre, ECR.

Settings and instance types are here for every reader of a stack's file; the SDK is imported when resources are declared.
"""

from infra.cloud import Cloud
from infra.clouds.aws.catalog import TYPES
from infra.clouds.aws.checks import problems
from infra.clouds.aws.settings import GroupSettings, Settings
from infra.config import Stack
from workloads.cluster import CAPACITY_BLOCK, ON_DEMAND, SPOT

CAPACITIES = (SPOT, ON_DEMAND, CAPACITY_BLOCK)

__all__ = ["CAPACITIES", "TYPES", "GroupSettings", "Settings", "make", "problems"]


def make(stack: Stack, settings: Settings) -> Cloud:
    """The cloud of a stack."""
    from infra.clouds.aws.cloud import Aws  # noqa: PLC0415 - the SDK: only a program that declares resources needs it

    return Aws(stack, settings)
