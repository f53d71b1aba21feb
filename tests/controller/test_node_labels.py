"""Labels for nodes that selectors choose: what changes, and the program on an API server whose nodes know nothing of Ebb."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb.controller.node_labels import SelectedGroup, change, groups_of
from infra.config import ROOT
from tests.elastic.machines import until
from tests.workloads.api import Api, Plane

ZONE = "topology.kubernetes.io/zone"
NODES = "/api/v1/nodes"
ACCOUNT = "/api/v1/namespaces/ebb-system/serviceaccounts/ebb-node-labels/token"
CONFIG_MAP = "/api/v1/namespaces/ebb-system/configmaps/ebb-platform"
MERGE = "application/merge-patch+json"
Labels = dict[str, str]


def labels(name: str) -> Labels:
    return {"ebb.dev/node-group": name, "ebb.dev/capacity-type": "on-demand", "ebb.dev/gpu-type": "A100"}


def group(name: str, zone: str, **selector: str) -> SelectedGroup:
    return SelectedGroup(zone=zone, selector=selector, labels=labels(name))


HALL_A, HALL_B = group("a100-a", "a", gpu="A100"), group("a100-b", "b", gpu="A100")


@pytest.mark.parametrize(
    ("found", "changed"),
    [
        pytest.param({"gpu": "T4"}, {}, id="another machine"),
        pytest.param({"gpu": "A100", ZONE: "a"}, labels("a100-a"), id="of the first zone"),
        pytest.param({"gpu": "A100", ZONE: "b"}, labels("a100-b"), id="of the second"),
        pytest.param({"gpu": "A100", ZONE: "c"}, {}, id="of a zone that the stack has not"),
        pytest.param({"gpu": "A100"}, {**labels("a100-a"), ZONE: "a", "ebb.dev/zone": "a"}, id="without a zone"),
        pytest.param({"gpu": "A100", ZONE: "a", **labels("a100-a")}, {}, id="labelled before"),
        pytest.param({"gpu": "A100", ZONE: "a", "ebb.dev/zone": "a", **labels("a100-a")}, {}, id="with a zone of ours"),
        pytest.param(
            {"gpu": "A100", ZONE: "a", **labels("a100-b"), "ebb.dev/old": "x"},
            {"ebb.dev/node-group": "a100-a", "ebb.dev/old": None}, id="labelled otherwise",
        ),
        pytest.param(
            {"gpu": "T4", ZONE: "a", "ebb.dev/zone": "a", **labels("a100-a")},
            dict.fromkeys([*labels(""), ZONE, "ebb.dev/zone"]), id="no more of a group",
        ),
    ],
)  # fmt: skip
def test_what_changes(found: Labels, changed: dict[str, str | None]) -> None:
    assert change(found, [HALL_A, HALL_B]) == changed
    written = {**found, **changed}
    assert change({key: value for key, value in written.items() if value is not None}, [HALL_A, HALL_B]) == {}


def platform(**selector: str) -> dict[str, Any]:
    """ConfigMap ebb-platform, as far as it is read here."""
    manager = {"name": "manager", "zone": "a", "selector": {"gpu": "A100"}, "labels": {"ebb.dev/node-group": "manager"}}
    made = {"name": "made-by-ebb", "zone": "a", "labels": {"ebb.dev/node-group": "made-by-ebb"}}
    chosen = {"name": "a100-a", "zone": "a", "selector": selector, "labels": labels("a100-a")}
    data = {"schema": "1", "platform.json": json.dumps({"nodeGroups": [manager, made, chosen]})}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ebb-platform", "namespace": "ebb-system"},
        "data": data,
    }


def test_the_manager_and_machines_that_ebb_makes_are_left_alone() -> None:
    assert groups_of(platform(gpu="A100")) == [group("a100-a", "a", gpu="A100")]
    assert groups_of(None) == []


# ------------------------------------------------------------------------------------------------------- on an API server


class Program:
    """The program as in its pod, with its own account's token. `world`: the API server."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.api, self.log = api, folder / "log"
        (folder / "token").write_text(api.ask("POST", ACCOUNT, {"spec": {"expirationSeconds": 600}}).body["status"]["token"])
        config: Any = json.loads(api.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"tokenFile": "token"}
        (folder / "kubeconfig").write_text(json.dumps(config))
        self._kubeconfig = folder / "kubeconfig"

    @contextlib.contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        command = [sys.executable, "-m", "ebb.controller.node_labels", f"--kubeconfig={self._kubeconfig}"]
        with self.log.open("ab") as log:
            running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=dict(os.environ))
        try:
            yield running
        finally:
            running.kill()
            running.wait()

    def labels(self, node: str) -> Labels:
        found: Labels = self.api.ask("GET", f"{NODES}/{node}").body["metadata"].get("labels") or {}
        return {key: value for key, value in found.items() if not key.startswith("kubernetes.io/")}

    def soon(self, node: str, wanted: Labels) -> None:
        until(f"{node} has {wanted}", lambda: self.labels(node) == wanted, 60)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    plane = Plane(tmp_path_factory.mktemp("server"))
    try:
        plane.start()
        made = Api(plane)
        for name in ("namespaces.yaml", "node-labels.yaml"):
            for item in yaml.safe_load_all((ROOT / "workloads" / "manifests" / name).read_text()):
                answer = made.apply(item, dry_run=False)
                assert answer.status in (200, 201), answer.words
                assert answer.warnings == []
        yield made
    finally:
        plane.stop()


def add_node(api: Api, name: str, found: Labels) -> None:
    answer = api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": found}})
    assert answer.status == 201, answer.words


@pytest.mark.e2e
def test_nodes_that_know_nothing_of_ebb_get_labels_and_lose_them_with_the_stack(api: Api, tmp_path: Path) -> None:
    add_node(api, "one", {"gpu": "A100"})
    add_node(api, "other", {"gpu": "T4", ZONE: "a"})
    program = Program(api, tmp_path)
    ours = {**labels("a100-a"), ZONE: "a", "ebb.dev/zone": "a"}
    with program.running() as running:
        assert api.create(platform(gpu="A100")).status == 201
        program.soon("one", {"gpu": "A100", **ours})
        add_node(api, "late", {"gpu": "A100", ZONE: "a"})
        program.soon("late", {"gpu": "A100", ZONE: "a", **labels("a100-a")})
        assert program.labels("other") == {"gpu": "T4", ZONE: "a"}
        api.ask("PATCH", f"{NODES}/late", {"metadata": {"labels": {"gpu": "T4"}}}, kind=MERGE)
        program.soon("late", {"gpu": "T4", ZONE: "a"})
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0, program.log.read_text()
    assert program.labels("one") == {"gpu": "A100", **ours}, "it ended, and the stack is there: another goes on"
    with program.running() as running:
        api.ask("PUT", CONFIG_MAP, platform(gpu="T4"))
        program.soon("one", {"gpu": "A100"})
        program.soon("other", {"gpu": "T4", ZONE: "a", **labels("a100-a")})
        os.kill(running.pid, signal.SIGSTOP)  # the stack goes, and the program is told to end before it sees that
        assert api.ask("DELETE", CONFIG_MAP).status == 200
        running.send_signal(signal.SIGTERM)
        os.kill(running.pid, signal.SIGCONT)
        assert running.wait(30) == 0, program.log.read_text()
    assert program.labels("other") == {"gpu": "T4", ZONE: "a"}
    assert '"level": "error"' not in program.log.read_text()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"metadata": {"labels": {"ebb.dev/x": "y"}}}, False),
        ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, True),
        ({"metadata": {"labels": {ZONE: "z"}}}, True),
        ({"metadata": {"annotations": {"x": "y"}}}, True),
        ({"spec": {"unschedulable": True}}, True),
    ],
    ids=["its own label", "another's", "a zone that is there", "an annotation", "the spec"],
)
def test_the_policy_keeps_it_to_its_labels(api: Api, change: dict[str, Any], refused: bool) -> None:
    if api.ask("GET", f"{NODES}/held").status != 200:
        add_node(api, "held", {ZONE: "a"})
    user = "system:serviceaccount:ebb-system:ebb-node-labels"
    wrong = {"spec": {"unschedulable": True}}
    path = f"{NODES}/held?dryRun=All"
    until("the policy is enforced", lambda: api.ask("PATCH", path, wrong, kind=MERGE, user=user).status == 403, 60)
    answer = api.ask("PATCH", path, change, kind=MERGE, user=user)
    assert (answer.status, "ebb-node-labels may change" in answer.words) == ((403, True) if refused else (200, False)), (
        answer.words
    )
