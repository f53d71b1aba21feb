"""The machines of jobs: one agent pool for each node group, in one zone, from zero.

    pool = pools.declare(base, part, group, control, network)
    pools.priorities(part, groups, provider)                  # which pools the autoscaler tries first

A changed `min` or `max` updates the pool in place and nothing else. Another GPU, capacity or zone is another pool (its name says
so), and so is another disk, though under the same name. The autoscaler of AKS owns the number of machines, so `count` is ignored
here.

The taint and the label of spot machines are AKS's own work; they are in the group's record (infra/clouds/azure/catalog.py) and so
declared, or every preview would show them as drift, and tolerated by workers.
"""

from collections.abc import Sequence

import pulumi
import yaml
from pulumi_azure_native.compute import ProximityPlacementGroup
from pulumi_azure_native.containerservice import AgentPool
from pulumi_kubernetes import core
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.azure import names
from infra.clouds.azure.base import Base, only_new
from infra.clouds.azure.catalog import MAX_PODS
from infra.clouds.azure.cluster import MANAGER_PODS, NO_LOCAL_DNS, ControlPlane
from infra.clouds.azure.machine import own, pool, system_disk
from infra.clouds.azure.network import Network
from infra.clouds.azure.plugins import template_tags
from infra.part import Part
from workloads.cluster import ON_DEMAND, SPOT, NodeGroup

# What is cheap, then what is always there: the autoscaler tries groups of the highest number first.
PRIORITIES = {SPOT: 50, ON_DEMAND: 10}
EXPANDER = "cluster-autoscaler-priority-expander"  # the name, the namespace and the key are built into the autoscaler
MAX_PRICE = -1.0  # up to the on-demand price: Azure then reclaims for want of machines, never for the price
# What AKS changes of no pool, of that which settings say: its disk (https://learn.microsoft.com/azure/aks/concepts-storage), its
# proximity (https://learn.microsoft.com/azure/aks/reduce-latency-ppg) and its subnet (so says a client of others,
# https://github.com/ansible-collections/azure/pull/294).
FIXED = ("osDiskSizeGB", "osDiskType", "proximityPlacementGroupID", "vnetSubnetID")
_TIMEOUTS = pulumi.CustomTimeouts(create="30m", update="2h", delete="1h")


def declare(base: Base, part: Part, group: NodeGroup, control: ControlPlane, network: Network) -> AgentPool:
    """A pool that exists once machines can boot; deleting it drains and ends them."""
    spot = group.capacity_type == SPOT
    disk, kind = system_disk(group, base.settings)
    near = _proximity(base, part, group) if own(group).proximity else None
    return AgentPool(
        group.name,
        agent_pool_name=pool(group),
        resource_name_=control.name,
        resource_group_name=base.group.name,
        mode="User",
        type="VirtualMachineScaleSets",
        os_type="Linux",
        os_sku="Ubuntu",
        orchestrator_version=base.settings.cluster.kubernetes_version,
        vm_size=group.instance.name,
        availability_zones=[names.number(group.zone)],
        proximity_placement_group_id=near.id if near else None,
        vnet_subnet_id=network.machines,
        enable_auto_scaling=True,
        min_count=group.min,
        max_count=group.max,
        count=group.min,
        scale_down_mode="Delete",
        scale_set_priority="Spot" if spot else "Regular",
        scale_set_eviction_policy="Delete" if spot else None,
        spot_max_price=MAX_PRICE if spot else None,
        os_disk_type=kind,
        os_disk_size_gb=disk,
        kubelet_disk_type="OS",
        max_pods=MAX_PODS,
        local_dns_profile=NO_LOCAL_DNS,
        gpu_profile={"driver": "Install"} if group.instance.gpus else None,
        # AKS allows no such settings for spot pools. Elsewhere the old machine ends first: GPUs for a further one are rare.
        upgrade_settings=None if spot else {"max_surge": "0", "max_unavailable": "1"},
        node_labels=group.labels,
        node_taints=[f"{taint['key']}={taint['value']}:{taint['effect']}" for taint in group.taints],
        tags={**base.tags, **template_tags(group)},
        opts=part.child(
            depends_on=[network.part, *control.ready],
            ignore_changes=["count"],
            custom_timeouts=_TIMEOUTS,
            **only_new(*FIXED),
        ),
    )


def second_manager(base: Base, part: Part, group: NodeGroup, control: ControlPlane, network: Network) -> AgentPool:
    """A system pool of one machine, like the one in the cluster's own resource. AKS's own pods, DNS too, may be on either."""
    return AgentPool(
        group.name,
        agent_pool_name=pool(group),
        resource_name_=control.name,
        resource_group_name=base.group.name,
        orchestrator_version=base.settings.cluster.kubernetes_version,
        scale_down_mode="Delete",
        kubelet_disk_type="OS",
        tags=base.tags,
        mode="System",
        type="VirtualMachineScaleSets",
        os_type="Linux",
        os_sku="Ubuntu",
        vm_size=group.instance.name,
        count=1,
        enable_auto_scaling=False,
        availability_zones=[names.number(group.zone)],
        vnet_subnet_id=network.machines,
        os_disk_type="Managed",
        os_disk_size_gb=base.settings.nodes.manager_disk_gib,
        max_pods=MANAGER_PODS,
        local_dns_profile=NO_LOCAL_DNS,
        node_labels=group.labels,
        opts=part.child(depends_on=[network.part, *control.ready], custom_timeouts=_TIMEOUTS, **only_new(*FIXED)),
    )


def _proximity(base: Base, part: Part, group: NodeGroup) -> ProximityPlacementGroup:
    return ProximityPlacementGroup(
        group.name,
        proximity_placement_group_name=f"{base.name}-{pool(group)}",
        resource_group_name=base.group.name,
        location=base.settings.location,
        proximity_placement_group_type="Standard",
        tags=base.tags,
        opts=part.child(),
    )


def priorities(part: Part, groups: Sequence[NodeGroup], provider: KubernetesProvider) -> core.v1.ConfigMap:
    """The autoscaler knows groups by the names of their scale sets, aks-<pool>-<digits>-vmss. One that no expression matches
    would never grow."""
    found: dict[int, list[str]] = {}
    for group in groups:
        found.setdefault(PRIORITIES[group.capacity_type], []).append(f"^aks-{pool(group)}-\\d+-vmss$")
    listed = {number: found[number] for number in sorted(found, reverse=True)}
    return core.v1.ConfigMap(
        EXPANDER,
        metadata={"name": EXPANDER, "namespace": "kube-system"},
        data={"priorities": str(yaml.safe_dump(listed, sort_keys=False))},
        opts=part.child(provider=provider),
    )
