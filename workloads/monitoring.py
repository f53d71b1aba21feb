"""Metrics over time: Prometheus with rules and alerts, Grafana with dashboards, DCGM exporters, and who may read metrics.

    made = monitoring(cluster, watching, workers, manager, needs)
    watching.links                     # for people: dashboards by name

All that they do is in workloads/manifests/monitoring, for other Prometheus servers too. A stack adds the manager's node, limits,
and the network policies that let readers in: policies add up, so these take nothing away. Nothing of it has an address outside of
the cluster; history lives as long as the pod that has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import yaml
from pulumi_kubernetes import core
from pulumi_kubernetes.meta.v1 import LabelSelectorArgsDict
from pulumi_kubernetes.networking.v1 import NetworkPolicy, NetworkPolicyPeerArgsDict

from ebb.api.contract import GATEWAY_METRICS_PORT, LAUNCHER_PORT, METRICS_PORT
from workloads import manifest
from workloads.cluster import GATEWAY, LABEL_GPU_TYPE, NAME_LABEL, SYSTEM, Cluster, NodeGroup, Resources

FOLDER = manifest.FOLDER / "monitoring"
PROMETHEUS, GRAFANA, DASHBOARDS, PROVISIONING = "ebb-prometheus", "ebb-grafana", "ebb-dashboards", "ebb-grafana"
CONTROLLER_PORT, AUTOSCALER_PORT, ETCD_METRICS_PORT = 8080, 8085, 2381
GRAFANA_PORT, PROMETHEUS_PORT = 3000, 9090
SIDECAR: Final = "grafana_dashboard"  # the label by which Grafana's usual sidecar finds dashboards
ROOM_FOR_A_LOG = 1  # GiB beside what Prometheus counts: its write-ahead log


@dataclass(frozen=True, kw_only=True)
class Managed:
    """The cloud's own collection of metrics. `links`: dashboards by name; `scrapers`: labels of namespaces whose pods read them;
    `gpu_figures`: it reads an exporter of ours."""

    links: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    scrapers: Sequence[Mapping[str, str]] = ()
    gpu_figures: bool = False


@dataclass(frozen=True, kw_only=True)
class Watching:
    """The stack's wishes. `scrapers`: labels of namespaces whose pods read metrics, of a Prometheus that is there already.
    `gpu_figures`: machines with GPUs need an exporter of ours."""

    prometheus: bool = False
    grafana: bool = False
    keep_days: int = 15
    keep_gib: int = 4
    alertmanager: str = ""
    scrapers: Sequence[Mapping[str, str]] = ()
    gpu_figures: bool = False
    links: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)

    @property
    def has_readers(self) -> bool:
        """Return whether pods of the cluster read metrics."""
        return self.prometheus or bool(self.scrapers)

    @property
    def addresses(self) -> Mapping[str, pulumi.Input[str]]:
        """Dashboards by name: those that people have named, and how to reach what runs here."""
        own: dict[str, pulumi.Input[str]] = {}
        if self.grafana:
            own["Grafana"] = _forwarded(GRAFANA, GRAFANA_PORT, "d/ebb-jobs?var-namespace={namespace}&var-ebb_job={job}")
        if self.prometheus:
            own["alerts"] = _forwarded(PROMETHEUS, PROMETHEUS_PORT, "alerts")
        return {**own, **self.links}


def _forwarded(service: str, port: int, path: str) -> str:
    return f"kubectl -n {SYSTEM} port-forward service/{service} {port}, then http://127.0.0.1:{port}/{path}"


def monitoring(  # noqa: PLR0917 - as its neighbours
    cluster: Cluster,
    watching: Watching,
    workers: Sequence[NodeGroup],
    manager: NodeGroup,
    spaces: Sequence[str],
    needs: Sequence[pulumi.Resource],
) -> Resources:
    """`workers`: the groups for jobs; `spaces`: the names of jobs' namespaces. `needs`: the namespaces, the manager group."""
    made: Resources = [*_policies(cluster, watching, spaces, needs)]
    if watching.gpu_figures:
        made += gpu_exporter(cluster, workers, needs)
    if watching.prometheus:
        made += _prometheus(cluster, watching, manager, [*needs, *made])
    if watching.grafana:
        made += _grafana(cluster, manager, [*needs, *made])
    elif watching.has_readers:
        made.append(_dashboards(cluster, needs))
    return made


# ------------------------------------------------------------------------------------------------------------ who may read


def _policies(cluster: Cluster, watching: Watching, spaces: Sequence[str], needs: Sequence[pulumi.Resource]) -> Resources:
    """The platform's namespace may read workers anyhow (workloads/namespaces.py), and nobody the gateway."""
    others: list[NetworkPolicyPeerArgsDict] = [
        {"namespace_selector": {"match_labels": dict(labels)}} for labels in watching.scrapers
    ]
    ours: list[NetworkPolicyPeerArgsDict] = []
    if watching.prometheus:
        own: LabelSelectorArgsDict = {"match_labels": {NAME_LABEL: PROMETHEUS}}
        ours.append({"namespace_selector": {"match_labels": {"kubernetes.io/metadata.name": SYSTEM}}, "pod_selector": own})
    gateway: LabelSelectorArgsDict = {"match_labels": {NAME_LABEL: GATEWAY}}
    workers: LabelSelectorArgsDict = {"match_expressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": [GATEWAY]}]}
    rules: list[tuple[str, str, LabelSelectorArgsDict, list[NetworkPolicyPeerArgsDict], Sequence[int]]] = []
    for space in spaces:
        rules += [
            (space, "gateway-metrics", gateway, [*ours, *others], [GATEWAY_METRICS_PORT]),
            (space, "job-metrics", workers, others, [METRICS_PORT, LAUNCHER_PORT]),
        ]
    rules.append((SYSTEM, "platform-metrics", {}, others, [CONTROLLER_PORT, AUTOSCALER_PORT, ETCD_METRICS_PORT]))
    return [
        NetworkPolicy(
            f"network-policy-{namespace}-{name}",
            metadata={"name": name, "namespace": namespace},
            spec={
                "pod_selector": pods,
                "policy_types": ["Ingress"],
                "ingress": [{"from_": peers, "ports": [{"protocol": "TCP", "port": port} for port in ports]}],
            },
            opts=cluster.options(depends_on=needs),
        )
        for namespace, name, pods, peers, ports in rules
        if peers
    ]


# ---------------------------------------------------------------------------------------------------------------- programs


def configuration(alertmanager: str = "") -> str:
    """Prometheus' own file, with where alerts go."""
    written: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    if alertmanager:
        written["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    return str(yaml.safe_dump(written, sort_keys=False, width=120))


def rules() -> str:
    """The file with sums and alerts."""
    return (FOLDER / "rules.yaml").read_text()


def dashboard_files() -> dict[str, str]:
    """Name of a file -> the dashboard in it."""
    return {path.name: path.read_text() for path in sorted((FOLDER / "dashboards").glob("*.json"))}


def _prometheus(cluster: Cluster, watching: Watching, manager: NodeGroup, needs: Sequence[pulumi.Resource]) -> Resources:
    files = {"prometheus.yaml": configuration(watching.alertmanager), "rules.yaml": rules()}
    config = _files(cluster, PROMETHEUS, files, needs)
    arguments = [
        f"--storage.tsdb.retention.time={watching.keep_days}d",
        f"--storage.tsdb.retention.size={watching.keep_gib}GiB",
    ]
    documents = []
    for document in manifest.read("server.yaml", FOLDER):
        if document["kind"] == "Deployment":
            document = manifest.renewed_by(document, files)  # noqa: PLW2901
            pod = document["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            container["args"] += arguments
            (data,) = [volume for volume in pod["volumes"] if volume["name"] == "data"]
            data["emptyDir"] = {"sizeLimit": f"{watching.keep_gib + ROOM_FOR_A_LOG}Gi"}
        documents.append(document)
    placed = manifest.placed(documents, {"nodeSelector": manager.node_selector})
    return [config, *manifest.declare(placed, cluster.options(depends_on=[*needs, config]))]


def _grafana(cluster: Cluster, manager: NodeGroup, needs: Sequence[pulumi.Resource]) -> Resources:
    shown, sources = _dashboards(cluster, needs), manifest.read("provisioning.yaml", FOLDER)
    shows = {**dashboard_files(), **sources[0]["data"]}
    read = manifest.read("grafana.yaml", FOLDER)
    documents = [manifest.renewed_by(one, shows) if one["kind"] == "Deployment" else one for one in read]
    made = [shown, *manifest.declare(sources, cluster.options(depends_on=needs))]
    placed = manifest.placed(documents, {"nodeSelector": manager.node_selector})
    return [*made, *manifest.declare(placed, cluster.options(depends_on=[*needs, *made]))]


def _dashboards(cluster: Cluster, needs: Sequence[pulumi.Resource]) -> pulumi.Resource:
    return _files(cluster, DASHBOARDS, dashboard_files(), needs, labels={SIDECAR: "1"})


def gpu_exporter(cluster: Cluster, workers: Sequence[NodeGroup], needs: Sequence[pulumi.Resource]) -> Resources:
    """On each machine with GPUs; nothing where no group has any."""
    types = sorted({group.instance.gpu_type for group in workers if group.instance.gpus})
    if not types:
        return []
    terms = [{"matchExpressions": [{"key": LABEL_GPU_TYPE, "operator": "In", "values": types}]}]
    place = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
    }
    return manifest.declare(manifest.placed(manifest.read("gpus.yaml", FOLDER), place), cluster.options(depends_on=needs))


def _files(
    cluster: Cluster,
    name: str,
    files: Mapping[str, str],
    needs: Sequence[pulumi.Resource],
    *,
    labels: Mapping[str, str] | None = None,
) -> core.v1.ConfigMap:
    return core.v1.ConfigMap(
        name,
        metadata={"name": name, "namespace": SYSTEM, **({"labels": labels} if labels else {})},
        data=dict(files),
        opts=cluster.options(depends_on=needs),
    )
