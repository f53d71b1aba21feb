"""The alerts, read as people and Prometheus read them. That they fire and clear is test_prometheus.py's."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb.api import contract as names
from tests.monitoring.known import asked, exported, series
from workloads import monitoring
from workloads.monitoring import FOLDER

ROOT = Path(__file__).parent.parent.parent
RULES = [rule for group in yaml.safe_load(monitoring.rules())["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
SUMS = {rule["record"] for rule in RULES if "record" in rule}


@pytest.mark.parametrize("rule", RULES, ids=[rule.get("alert") or rule["record"] for rule in RULES])
def test_all_that_it_asks_for_is_exported(rule: dict[str, Any]) -> None:
    found = asked(rule["expr"])
    assert found
    assert found - series(exported()) - SUMS == set()


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_it_says_in_one_line_each_what_is_wrong_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert alert["annotations"].keys() == {"summary", "runbook"}
    for text in alert["annotations"].values():
        assert "\n" not in text
        assert text.endswith(".")


def test_no_two_have_one_name() -> None:
    told = [alert["alert"] for alert in ALERTS]
    assert len(told) == len(set(told)) == 13


def test_the_page_has_all_of_them_with_their_runbook() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    rows = dict(re.findall(r"^\| `(Ebb\w+)` \| .* \| (.*) \|$", page, re.MULTILINE))
    plain = {alert["alert"]: re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"<\1>", alert["annotations"]["runbook"]) for alert in ALERTS}
    assert rows == plain


def test_ports_and_labels_are_those_of_the_code() -> None:
    config = yaml.safe_load(monitoring.configuration())
    jobs = {job["job_name"]: job["relabel_configs"] for job in config["scrape_configs"]}

    def port(job: str) -> int:
        return next(
            int(rule["replacement"].rpartition(":")[2]) for rule in jobs[job] if rule.get("target_label") == "__address__"
        )

    assert {job: port(job) for job in jobs if job not in ("ebb-kubelet", "ebb-containers")} == {
        "ebb-trainer": names.METRICS_PORT,
        "ebb-launcher": names.LAUNCHER_PORT,
        "ebb-controller": monitoring.CONTROLLER_PORT,
        "ebb-gateway": names.GATEWAY_METRICS_PORT,
        "ebb-etcd": monitoring.ETCD_METRICS_PORT,
        "ebb-autoscaler": monitoring.AUTOSCALER_PORT,
        "ebb-gpus": 9400,
    }
    sources = {source for rules in jobs.values() for rule in rules for source in rule["source_labels"]}
    for label in (names.LABEL_GROUP, names.LABEL_EBB_JOB, "app.kubernetes.io/name"):
        assert "__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", label) in sources
    kept = [rule["regex"] for rule in jobs["ebb-trainer"] if "label_group" in rule["source_labels"][0]]
    assert [bool(re.fullmatch(regex, names.GROUP)) for regex in kept] == [True]
    for file, expected in (("../etcd.yaml", monitoring.ETCD_METRICS_PORT), ("../controller.yaml", monitoring.CONTROLLER_PORT)):
        assert f":{expected}" in (FOLDER / file).read_text()


def test_alerts_go_to_the_alertmanager_that_a_stack_names() -> None:
    assert "alerting" not in yaml.safe_load(monitoring.configuration())
    sent = yaml.safe_load(monitoring.configuration("alertmanager.monitoring:9093"))["alerting"]
    assert sent == {"alertmanagers": [{"static_configs": [{"targets": ["alertmanager.monitoring:9093"]}]}]}
