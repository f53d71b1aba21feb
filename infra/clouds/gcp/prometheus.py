"""Google Cloud's Managed Service for Prometheus, for `monitoring.managed`: what it scrapes, and the rules that it evaluates.

    managed = prometheus.declare(cluster, "my-project", ["vision"], needs)

Its collectors and its kinds are GKE's: ClusterPodMonitoring scrapes pods of all namespaces, ClusterRules evaluates within the
cluster (doc/api.md of https://github.com/GoogleCloudPlatform/prometheus-engine at 0082b32, read 2026-11-26). The service names
the namespace of what it scrapes `namespace`, so figures of jobs from the controller have theirs as `exported_namespace`: alerts
name the job, and the platform's namespace with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pulumi
import yaml
from pulumi_kubernetes.apiextensions import CustomResource

from ebb.api.contract import (
    GATEWAY,
    GATEWAY_METRICS_PORT,
    GROUP,
    LABEL_EBB_JOB,
    LABEL_GROUP,
    LAUNCHER_PORT,
    METRICS_PORT,
    TEAM_ETCD,
)
from workloads.cluster import ETCD, LEGACY_ETCD, NAME_LABEL, Cluster
from workloads.monitoring import CONTROLLER_PORT, ETCD_METRICS_PORT, Managed, rules

API: Final = "monitoring.googleapis.com/v1"
INTERVAL: Final = "30s"
# Where they run, in clusters of Standard mode and of Autopilot, as people show them. Policies of Dataplane V2 hold for them as
# for all pods: both are let in to read metrics, and nothing else.
COLLECTORS: Final = ("gmp-system", "gke-gmp-system")
# The label by which pods are found, its values, and the ports with /metrics. What GKE runs itself it scrapes itself: machines,
# the autoscaler, GPUs.
TARGETS: Mapping[str, tuple[str, Sequence[str], Sequence[int]]] = {
    "ebb-jobs": (LABEL_GROUP, (GROUP,), (METRICS_PORT, LAUNCHER_PORT)),
    "ebb-controller": (NAME_LABEL, ("ebb-controller",), (CONTROLLER_PORT,)),
    "ebb-gateway": (NAME_LABEL, (GATEWAY,), (GATEWAY_METRICS_PORT,)),
    "ebb-etcd": (NAME_LABEL, (ETCD, LEGACY_ETCD), (ETCD_METRICS_PORT,)),
}


def declare(cluster: Cluster, project: str, teams: Iterable[str], needs: Sequence[pulumi.Resource]) -> Managed:
    """`teams`: their names, as each has an etcd; `needs`: the cluster with a machine."""
    theirs = [f"{TEAM_ETCD}{team}" for team in teams]
    for name, (label, known, ports) in TARGETS.items():
        values = [*known, *(theirs if ETCD in known else ())]
        _made(
            cluster,
            "ClusterPodMonitoring",
            name,
            {
                "selector": {"matchExpressions": [{"key": label, "operator": "In", "values": values}]},
                "endpoints": [{"port": port, "interval": INTERVAL} for port in ports],
                "targetLabels": {"metadata": ["namespace", "pod", "node"], "fromPod": [{"from": LABEL_EBB_JOB, "to": "ebb_job"}]},
            },
            needs,
        )
    # Of a group it wants the interval, and else takes what Prometheus takes.
    groups = [{**group, "interval": INTERVAL} for group in yaml.safe_load(rules())["groups"]]
    _made(cluster, "ClusterRules", "ebb", {"groups": groups}, needs)
    console = "https://console.cloud.google.com/monitoring"
    return Managed(
        links={"Managed Service for Prometheus": f"{console}/metrics-explorer?project={project}"},
        scrapers=[{"kubernetes.io/metadata.name": name} for name in COLLECTORS],
    )


def _made(cluster: Cluster, kind: str, name: str, spec: Mapping[str, Any], needs: Sequence[pulumi.Resource]) -> CustomResource:
    return CustomResource(
        f"{kind}-{name}",
        api_version=API,
        kind=kind,
        metadata={"name": name},
        spec=dict(spec),
        opts=cluster.options(depends_on=needs),
    )
