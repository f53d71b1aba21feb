"""The parts that `monitoring` adds to a stack: by default none; then Prometheus, Grafana, exporters, and access for readers."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from tests.infra.declared import Declared
from tests.infra.stacks import problems, settings
from tests.pod_security import violations
from tests.workloads.world import stack as declared_stack
from workloads.monitoring import SIDECAR, Watching

EVERYTHING = {"prometheus": True, "grafana": True, "keepDays": 3, "keepGiB": 2, "alertmanager": "alertmanager.monitoring:9093"}


@cache
def _stack(text: str) -> Declared:
    return declared_stack(monitoring=json.loads(text), teams={"vision": {"researchers": ["group:vision"]}})


def stack(**monitoring: Any) -> Declared:
    return _stack(json.dumps(monitoring))


def metadata(found: Declared, kind: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(one.inputs["metadata"].get("namespace", ""), one.inputs["metadata"]["name"]): one.inputs for one in found.all(kind)}


def policies(found: Declared) -> dict[tuple[str, str], Any]:
    return {place: one["spec"] for place, one in metadata(found, "NetworkPolicy").items() if place[1].endswith("-metrics")}


def dashboards(found: Declared) -> dict[str, str]:
    facts = json.loads(found.one("ConfigMap", "ebb-platform").inputs["data"]["platform.json"])
    told: dict[str, str] = facts["dashboards"]
    return told


def test_by_default_there_is_nothing_of_it() -> None:
    found = stack()
    assert not {name for _, name in metadata(found, "Deployment")} & {"ebb-prometheus", "ebb-grafana"}
    assert (policies(found), dashboards(found)) == ({}, {})
    assert "metrics-port" not in " ".join(args(found))


def args(found: Declared) -> list[str]:
    gateway = metadata(found, "Deployment")["elastic-job", "ebb-gateway"]
    told: list[str] = gateway["spec"]["template"]["spec"]["containers"][0]["args"]
    return told


def test_a_prometheus_has_the_files_the_limits_and_the_managers_node() -> None:
    found = stack(**EVERYTHING)
    pod = metadata(found, "Deployment")["ebb-system", "ebb-prometheus"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert {"--storage.tsdb.retention.time=3d", "--storage.tsdb.retention.size=2GiB"} <= set(container["args"])
    assert [one["emptyDir"] for one in pod["spec"]["volumes"] if one["name"] == "data"] == [{"sizeLimit": "3Gi"}]
    assert "@sha256:" in container["image"]
    manager = metadata(found, "Deployment")["ebb-system", "ebb-controller"]["spec"]["template"]["spec"]["nodeSelector"]
    assert pod["spec"]["nodeSelector"] == manager
    files = metadata(found, "ConfigMap")["ebb-system", "ebb-prometheus"]["data"]
    assert files.keys() == {"prometheus.yaml", "rules.yaml"}
    assert yaml.safe_load(files["prometheus.yaml"])["alerting"]["alertmanagers"]


def test_pods_are_within_pod_security_restricted() -> None:
    found = metadata(stack(**EVERYTHING), "Deployment")
    for name in ("ebb-prometheus", "ebb-grafana"):
        assert violations(found["ebb-system", name]["spec"]["template"]["spec"]) == []


def test_other_files_are_another_pod() -> None:
    def digest(**monitoring: Any) -> str:
        made = metadata(stack(prometheus=True, **monitoring), "Deployment")["ebb-system", "ebb-prometheus"]
        told: str = made["spec"]["template"]["metadata"]["annotations"]["ebb.dev/config"]
        return told

    assert digest() == digest(keepDays=30) != digest(alertmanager="elsewhere:9093")


def test_it_finds_pods_and_nodes_and_may_read_no_secret() -> None:
    found = metadata(stack(prometheus=True), "ClusterRole")["", "ebb-prometheus"]["rules"]
    assert {resource for rule in found for resource in rule["resources"]} == {"pods", "nodes", "nodes/metrics"}
    assert {verb for rule in found for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_grafana_has_the_dashboards_and_nobody_logs_in() -> None:
    found = stack(**EVERYTHING)
    shown = metadata(found, "ConfigMap")["ebb-system", "ebb-dashboards"]
    assert shown["data"].keys() == {"gpus.json", "jobs.json", "money.json", "platform.json", "reclaims.json"}
    (container,) = metadata(found, "Deployment")["ebb-system", "ebb-grafana"]["spec"]["template"]["spec"]["containers"]
    told = {one["name"]: one["value"] for one in container["env"]}
    assert (told["GF_AUTH_ANONYMOUS_ORG_ROLE"], told["GF_AUTH_DISABLE_LOGIN_FORM"]) == ("Viewer", "true")
    assert "@sha256:" in container["image"]
    sources = yaml.safe_load(metadata(found, "ConfigMap")["ebb-system", "ebb-grafana"]["data"]["sources.yaml"])["datasources"]
    services = metadata(found, "Service")
    port = int(services["ebb-system", "ebb-prometheus"]["spec"]["ports"][0]["port"])
    assert [one["url"] for one in sources] == [f"http://ebb-prometheus:{port}"]
    assert {one["spec"].get("type", "ClusterIP") for one in services.values()} <= {"ClusterIP", "ExternalName"}


def test_the_gateway_tells_the_room_on_its_volumes_to_prometheus_alone() -> None:
    found = stack(prometheus=True)
    assert "--metrics-port=9402" in args(found)
    assert policies(found).keys() == {("elastic-job", "gateway-metrics"), ("ebb-team-vision", "gateway-metrics")}
    (rule,) = policies(found)["elastic-job", "gateway-metrics"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [9402]
    assert rule["from"] == [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ebb-system"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "ebb-prometheus"}},
        }
    ]


def test_one_setting_lets_a_prometheus_in_that_is_there_already() -> None:
    found = stack(scrapers={"kubernetes.io/metadata.name": "monitoring"})
    ways = {
        place: ([peer["namespaceSelector"]["matchLabels"] for peer in spec["ingress"][0]["from"]], _ports(spec))
        for place, spec in policies(found).items()
    }
    theirs = [{"kubernetes.io/metadata.name": "monitoring"}]
    assert ways == {
        ("ebb-system", "platform-metrics"): (theirs, [8080, 8085, 2381]),
        **{
            (namespace, name): (theirs, ports)
            for namespace in ("elastic-job", "ebb-team-vision")
            for name, ports in (("gateway-metrics", [9402]), ("job-metrics", [9400, 9401]))
        },
    }
    assert 2379 not in {port for _, ports in ways.values() for port in ports}, "who reads etcd's metrics may not write to it"
    shown = metadata(found, "ConfigMap")["ebb-system", "ebb-dashboards"]
    assert shown["metadata"]["labels"] == {SIDECAR: "1"}, "their Grafana finds them"
    assert ("ebb-system", "ebb-prometheus") not in metadata(found, "Deployment")


def _ports(spec: Mapping[str, Any]) -> list[int]:
    return [port["port"] for port in spec["ingress"][0]["ports"]]


def test_machines_with_gpus_get_an_exporter() -> None:
    found = metadata(stack(prometheus=True), "DaemonSet")["kube-system", "ebb-dcgm-exporter"]["spec"]["template"]["spec"]
    (term,) = found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["T4", "V100"]
    (container,) = found["containers"]
    assert "@sha256:" in container["image"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert ("kube-system", "ebb-dcgm-exporter") not in metadata(stack(), "DaemonSet")


def test_people_are_led_to_dashboards() -> None:
    told = dashboards(stack(**EVERYTHING, links={"Grafana": "https://grafana.example.org/?job={job}"}))
    assert told["Grafana"] == "https://grafana.example.org/?job={job}", "their own address goes before a forwarded port"
    assert told["alerts"] == "kubectl -n ebb-system port-forward service/ebb-prometheus 9090, then http://127.0.0.1:9090/alerts"
    forwarded = Watching(prometheus=True, grafana=True).addresses["Grafana"]
    assert str(forwarded).endswith("http://127.0.0.1:3000/d/ebb-jobs?var-namespace={namespace}&var-ebb_job={job}")


def test_the_clouds_own_service_is_asked_for_by_name() -> None:
    assert dashboards(stack(managed=True)) == {"metrics": "https://elsewhere.example.org/metrics"}


@pytest.mark.parametrize(
    ("monitoring", "said"),
    [
        ({"grafana": True}, "monitoring.grafana: found true without a Prometheus for it to ask: set monitoring.prometheus"),
        ({"managed": True}, "monitoring.managed: found true; local has no service for metrics of its own (aws, azure, gcp have)"),
        ({"alertmanager": "http://x"}, "monitoring.alertmanager: found 'http://x'; allowed is a host and a port"),
        ({"links": {"Grafana": "grafana"}}, "monitoring.links.Grafana: found 'grafana'; allowed is an address that begins with"),
        ({"keepDays": 0}, "monitoring.keepDays: found 0"),
        ({"prometeus": True}, "monitoring.prometeus: unknown key"),
    ],
)
def test_what_does_not_agree_is_said(monitoring: dict[str, Any], said: str) -> None:
    (text,) = problems(settings() | {"monitoring": monitoring})
    assert text.startswith(said)
