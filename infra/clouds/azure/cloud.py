"""Microsoft Azure as infra.cloud.Infrastructure: calls the modules beside it, and keeps what later ones need of earlier."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import pulumi
from pulumi_azure_native.operationalinsights import Workspace

from infra.clouds.azure import cluster, images, logs, network, plugins, pools, prometheus, storage
from infra.clouds.azure.base import Base
from infra.clouds.azure.settings import Settings
from infra.config import Stack
from infra.groups import manager_group
from infra.part import Part
from workloads.cluster import Cluster, Helpers, Images, NodeGroup, Storage
from workloads.logs import Destination
from workloads.monitoring import Managed

# https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (MicrosoftDocs/azure-compute-docs at 533281db10ee):
# Preempt comes at least 30 seconds before, as best Azure can. AKS drains the machine on it, as best it can
# (https://learn.microsoft.com/azure/aks/node-auto-drain, as of 2026-08).
NOTICE_SECONDS = 30


class Azure:
    """See infra.cloud.Infrastructure. Every resource uses one provider: the stack's subscription, and no other."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        self._base = Base(stack, settings, f"ebb-{pulumi.get_stack()}")
        self._outputs: dict[str, pulumi.Input[Any] | None] = {}

    @property
    def notice_seconds(self) -> int:
        return NOTICE_SECONDS

    @cached_property
    def _network(self) -> network.Network:
        return network.declare(self._base)

    @cached_property
    def _control(self) -> cluster.ControlPlane:
        store = self._log_store
        return cluster.declare(self._base, self._network, manager_group(self._base.stack), log_store=store.id if store else None)

    @cached_property
    def _log_store(self) -> Workspace | None:
        return logs.workspace(self._base) if self._base.stack.logs.ship else None

    @cached_property
    def _machines(self) -> Part:
        return self._base.part("machines")

    def cluster(self) -> Cluster:
        control, settings, name = self._control, self._base.settings, self._base.name
        portal = f"https://portal.azure.com/#resource/subscriptions/{settings.subscription_id}/resourceGroups/{name}"
        login = f"az aks get-credentials --subscription {settings.subscription_id} --resource-group {name} --name {name}"
        self._outputs |= {
            "kubeconfig": control.kubeconfig,
            "researcherCommand": f"{login} && kubelogin convert-kubeconfig -l azurecli",
            "dashboards": {"cluster": f"{portal}/providers/Microsoft.ContainerService/managedClusters/{name}/overview"},
        }
        return Cluster(
            name=self._base.stack.cloud,
            region=settings.location,
            provider=control.kubernetes,
            # The autoscaler, too, takes a machine that is not there by then for one that will not come.
            provision_seconds=60 * settings.autoscaler.provision_minutes,
            # Entra's groups go by their object ids in Kubernetes.
            researchers=tuple(("Group", one) for one in settings.cluster.researchers),
        )

    def node_group(self, cluster: Cluster, group: NodeGroup) -> pulumi.Resource:
        if group == manager_group(self._base.stack):
            return self._control.resource  # the first system pool is part of the cluster's own resource
        if group.is_manager:
            return pools.second_manager(self._base, self._machines, group, self._control, self._network)
        return pools.declare(self._base, self._machines, group, self._control, self._network)

    def add_ons(self, cluster: Cluster, manager: pulumi.Resource) -> Sequence[pulumi.Resource]:
        return []  # AKS brings DNS, metrics and the storage drivers

    def images(self, cluster: Cluster) -> Images:
        made = images.declare(self._base, self._control)
        self._outputs |= {"images": {"controller": made.controller, **made.trainers}, "imagesCompressedMB": made.compressed_mb}
        return made

    def storage(self, cluster: Cluster, add_ons: Sequence[pulumi.Resource]) -> Storage:
        made = storage.declare(self._base, self._network, self._control, cluster.provider)
        self._outputs |= made.commands
        return made

    def helpers(self, cluster: Cluster, groups: Sequence[NodeGroup]) -> Helpers:
        pools.priorities(self._machines, groups, cluster.provider)
        return plugins.helpers(groups)

    def monitoring(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Managed:
        return prometheus.declare(self._base, self._control, cluster, needs)

    def logs(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Destination:
        assert self._log_store is not None, "it is asked of a stack with logs.ship alone"
        return logs.declare(self._base, self._control, self._log_store, cluster, needs)

    def outputs(self, cluster: Cluster) -> Mapping[str, pulumi.Input[Any]]:
        return {name: value for name, value in self._outputs.items() if value is not None}
