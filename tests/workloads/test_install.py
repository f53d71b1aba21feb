"""`kubectl apply -k workloads/manifests` on a real API server that has nothing: as often as one likes, both ways of applying.

Only etcd, the API server and the controller manager run, so no pod starts. And what the installed policy says to jobs.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import tools
from infra.config import ROOT
from testing.ports import free_port
from tests.workloads.api import Api, Plane, await_kind
from tests.workloads.world import Object
from workloads import manifest

pytestmark = pytest.mark.e2e

FOLDER = ROOT / "workloads" / "manifests"
JOB_FILES = [*sorted((ROOT / "workloads" / "jobs").glob("*.yaml")), ROOT / "tests" / "workloads" / "articles" / "imagenet.yaml"]
WITH_STATUS = (
    *("Namespace", "DaemonSet", "Deployment", "StatefulSet", "CronJob", "Job"),
    *("PodDisruptionBudget", "PersistentVolumeClaim"),
)
POLICIES = ("ebb-elasticjobs", "ebb-records", "ebb-secrets", "ebb-owners", "ebb-owned-pods", "ebb-owned-configmaps")
POLICY = "ValidatingAdmissionPolicy 'ebb-elasticjobs' with binding 'ebb-elasticjobs' denied request: "


class Cluster:
    """An API server, and kubectl for it."""

    def __init__(self, plane: Plane) -> None:
        self.api, self.kubeconfig = Api(plane), plane.kubeconfig

    def kubectl(self, *words: str) -> list[str]:
        command = [str(tools.main_ensure("kubernetes") / "kubectl"), f"--kubeconfig={self.kubeconfig}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return (done.stdout + done.stderr).splitlines()

    def objects(self) -> dict[str, Object]:
        """What is installed, without what the cluster itself goes on to write."""
        return {self.api.path(item): stripped(self.api.ask("GET", self.api.path(item)).body) for item in rendered()}


def rendered() -> list[Object]:
    command = [str(tools.main_ensure("kubernetes") / "kubectl"), "kustomize", str(FOLDER)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return list(yaml.safe_load_all(text))


def stripped(item: Object) -> Object:
    """The server counts changes in `generation`; it leaves `resourceVersion` alone when an apply changes nothing."""
    left_out = {"managedFields", "annotations", *(["resourceVersion"] if item["kind"] in WITH_STATUS else [])}
    metadata = {key: value for key, value in item["metadata"].items() if key not in left_out}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": metadata}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    plane = Plane(tmp_path_factory.mktemp("server"))
    try:
        plane.start()
        made = Cluster(plane)
        made.kubectl("apply", "-k", str(FOLDER))
        await_kind(made.api)
        enforced(made.api)
        for policy in POLICIES:
            type_checked(made.api, policy)
        yield made
    finally:
        plane.stop()


def enforced(api: Api) -> None:
    """The API server learns of a new policy a little later than it stores it."""
    deadline = time.monotonic() + 60
    while api.create(job(host_network=True), dry_run=True).status == 201:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def type_checked(api: Api, policy: str) -> Object:
    """The controller manager's findings about a policy."""
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{policy}"
    deadline = time.monotonic() + 60
    while "typeChecking" not in (status := api.ask("GET", path).body.get("status") or {}):
        assert time.monotonic() < deadline, status
        time.sleep(0.1)
    found: Object = status["typeChecking"]
    return found


def job(*, host_network: bool = False, template: Object | None = None, **spec: Any) -> Object:
    """The job of the articles, whose pods have these fields more."""
    made: Any = yaml.safe_load(JOB_FILES[-1].read_text())
    made["spec"].update(spec)
    made["spec"]["replicaSpecs"]["Worker"]["template"]["spec"].update(template or ({"hostNetwork": True} if host_network else {}))
    return dict(made)


# --- Installing -----------------------------------------------------------------------------------------------------------------


def test_a_second_apply_changes_nothing_on_either_side(cluster: Cluster) -> None:
    before = cluster.objects()
    assert len(cluster.kubectl("apply", "-k", str(FOLDER))) == len(before) > 20, "and says nothing else"
    assert cluster.objects() == before

    first = cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(FOLDER))
    before = cluster.objects()
    assert cluster.kubectl("apply", "--server-side", "-k", str(FOLDER)) == first
    assert all(line.endswith(" serverside-applied") for line in first)
    assert cluster.objects() == before


def test_there_is_no_difference_left(cluster: Cluster) -> None:
    """As `kubectl diff` sees it, which ends with 1 if there is one."""
    assert cluster.kubectl("diff", "-k", str(FOLDER)) == []


def test_all_images_are_real_ones_and_of_one_place(cluster: Cluster) -> None:
    found = {}
    for item in rendered():
        if item["kind"] in ("DaemonSet", "Deployment", "StatefulSet", "CronJob", "Job"):
            spec = item["spec"].get("jobTemplate", item)["spec"]["template"]["spec"]
            found[item["metadata"]["name"]] = spec["containers"][0]["image"]
    assert found == {
        "etcd": manifest.pinned("ebb-etcd"),
        "ebb-controller": "ebb-controller:dev",
        "ebb-notices": "ebb-controller:dev",
        "etcd-certificates": "ebb-controller:dev",
        "etcd-maintenance": "ebb-controller:dev",
    }


def test_the_older_etcd_is_installed_beside_it(cluster: Cluster) -> None:
    """As the server would take it: what is there stays as it is, and no warning is given."""
    assert cluster.kubectl("apply", "--server-side", "--dry-run=server", "-k", str(FOLDER / "legacy")) == [
        "service/etcd-legacy serverside-applied (server dry run)",
        "statefulset.apps/etcd-legacy serverside-applied (server dry run)",
    ]


def test_the_box_builds_the_etcds_that_are_installed() -> None:
    """One place says which: the kustomizations."""
    minor = {name: tools.TOOLS[name].version.removeprefix("v").rpartition(".")[0] for name in tools.BOX_TOOLS if "etcd" in name}
    assert [f"registry.k8s.io/etcd:{one}." in manifest.pinned("ebb-etcd") for one in minor.values()] == [True]
    older = tools.TOOLS[tools.LEGACY_ETCD].version.removeprefix("v")
    assert f"registry.k8s.io/etcd:{older}-" in manifest.pinned("ebb-etcd-legacy", manifest.LEGACY)


def test_the_server_warns_of_nothing(cluster: Cluster) -> None:
    """Pod Security judges workloads by warnings, and unknown fields are errors here."""
    said = {cluster.api.path(item): cluster.api.apply(item, dry_run=True) for item in rendered()}
    assert {path: answer.words for path, answer in said.items() if answer.status not in (200, 201) or answer.warnings} == {}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_policies_expressions_have_the_types_that_the_kinds_have(cluster: Cluster, policy: str) -> None:
    """The controller manager checks them against the kind, and writes what it finds wrong."""
    assert type_checked(cluster.api, policy) == {}


# --- The controller, as what is installed lets it -------------------------------------------------------------------------------


def asked(port: int, path: str) -> tuple[int, str]:
    """What it serves; 0 while it does not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_the_controller_leads_and_sees_all_it_needs_with_its_own_account(cluster: Cluster, tmp_path: Path) -> None:
    """With a token that it reads from a file, as in its pod. It logs one JSON object a line, and gives the lease back."""
    account = "/api/v1/namespaces/ebb-system/serviceaccounts/ebb-controller/token"
    (tmp_path / "token").write_text(
        cluster.api.ask("POST", account, {"spec": {"expirationSeconds": 600}}).body["status"]["token"]
    )
    config: Any = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"tokenFile": "token"}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    port = free_port()
    command = [sys.executable, "-m", "ebb.controller", f"--kubeconfig={tmp_path}/kubeconfig", f"--listen=127.0.0.1:{port}"]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        deadline = time.monotonic() + 60
        while "ebb_leads 1\n" not in asked(port, "/metrics")[1] or "watching" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            assert running.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        assert [asked(port, path) for path in ("/healthz", "/readyz")] == [(200, "ok\n")] * 2
        lease = "/apis/coordination.k8s.io/v1/namespaces/ebb-system/leases/ebb-controller"
        assert cluster.api.ask("GET", lease).body["spec"]["holderIdentity"]
        running.terminate()
        assert running.wait(20) == 0
        assert not cluster.api.ask("GET", lease).body["spec"].get("holderIdentity")
    finally:
        running.kill()
        running.wait()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line for line in lines if line["level"] != "info"] == []


# --- What the policy says -------------------------------------------------------------------------------------------------------

LET_IN: dict[str, Object] = {
    "nothing said": {},
    "the usual account": {"template": {"serviceAccountName": "default"}},
    "no host namespaces, explicitly": {"template": {"hostNetwork": False, "hostPID": False, "hostIPC": False}},
    "the jobs' own class": {"priorityClassName": "ebb-job", "template": {"priorityClassName": "ebb-elastic"}},
    "a node group": {"template": {"nodeSelector": {"ebb.dev/node-group": "spot-t4-a", "a": "b"}}},
}
REFUSED: dict[str, tuple[Object, str]] = {
    "an account": (
        {"template": {"serviceAccountName": "ebb-controller"}},
        "serviceAccountName ebb-controller in the template is refused: jobs run as the account default of their namespace; "
        "remove it",
    ),
    "an account by its old name": (
        {"template": {"serviceAccount": "ebb-controller"}},
        "serviceAccountName ebb-controller in the template is refused",
    ),
    "a node": ({"template": {"nodeName": "node-1"}}, "nodeName node-1 in the template is refused: it goes past the scheduler"),
    "the machine's network": ({"template": {"hostNetwork": True}}, "hostNetwork in the template is refused"),
    "the machine's processes": ({"template": {"hostPID": True}}, "hostPID in the template is refused"),
    "the machine's memory": ({"template": {"hostIPC": True, "hostPID": False}}, "hostIPC in the template is refused"),
    "the agents' class": (
        {"template": {"priorityClassName": "system-node-critical"}},
        "priorityClassName system-node-critical is refused: it would push the platform and agents of the machines off; use "
        "ebb-job, or none",
    ),
    "the agents' class for the job": (
        {"priorityClassName": "system-cluster-critical"},
        "priorityClassName system-cluster-critical is refused",
    ),
    "the platform's class": ({"priorityClassName": "ebb-system"}, "priorityClassName ebb-system is refused"),
    "the platform's machine": (
        {"template": {"nodeSelector": {"ebb.dev/node-group": "manager"}}},
        "nodeSelector ebb.dev/node-group=manager in the template is refused: that machine is for the platform",
    ),
}


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_job_file_passes(cluster: Cluster, path: Path) -> None:
    answer = cluster.api.create(yaml.safe_load(path.read_text()), dry_run=True)
    assert answer.status == 201, answer.words


@pytest.mark.parametrize("fields", LET_IN.values(), ids=LET_IN)
def test_a_job_is_let_in(cluster: Cluster, fields: Object) -> None:
    answer = cluster.api.create(job(**fields), dry_run=True)
    assert answer.status == 201, answer.words


@pytest.mark.parametrize(("fields", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_job_is_refused_with_what_to_change(cluster: Cluster, fields: Object, sentence: str) -> None:
    answer = cluster.api.create(job(**fields), dry_run=True)
    assert answer.status == 403
    assert POLICY + sentence in answer.words


def test_a_job_cannot_be_made_a_bad_one_later(cluster: Cluster) -> None:
    good = {**job(), "metadata": {"name": "later", "namespace": "elastic-job"}}
    assert cluster.api.create(good).status == 201
    change = {"spec": {"priorityClassName": "system-node-critical"}}
    answer = cluster.api.ask("PATCH", cluster.api.path(good), change, kind="application/merge-patch+json")
    assert (answer.status, "is refused" in answer.words) == (403, True), answer.words


def test_a_job_from_before_the_policy_can_be_suspended_scaled_and_deleted(cluster: Cluster) -> None:
    binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/ebb-elasticjobs"
    old = {**job(host_network=True), "metadata": {"name": "old", "namespace": "elastic-job"}}
    assert cluster.api.ask("DELETE", binding).status == 200
    deadline = time.monotonic() + 60
    while cluster.api.create(old).status != 201:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    cluster.kubectl("apply", "-k", str(FOLDER))
    enforced(cluster.api)
    path = cluster.api.path(old)
    for subresource, change in (("", {"spec": {"suspend": True}}), ("/scale", {"spec": {"replicas": 1}})):
        answer = cluster.api.ask("PATCH", path + subresource, change, kind="application/merge-patch+json")
        assert answer.status == 200, answer.words
    assert cluster.api.ask("DELETE", path).status == 200


def test_a_record_goes_with_its_namespace(cluster: Cluster) -> None:
    """As Kubernetes' own controllers ask for it: a refusal would keep the namespace for ever."""
    meta = {"name": "ebb-record-job-0b8e7a52", "namespace": "elastic-job", "labels": {"ebb.dev/record": "true"}}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    assert cluster.api.create(made).status == 201
    kubernetes = "system:serviceaccount:kube-system:"
    path = cluster.api.path(made)
    assert cluster.api.ask("DELETE", path, user=kubernetes + "replicaset-controller").status == 403
    assert cluster.api.ask("DELETE", path, user=kubernetes + "namespace-controller").status == 200
