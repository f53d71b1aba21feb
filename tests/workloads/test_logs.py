"""The parts that `logs` adds to a stack: by default none; then Fluent Bit on every machine, and files on a volume."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest
import yaml

from ebb.api import contract
from tests.infra.declared import Declared
from tests.infra.stacks import problems, settings
from tests.pod_security import violations
from tests.workloads.world import Object, objects, pod_template
from tests.workloads.world import stack as declared_stack
from workloads.cluster import NAME_LABEL, SYSTEM
from workloads.logs import Keep, configuration, file_output

ID = "0123456789abcdef" * 4


@cache
def stack(ship: bool = True) -> Declared:
    """With all that can be there, so that all of its pods are looked at."""
    return declared_stack(
        logs={"ship": ship, "keepDays": 7, "keepGiB": 3},
        monitoring={"prometheus": True, "grafana": True},
        teams={"vision": {"researchers": ["group:vision"]}},
    )


def one(kind: str, name: str) -> Object:
    (found,) = [item for item in objects(stack()) if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    assert found["metadata"].get("namespace", "kube-system") == "kube-system"
    return found


def pod(kind: str, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = one(kind, name)["spec"]["template"]["spec"]
    return spec


def pipeline(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(text)["pipeline"]
    return found


def test_by_default_there_is_nothing_of_it() -> None:
    assert not [item for item in objects(stack(ship=False)) if item["metadata"]["name"].startswith("ebb-log")]


def test_it_runs_on_every_machine_until_the_kubelet_ends() -> None:
    shipper = pod("DaemonSet", "ebb-logs")
    assert shipper["tolerations"] == [{"operator": "Exists"}]
    assert not {"affinity", "nodeSelector"} & shipper.keys()
    assert shipper["priorityClassName"] == "system-node-critical"


def test_it_has_the_machines_logs_to_read_and_one_folder_to_write() -> None:
    shipper = pod("DaemonSet", "ebb-logs")
    (container,) = shipper["containers"]
    folders = {volume["name"]: volume["hostPath"]["path"] for volume in shipper["volumes"] if "hostPath" in volume}
    assert folders == {"containers": "/var/log/containers", "pods": "/var/log/pods", "state": "/var/lib/ebb-logs"}
    writes = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writes == {"state", "logs"}
    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & shipper.keys()
    # What it asks for beyond `restricted` is to be root, and folders of the machine.
    asked = {"volume containers", "volume pods", "volume state", "fluent-bit: runAsNonRoot", "fluent-bit: runAsUser"}
    assert set(violations(shipper)) == asked
    assert "@sha256:" in container["image"]
    assert "ports" not in container


def test_it_may_ask_for_the_labels_of_pods_and_for_nothing_else() -> None:
    assert one("ClusterRole", "ebb-logs")["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    assert pod("DaemonSet", "ebb-logs")["serviceAccountName"] == "ebb-logs"
    (subject,) = one("ClusterRoleBinding", "ebb-logs")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "ebb-logs", "namespace": "kube-system"}


def file_names() -> dict[str, str]:
    """A file of each container that the stack runs, as the kubelet calls it."""
    found = {}
    for item in objects(stack()):
        if template := pod_template(item):
            name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
            for container in template["spec"]["containers"]:
                found[f"{namespace}/{name}"] = f"/var/log/containers/{name}-x1y2z_{namespace}_{container['name']}-{ID}.log"
    for namespace in ("elastic-job", "ebb-team-vision"):
        found[f"{namespace}/a worker"] = f"/var/log/containers/digits-worker-0_{namespace}_pytorch-{ID}.log"
    return found


def test_it_reads_every_pod_of_the_stack_but_its_own() -> None:
    (tail,) = pipeline(one("ConfigMap", "ebb-logs")["data"]["fluent-bit.yaml"])["inputs"]
    taken, left = tail["path"].split(","), tail["exclude_path"].split(",")
    read = {
        what: any(fnmatchcase(name, glob) for glob in taken) and not any(fnmatchcase(name, glob) for glob in left)
        for what, name in file_names().items()
    }
    assert {what for what, is_read in read.items() if not is_read} == {"kube-system/ebb-logs"}
    assert {"ebb-system/ebb-controller", "ebb-system/etcd", "ebb-system/ebb-prometheus", "kube-system/gpus"} <= read.keys()


@pytest.mark.parametrize(
    "name",
    ["aws-node-x_kube-system_main", "web-0_default_main", "ebb-x_other_main", "x_ebb-systems_main", "x_elastic-job-2_main"],
)
def test_it_reads_nobody_elses(name: str) -> None:
    (tail,) = pipeline(configuration({"name": "null"}, ["gpus"]))["inputs"]
    path = f"/var/log/containers/{name}-{ID}.log"
    assert not [glob for glob in tail["path"].split(",") if fnmatchcase(path, glob)]


def test_a_line_keeps_whose_it_is() -> None:
    filters = pipeline(configuration({"name": "null"}))["filters"]
    (renamed,) = [step["rename"] for step in filters if step["name"] == "modify"]
    names = dict(rename.split(" ") for rename in renamed)
    assert {key.removeprefix("label/"): name for key, name in names.items() if key.startswith("label/")} == {
        NAME_LABEL: "program",
        contract.LABEL_EBB_JOB: "job",
        contract.LABEL_INDEX: "worker",
    }
    (kept,) = [step["allowlist_key"] for step in filters if step["name"] == "record_modifier"]
    assert set(kept) == {"time", "stream", "log", *names.values()}
    assert filters[-1]["name"] == "record_modifier", "what comes after it would not be kept"


def test_an_output_that_is_away_loses_nothing_but_fills_no_disk() -> None:
    written = yaml.safe_load(configuration({"name": "null"}))
    (output,) = written["pipeline"]["outputs"]
    (tail,) = written["pipeline"]["inputs"]
    assert (output["retry_limit"], output["storage.total_limit_size"]) == ("no_limits", "256M")
    assert tail["storage.type"] == "filesystem"
    assert written["service"]["storage.path"].startswith("/state/")
    assert tail["db"].startswith("/state/")


def test_other_settings_are_another_pod() -> None:
    def digest(gib: int) -> str:
        made = declared_stack(logs={"ship": True, "keepGiB": gib}).one("DaemonSet", "daemon-set-ebb-logs").inputs
        told: str = made["spec"]["template"]["metadata"]["annotations"]["ebb.dev/config"]
        return told

    assert digest(3) != digest(4)


def test_files_go_to_a_volume_that_all_machines_mount() -> None:
    assert one("PersistentVolumeClaim", "ebb-logs")["spec"]["accessModes"] == ["ReadWriteMany"]
    for kind, name in (("DaemonSet", "ebb-logs"), ("Deployment", "ebb-log-files")):
        spec = pod(kind, name)
        (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "logs"]
        assert volume["persistentVolumeClaim"] == {"claimName": "ebb-logs"}
        (container,) = spec["containers"]
        assert {"name": "logs", "mountPath": "/logs"} in container["volumeMounts"]
    (output,) = pipeline(one("ConfigMap", "ebb-logs")["data"]["fluent-bit.yaml"])["outputs"]
    assert (output["path"], output["file"], output["rotate"]) == ("/logs", "${NODE_NAME}.jsonl", True)


def test_a_machine_keeps_no_more_than_all_may_together() -> None:
    output = file_output(Keep(days=7, gib=3))
    assert output["rotate_max_size"] == "64M"
    assert output["rotate_max_files"] * 64 == 3 * 1024


def test_the_oldest_files_go_by_the_stacks_settings() -> None:
    spec = pod("Deployment", "ebb-log-files")
    assert violations(spec) == []
    (container,) = spec["containers"]
    assert container["command"][-4:] == ["ebb.log_files", "/logs", "--keep-days=7", "--keep-gib=3"]
    assert container["image"] == "example.org/controller@sha256:3"
    assert spec["nodeSelector"] == {"ebb.dev/node-group": "manager"}


def test_people_are_led_to_them() -> None:
    (facts,) = [item for item in objects(stack()) if item["metadata"]["name"] == "ebb-platform"]
    assert facts["metadata"]["namespace"] == SYSTEM
    told = json.loads(facts["data"]["platform.json"])["dashboards"]["logs"]
    assert told == "kubectl -n kube-system exec deployment/ebb-log-files -- sh -c 'zcat -f /logs/*'"


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ({"keepDays": 0}, "logs.keepDays: found 0"),
        ({"keepGiB": 0}, "logs.keepGiB: found 0"),
        ({"ships": True}, "logs.ships: unknown key; did you mean 'ship'?"),
    ],
)
def test_what_cannot_be_is_said(logs: dict[str, Any], said: str) -> None:
    (text,) = problems(settings() | {"logs": logs})
    assert text.startswith(said)
