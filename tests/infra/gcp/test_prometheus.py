"""Google Cloud's Managed Service for Prometheus, and GKE's exporter of GPU figures."""

from functools import cache

import yaml

from ebb.api import contract as names
from tests.infra.declared import Declared
from tests.infra.gcp.stacks import usual, world
from workloads.monitoring import CONTROLLER_PORT, rules


@cache
def managed() -> Declared:
    return world({"monitoring": {"managed": True}, "teams": {"vision": {"researchers": ["group:vision"]}}})


def test_without_it_gke_does_what_it_does_by_default() -> None:
    assert "monitoringConfig" not in usual().one("Cluster").inputs
    assert not usual().all("ClusterPodMonitoring")


def test_the_cluster_collects_and_has_gpus_measured() -> None:
    assert managed().one("Cluster").inputs["monitoringConfig"] == {
        "enableComponents": ["SYSTEM_COMPONENTS", "DCGM"],
        "managedPrometheus": {"enabled": True},
    }


def test_a_prometheus_of_the_stack_takes_gkes_exporter_without_the_service() -> None:
    found = world({"monitoring": {"prometheus": True}})
    assert found.one("Cluster").inputs["monitoringConfig"]["managedPrometheus"] == {"enabled": False}
    assert not found.all("ClusterRules")
    assert "ebb-dcgm-exporter" not in {one.inputs["metadata"]["name"] for one in found.all("DaemonSet")}


def test_it_scrapes_what_the_stacks_own_would() -> None:
    found = {one.inputs["metadata"]["name"]: one.inputs["spec"] for one in managed().all("ClusterPodMonitoring")}
    ports = {name: [one["port"] for one in spec["endpoints"]] for name, spec in found.items()}
    assert ports == {
        "ebb-jobs": [names.METRICS_PORT, names.LAUNCHER_PORT],
        "ebb-controller": [CONTROLLER_PORT],
        "ebb-gateway": [names.GATEWAY_METRICS_PORT],
        "ebb-etcd": [2381],
    }
    chosen = {name: spec["selector"]["matchExpressions"][0] for name, spec in found.items()}
    assert chosen["ebb-jobs"] == {"key": names.LABEL_GROUP, "operator": "In", "values": [names.GROUP]}
    assert chosen["ebb-etcd"]["values"] == ["etcd", "etcd-legacy", "etcd-team-vision"]
    assert found["ebb-jobs"]["targetLabels"]["fromPod"] == [{"from": names.LABEL_EBB_JOB, "to": "ebb_job"}]


def test_it_evaluates_the_same_rules() -> None:
    groups = managed().one("ClusterRules").inputs["spec"]["groups"]
    assert [{"name": one["name"], "rules": one["rules"]} for one in groups] == yaml.safe_load(rules())["groups"]


def test_its_collectors_are_let_in() -> None:
    policies = [one.inputs for one in managed().all("NetworkPolicy") if one.inputs["metadata"]["name"] == "job-metrics"]
    (rule,) = policies[0]["spec"]["ingress"]
    labels = [peer["namespaceSelector"]["matchLabels"] for peer in rule["from"]]
    assert labels == [{"kubernetes.io/metadata.name": name} for name in ("gmp-system", "gke-gmp-system")]
