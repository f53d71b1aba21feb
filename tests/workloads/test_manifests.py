"""What runs the controller: its pod passes Pod Security, its rights suffice and are few, its image has the pinned packages."""

from pathlib import Path
from typing import Any

import yaml

from tests.workloads.pod_security import violations
from workloads import contract
from workloads.__main__ import LEASE, read_settings
from workloads.platform import NAME, NAMESPACE

ROOT = Path(contract.__file__).parents[1]
MANIFESTS = ROOT / "workloads" / "manifests"
Object = dict[str, Any]


def documents(name: str) -> dict[tuple[str, str], Object]:
    found = yaml.safe_load_all((MANIFESTS / name).read_text())
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def test_the_controllers_pod_passes_pod_security_restricted_and_writes_nowhere() -> None:
    deployment = documents("controller.yaml")["Deployment", "ebb-controller"]
    pod = deployment["spec"]["template"]["spec"]
    assert violations(pod) == []
    (container,) = pod["containers"]
    assert container["name"] == "controller"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsUser"] == 1000
    assert deployment["metadata"]["namespace"] == NAMESPACE


def test_the_controllers_arguments_are_understood() -> None:
    (container,) = documents("controller.yaml")["Deployment", "ebb-controller"]["spec"]["template"]["spec"]["containers"]
    settings = read_settings(container["args"])
    assert (settings.host, settings.port) == ("0.0.0.0", container["ports"][0]["containerPort"])


def test_the_controllers_rights_are_these() -> None:
    """Least privilege is a surface too: a right more is a decision."""
    rules = [rule for document in documents("rbac.yaml").values() for rule in document.get("rules", [])]
    rights = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert rights == {
        *(("elasticjobs", verb) for verb in ("get", "list", "watch", "delete")),
        ("elasticjobs/status", "update"),
        ("elasticjobs/finalizers", "update"),
        *((kind, verb) for kind in ("pods", "services") for verb in ("list", "watch", "create", "delete")),
        *(("nodes", verb) for verb in ("get", "list", "watch")),
        ("events", "create"),
        *(("leases", verb) for verb in ("create", "get", "update")),
        *(("configmaps", verb) for verb in ("list", "watch")),
    }
    assert not any("*" in rule["verbs"] + rule["resources"] + rule["apiGroups"] for rule in rules)


def test_rights_in_its_own_namespace_are_for_one_lease_and_one_config_map() -> None:
    rules = documents("rbac.yaml")["Role", "ebb-controller"]["rules"]
    assert [rule.get("resourceNames") for rule in rules] == [None, [LEASE], [NAME]]
    assert rules[0]["verbs"] == ["create"]


def test_the_bindings_name_the_account_of_the_deployment() -> None:
    account = documents("controller.yaml")["Deployment", "ebb-controller"]["spec"]["template"]["spec"]["serviceAccountName"]
    bindings = [item for (kind, _), item in documents("rbac.yaml").items() if kind.endswith("Binding")]
    assert [item["subjects"][0]["name"] for item in bindings] == [account, account]
    assert ("ServiceAccount", account) in documents("rbac.yaml")


def test_two_controllers_leave_one_after_the_other_and_never_hold_a_drain_up() -> None:
    found = documents("controller.yaml")
    deployment, budget = found["Deployment", "ebb-controller"], found["PodDisruptionBudget", "ebb-controller"]
    assert deployment["spec"]["replicas"] == 2
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]
    assert (budget["spec"]["maxUnavailable"], budget["spec"]["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_a_researchers_rights_are_these() -> None:
    """Every rule with its names; tests/infra/services holds a real API server to them."""
    full = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    look = ("get", "list", "watch")
    assert {key: _rights(item) for key, item in documents("researcher.yaml").items() if "rules" in item} == {
        ("Role", "ebb-researcher"): {
            ("elasticjobs", "", full),
            ("elasticjobs/scale", "", ("get", "patch", "update")),
            ("configmaps", "", full),
            *((kind, "", look) for kind in ("pods", "pods/log", "events")),
            *((kind, "", ("create", "get")) for kind in ("pods/exec", "pods/portforward")),
        },
        ("Role", "ebb-researcher-platform"): {
            ("configmaps", NAME, ("get",)),
            ("pods", "gateway-0", ("get",)),
            ("pods/portforward", "gateway-0", ("create", "get")),
        },
        ("ClusterRole", "ebb-researcher"): {("nodes", "", look)},
    }


def _rights(role: Object) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (resource, ",".join(rule.get("resourceNames", [])), tuple(sorted(rule["verbs"])))
        for rule in role["rules"]
        for resource in rule["resources"]
    }


def test_researchers_are_a_group_and_nobody_else() -> None:
    bindings = [item for (kind, _), item in documents("researcher.yaml").items() if kind.endswith("Binding")]
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "ebb:researchers"}
    assert [item["subjects"] for item in bindings] == [[group]] * 3


def test_the_image_installs_the_versions_that_were_tested() -> None:
    assert "-r workloads/requirements.txt" in (ROOT / "requirements.txt").read_text().splitlines()
    image = [line for line in (ROOT / "workloads" / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line.partition("==")[0] for line in image] == ["aiohttp", "kubernetes_asyncio", "PyYAML"]
