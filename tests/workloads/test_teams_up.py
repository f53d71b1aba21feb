"""A stack with two teams, brought up by the real Pulumi engine on a real API server, changed, and destroyed.

The cluster has no machine: programs that play its kubelets say that every pod runs. People are certificates of the cluster's
authority, and do what they do by `ebb` and by requests of their own. `make prove-teams`.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from devcluster.settings import CHECKOUT
from ebb.api.spec import Job
from ebb.cli.app import app
from ebb.cli.options import Session
from ebb.controller.reconciler.pods import PodPlacement, worker_pod
from tests.figures import report
from tests.testing.kubernetes.pulumi_world import Engine
from tests.workloads.api import Api, Plane
from tests.workloads.ways import (
    ADA,
    BOB,
    CORE,
    EVE,
    HERE,
    LEA,
    RITA,
    SPEECH,
    VISION,
    WAYS,
    Object,
    at_work,
    open_ways,
    soon,
)
from workloads.teams import Team

pytestmark = pytest.mark.proof

PROGRAM = f"import sys\nsys.path.insert(0, {str(CHECKOUT)!r})\nfrom infra import program\nprogram.run()\n"
CLASS, NODE = "shared", "head"
JOBS_API = "/apis/elastic.pytorch.org/v1alpha1"
TEAMS: Object = {
    "vision": {"gpus": 8, "researchers": [f"user:{ADA}", f"user:{BOB}"], "leads": [f"user:{LEA}"], "readers": [f"user:{RITA}"]},
    "speech": {"researchers": [f"user:{EVE}"]},
}


def settings(kubeconfig: Path, teams: Object) -> Object:
    """As the user of somebody else's cluster writes them."""
    images = {"controller": "example.org/controller:1", "trainers": {"default": "example.org/trainer:1"}}
    own = {"file": str(kubeconfig), "managerSelector": {"kubernetes.io/hostname": NODE}, "storageClass": CLASS, "images": images}
    return {
        "ebb:cloud": "kubeconfig",
        "ebb:zones": ["here"],
        "ebb:kubeconfig": own,
        "ebb:instanceTypes": {
            "head": {"cpu": 2, "memoryGiB": 8},
            "worker": {"cpu": 2, "memoryGiB": 8, "gpu": "T4", "gpus": 1, "usdPerHour": 0.5},
        },
        "ebb:manager": {"zone": "here", "instanceType": "head"},
        "ebb:nodeGroups": [{"name": "workers", "gpu": "T4", "max": 4, "kubeconfig": {"selector": {"gpu": "t4"}}}],
        "ebb:storage": {"dataGiB": 1, "outputGiB": 1},
        "ebb:teams": teams,
    }


class Stack(Engine):
    """The repository's own program with these settings."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        super().__init__(folder, kubeconfig, program=PROGRAM)
        self._kubeconfig = kubeconfig

    def configure(self, teams: Object) -> None:
        path = self.folder / "Pulumi.test.yaml"
        kept = yaml.safe_load(path.read_text()) or {} if path.exists() else {}
        path.write_text(yaml.safe_dump({**kept, "config": settings(self._kubeconfig, teams)}))


class Kubelets:
    """Every pod runs from when it is there until it is told to leave; a Job's has finished at once."""

    def __init__(self, api: Api) -> None:
        self._api, self._stop = api, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for pod in self._api.ask("GET", "/api/v1/pods").body.get("items", []):
                self._serve(pod)

    def _serve(self, pod: Object) -> None:
        meta = pod["metadata"]
        path = f"{CORE}/{meta['namespace']}/pods/{meta['name']}"
        if "deletionTimestamp" in meta:
            self._api.ask("DELETE", path, {"gracePeriodSeconds": 0})
        elif not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            self._api.ask("POST", f"{path}/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]},
                                                      "target": target})  # fmt: skip
        elif pod["status"]["phase"] == "Pending":
            done = pod["spec"]["restartPolicy"] == "Never" and meta.get("ownerReferences", [{}])[0].get("kind") == "Job"
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": meta["creationTimestamp"]}
            status = {"phase": "Succeeded"} if done else {"phase": "Running", "conditions": [ready]}
            self._api.ask("PATCH", f"{path}/status", {"status": status}, kind="application/merge-patch+json")


def give_volumes(api: Api) -> None:
    """More than the claims of the stack; what is on them is kept."""
    for number in range(12):
        spec = {"capacity": {"storage": "4Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "storageClassName": CLASS,
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": f"/nowhere/{number}"}}  # fmt: skip
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{number}"}, "spec": spec}
        assert api.create(volume).status == 201


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with contextlib.ExitStack() as at_last:
        plane = Plane(tmp_path)
        at_last.callback(plane.stop)
        plane.start()
        api = Api(plane)
        labels = {"kubernetes.io/hostname": NODE}
        assert api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}).status == 201
        give_volumes(api)
        at_last.enter_context(Kubelets(api))
        yield api


def phases(api: Api) -> dict[str, str]:
    """Of volumes that a claim has, or had: by namespace and name of the claim."""
    found = api.ask("GET", "/api/v1/persistentvolumes").body["items"]
    claimed = [(one["spec"]["claimRef"], one["status"]["phase"]) for one in found if "claimRef" in one["spec"]]
    return {f"{claim['namespace']}/{claim['name']}": phase for claim, phase in claimed}


def submit(api: Api, owner: str, team: Team, name: str) -> None:
    """By `ebb`, with a certificate of the owner's in the stack's kubeconfig; and a worker of it, as the controller makes one."""
    folder = api.plane.folder / "code"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text("print(1)")
    api.person(owner, "lab")
    words = ["submit", "--name", name, "--gpu", "T4", "--gpus", "2", "--min", "1", "--code", str(folder), "--", "train.py"]
    done = CliRunner().invoke(app, words, obj=Session(kubeconfig=str(api.kubeconfig(owner))))
    assert done.exit_code == 0, done.output + done.stderr
    job = api.ask("GET", f"{JOBS_API}/namespaces/{team.namespace}/elasticjobs/{name}").body
    assert job["metadata"]["annotations"]["ebb.dev/owner"] == owner
    worker = worker_pod(Job.of(job), index=0, attempt=0, pod_placement=PodPlacement())
    assert "ebb-data" in json.dumps(worker), "it mounts the team's volumes"
    worker["spec"]["terminationGracePeriodSeconds"] = 1  # Kubernetes looks after half of that whether it has ended
    assert api.create(worker).status == 201
    api.until("worker", f"{CORE}/{team.namespace}/pods/{name}-worker-0", phase="Running")


def test_a_stack_with_teams_lives_and_leaves_their_data(api: Api, tmp_path: Path) -> None:
    spaces = set(names(api, CORE))
    stack = Stack(tmp_path / "stack", api.plane.kubeconfig)
    stack.configure(TEAMS)
    began = time.monotonic()
    stack.up()
    up_seconds = time.monotonic() - began

    submit(api, ADA, VISION, "mine")
    submit(api, EVE, SPEECH, "hers")
    at_work(api)
    assert len(WAYS) > 40
    soon(lambda: open_ways(api))
    still_open = len(open_ways(api))

    # A team that leaves takes its jobs along, also one whose worker holds its volumes, and leaves its files.
    stack.configure({"vision": {**TEAMS["vision"], "gpus": 16}})
    stack.up()
    found = phases(api)
    assert {found[f"{SPEECH.namespace}/ebb-{what}"] for what in ("data", "output")} == {"Released"}
    assert {found[f"{VISION.namespace}/ebb-{what}"] for what in ("data", "output")} == {"Bound"}
    assert api.ask("GET", f"{CORE}/{SPEECH.namespace}").status == 404
    assert [name for name in names(api, f"{CORE}/ebb-system/pods") if name.startswith("etcd-team")] == ["etcd-team-vision-0"]
    assert api.ask("GET", f"{HERE}/pods/mine-worker-0").body["status"]["phase"] == "Running"
    assert api.ask("GET", f"{HERE}/resourcequotas/team").body["spec"]["hard"] == {"requests.nvidia.com/gpu": "16"}

    stack.destroy()
    assert stack.resources() == {}
    assert set(names(api, CORE)) == spaces
    assert set(phases(api).values()) == {"Released"}
    assert left(api) == []
    report({"ways": len(WAYS), "open": still_open, "up_seconds": round(up_seconds, 1)})
    assert still_open == 0


def left(api: Api) -> list[str]:
    """Objects of no namespace that are ours, the volumes apart."""
    rbac, admission = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
    paths = [f"{rbac}/clusterroles", f"{rbac}/clusterrolebindings", "/apis/scheduling.k8s.io/v1/priorityclasses",
             f"{admission}/validatingadmissionpolicies", f"{admission}/validatingadmissionpolicybindings",
             "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"]  # fmt: skip
    return [name for path in paths for name in names(api, path) if "ebb" in name or "elastic" in name]


def names(api: Api, path: str) -> list[str]:
    return [one["metadata"]["name"] for one in api.ask("GET", path).body["items"]]
