"""A rehearsal's reclaim on Google Cloud: a simulated maintenance event, which preempts a spot machine.

https://cloud.google.com/compute/docs/instances/simulating-host-maintenance, read 2026-11-23: so are programs tested for
the preemption of Spot VMs, which do not migrate.
"""

import re
from collections.abc import Mapping
from typing import Any

from infra.clouds.gcp.calls import INVALID, Account, Calls, Refused
from infra.config import Stack

COMPUTE = "https://compute.googleapis.com/compute/v1"


def needed(group: str) -> Mapping[str, Any]:
    """Settings of the section `gcp` without which no machine of that node group can be reclaimed."""
    return {}


def reclaim(stack_name: str, stack: Stack, provider_id: str, calls: Calls | None = None) -> str:
    """Start it, and say what was started. `provider_id`: the Node's, gce://PROJECT/ZONE/INSTANCE. Raises Refused."""
    found = re.fullmatch(r"gce://([^/]+)/([^/]+)/([^/]+)", provider_id)
    if found is None:
        raise Refused(INVALID, f"the machine's provider id is {provider_id!r}, and not gce://PROJECT/ZONE/INSTANCE")
    project, zone, instance = found.groups()
    calls = calls or Account()
    operation = calls.post(f"{COMPUTE}/projects/{project}/zones/{zone}/instances/{instance}/simulateMaintenanceEvent", {})
    return f"operation {operation.get('name', '?')} on {instance}"
