"""Agents and a real API server: what they write there, for three clouds' own answers, and what the policy keeps them from.

Only etcd, the API server and the controller manager run; Nodes are objects without machines. Tokens are real ones, bound to pods
as the kubelet's requests bind them.
"""

import contextlib
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb.api import reclaim
from ebb.api.reclaim import NOTHING
from ebb.controller.reconciler.worker_state import has_notice, node_trouble
from ebb.metadata.announcement import Source
from ebb.metadata.aws import Aws
from ebb.metadata.azure import Azure
from ebb.metadata.gcp import Gcp
from ebb.notices.agent import Agent, Marker
from ebb.notices.node import NodeError, OwnNode
from infra.config import ROOT
from tests.elastic.machines import until
from tests.metadata.clouds import AwsMetadata, AzureMetadata, GcpMetadata, serve
from tests.workloads.api import Answer, Api, Plane
from tests.workloads.world import Object

pytestmark = pytest.mark.e2e

NODES, NAMESPACE, AGENT = "/api/v1/nodes", "/api/v1/namespaces/kube-system", "ebb-notices"
POLICY = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{AGENT}"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
LARGEST_MB = 30


class Cluster:
    """An API server with the agents' rights and two spot machines, each with a pod of an agent."""

    def __init__(self, plane: Plane) -> None:
        self.api, self.plane = Api(plane), plane
        self._context = ssl.create_default_context(cafile=plane.folder / "ca.crt")
        kubeconfig = json.loads(plane.kubeconfig.read_text())
        self.host, _, port = kubeconfig["clusters"][0]["cluster"]["server"].removeprefix("https://").rpartition(":")
        self.port = int(port)

    def node(self, name: str) -> Object:
        found = self.api.ask("GET", f"{NODES}/{name}")
        assert found.status == 200, found.words
        return found.body

    def add_machine(self, name: str) -> None:
        metadata = {"name": name, "labels": {"a": "b"}}
        assert (
            self.api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [GPU]}}).status == 201
        )
        status = {"status": {"conditions": [READY], "capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}}
        assert self.api.ask("PATCH", f"{NODES}/{name}/status", status, kind=STRATEGIC).status == 200
        spec = {"serviceAccountName": AGENT, "nodeName": name, "containers": [{"name": "x", "image": "example.org/x"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"agent-{name}", "namespace": "kube-system"}, "spec": spec}
        made_pod = self.api.create(pod)
        assert made_pod.status == 201, made_pod.words

    def token(self, bound_to: str = "") -> str:
        """The agent's token, of its pod on that machine, or of no pod."""
        spec: Object = {"expirationSeconds": 3600}
        if bound_to:
            pod = self.api.ask("GET", f"{NAMESPACE}/pods/agent-{bound_to}").body
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **{key: pod["metadata"][key] for key in ("name", "uid")}}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = self.api.ask("POST", f"{NAMESPACE}/serviceaccounts/{AGENT}/token", request)
        assert answer.status == 201, answer.words
        return str(answer.body["status"]["token"])

    def account(self, folder: Path, name: str) -> Path:
        """A folder as the kubelet mounts it."""
        (folder / "ca.crt").write_bytes((self.plane.folder / "ca.crt").read_bytes())
        (folder / "token").write_text(self.token(name))
        return folder

    def patch(self, token: str, path: str, body: object, kind: str = MERGE) -> Answer:
        connection = http.client.HTTPSConnection(self.host, self.port, context=self._context, timeout=30)
        with contextlib.closing(connection):
            connection.request("PATCH", path, json.dumps(body), {"Authorization": f"Bearer {token}", "Content-Type": kind})
            answer = connection.getresponse()
            return Answer(answer.status, json.loads(answer.read()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    plane = Plane(tmp_path_factory.mktemp("server"))
    try:
        plane.start()
        made = Cluster(plane)
        for item in yaml.safe_load_all((ROOT / "workloads" / "manifests" / "notices.yaml").read_text()):
            answer = made.api.apply(item, dry_run=False)
            assert answer.status in (200, 201), answer.words
            assert answer.warnings == []
        for name in ("n1", "n2"):
            made.add_machine(name)
        token = made.token("n1")
        until("the policy is enforced", lambda: made.patch(token, f"{NODES}/n2?dryRun=All", {}).status == 403, 60)
        yield made
    finally:
        plane.stop()


def test_the_policy_is_checked_against_the_types_without_a_warning(cluster: Cluster) -> None:
    def checked() -> Object | None:
        status: Object = cluster.api.ask("GET", POLICY).body.get("status") or {}
        return status if "typeChecking" in status else None

    assert until("the types are checked", checked)["typeChecking"] == {}


# --- From the cloud's answer to the Node ----------------------------------------------------------------------------------------


class Story:
    """A cloud that announces and withdraws."""

    def __init__(self, source: Source, announce: Callable[[], Any], withdraw: Callable[[], Any], seconds: float | None) -> None:
        self.source, self.announce, self.withdraw, self.seconds = source, announce, withdraw, seconds


@contextlib.contextmanager
def on_aws() -> Iterator[Story]:
    with serve(AwsMetadata()) as cloud:
        source = Aws({"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.address})
        action = {"action": "terminate", "time": cloud.stamp(120)}
        yield Story(source, lambda: vars(cloud).update(action=action), lambda: vars(cloud).update(action=None), 120)


@contextlib.contextmanager
def on_gcp() -> Iterator[Story]:
    with serve(GcpMetadata()) as cloud:
        source = Gcp({"GCE_METADATA_HOST": cloud.address.removeprefix("http://")}, wait_seconds=1)
        yield Story(source, lambda: cloud.change(preempted="TRUE"), lambda: cloud.change(preempted="FALSE"), None)


@contextlib.contextmanager
def on_azure() -> Iterator[Story]:
    with serve(AzureMetadata()) as cloud:
        events = [cloud.event("Preempt", 30)]
        source = Azure({}, address=cloud.address)
        yield Story(source, lambda: vars(cloud).update(events=events), lambda: vars(cloud).update(events=[]), 30)


@pytest.mark.parametrize("on", [on_aws, on_gcp, on_azure])
def test_a_notice_and_its_withdrawal(
    cluster: Cluster, tmp_path: Path, on: Callable[[], contextlib.AbstractContextManager[Story]]
) -> None:
    node = OwnNode("n1", cluster.host, cluster.port, cluster.account(tmp_path, "n1"))
    lines: list[str] = []
    marker = Marker(node.write, lines.append)
    marker.start()
    with on() as story:
        agent = Agent(story.source, marker.want, lines.append)
        agent.look()
        story.announce()
        begun = time.time()
        agent.look()
        found = until_tainted(cluster, "n1", True)
        assert has_notice(found)
        assert own_taints(found) == [GPU, reclaim.TAINT]
        assert {one["type"] for one in found["status"]["conditions"]} == {"Ready", "ReclaimNotice"}
        trouble = node_trouble(found, 0)
        assert trouble is not None
        left = None if trouble.notice_until is None else trouble.notice_until - begun
        assert left == (story.seconds and pytest.approx(story.seconds, abs=4))
        story.withdraw()
        agent.look()
    found = until_tainted(cluster, "n1", False)
    assert not has_notice(found)
    assert reclaim.is_marked(found, NOTHING)
    assert own_taints(found) == [GPU]
    assert not reclaim.is_tainted(cluster.node("n2"))
    assert not [line for line in lines if "cannot" in line]


def until_tainted(cluster: Cluster, name: str, tainted: bool) -> Object:
    """The Node, as soon as it has the taint, or has it no more."""

    def look() -> Object | None:
        node = cluster.node(name)
        return node if reclaim.is_tainted(node) == tainted else None

    return until(f"{name} has the taint: {tainted}", look)


def own_taints(node: Object) -> list[Object]:
    """Without those of the node controller, which misses the kubelet."""
    return [taint for taint in node["spec"]["taints"] if not taint["key"].startswith("node.kubernetes.io/")]


def test_an_api_server_that_is_away_gets_the_notice_when_it_is_back(cluster: Cluster, tmp_path: Path) -> None:
    node = OwnNode("n1", cluster.host, cluster.port, cluster.account(tmp_path, "n1"))
    lines: list[str] = []
    marker = Marker(node.write, lines.append)
    marker.start()
    cluster.plane.stop_api()
    try:
        marker.want(reclaim.notice("Reclaim", "the cloud takes it back", time.time() + 60))
        until("an attempt", lambda: lines)
    finally:
        cluster.plane.start_api()
    assert "Connection refused" in lines[0]
    until_tainted(cluster, "n1", True)
    marker.want(NOTHING)
    until_tainted(cluster, "n1", False)


def test_the_program_itself_needs_little_memory(cluster: Cluster, tmp_path: Path) -> None:
    environment = os.environ | {
        "NODE_NAME": "n2", "KUBERNETES_SERVICE_HOST": cluster.host, "KUBERNETES_SERVICE_PORT": str(cluster.port)
    }  # fmt: skip
    with serve(AwsMetadata()) as cloud:
        cloud.action = {"action": "terminate", "time": cloud.stamp(120)}
        command = [sys.executable, "-m", "ebb.notices", "--cloud=aws", f"--account={cluster.account(tmp_path, 'n2')}"]
        program = subprocess.Popen(
            command, env=environment | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.address}, stdout=subprocess.PIPE, text=True
        )
        try:
            until_tainted(cluster, "n2", True)
            cloud.action = None
            until_tainted(cluster, "n2", False)
            status = Path(f"/proc/{program.pid}/status").read_text()
            (largest,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
            assert int(largest) / 1000 < LARGEST_MB
        finally:
            program.kill()
            said, _ = program.communicate()
    assert said.splitlines()[0] == "n2: listening for notices of AWS"


# --- The policy -----------------------------------------------------------------------------------------------------------------

NOTICE = reclaim.patch_condition(reclaim.notice("Reclaim", "x", 1.0), 0.0)
REFUSED = {
    "another machine's taint": ("n2", {"spec": {"taints": [GPU, dict(reclaim.TAINT)]}}, "each agent marks its own"),
    "another machine's condition": ("n2/status", NOTICE, "each agent marks its own"),
    "a label": ("n1", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, "no metadata"),
    "a label by the status": ("n1/status", {"metadata": {"labels": {"a": "c"}}}, "no metadata"),
    "an annotation": ("n1", {"metadata": {"annotations": {"a": "c"}}}, "no metadata"),
    "a finalizer": ("n1", {"metadata": {"finalizers": ["example.org/x"]}}, "no metadata"),
    "other taints": ("n1", {"spec": {"taints": [dict(reclaim.TAINT)]}}, "nothing else in a node's spec"),
    "a taint more": ("n1", {"spec": {"taints": [GPU, {"key": "x", "effect": "NoExecute"}]}}, "nothing else in a node's spec"),
    "a cordon": ("n1", {"spec": {"unschedulable": True}}, "nothing else in a node's spec"),
    "the provider's id": ("n1", {"spec": {"providerID": "x://1"}}, "nothing else in a node's spec"),
    "another condition": (
        "n1/status",
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        "nothing else in a node's status",
    ),
    "its size": ("n1/status", {"status": {"capacity": {"cpu": "400"}}}, "nothing else in a node's status"),
    "its addresses": ("n1/status", {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}, "nothing else in"),
}


@pytest.mark.parametrize(("path", "body", "words"), REFUSED.values(), ids=REFUSED)
def test_an_agent_may_not_change(cluster: Cluster, path: str, body: Object, words: str) -> None:
    answer = cluster.patch(cluster.token("n1"), f"{NODES}/{path}?dryRun=All", body, STRATEGIC if "status" in path else MERGE)
    assert (answer.status, words in answer.words) == (403, True), answer.words


def test_a_token_of_no_pod_may_change_nothing(cluster: Cluster) -> None:
    answer = cluster.patch(cluster.token(), f"{NODES}/n1/status?dryRun=All", NOTICE, STRATEGIC)
    assert answer.status == 403
    assert "ebb-notices on no node may not change node n1" in answer.words


@pytest.mark.parametrize("path", [f"{NODES}", f"{NAMESPACE}/pods", f"{NAMESPACE}/secrets", "/api/v1/pods"])
def test_nor_may_it_list_anything(cluster: Cluster, path: str) -> None:
    account = "system:serviceaccount:kube-system:ebb-notices"
    assert cluster.api.ask("GET", path, user=account, groups=["system:authenticated"]).status == 403


def test_others_are_not_held_to_it(cluster: Cluster) -> None:
    answer = cluster.api.ask("PATCH", f"{NODES}/n1?dryRun=All", {"metadata": {"labels": {"a": "c"}}}, kind=MERGE)
    assert answer.status == 200, answer.words


def test_the_error_says_who_refused(cluster: Cluster, tmp_path: Path) -> None:
    wrong = OwnNode("n2", cluster.host, cluster.port, cluster.account(tmp_path, "n1"))
    with pytest.raises(NodeError, match=r"answered 403: .*ebb-notices on n1 may not change node n2: each agent marks its own"):
        wrong.write(reclaim.notice("Reclaim", "x", None))
