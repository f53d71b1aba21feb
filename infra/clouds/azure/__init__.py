"""Microsoft Azure: AKS in an own or an existing network, agent pools by zone, Azure Files over NFS, a container registry.

Settings and instance types are here for every reader of a stack's file; what needs an SDK (dependency group azure) is imported
when it is asked for.
"""

# ruff: noqa: PLC0415 - what needs an SDK, or much time, is imported by those who need it

from collections.abc import Callable, Iterable, Sequence

from infra.account.records import Check, Offered, Seen, Sheet
from infra.cloud import Cloud, Infrastructure, Reclaims
from infra.clouds.azure import catalog, checks, names, settings
from infra.config import Problem, Stack
from infra.policies.rules import Rule
from workloads.cluster import ON_DEMAND, SPOT, InstanceType, NodeGroup

_DIFFERENCES = {
    "cluster": f"AKS {', '.join(settings.KUBERNETES)}, Azure CNI overlay with Cilium, no local accounts",
    "network": "one subnet for all zones, one NAT gateway; pods in an overlay",
    "node group": f"agent pool in one zone, one VM size, a name of {names.POOL_LENGTH} characters",
    "spot": "Spot pools, eviction policy Delete; AKS's own taint is declared too",
    "notice": "30 s (Scheduled Events), on which AKS drains, as best it can",
    "maximum machine age": "none",
    "autoscaler": f"AKS's own, spot first; it gives a machine {settings.Autoscaler().provision_minutes} minutes to come",
    "GPU driver": "installed by AKS; device plugin by the stack",
    "between machines": "TCP; InfiniBand of the ND sizes, device plugin by the stack",
    "data and output": "Azure Files over NFS, premium, paid by size; blob containers to read from",
    "etcd's disk": "zonal Premium SSD, without snapshots",
    "images": "ACR; its quick tasks or local Docker",
    "who reaches the API": "authorized ranges, or the network alone",
    "identities": "Entra groups, by object id; tokens by kubelogin",
    "what a destroy keeps": "the share, in a resource group of its own",
    "source of the mocks": "the SDK's classes and enumerations, forceNewMap of pulumi-azure-native, specifications of the API",
}


class AzureCloud(Cloud):
    """See infra.cloud.Cloud."""

    TYPES = catalog.TYPES
    CAPACITIES = (SPOT, ON_DEMAND)
    Settings = settings.Settings
    GroupSettings = settings.GroupSettings
    DIFFERENCES = _DIFFERENCES
    MANAGED_MONITORING = "Azure Monitor's managed Prometheus"
    LOG_SERVICE = "Azure Monitor (Container Insights)"

    def problems(self, stack: Stack) -> Iterable[Problem]:
        return checks.problems(stack, stack.settings)

    def make(self, stack: Stack) -> Infrastructure:
        from infra.clouds.azure.cloud import Azure

        return Azure(stack, stack.settings)

    def upstream_images(self, stack: Stack, groups: Sequence[NodeGroup]) -> Iterable[str]:
        from infra import images as shared
        from infra.clouds.azure import images, plugins

        built = [] if stack.settings.images.build == "none" else images.recipes(stack)
        return [*shared.bases(built), *(plugin.image for plugin in plugins.helpers(groups).device_plugins)]

    def preflight(self, stack_name: str, stack: Stack) -> Sequence[Check]:
        from infra.clouds.azure import preflight

        return preflight.checks(stack_name, stack)

    def leftovers(self, stack_name: str, stack: Stack, say: Callable[[str], None]) -> Seen:
        from infra.clouds.azure import leftovers

        return leftovers.seen(stack_name, stack, say)

    def costs(self, stack: Stack, groups: Sequence[NodeGroup]) -> Sheet:
        from infra.clouds.azure import costs

        return costs.sheet(stack, groups)

    def spot_prices(self, stack: Stack, types: Sequence[InstanceType]) -> Offered:
        from infra.clouds.azure import prices

        return prices.read(stack, types)

    def reclaims(self) -> Reclaims:
        from infra.clouds.azure import reclaim

        return reclaim

    def rules(self) -> Sequence[Rule]:
        from infra.clouds.azure import policies

        return policies.RULES


CLOUD = AzureCloud()
