"""The control plane: an AKS cluster with its identity, its system pool, and who may do what in it.

    control = cluster.declare(base, network, manager)
    control.ready                                  # everything that machines wait for, and that goes after them

AKS brings the autoscaler, DNS, metrics and the storage drivers. There are no local accounts: everybody, `pulumi up` too, comes
with a token of Entra ID, which kubelogin gets from the Azure CLI's login; so no kubeconfig holds a secret.

The system pool is the manager group. AKS makes no cluster without one, so it is part of the cluster's own resource; what AKS says
of its pools there is ignored afterwards, as all the others show up in it too. Another manager machine is the work of
`az aks nodepool` (docs/azure.md).
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import yaml
from pulumi_azure_native.containerservice import (
    LocalDNSMode,
    ManagedCluster,
    ResourceIdentityType,
    list_managed_cluster_user_credentials_output,
)
from pulumi_azure_native.containerservice._inputs import (
    LocalDNSProfileArgsDict,
    ManagedClusterAddonProfileArgsDict,
    ManagedClusterAgentPoolProfileArgsDict,
    ManagedClusterAPIServerAccessProfileArgsDict,
    ManagedClusterPropertiesAutoScalerProfileArgsDict,
)
from pulumi_azure_native.managedidentity import UserAssignedIdentity
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.azure import names
from infra.clouds.azure.base import Base
from infra.clouds.azure.checks import PODS, SERVICES
from infra.clouds.azure.network import Network
from infra.clouds.azure.settings import Autoscaler
from infra.part import Part
from workloads.cluster import NodeGroup

DNS = "10.245.0.10"  # inside SERVICES
# Entra's application that stands for every AKS cluster
# (https://learn.microsoft.com/azure/aks/kubelogin-authentication, as of 2026-08).
SERVER_ID = "6dae42f8-4368-4678-94ff-3960e28e3630"
# AKS sets memory aside for as many pods as there may be, 20 MB each, by default 5 GB
# (https://learn.microsoft.com/azure/aks/node-resource-reservations, as of 2026-08).
MANAGER_PODS = 60
# A proxy at a link-local address on each machine, which jobs may not reach. AKS turns it on by itself from Kubernetes 1.37 on,
# wherever a pool does not say (https://learn.microsoft.com/azure/aks/localdns-custom, read 2026-11-23).
NO_LOCAL_DNS: LocalDNSProfileArgsDict = {"mode": LocalDNSMode.DISABLED}
_TIMEOUTS = pulumi.CustomTimeouts(create="45m", update="2h", delete="1h")


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """Facts of the cluster for machines, storage and workloads. `identity`: who the control plane is in Azure; `kubelet`: who its
    machines are, when they pull images; `issuer`: by whose word pods are identities of their own."""

    name: pulumi.Output[str]
    id: pulumi.Output[str]
    identity: pulumi.Output[str]
    kubelet: pulumi.Output[str]
    issuer: pulumi.Output[str]
    kubernetes: KubernetesProvider
    kubeconfig: pulumi.Output[str]
    resource: ManagedCluster
    ready: Sequence[pulumi.Resource]
    part: Part


def declare(base: Base, network: Network, manager: NodeGroup, *, log_store: pulumi.Output[str] | None = None) -> ControlPlane:
    """The cluster of a stack, with its manager machine. `log_store`: the workspace for what pods print (logs.py)."""
    part = base.part("control-plane")
    identity = UserAssignedIdentity(
        f"{base.name}-control-plane",
        resource_name_=f"{base.name}-control-plane",
        resource_group_name=base.group.name,
        location=base.settings.location,
        tags=base.tags,
        opts=part.child(),
    )
    # It gives machines their addresses, in a subnet that is not its own. A role counts only after a while, and AKS refuses the
    # cluster until then (https://github.com/hashicorp/terraform-provider-azurerm/issues/24064). So of an own network the scope is
    # the group: the role is given first, and becomes known while address, gateway and subnets are made.
    scope = network.machines if base.settings.network.subnet_id else base.group.id
    rights = [base.allow(part, "network", "Network Contributor", identity.principal_id, scope)]
    made = _cluster(base, part, network, manager, identity, rights, log_store)
    users = [
        base.allow(part, f"user-{group[:8]}", "Azure Kubernetes Service Cluster User Role", group, made.id, group=True)
        for group in dict.fromkeys((*base.settings.cluster.administrators, *base.settings.cluster.researchers))
    ]
    told = _kubeconfig(base, part, made)
    kubelet = made.identity_profile.apply(lambda profile: (profile or {})["kubeletidentity"])
    return ControlPlane(
        name=made.name,
        id=made.id,
        identity=identity.principal_id,
        kubelet=kubelet.apply(lambda one: str(one.object_id)),
        issuer=made.oidc_issuer_profile.apply(lambda profile: str(profile.issuer_url) if profile else ""),
        kubernetes=KubernetesProvider(
            "cluster",
            kubeconfig=told,
            cluster_identifier=base.name,  # so another kubeconfig replaces nothing
            enable_config_map_mutable=True,  # ebb-platform is read by name, so it changes in place
            enable_patch_force=True,  # the stack's file wins over hands
            opts=part.child(depends_on=[made, *users]),
        ),
        kubeconfig=told,
        resource=made,
        ready=[network.part, made],
        part=part,
    )


def _cluster(  # noqa: PLR0917 - all that a cluster is made of
    base: Base,
    part: Part,
    network: Network,
    manager: NodeGroup,
    identity: UserAssignedIdentity,
    rights: Sequence[pulumi.Resource],
    log_store: pulumi.Output[str] | None,
) -> ManagedCluster:
    wanted = base.settings.cluster
    return ManagedCluster(
        base.name,
        resource_name_=base.name,
        resource_group_name=base.group.name,
        node_resource_group=f"{base.name}-nodes",
        location=base.settings.location,
        kubernetes_version=wanted.kubernetes_version,
        sku={"name": "Base", "tier": wanted.tier.capitalize()},
        dns_prefix=base.name,
        identity={"type": ResourceIdentityType.USER_ASSIGNED, "user_assigned_identities": [identity.id]},
        aad_profile={
            "managed": True,
            "enable_azure_rbac": False,  # Kubernetes' own rules, the same on every cloud
            "admin_group_object_ids": list(wanted.administrators),
        },
        disable_local_accounts=True,
        enable_rbac=True,
        oidc_issuer_profile={"enabled": True},
        security_profile={"workload_identity": {"enabled": True}, "image_cleaner": {"enabled": True, "interval_hours": 168}},
        api_server_access_profile=_access(base, network),
        network_profile={
            "network_plugin": "azure",
            "network_plugin_mode": "overlay",
            "network_dataplane": "cilium",
            "network_policy": "cilium",
            "pod_cidr": PODS,
            "service_cidr": SERVICES,
            "dns_service_ip": DNS,
            "outbound_type": network.outbound,
            "load_balancer_sku": "standard",
        },
        storage_profile={
            "disk_csi_driver": {"enabled": True},
            "file_csi_driver": {"enabled": True},
            "blob_csi_driver": {"enabled": bool(base.settings.storage.buckets)},
            "snapshot_controller": {"enabled": False},
        },
        azure_monitor_profile={"metrics": {"enabled": True}} if base.stack.monitoring.managed else None,  # prometheus.py
        addon_profiles={"omsagent": _log_agents(log_store)} if log_store else None,
        auto_scaler_profile=_autoscaler(base.settings.autoscaler),
        # Both would replace machines under running jobs at an hour of Azure's choice.
        auto_upgrade_profile={"upgrade_channel": "none", "node_os_upgrade_channel": "None"},
        agent_pool_profiles=[_system_pool(base, network, manager)],
        tags=base.tags,
        opts=part.child(depends_on=[network.part, *rights], ignore_changes=["agentPoolProfiles"], custom_timeouts=_TIMEOUTS),
    )


def _log_agents(store: pulumi.Output[str]) -> ManagedClusterAddonProfileArgsDict:
    """Container Insights, whose agents come to the workspace as an identity of their own and not by its key."""
    return {"enabled": True, "config": {"logAnalyticsWorkspaceResourceID": store, "useAADAuth": "true"}}


def _access(base: Base, network: Network) -> ManagedClusterAPIServerAccessProfileArgsDict:
    """Machines come to a public endpoint from outside too, and AKS admits by itself only what comes from its load balancer
    (https://learn.microsoft.com/azure/aks/api-server-authorized-ip-ranges, as of 2026-08)."""
    wanted = base.settings.cluster
    if wanted.endpoint == "private":
        return {"enable_private_cluster": True, "enable_private_cluster_public_fqdn": False, "private_dns_zone": "system"}
    ours = [pulumi.Output.concat(network.address, "/32")] if network.address is not None else []
    return {"enable_private_cluster": False, "authorized_ip_ranges": [*wanted.authorized_ranges, *ours]}


def _system_pool(base: Base, network: Network, manager: NodeGroup) -> ManagedClusterAgentPoolProfileArgsDict:
    return {
        "name": names.pool(manager.name, manager.capacity_type, "", manager.zone),
        "mode": "System",
        "type": "VirtualMachineScaleSets",
        "os_type": "Linux",
        "os_sku": "Ubuntu",
        "vm_size": manager.instance.name,
        "count": 1,
        "enable_auto_scaling": False,
        "availability_zones": [names.number(manager.zone)],
        "vnet_subnet_id": network.machines,
        "os_disk_type": "Managed",
        "os_disk_size_gb": base.settings.nodes.manager_disk_gib,
        "max_pods": MANAGER_PODS,
        "local_dns_profile": NO_LOCAL_DNS,
        "node_labels": manager.labels,
        "tags": base.tags,
    }


def _autoscaler(wanted: Autoscaler) -> ManagedClusterPropertiesAutoScalerProfileArgsDict:
    """As on other clouds; for the reasons see infra/clouds/azure/pools.py."""
    return {
        "expander": "priority",
        "balance_similar_node_groups": "false",  # similar groups differ by zone, and a job must not be spread over zones
        "max_node_provision_time": f"{wanted.provision_minutes}m",
        "scale_down_unneeded_time": f"{wanted.scale_down_minutes}m",
        "scale_down_delay_after_add": f"{wanted.scale_down_minutes}m",
        "scale_down_unready_time": f"{wanted.scale_down_minutes}m",
        "scan_interval": "10s",
        # A reclaim may take most machines at once; the autoscaler shall make new ones then, and not halt.
        "max_total_unready_percentage": "100",
        "ok_total_unready_count": "1000",
        # Workers that must not move say so (safe-to-evict: false). Of the rest none shall keep a GPU machine running.
        "skip_nodes_with_system_pods": "false",
        "skip_nodes_with_local_storage": "false",
    }


def _kubeconfig(base: Base, part: Part, made: ManagedCluster) -> pulumi.Output[str]:
    """AKS gives a cluster's certificate in a user's kubeconfig alone. The rest of it is written anew, so that it asks the Azure
    CLI's login for tokens, whatever AKS prefers that day."""
    credentials = list_managed_cluster_user_credentials_output(
        resource_group_name=base.group.name,
        resource_name=made.name,
        format="exec",
        opts=pulumi.InvokeOutputOptions(parent=part),
    )
    return credentials.kubeconfigs.apply(lambda found: rewritten(base.name, base64.b64decode(found[0].value).decode()))


def rewritten(name: str, kubeconfig: str) -> str:
    """A kubeconfig for whoever the Azure CLI is signed in as."""
    server = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "kubelogin",
        "args": ["get-token", "--login", "azurecli", "--server-id", SERVER_ID],
        "installHint": "https://azure.github.io/kubelogin/install.html",
        "provideClusterInfo": False,
    }
    kept = {key: server[key] for key in ("server", "certificate-authority-data")}
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": kept}],
        "users": [{"name": name, "user": {"exec": plugin}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return str(yaml.safe_dump(made, sort_keys=False))
