"""Google Cloud: GKE in an own or an existing network, machines in node pools, Filestore and Managed Lustre, Artifact Registry.

Settings and machine types are here for every reader of a stack's file; the SDK is imported when resources are declared.
"""

from infra.cloud import Cloud
from infra.clouds.gcp.catalog import TYPES
from infra.clouds.gcp.checks import problems
from infra.clouds.gcp.settings import GroupSettings, Settings
from infra.config import Stack
from workloads.cluster import FLEX_START, ON_DEMAND, SPOT

CAPACITIES = (SPOT, ON_DEMAND, FLEX_START)

__all__ = ["CAPACITIES", "TYPES", "GroupSettings", "Settings", "make", "problems"]


def make(stack: Stack, settings: Settings) -> Cloud:
    """The cloud of a stack."""
    from infra.clouds.gcp.cloud import Gcp  # noqa: PLC0415 - the SDK: only a program that declares resources needs it

    return Gcp(stack, settings)
