"""What `kubectl apply -k` installs: pods pass Pod Security, rights suffice and are few, the image has the pinned packages.

What a real API server says to it: tests/workloads/test_install.py.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from ebb.api import contract
from ebb.api.platform import NAME, NAMESPACE
from ebb.api.usage import NAME as MACHINE_USAGE
from ebb.controller.__main__ import LEASE, read_settings
from ebb.gateway import probe as gateway_probe
from tests.pod_security import violations
from tests.probes import impatient

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "workloads" / "manifests"
Object = dict[str, Any]


def documents(name: str) -> dict[tuple[str, str], Object]:
    found = yaml.safe_load_all((MANIFESTS / name).read_text())
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def kustomization(folder: str = ".") -> Object:
    found: Object = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())
    return found


def everything() -> dict[tuple[str, str], Object]:
    """What both kustomizations install."""
    files = [*kustomization()["resources"], "legacy/etcd.yaml"]
    return {key: item for file in files for key, item in documents(file).items()}


def pods() -> dict[str, Object]:
    """Workload -> its pod's spec."""
    specs = {
        name: item["spec"] for (kind, name), item in everything().items() if kind in ("Deployment", "StatefulSet", "CronJob")
    }
    return {name: spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"] for name, spec in specs.items()}


def test_the_kustomization_has_every_file_but_those_that_need_what_only_a_stack_says() -> None:
    assert sorted(kustomization()["resources"]) == sorted(
        {path.name for path in MANIFESTS.glob("*.yaml")} - {"kustomization.yaml", "gateway.yaml", "node-labels.yaml"}
    )
    assert kustomization("legacy")["resources"] == ["etcd.yaml"]


def test_every_image_is_named_in_one_place() -> None:
    used = {container["image"] for pod in pods().values() for container in pod["containers"]}
    named = {image["name"]: image for folder in ("legacy", ".") for image in kustomization(folder)["images"]}
    assert used == set(named)


def test_one_etcd_is_of_a_supported_version_and_the_other_has_the_api_that_torch_wants() -> None:
    """3.6 has no v2 API, and refuses to start when it is asked for it; from 3.5.26 on it is reported to be broken."""
    version = {
        image["name"]: tuple(map(int, image["newTag"].partition("-")[0].split(".")))
        for folder in ("legacy", ".")
        for image in kustomization(folder)["images"]
        if "etcd" in image["name"]
    }
    assert version["ebb-etcd"][:2] == (3, 6)
    assert (3, 5) < version["ebb-etcd-legacy"] <= (3, 5, 25)
    v2 = {name for name in ("etcd", "etcd-legacy") if any("v2" in word for word in pods()[name]["containers"][0]["command"])}
    assert v2 == {"etcd-legacy"}


def test_the_older_etcd_is_where_the_controller_makes_runs() -> None:
    service = documents("legacy/etcd.yaml")["Service", "etcd-legacy"]
    metadata, (port,) = service["metadata"], service["spec"]["ports"]
    assert f"{metadata['name']}.{metadata['namespace']}.svc:{port['port']}" == contract.LEGACY_ETCD
    labels = documents("legacy/etcd.yaml")["StatefulSet", "etcd-legacy"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_both_etcds_have_a_folder_of_their_own_on_one_volume_and_its_machine() -> None:
    folders = {
        name: next(word for word in pods()[name]["containers"][0]["command"] if word.startswith("--data-dir="))
        for name in ("etcd", "etcd-legacy")
    }
    assert len(set(folders.values())) == 2
    assert pods()["etcd"]["volumes"][0] == pods()["etcd-legacy"]["volumes"][0]
    (term,) = pods()["etcd-legacy"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = documents("etcd.yaml")["StatefulSet", "etcd"]["spec"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    assert term["topologyKey"] == "kubernetes.io/hostname"


def test_every_pod_passes_restricted_in_the_platforms_class_and_writes_nowhere() -> None:
    assert set(pods()) == {"ebb-controller", "etcd", "etcd-certificates", "etcd-legacy", "etcd-maintenance"}
    for name, pod in pods().items():
        assert (violations(pod), pod["priorityClassName"]) == ([], "ebb-system"), name
        assert all(one["securityContext"]["readOnlyRootFilesystem"] is True for one in pod["containers"]), name
        assert all(one["resources"]["requests"] and one["resources"]["limits"] for one in pod["containers"]), name


def test_the_elastic_rest_goes_after_jobs_and_pushes_nobody_off() -> None:
    classes = documents("priorities.yaml")
    values = {name: item["value"] for (_, name), item in classes.items()}
    assert values["ebb-system"] > values["ebb-job"] == values["ebb-replacement"] > values["ebb-elastic"] > 0
    never = {name for (_, name), item in classes.items() if item.get("preemptionPolicy") == "Never"}
    assert never == {"ebb-elastic", "ebb-replacement"}
    assert [name for (_, name), item in classes.items() if item.get("globalDefault")] == ["ebb-job"]


def test_maintenance_knows_etcds_quota_and_address() -> None:
    command = pods()["etcd"]["containers"][0]["command"]
    (quota,) = [word.partition("=")[2] for word in command if word.startswith("--quota-backend-bytes=")]
    words = ["--etcd=https://etcd:2379", "--certificates=/etc/ebb/etcd", f"--quota-bytes={quota}"]
    assert pods()["etcd-maintenance"]["containers"][0]["command"][-3:] == words
    assert "--etcd=http://etcd:2381" in pods()["ebb-controller"]["containers"][0]["args"]


def test_certificates_are_made_by_who_may_fill_these_secrets_and_make_none() -> None:
    found = list(yaml.safe_load_all((MANIFESTS / "certificates.yaml").read_text()))
    secrets = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in found if one["kind"] == "Secret"}
    rules = [(one["metadata"]["namespace"], rule) for one in found for rule in one.get("rules", [])]
    assert all(rule["verbs"] == ["get", "patch"] and rule["resources"] == ["secrets"] for _, rule in rules)
    assert {(namespace, name) for namespace, rule in rules for name in rule["resourceNames"]} == secrets
    assert all("data" not in one for one in found), "to apply it again would empty them"
    job, cron = (next(one for one in found if one["kind"] == kind)["spec"] for kind in ("Job", "CronJob"))
    assert job["template"] == cron["jobTemplate"]["spec"]["template"]


def test_etcd_has_a_certificate_and_asks_for_one() -> None:
    (container,) = pods()["etcd"]["containers"]
    words = dict(word.removeprefix("--").split("=", 1) for word in container["command"][1:])
    assert words["client-cert-auth"] == "true"
    assert {words[f"{url}-client-urls"].partition(":")[0] for url in ("listen", "advertise")} == {"https"}
    (_, tls) = pods()["etcd"]["volumes"]
    mounted = {f"/etc/etcd/tls/{one['path']}" for one in tls["secret"]["items"]}
    assert {words[flag] for flag in ("cert-file", "key-file", "trusted-ca-file")} == mounted
    assert {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} == {2381}


def test_etcds_data_is_on_a_volume_of_the_default_class() -> None:
    claim = documents("etcd.yaml")["PersistentVolumeClaim", "etcd-data"]
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    (volume, _) = pods()["etcd"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_no_container_is_killed_before_it_could_answer_on_a_busy_machine() -> None:
    """At a load of 90 the controller was killed again and again while it started."""
    probed = set()
    for path in MANIFESTS.rglob("*.yaml"):
        for item in yaml.safe_load_all(path.read_text()):
            pod = ((item.get("spec") or {}).get("template") or {}).get("spec") if item else None
            if pod and "containers" in pod:
                assert impatient(pod) == [], path
                probed |= {container["name"] for container in pod["containers"] if "livenessProbe" in container}
    assert probed == {"controller", "etcd", "gateway", "prometheus", "grafana"}


def test_liveness_and_readiness_ask_different_questions() -> None:
    (container,) = pods()["ebb-controller"]["containers"]
    paths = {name: container[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
    assert paths == {"livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def test_the_controllers_pod_passes_pod_security_restricted_and_writes_nowhere() -> None:
    deployment = documents("controller.yaml")["Deployment", "ebb-controller"]
    pod = deployment["spec"]["template"]["spec"]
    assert violations(pod) == []
    (container,) = pod["containers"]
    assert container["name"] == "controller"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsUser"] == 1000
    assert deployment["metadata"]["namespace"] == NAMESPACE


def test_the_gateways_pod_is_the_jobs_user_without_a_token_and_writes_only_to_volumes() -> None:
    deployment = documents("gateway.yaml")["Deployment", contract.GATEWAY]
    template = deployment["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    assert violations(pod) == []
    assert (pod["securityContext"]["runAsUser"], pod["automountServiceAccountToken"]) == (1000, False)
    assert (container["securityContext"]["readOnlyRootFilesystem"], container["image"]) == (True, "ebb-controller")
    assert container["resources"]["requests"].keys() == container["resources"]["limits"].keys() == {"cpu", "memory"}
    assert template["metadata"]["labels"] == {"app.kubernetes.io/name": contract.GATEWAY}
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})


def test_the_gateway_opens_no_port_and_is_asked_from_inside() -> None:
    """A probe by HTTP or TCP comes to the pod's address, where nothing listens."""
    found = documents("gateway.yaml")
    assert found.keys() == {("Deployment", contract.GATEWAY)}, "a Service would lead to nothing"
    (container,) = found["Deployment", contract.GATEWAY]["spec"]["template"]["spec"]["containers"]
    assert "ports" not in container
    probes = {name: container[name] for name in container if name.endswith("Probe")}
    assert probes.keys() == {"startupProbe", "livenessProbe"}
    for probe in probes.values():
        assert probe.keys() - {"timeoutSeconds", "periodSeconds", "failureThreshold"} == {"exec"}
        assert probe["exec"]["command"] == ["python3", "-m", gateway_probe.__name__]
        assert probe["timeoutSeconds"] > gateway_probe.SECONDS, "else the kubelet does not hear what is wrong"


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
        *(("events", verb) for verb in ("list", "watch", "create")),
        *(("leases", verb) for verb in ("create", "get", "update", "list", "watch")),
        *(("configmaps", verb) for verb in ("create", "get", "list", "watch", "update", "delete")),
        *(("records", verb) for verb in ("create", "delete")),
        *((kind, verb) for kind in ("nodeclaims", "priorityclasses") for verb in ("list", "watch")),
        *(("workloads", verb) for verb in ("list", "watch", "create", "update", "delete")),  # Kueue's
        ("workloads/status", "update"),
        *((kind, verb) for kind in ("resourceflavors", "workloadpriorityclasses") for verb in ("list", "watch")),
    }
    assert not any("*" in rule["verbs"] + rule["resources"] + rule["apiGroups"] for rule in rules)


def test_rights_in_namespaces_of_the_platform_are_for_single_objects_or_for_looking() -> None:
    """Every rule with its names; tests/workloads holds a real API server to them."""
    look, report = ("get", "list", "watch"), "cluster-autoscaler-status"
    roles = {name: _rights(item) for (kind, name), item in documents("rbac.yaml").items() if kind == "Role"}
    assert roles == {
        "ebb-controller": {
            ("leases", "", ("create",)),
            ("leases", LEASE, ("get", "update")),
            ("configmaps", NAME, ("list", "watch")),
            ("configmaps", MACHINE_USAGE, ("get", "update")),
            ("configmaps", report, look),
        },
        "ebb-controller-autoscaler": {("configmaps", report, look)},
        "ebb-controller-records": {("configmaps", "", ("delete", "list"))},
        "ebb-controller-heartbeats": {("leases", "", ("list", "watch"))},
    }


def test_the_bindings_name_the_account_of_the_deployment() -> None:
    account = documents("controller.yaml")["Deployment", "ebb-controller"]["spec"]["template"]["spec"]["serviceAccountName"]
    bindings = [item for (kind, _), item in documents("rbac.yaml").items() if kind.endswith("Binding")]
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    assert [item["subjects"] for item in bindings] == [[subject]] * 5
    assert all(item["roleRef"]["name"] == item["metadata"]["name"] for item in bindings)
    assert ("ServiceAccount", account) in documents("rbac.yaml")


def test_two_controllers_leave_one_after_the_other_and_never_hold_a_drain_up() -> None:
    found = documents("controller.yaml")
    deployment, budget = found["Deployment", "ebb-controller"], found["PodDisruptionBudget", "ebb-controller"]
    assert deployment["spec"]["replicas"] == 2
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]
    assert (budget["spec"]["maxUnavailable"], budget["spec"]["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_a_researchers_rights_are_these() -> None:
    """Every rule with its names; tests/workloads holds a real API server to them."""
    full = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    look = ("get", "list", "watch")
    assert {key: _rights(item) for key, item in documents("researcher.yaml").items() if "rules" in item} == {
        ("Role", "ebb-researcher"): {
            ("elasticjobs", "", full),
            ("elasticjobs/scale", "", ("get", "patch", "update")),
            ("configmaps", "", full),
            ("secrets", "", ("create", "delete", "update")),  # none of which shows a value
            *((kind, "", look) for kind in ("pods", "pods/log", "events")),
            *((kind, "", ("create", "get")) for kind in ("pods/exec", "pods/portforward")),
            *((kind, "", ("get", "list")) for kind in ("persistentvolumeclaims", "resourcequotas")),
            ("namespaces", "", ("get",)),
        },
        ("Role", "ebb-researcher-platform"): {
            ("configmaps", f"{NAME},{MACHINE_USAGE}", ("get",)),
            ("leases", "ebb-controller", ("get",)),
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
    """Both files are exported from one lock: what the image has is a part of what this checkout has. What copies buckets is the
    image's alone; pyproject.toml names its version for the tests."""
    image, tested = pins("workloads/requirements.txt"), pins("requirements.txt")
    assert {"aiohttp", "kubernetes-asyncio", "orjson", "pyyaml"} <= set(image)
    assert not {"pulumi", "torch"} & set(image)
    copies = {"obstore": image.pop("obstore")}
    assert image.items() <= tested.items()
    assert f'"obstore=={copies["obstore"]}"' in (ROOT / "pyproject.toml").read_text()


def pins(path: str) -> dict[str, str]:
    lines = [line.split()[0] for line in (ROOT / path).read_text().splitlines() if re.match(r"[\w.-]+==", line)]
    return dict(line.split("==") for line in lines)
