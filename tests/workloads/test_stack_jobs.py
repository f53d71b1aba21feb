"""The jobs of a stack on the real engine and a real API server: started once, never again, and their researcher's to scale.

The program under test is workloads.platform.jobs alone; the controller is not there, so the tests write what it would.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import ROOT
from tests.testing.kubernetes.pulumi_world import Engine
from tests.workloads.api import Api, laid_out
from tests.workloads.world import Object, stack

pytestmark = pytest.mark.e2e

PROGRAM = """
import json, pathlib
import pulumi, pulumi_kubernetes
from workloads import platform
from workloads.cluster import Cluster, Images

settings = json.loads((pathlib.Path(__file__).parent / "objects.json").read_text())
cluster = Cluster(name="test", region="test", provider=pulumi_kubernetes.Provider("cluster", **settings["provider"]))
images = Images(controller=pulumi.Output.from_input("c"), etcd=pulumi.Output.from_input("e"),
                trainers={"default": pulumi.Output.from_input("example.org/trainer:1")})
platform.jobs(cluster, list(settings["objects"].values()), images, [])
"""
MERGE = "application/merge-patch+json"


def job() -> Object:
    """The repository's example: it says nothing of `suspend`."""
    found: Object = yaml.safe_load((ROOT / "workloads" / "jobs" / "tiny-imagenet.yaml").read_text())
    return found


class Stack:
    def __init__(self, api: Api, engine: Engine) -> None:
        self.api, self.engine = api, engine
        self.path = api.path(job())

    def declare(self, *jobs: Object) -> None:
        self.engine.declare({one["metadata"]["name"]: one for one in jobs})

    @property
    def live(self) -> Object | None:
        found = self.api.ask("GET", self.path)
        return found.body if found.status == 200 else None

    @property
    def uid(self) -> str:
        assert self.live is not None
        return str(self.live["metadata"]["uid"])

    @property
    def replicas(self) -> int:
        assert self.live is not None
        return int(self.live["spec"]["replicaSpecs"]["Worker"]["replicas"])

    def patch(self, body: object, subresource: str = "") -> None:
        answer = self.api.ask("PATCH", self.path + subresource, body, kind=MERGE)
        assert answer.status == 200, answer.words


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with laid_out(tmp_path_factory.mktemp("server"), stack()) as made:
        yield made


@pytest.fixture
def up(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A stack with the one job, which has just come up."""
    engine = Engine(tmp_path, api.plane.kubeconfig)
    (tmp_path / "__main__.py").write_text(PROGRAM)
    engine.env["PYTHONPATH"] = str(ROOT)
    made = Stack(api, engine)
    made.declare(job())
    engine.up()
    yield made
    api.ask("DELETE", made.path)  # the stack's state goes with its folder


def finished(stack: Stack) -> None:
    condition = {"type": "Succeeded", "status": "True", "reason": "ElasticJobSucceeded", "message": "done"}
    stack.patch({"status": {"state": "Succeeded", "conditions": [condition]}}, "/status")


def test_a_scaled_and_suspended_job_stays_so(up: Stack) -> None:
    up.patch({"spec": {"replicas": 3}}, "/scale")
    up.patch({"spec": {"suspend": True}})
    changed: Any = job()
    changed["spec"]["replicaSpecs"]["Worker"]["replicas"] = 1
    up.declare(changed)
    assert up.engine.preview() == {}
    up.engine.refresh()
    assert up.engine.preview() == {}
    up.engine.up()
    assert up.live is not None
    assert (up.replicas, up.live["spec"]["suspend"]) == (3, True)


def test_a_job_that_is_changed_otherwise_keeps_its_size(up: Stack) -> None:
    up.patch({"spec": {"replicas": 3}}, "/scale")
    uid = up.uid
    changed: Any = job()
    changed["spec"]["backoffLimit"] = 7
    up.declare(changed)
    assert up.engine.preview() == {"job-tiny-imagenet": "update"}
    up.engine.up()
    assert up.live is not None
    assert (up.uid, up.replicas, up.live["spec"]["backoffLimit"]) == (uid, 3, 7)


def test_it_is_deleted_with_the_stack(up: Stack) -> None:
    assert up.live is not None
    container = up.live["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["image"] == "example.org/trainer:1"
    up.engine.destroy()
    assert up.live is None


def test_a_finished_job_is_not_run_again(up: Stack) -> None:
    finished(up)
    uid = up.uid
    for command in (up.engine.up, up.engine.refresh, up.engine.up):
        command()
        assert up.uid == uid
        assert up.live is not None
        assert up.live["status"]["state"] == "Succeeded"


def test_a_job_that_somebody_deleted_starts_again_only_after_a_refresh_and_visibly(up: Stack) -> None:
    """After a refresh the engine cannot tell it from a job that never was: what the list says is there, is there."""
    assert up.api.ask("DELETE", up.path).status == 200
    up.engine.up()
    assert up.live is None
    up.engine.refresh()
    assert up.live is None
    assert up.engine.preview() == {"job-tiny-imagenet": "create"}
