"""Azure Monitor for a stack with `logs.ship`: Container Insights ships what pods print to a workspace that forgets.

    store = logs.workspace(base)                     # before the cluster, which names it
    kept = logs.declare(base, control, store, cluster, needs)

AKS runs the agents once its cluster says so (cluster.py). Of all that they could collect, the rule that is associated with the
cluster takes lines of containers alone, of Ebb's namespaces; the ConfigMap adds the pods' labels to them, in the column
KubernetesMetadata, and keeps kube-system's other pods out. Its keys are those of kubernetes/container-azm-ms-agentconfig.yaml of
https://github.com/microsoft/Docker-Provider, the rule's those of public templates (both read 2026-11-28).
"""

import json
from collections.abc import Sequence

import pulumi
from pulumi_azure_native import monitor, operationalinsights
from pulumi_kubernetes import core

from infra.clouds.azure.base import Base
from infra.clouds.azure.cluster import ControlPlane
from workloads.cluster import JOBS, SYSTEM, TEAMS, Cluster
from workloads.helpers import PLUGIN_NAMESPACE
from workloads.logs import Destination

CONFIG = "container-azm-ms-agentconfig"  # this name, and that of the association, are built into the agents
ASSOCIATION = "ContainerInsightsExtension"
STREAM = "Microsoft-ContainerLogV2"
# DaemonSets and Deployments of ours in kube-system.
OURS = ("ebb-notices", "ebb-rdma", "ebb-dcgm-exporter", "nvidia-device-plugin", "rdma-device-plugin")


def workspace(base: Base) -> operationalinsights.Workspace:
    """It goes with the resource group. Azure keeps a deleted one for 14 days, and gives it back to the same name in the same
    group (https://learn.microsoft.com/azure/azure-monitor/logs/delete-workspace, as remembered)."""
    return operationalinsights.Workspace(
        f"{base.name}-logs",
        workspace_name=f"{base.name}-logs",
        resource_group_name=base.group.name,
        location=base.settings.location,
        retention_in_days=base.stack.logs.keep_days,
        sku={"name": operationalinsights.WorkspaceSkuNameEnum.PER_GB2018},
        tags=base.tags,
        opts=base.part("logs").child(),
    )


def declare(
    base: Base, control: ControlPlane, store: operationalinsights.Workspace, cluster: Cluster, needs: Sequence[pulumi.Resource]
) -> Destination:
    """`needs`: the cluster with its manager machine."""
    part = base.part("log-collection")
    namespaces = [SYSTEM, JOBS, *(f"{TEAMS}{team}" for team in base.stack.teams), PLUGIN_NAMESPACE]
    rule = monitor.DataCollectionRule(
        f"{base.name}-logs",
        data_collection_rule_name=f"{base.name}-logs",
        resource_group_name=base.group.name,
        location=base.settings.location,
        kind="Linux",
        data_sources={
            "extensions": [
                {
                    "name": ASSOCIATION,
                    "extension_name": "ContainerInsights",
                    "streams": [STREAM],
                    "extension_settings": {
                        "dataCollectionSettings": {
                            "interval": "1m",
                            "namespaceFilteringMode": "Include",
                            "namespaces": namespaces,
                            "enableContainerLogV2": True,
                        }
                    },
                }
            ]
        },
        destinations={"log_analytics": [{"name": "workspace", "workspace_resource_id": store.id}]},
        data_flows=[{"streams": [STREAM], "destinations": ["workspace"]}],
        tags=base.tags,
        opts=part.child(),
    )
    monitor.DataCollectionRuleAssociation(
        f"{base.name}-logs",
        association_name=ASSOCIATION,
        resource_uri=control.id,
        data_collection_rule_id=rule.id,
        opts=part.child(),
    )
    core.v1.ConfigMap(
        CONFIG,
        metadata={"name": CONFIG, "namespace": PLUGIN_NAMESPACE},
        data={"schema-version": "v1", "config-version": "ebb1", "log-data-collection-settings": settings()},
        opts=cluster.options(depends_on=needs),
    )
    return Destination(links={"logs": pulumi.Output.concat("https://portal.azure.com/#resource", store.id, "/logs")})


def settings() -> str:
    """The agents' settings, as TOML."""
    system = json.dumps([f"{PLUGIN_NAMESPACE}:{name}" for name in OURS])
    streams = [
        f"[log_collection_settings.{stream}]\n"
        "enabled = true\n"
        # kube-system may not be there, or the pods below would not be collected.
        'exclude_namespaces = ["gatekeeper-system"]\n'
        f"collect_system_pod_logs = {system}\n"
        for stream in ("stdout", "stderr")
    ]
    return "".join((
        "[log_collection_settings]\n",
        *streams,
        "[log_collection_settings.env_var]\nenabled = false\n",
        '[log_collection_settings.schema]\ncontainerlog_schema_version = "v2"\n',
        '[log_collection_settings.metadata_collection]\nenabled = true\ninclude_fields = ["podLabels"]\n',
    ))  # fmt: skip
