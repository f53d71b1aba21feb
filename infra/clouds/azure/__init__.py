"""Microsoft Azure: AKS in an own or an existing network, agent pools by zone, Azure Files over NFS, a container registry.

Settings and instance types are here for every reader of a stack's file; the SDK (dependency group azure) is imported when
resources are declared.
"""

from infra.cloud import Cloud
from infra.clouds.azure.catalog import TYPES
from infra.clouds.azure.checks import problems
from infra.clouds.azure.settings import GroupSettings, Settings
from infra.config import Stack
from workloads.cluster import ON_DEMAND, SPOT

__all__ = ["CAPACITIES", "TYPES", "GroupSettings", "Settings", "make", "problems"]

CAPACITIES = (SPOT, ON_DEMAND)


def make(stack: Stack, settings: Settings) -> Cloud:
    """The cloud of a stack."""
    from infra.clouds.azure.cloud import Azure  # noqa: PLC0415 - the SDK: only a program that declares resources needs it

    return Azure(stack, settings)
