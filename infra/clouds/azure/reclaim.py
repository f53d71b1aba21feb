"""A rehearsal's reclaim on Azure: a simulated eviction of the spot machine, an instance of its pool's scale set.

https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-set-vms/simulate-eviction, read 2026-11-23.
"""

import re
from collections.abc import Mapping
from typing import Any

from infra.clouds.azure.rest import Arm, Refused
from infra.config import Stack

VERSION = "2024-11-01"  # of Microsoft.Compute
INSTANCE = re.compile(
    r"azure://(/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute"
    r"/virtualMachineScaleSets/[^/]+/virtualMachines/([^/]+))",
    re.IGNORECASE,  # AKS writes resource groups in lower case
)


def needed(group: str) -> Mapping[str, Any]:
    """Settings of the section `azure` without which no machine of that node group can be reclaimed."""
    return {}


def reclaim(stack_name: str, stack: Stack, provider_id: str, arm: Arm | None = None) -> str:
    """Start it, and say what was started. `provider_id`: the Node's, an instance of a scale set. Raises Refused."""
    found = INSTANCE.fullmatch(provider_id)
    if found is None:
        raise Refused("BadId", f"the machine's provider id is {provider_id!r}, and not that of an instance of a scale set")
    arm = arm or Arm(stack.settings.subscription_id)
    arm.post(f"{found[1]}/simulateEviction", VERSION)
    return f"eviction of instance {found[2]}"
