"""What a real API server says to the stack's objects, and what people and programs may do on it.

Only etcd, the API server and the controller manager run: no pod starts. So that requests about pods have something to find, the
tests make pods that stay pending.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ebb.api.platform import Copies, Network, Volume, parse
from ebb.api.spec import Job
from ebb.controller.reconciler.data_copy import copy_pod
from ebb.controller.reconciler.pods import PodPlacement, worker_pod
from infra.config import ROOT
from tests.builders import make_job
from tests.controller.reconciler.test_network import CLAIMED, FABRIC, whole
from tests.infra.cases import CASES, Case
from tests.infra.declared import Declared
from tests.workloads.api import Api, laid_out
from tests.workloads.rights import (
    AUTOSCALER_MAY,
    AUTOSCALER_MAY_NOT,
    CONTROLLER_MAY,
    CONTROLLER_MAY_NOT,
    CORE,
    JOBS,
    RESEARCHER_MAY,
    RESEARCHER_MAY_NOT,
)
from tests.workloads.world import Object, example, objects, patches, pod_template, stack

pytestmark = pytest.mark.e2e

JOB_FILES = [*sorted((ROOT / "workloads" / "jobs").glob("*.yaml")), ROOT / "tests" / "workloads" / "articles" / "imagenet.yaml"]
# The one pod of ours that Pod Security `restricted` warns of: the root of a new file system is root's alone.
AS_ROOT = {"prepare-storage"}


@pytest.fixture(scope="module")
def world() -> Declared:
    return stack()


@pytest.fixture(scope="module")
def api(world: Declared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with laid_out(tmp_path_factory.mktemp("server"), world) as made:
        for pod in (pending("worker-0", "elastic-job"), pending("etcd-0", "ebb-system")):
            assert made.create(pod).status == 201
        yield made


def pending(name: str, namespace: str, **spec: object) -> Object:
    """A pod that passes Pod Security `restricted` and never starts: there is no scheduler."""
    container = {
        "name": "main",
        "image": "example.org/none",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "securityContext": security, **spec},
    }


# --- The objects ----------------------------------------------------------------------------------------------------------------


WATCHED = {"prometheus": True, "grafana": True, "scrapers": {"kubernetes.io/metadata.name": "monitoring"}}


@pytest.mark.parametrize("name", ["made up", "watched", "imagenet", *(case.stack for case in CASES)])
def test_every_object_of_a_stack_passes_a_server_side_dry_run(api: Api, world: Declared, name: str) -> None:
    """Without a warning of Pod Security, but for the one pod; unknown fields are errors."""
    given = world if name == "made up" else stack(monitoring=WATCHED) if name == "watched" else example(name)
    said = [(item, api.apply(item, dry_run=True)) for item in objects(given)]
    workloads = {"Deployment", "StatefulSet", "Job", "CronJob", "ElasticJob"}  # and DaemonSets, where a cloud brings no plugins
    assert {item["kind"] for item, _ in said} >= workloads
    assert [f"{item['kind']}: {answer.words}" for item, answer in said if answer.status not in (200, 201)] == []
    assert {item["metadata"]["name"] for item, answer in said if answer.warnings} == AS_ROOT


def test_a_patch_takes_fields_over_and_leaves_the_others(api: Api) -> None:
    """Of an object that an add-on has applied; here one with the patched names and only what a DaemonSet must have."""
    [patch] = patches(example("imagenet"))
    metadata, [changed] = patch["metadata"], patch["spec"]["template"]["spec"]["containers"]
    probe: Object = {"httpGet": {"path": "/healthz", "port": 9910}, **dict.fromkeys(changed["livenessProbe"], 2)}
    container = {"name": changed["name"], "image": "example.org/none", "livenessProbe": probe}
    labels = {"app": metadata["name"]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    theirs = {key: metadata[key] for key in ("name", "namespace")}
    whole = {**patch, "metadata": theirs, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    assert api.apply(whole, dry_run=False, manager="eks").status == 201
    answer = api.apply(patch, dry_run=False)
    assert answer.status == 200, answer.words
    [found] = answer.body["spec"]["template"]["spec"]["containers"]
    assert found["resources"] == changed["resources"]
    assert found["image"] == container["image"]
    assert changed["livenessProbe"].items() < found["livenessProbe"].items()
    assert found["livenessProbe"]["httpGet"] == {**probe["httpGet"], "scheme": "HTTP"}


def test_the_pods_of_all_workloads_are_let_in(api: Api, world: Declared) -> None:
    """Pod Security judges the workloads by warnings only; what it enforces, it enforces on pods."""
    said = {}
    for item in objects(world):
        template = pod_template(item) if item["kind"] != "ElasticJob" else None
        if template:
            metadata = {**template["metadata"], "name": "x", "namespace": item["metadata"]["namespace"]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            said[item["metadata"]["name"]] = api.create(pod, dry_run=True)
    assert len(said) == 17
    assert {name: answer.words for name, answer in said.items() if answer.status != 201} == {}
    assert {name for name, answer in said.items() if answer.warnings} == AS_ROOT


@pytest.mark.parametrize("fast", [FABRIC, CLAIMED], ids=["by a device plugin", "by a claim"])
def test_a_worker_with_a_fast_network_is_let_in(api: Api, fast: Network) -> None:
    """Pod Security `baseline` has no room for capabilities and folders of the machine; it needs none."""
    job = Job.of(make_job(**whole()))
    pod = worker_pod(job, index=0, attempt=0, pod_placement=PodPlacement(network=fast, memory_bytes=2**40))
    del pod["metadata"]["ownerReferences"]
    answer = api.create(pod, dry_run=True)
    assert answer.status == 201, answer.words
    claims = [one["resourceClaimTemplateName"] for one in answer.body["spec"].get("resourceClaims", [])]
    assert claims == ([fast.claim] if fast.claim else [])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_objects_of_a_stack_with_a_fast_network_pass_a_server_side_dry_run(api: Api, case: Case) -> None:
    made = objects(example(case.stack, nodeGroups=[{**case.fast, "zones": case.zones[:1]}], jobs=[], datasets=[]))
    said = [(item, api.apply(item, dry_run=True)) for item in made]
    assert [f"{item['kind']}: {answer.words}" for item, answer in said if answer.status not in (200, 201)] == []
    [facts] = [item["data"] for item in made if item["metadata"]["name"] == "ebb-platform"]
    [network] = [group.network for group in parse(facts).node_groups if group.network]
    templates = [item["metadata"]["name"] for item in made if item["kind"] == "ResourceClaimTemplate"]
    assert templates == ([network.claim] if network.claim else [])
    assert "DaemonSet" in {item["kind"] for item in made}


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_job_file_is_accepted(api: Api, path: Path) -> None:
    answer = api.apply(yaml.safe_load(path.read_text()), dry_run=True)
    assert (answer.status, answer.warnings) == (201, []), answer.words


NOT_LET_IN = {
    "a load balancer": ("Service", {"type": "LoadBalancer", "ports": [{"port": 80}]}, "exceeded quota: objects"),
    "a port of all machines": ("Service", {"type": "NodePort", "ports": [{"port": 80}]}, "exceeded quota: objects"),
    "a pod before the agents": (
        "Pod",
        pending("x", "elastic-job", priorityClassName="system-node-critical")["spec"],
        "exceeded quota: critical-pods",
    ),
    "the machine's files": (
        "Pod",
        pending("x", "elastic-job", volumes=[{"name": "root", "hostPath": {"path": "/"}}])["spec"],
        'violates PodSecurity "baseline:latest": hostPath volumes',
    ),
    "the machine's network": ("Pod", pending("x", "elastic-job", hostNetwork=True)["spec"], 'violates PodSecurity "baseline'),
}


@pytest.mark.parametrize(("kind", "spec", "sentence"), NOT_LET_IN.values(), ids=NOT_LET_IN)
def test_what_is_not_let_into_the_jobs_namespace(api: Api, kind: str, spec: Object, sentence: str) -> None:
    answer = api.create(
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": "elastic-job"}, "spec": spec}, dry_run=True
    )
    assert answer.status == 403
    assert sentence in answer.words


def test_a_service_inside_the_cluster_is_let_in(api: Api) -> None:
    spec = {"clusterIP": "None", "selector": {"a": "b"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", "namespace": "elastic-job"}, "spec": spec}
    assert api.create(service, dry_run=True).status == 201


def test_the_pod_that_copies_a_bucket_is_let_in_without_a_warning(api: Api) -> None:
    job = Job.of(make_job(data={"url": "s3://imagenet/train", "path": "/mnt/data/imagenet"}))
    assert job.spec.data is not None
    volume = Volume(name="data", claim="ebb-data", mount_path="/mnt/data", read_only=False)
    pod = copy_pod(job, job.spec.data, volume, Copies(image="example.org/controller", selector={"a": "b"}))
    answer = api.create(pod, dry_run=True)
    assert (answer.status, answer.warnings) == (201, []), answer.words


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ({"url": "gs://imagenet/train", "path": "/mnt/data/imagenet"}, 201),
        ({"url": "https://imagenet/train", "path": "/mnt/data/imagenet"}, 422),
        ({"url": "s3://imagenet", "path": "imagenet"}, 422),
        ({"url": "s3://imagenet"}, 422),
    ],
    ids=["right", "scheme", "relative", "no path"],
)
def test_a_jobs_bucket_is_checked(api: Api, data: Object, status: int) -> None:
    job = make_job("with-bucket", data=data)
    job["metadata"] = {"name": "with-bucket", "namespace": "elastic-job"}
    assert api.create(job, dry_run=True).status == status


def test_root_is_not_let_into_the_platforms_namespace(api: Api) -> None:
    answer = api.create(pending("x", "ebb-system", securityContext={"runAsUser": 0}), dry_run=True)
    assert (answer.status, "violates PodSecurity" in answer.words) == (403, True)


# --- A researcher ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ada(api: Api) -> Api:
    return api.person("ada", "ebb:researchers")


@pytest.mark.parametrize(("method", "path"), RESEARCHER_MAY.values(), ids=RESEARCHER_MAY)
def test_a_researcher_may(ada: Api, method: str, path: str) -> None:
    """The server answers or says what is wrong with the request; what it must not say is that she may not."""
    assert ada.ask(method, path).status not in (401, 403)


@pytest.mark.parametrize(("method", "path"), RESEARCHER_MAY_NOT.values(), ids=RESEARCHER_MAY_NOT)
def test_a_researcher_may_not(ada: Api, method: str, path: str) -> None:
    answer = ada.ask(method, path, {} if method in ("POST", "PATCH", "PUT") else None, kind=PATCH_OR_JSON[method == "PATCH"])
    assert answer.status == 403, answer.words
    assert 'User "ada" cannot' in answer.words


PATCH_OR_JSON = ("application/json", "application/merge-patch+json")


@pytest.mark.parametrize(("method", "path"), RESEARCHER_MAY.values(), ids=RESEARCHER_MAY)
def test_who_is_no_researcher_may_nothing_of_that(api: Api, method: str, path: str) -> None:
    assert api.ask(method, path, user="bob", groups=["system:authenticated"]).status == 403


def test_a_researchers_day(api: Api, ada: Api) -> None:
    """Every command of `ebb` that speaks to the cluster, with her own certificate."""
    kubeconfig = ada.kubeconfig("ada")

    def ebb(*words: str) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ebb")), *words], capture_output=True, text=True, timeout=60, check=False,
            env=os.environ | {"EBB_KUBECONFIG": str(kubeconfig), "COLUMNS": "100"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    ebb("submit", "--name", "mine", "--gpus", "1", "--max", "3", "--gpu", "T4", "--", "-m", "trainer")
    made = api.ask("GET", f"{JOBS}/elastic-job/elasticjobs/mine").body["spec"]["replicaSpecs"]["Worker"]
    assert made["template"]["spec"]["containers"][0]["image"] == "example.org/trainer@sha256:1"
    ebb("submit", "--name", "old", "--gpus", "4", "--gpu", "V100", "--", "-m", "trainer")
    made = api.ask("GET", f"{JOBS}/elastic-job/elasticjobs/old").body["spec"]["replicaSpecs"]["Worker"]
    assert made["template"]["spec"]["containers"][0]["image"] == "example.org/trainer@sha256:2"
    assert "T4" in ebb("gpus")
    assert "mine" in ebb("list")
    assert "mine" in ebb("status", "mine")
    ebb("scale", "mine", "3")
    assert api.ask("GET", f"{JOBS}/elastic-job/elasticjobs/mine/scale").body["spec"]["replicas"] == 3
    assert "deleted" in ebb("delete", "mine", "old")


def test_a_researcher_scales_as_kubectl_does(api: Api, ada: Api) -> None:
    job = yaml.safe_load(JOB_FILES[-1].read_text())
    assert ada.create(job).status == 201
    scale = f"{ada.path(job)}/scale"
    answer = ada.ask("PATCH", scale, {"spec": {"replicas": 3}}, kind="application/merge-patch+json")
    assert answer.body["spec"]["replicas"] == 3, answer.words
    assert ada.ask("DELETE", ada.path(job)).status == 200


# --- Programs -------------------------------------------------------------------------------------------------------------------

ACCOUNT = "system:serviceaccount:{}"


def as_account(api: Api, account: str, method: str, path: str) -> int:
    body: Object | None = {} if method in ("POST", "PATCH", "PUT") else None
    namespace = account.split(":", maxsplit=1)[0]
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return api.ask(method, path, body, kind=PATCH_OR_JSON[method == "PATCH"], user=ACCOUNT.format(account), groups=groups).status


@pytest.mark.parametrize(("method", "path"), CONTROLLER_MAY.values(), ids=CONTROLLER_MAY)
def test_the_controller_may(api: Api, method: str, path: str) -> None:
    assert as_account(api, "ebb-system:ebb-controller", method, path) not in (401, 403)


@pytest.mark.parametrize(("method", "path"), CONTROLLER_MAY_NOT.values(), ids=CONTROLLER_MAY_NOT)
def test_the_controller_may_not(api: Api, method: str, path: str) -> None:
    assert as_account(api, "ebb-system:ebb-controller", method, path) == 403


@pytest.mark.parametrize(("method", "path"), AUTOSCALER_MAY.values(), ids=AUTOSCALER_MAY)
def test_the_autoscaler_may(api: Api, method: str, path: str) -> None:
    assert as_account(api, "ebb-system:cluster-autoscaler", method, path) not in (401, 403)


@pytest.mark.parametrize(("method", "path"), AUTOSCALER_MAY_NOT.values(), ids=AUTOSCALER_MAY_NOT)
def test_the_autoscaler_may_not(api: Api, method: str, path: str) -> None:
    assert as_account(api, "ebb-system:cluster-autoscaler", method, path) == 403


@pytest.mark.parametrize(
    "path",
    [f"{CORE}/elastic-job/{kind}" for kind in ("pods", "secrets", "configmaps")]
    + [RESEARCHER_MAY["list jobs"][1], "/api/v1/nodes"],
)
def test_a_jobs_own_account_may_nothing(api: Api, path: str) -> None:
    """Its pods carry no token; one that asks for it all the same has this one."""
    assert as_account(api, "elastic-job:default", "GET", path) == 403
