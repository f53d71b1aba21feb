"""Azure Monitor's managed Prometheus, for `monitoring.managed`: a workspace, what goes to it, what is scraped, and the alerts.

    managed = prometheus.declare(base, control, cluster, needs)

AKS runs the agents once its cluster says so (cluster.py); they read the workspace's address from the rule that is associated with
the cluster, and what to scrape beside kubelets from a ConfigMap, in Prometheus' own words
(https://learn.microsoft.com/azure/azure-monitor/containers/prometheus-metrics-scrape-configuration, a stored copy, read
2026-11-26).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
import yaml
from pulumi_azure_native import alertsmanagement, monitor
from pulumi_kubernetes import core

from infra.clouds.azure.base import Base
from infra.clouds.azure.cluster import ControlPlane
from workloads.cluster import Cluster
from workloads.monitoring import Managed, configuration, rules

CONFIG, AGENTS = "ama-metrics-prometheus-config", "kube-system"  # the names are built into the agents
STREAM = "Microsoft-PrometheusMetrics"
SEVERITIES: Mapping[str, int] = {"critical": 1, "warning": 3}  # Azure has 0 to 4
INTERVAL = "PT1M"


def declare(base: Base, control: ControlPlane, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Managed:
    """`needs`: the cluster with its manager machine."""
    part = base.part("monitoring")
    place: dict[str, Any] = {"resource_group_name": base.group.name, "location": base.settings.location, "tags": base.tags}
    store = monitor.AzureMonitorWorkspace(base.name, azure_monitor_workspace_name=base.name, **place, opts=part.child())
    gate = monitor.DataCollectionEndpoint(
        f"{base.name}-metrics", data_collection_endpoint_name=f"{base.name}-metrics", kind="Linux", **place, opts=part.child()
    )
    rule = monitor.DataCollectionRule(
        f"{base.name}-metrics",
        data_collection_rule_name=f"{base.name}-metrics",
        kind="Linux",
        data_collection_endpoint_id=gate.id,
        data_sources={"prometheus_forwarder": [{"name": "prometheus", "streams": [STREAM]}]},
        destinations={"monitoring_accounts": [{"name": "workspace", "account_resource_id": store.id}]},
        data_flows=[{"streams": [STREAM], "destinations": ["workspace"]}],
        **place,
        opts=part.child(),
    )
    monitor.DataCollectionRuleAssociation(
        f"{base.name}-metrics",
        association_name=f"{base.name}-metrics",
        resource_uri=control.id,
        data_collection_rule_id=rule.id,
        opts=part.child(),
    )
    for group in yaml.safe_load(rules())["groups"]:
        alertsmanagement.PrometheusRuleGroup(
            f"{base.name}-{group['name']}",
            rule_group_name=f"{base.name}-{group['name']}",
            scopes=[store.id],
            interval=INTERVAL,
            rules=list(_azures(group["rules"])),
            **place,
            opts=part.child(),
        )
    core.v1.ConfigMap(
        CONFIG,
        metadata={"name": CONFIG, "namespace": AGENTS},
        data={"prometheus-config": scraped()},
        opts=cluster.options(depends_on=needs),
    )
    portal = pulumi.Output.concat("https://portal.azure.com/#resource", store.id, "/overview")
    return Managed(links={"Azure Monitor": portal}, scrapers=[{"kubernetes.io/metadata.name": AGENTS}], gpu_figures=True)


def scraped() -> str:
    """Prometheus' file for the agents: without kubelets, which they read by themselves, and without rules."""
    written = yaml.safe_load(configuration())
    jobs = [job for job in written["scrape_configs"] if job["kubernetes_sd_configs"][0]["role"] == "pod"]
    return str(yaml.safe_dump({"scrape_configs": jobs}, sort_keys=False, width=120))


def _azures(written: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """Rules in Azure's words."""
    for rule in written:
        if "record" in rule:
            yield {"record": rule["record"], "expression": rule["expr"], "enabled": True}
        else:
            yield {
                "alert": rule["alert"],
                "expression": rule["expr"],
                "for_": re.sub(r"(\d+)m", r"PT\1M", rule.get("for", "0m")),
                "severity": SEVERITIES[rule["labels"]["severity"]],
                "labels": rule["labels"],
                "annotations": rule["annotations"],
                "enabled": True,
            }
