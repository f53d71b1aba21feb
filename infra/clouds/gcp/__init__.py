"""Google Cloud: GKE in an own or an existing network, machines in node pools, Filestore and Managed Lustre, Artifact Registry.

Settings and machine types are here for every reader of a stack's file; what needs an SDK is imported when it is asked for.
"""

# ruff: noqa: PLC0415 - what needs an SDK, or much time, is imported by those who need it

from collections.abc import Callable, Iterable, Sequence

from infra.account.records import Check, Offered, Seen, Sheet
from infra.cloud import Cloud, Infrastructure, Reclaims
from infra.clouds.gcp import catalog, checks, settings
from infra.config import Problem, Stack
from infra.policies.rules import Rule
from workloads.cluster import FLEX_START, ON_DEMAND, SPOT, InstanceType, NodeGroup

_GRACE, _FILE = settings.Nodes().shutdown_grace_seconds, settings.Storage().filestore
_DIFFERENCES = {
    "cluster": "GKE, regional, VPC-native, Dataplane V2, release channel",
    "network": "one subnet for all zones with ranges for pods and services, Cloud NAT",
    "node group": "node pool in one zone",
    "autoscaler": "GKE's own cluster-autoscaler",
    "GPU driver": "installed by GKE, with its device plugin",
    "between machines": "TCP; GPUDirect RDMA on networks of GKE's (a3-ultragpu-8g)",
    "spot": "spot, or preemptible, for 24 hours; location policy ANY",
    "notice": f"{_GRACE - 15} s for pods of {_GRACE} (15 of 30 before 1.35.0-gke.1171000, and for preemptible)",
    "maximum machine age": f"flex-start {checks.OLDEST_FLEX} h, preemptible {checks.OLDEST_PREEMPTIBLE} h",
    "data and output": f"Filestore {_FILE.tier}, {_FILE.size_gib} GiB, NFS without a driver",
    "fast file system": "Managed Lustre",
    "etcd's disk": "zonal persistent disk, nightly snapshots",
    "images": "Artifact Registry; Cloud Build or local Docker",
    "who reaches the API": "authorized ranges, or the network alone",
    "identities": "Google groups and users, bound by name; IAM role clusterViewer",
    "what a destroy keeps": "Filestore and its network",
    "source of the mocks": "ForceNew of terraform-provider-google",
}


class GcpCloud(Cloud):
    """See infra.cloud.Cloud."""

    TYPES = catalog.TYPES
    CAPACITIES = (SPOT, ON_DEMAND, FLEX_START)
    Settings = settings.Settings
    GroupSettings = settings.GroupSettings
    DIFFERENCES = _DIFFERENCES
    MANAGED_MONITORING = "Managed Service for Prometheus"
    LOG_SERVICE = "Cloud Logging"

    def problems(self, stack: Stack) -> Iterable[Problem]:
        return checks.problems(stack, stack.settings)

    def make(self, stack: Stack) -> Infrastructure:
        from infra.clouds.gcp.cloud import Gcp

        return Gcp(stack, stack.settings)

    def upstream_images(self, stack: Stack, groups: Sequence[NodeGroup]) -> Iterable[str]:
        from infra import images as shared
        from infra.clouds.gcp import build, images

        way = stack.settings.images.build
        built = [] if way == "none" else images.recipes(stack)
        return [*shared.bases(built), *([build.docker()] if way == "cloudbuild" else [])]

    def preflight(self, stack_name: str, stack: Stack) -> Sequence[Check]:
        from infra.clouds.gcp import preflight

        return preflight.checks(stack_name, stack)

    def leftovers(self, stack_name: str, stack: Stack, say: Callable[[str], None]) -> Seen:
        from infra.clouds.gcp import leftovers

        return leftovers.seen(stack_name, stack, say)

    def costs(self, stack: Stack, groups: Sequence[NodeGroup]) -> Sheet:
        from infra.clouds.gcp import costs

        return costs.sheet(stack, groups)

    def spot_prices(self, stack: Stack, types: Sequence[InstanceType]) -> Offered:
        from infra.clouds.gcp import prices

        return prices.read(stack, types)

    def reclaims(self) -> Reclaims:
        from infra.clouds.gcp import reclaim

        return reclaim

    def rules(self) -> Sequence[Rule]:
        from infra.clouds.gcp import policies

        return policies.RULES


CLOUD = GcpCloud()
