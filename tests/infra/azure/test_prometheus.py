"""Azure Monitor's managed Prometheus."""

from functools import cache

import yaml

from infra import config
from infra.config import ROOT
from tests.infra.azure import stacks
from tests.infra.azure.world import inputs, world
from tests.infra.declared import Declared
from workloads.monitoring import configuration, rules


@cache
def managed() -> Declared:
    return world(config.parse(stacks.small() | {"monitoring": {"managed": True}}, ROOT))


def test_without_it_the_cluster_runs_no_agents() -> None:
    assert "azureMonitorProfile" not in inputs(world(), "ManagedCluster")
    assert not world().all("AzureMonitorWorkspace")


def test_the_cluster_runs_the_agents_and_is_tied_to_the_workspace() -> None:
    assert inputs(managed(), "ManagedCluster")["azureMonitorProfile"] == {"metrics": {"enabled": True}}
    rule = inputs(managed(), "DataCollectionRule")
    store, rule_id = managed().one("AzureMonitorWorkspace"), managed().one("DataCollectionRule")
    (destination,) = rule["destinations"]["monitoringAccounts"]
    assert destination["accountResourceId"]
    assert rule["dataFlows"] == [{"streams": ["Microsoft-PrometheusMetrics"], "destinations": ["workspace"]}]
    tied = managed().one("DataCollectionRuleAssociation")
    assert {rule_id.key, managed().one("ManagedCluster").key} <= managed().before(tied)
    assert store.key in managed().before(rule_id)


def test_they_scrape_pods_as_the_stacks_own_would() -> None:
    text = next(one for one in managed().all("ConfigMap") if one.inputs["metadata"]["name"] == "ama-metrics-prometheus-config")
    assert text.inputs["metadata"]["namespace"] == "kube-system"
    found = yaml.safe_load(text.inputs["data"]["prometheus-config"])
    assert found.keys() == {"scrape_configs"}
    ours = {job["job_name"]: job for job in yaml.safe_load(configuration())["scrape_configs"]}
    assert {job["job_name"] for job in found["scrape_configs"]} == ours.keys() - {"ebb-kubelet", "ebb-containers"}
    assert all(job == ours[job["job_name"]] for job in found["scrape_configs"])


def test_the_alerts_are_the_same() -> None:
    written = [rule for group in yaml.safe_load(rules())["groups"] for rule in group["rules"]]
    made = [rule for one in managed().all("PrometheusRuleGroup") for rule in one.inputs["rules"]]
    assert [(one.get("alert"), one.get("record"), one["expression"]) for one in made] == [
        (one.get("alert"), one.get("record"), one["expr"]) for one in written
    ]
    waits = {one["alert"]: one["for"] for one in made if "alert" in one}
    assert (waits["EbbJobBelowMinimum"], waits["EbbReclaimStorm"]) == ("PT10M", "PT0M")
    assert {one["severity"] for one in made if "alert" in one} == {1, 3}


def test_gpus_are_measured_by_an_exporter_of_ours_and_the_agents_are_let_in() -> None:
    assert "ebb-dcgm-exporter" in {one.inputs["metadata"]["name"] for one in managed().all("DaemonSet")}
    (policy,) = [one.inputs for one in managed().all("NetworkPolicy") if one.inputs["metadata"]["name"] == "job-metrics"]
    (peer,) = policy["spec"]["ingress"][0]["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "kube-system"}
