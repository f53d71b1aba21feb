"""Azure Monitor's Container Insights, with `logs.ship`."""

import tomllib
from functools import cache

from infra import config
from infra.clouds.azure import preflight
from infra.clouds.azure.logs import OURS
from infra.config import ROOT
from tests.infra.azure import stacks
from tests.infra.azure.world import inputs, world
from tests.infra.declared import Declared
from tests.infra.stacks import problems


@cache
def shipped() -> Declared:
    more = {"logs": {"ship": True, "keepDays": 60}, "teams": {"vision": {"researchers": ["group:vision"]}}}
    return world(config.parse(stacks.small() | more, ROOT))


def test_without_it_the_cluster_runs_no_agents() -> None:
    assert "addonProfiles" not in inputs(world(), "ManagedCluster")
    assert not world().all("Workspace")


def test_the_cluster_runs_the_agents_and_knows_the_workspace() -> None:
    profile = inputs(shipped(), "ManagedCluster")["addonProfiles"]["omsagent"]
    assert profile["enabled"] is True
    assert profile["config"]["useAADAuth"] == "true"
    assert inputs(shipped(), "Workspace")["retentionInDays"] == 60
    assert shipped().one("Workspace").key in shipped().before(shipped().one("ManagedCluster"))


def test_lines_of_containers_go_there_and_nothing_else_does() -> None:
    rule = inputs(shipped(), "DataCollectionRule")
    (extension,) = rule["dataSources"]["extensions"]
    assert extension["streams"] == ["Microsoft-ContainerLogV2"]
    wanted = extension["extensionSettings"]["dataCollectionSettings"]
    assert wanted["namespaceFilteringMode"] == "Include"
    assert wanted["namespaces"] == ["ebb-system", "elastic-job", "ebb-team-vision", "kube-system"]
    (destination,) = rule["destinations"]["logAnalytics"]
    assert rule["dataFlows"] == [{"streams": ["Microsoft-ContainerLogV2"], "destinations": [destination["name"]]}]
    tied = shipped().one("DataCollectionRuleAssociation")
    assert tied.inputs["associationName"] == "ContainerInsightsExtension", "the agents look for this name"
    assert shipped().one("DataCollectionRule").key in shipped().before(tied)


def test_lines_have_the_labels_of_their_pod() -> None:
    (made,) = [one for one in shipped().all("ConfigMap") if one.inputs["metadata"]["name"] == "container-azm-ms-agentconfig"]
    assert made.inputs["metadata"]["namespace"] == "kube-system"
    found = tomllib.loads(made.inputs["data"]["log-data-collection-settings"])["log_collection_settings"]
    assert found["metadata_collection"] == {"enabled": True, "include_fields": ["podLabels"]}
    for stream in ("stdout", "stderr"):
        assert found[stream]["exclude_namespaces"] == ["gatekeeper-system"]
        assert found[stream]["collect_system_pod_logs"] == [f"kube-system:{name}" for name in OURS]


def test_all_of_ours_in_kube_system_are_named() -> None:
    found = {one.inputs["metadata"]["name"] for one in shipped().all("DaemonSet")}
    assert found
    assert found <= set(OURS)


def test_its_providers_are_registered() -> None:
    with_logs = config.parse(stacks.small() | {"logs": {"ship": True}}, ROOT)
    assert set(preflight.providers_of(with_logs)) - set(preflight.PROVIDERS) == {
        "Microsoft.Insights",
        "Microsoft.OperationalInsights",
    }


def test_days_are_those_that_a_workspace_keeps() -> None:
    (text,) = problems(stacks.small() | {"logs": {"ship": True, "keepDays": 7}})
    assert text.startswith("logs.keepDays: found 7; allowed are 30 to 730")
