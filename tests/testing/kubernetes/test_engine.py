"""The stand-in under the real Pulumi engine, on a bare API server. Each test has its own stack; the control plane is shared."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.pulumi.stand_in import MARK
from ebb.kube import CONFIG_MAPS, NAMESPACES, PODS, Kube, KubeError, NotFound, Object, Resource
from tests.testing.kubernetes.pulumi_world import ControlPlane, Engine, control_plane

pytestmark = pytest.mark.e2e
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture
def engine(plane: ControlPlane, tmp_path: Path) -> Engine:
    return Engine(tmp_path / "stack", plane.kubeconfig)


def space(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def config_map(name: str, namespace: str = "default", **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def deployment(name: str, *, replicas: int = 1, seconds: int = 5) -> Object:
    labels = {"app": name}
    notes = {"pulumi.com/timeoutSeconds": str(seconds)}
    pod = {"containers": [{"name": "main", "image": "nowhere/nothing:1", "resources": {"requests": {"cpu": "1000m"}}}]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    meta = {"name": name, "namespace": "default", "annotations": notes}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def labels_of(plane: ControlPlane, name: str) -> Object:
    return dict(plane.ask(lambda kube: kube.get(NAMESPACES, None, name))["metadata"]["labels"])


def test_a_life_from_up_to_destroy(plane: ControlPlane, engine: Engine) -> None:
    engine.declare({"space": space("life", team="a"), "data": {**config_map("data", "life", a="1"), "needs": ["space"]}})
    assert engine.preview() == {"ebb-test": "create", "cluster": "create", "space": "create", "data": "create"}
    with pytest.raises(NotFound):
        labels_of(plane, "life")

    engine.up()
    assert engine.preview() == {}

    plane.ask(lambda kube: kube.patch(NAMESPACES, None, "life", {"metadata": {"labels": {"team": None, "other": "x"}}}))
    assert engine.preview() == {}  # without a refresh the engine does not look
    assert "~ 1 updated" in engine.refresh()
    assert engine.preview() == {"space": "update"}
    engine.up()
    assert labels_of(plane, "life")["team"] == "a"
    assert labels_of(plane, "life")["other"] == "x"  # somebody else's
    assert "updated" not in engine.refresh()

    engine.destroy()
    assert engine.resources() == {}
    with pytest.raises(NotFound):
        labels_of(plane, "life")


def test_a_changed_name_replaces_and_a_changed_field_updates(plane: ControlPlane, engine: Engine) -> None:
    engine.declare({"data": config_map("before", a="1", b="2")})
    engine.up()
    engine.declare({"data": config_map("before", a="3")})
    assert engine.preview() == {"data": "update"}
    engine.up()
    assert plane.ask(lambda kube: kube.get(CONFIG_MAPS, "default", "before"))["data"] == {"a": "3"}
    engine.declare({"data": config_map("after", a="3")})
    assert engine.preview()["data"] in ("replace", "create-replacement", "delete-replaced")
    engine.up()
    with pytest.raises(NotFound):
        plane.ask(lambda kube: kube.get(CONFIG_MAPS, "default", "before"))
    engine.destroy()


def test_a_deployment_that_cannot_run_fails_in_its_pods_words_and_stays_in_the_state(plane: ControlPlane, engine: Engine) -> None:
    engine.declare({"web": deployment("web")})
    process = subprocess.Popen(engine.command("up", "--yes", "--skip-preview", "--stack", "test"), cwd=engine.folder,
                               env=engine.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    _pods_complain(plane, "app=web")
    said = process.communicate(timeout=120)[0]
    assert process.returncode != 0
    assert "ImagePullBackOff: no such image" in said
    assert engine.resources()["web"]["initErrors"]
    engine.declare({"web": deployment("web", replicas=0)})
    engine.up()
    assert "initErrors" not in engine.resources()["web"]
    assert engine.preview() == {}  # "1000m" came back as "1"
    engine.destroy()
    with pytest.raises(NotFound):
        plane.ask(lambda kube: kube.get(DEPLOYMENTS, "default", "web"))


def _pods_complain(plane: ControlPlane, labels: str) -> None:
    """There is no kubelet: say in its place that the image cannot be pulled."""
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    container = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": waiting}

    async def complain(kube: Kube) -> bool:
        pods = await kube.list(PODS, "default", labels=labels)
        for pod in pods:
            status = {"status": {"containerStatuses": [container]}}
            await kube.patch(PODS, "default", pod["metadata"]["name"], status, subresource="status")
        return bool(pods)

    deadline = time.monotonic() + 60
    while not plane.ask(complain):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_unknown_kind_is_a_sentence(engine: Engine) -> None:
    engine.declare({"x": {"apiVersion": "nobody.dev/v1", "kind": "Nothing", "metadata": {"name": "x"}}})
    said = engine.up(ok=False)
    assert "serves no nobody.dev/v1 Nothing" in said
    engine.destroy()


def test_a_custom_resource_comes_after_its_kind(plane: ControlPlane, engine: Engine) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"}
    kind = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    thing = {"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"n": 3, "part": 0.5}}
    engine.declare({"kind": kind, "thing": {**thing, "needs": ["kind"]}})
    engine.up()
    live = plane.ask(lambda kube: kube.get(Resource("test.dev", "v1", "things", "Thing"), "default", "one"))
    assert live["spec"] == {"n": 3, "part": 0.5}
    assert engine.preview() == {}
    engine.destroy()


def test_somebody_elses_object_is_not_taken_and_can_be_imported(plane: ControlPlane, engine: Engine) -> None:
    theirs = config_map("theirs", a="1")
    plane.ask(lambda kube: kube.create(CONFIG_MAPS, "default", theirs))
    engine.declare({"data": theirs})
    assert "exists already and is not this resource's" in engine.up(ok=False)
    engine.declare({"data": {**theirs, "import": "default/theirs"}})
    assert "1 imported" in engine.up()
    engine.declare({"data": theirs})
    assert engine.preview() == {}
    engine.destroy()


def test_a_lost_state_is_made_anew_from_what_is_there(plane: ControlPlane, engine: Engine) -> None:
    """The way between the plugins, and the way back after a lost state folder: docs/pulumi-stand-in.md."""
    theirs = config_map("moving", a="1")
    plane.ask(lambda kube: kube.create(CONFIG_MAPS, "default", theirs))
    before = plane.ask(lambda kube: kube.get(CONFIG_MAPS, "default", "moving"))["metadata"]["uid"]
    engine.provider["upsert_existing_objects"] = True
    engine.declare({"data": theirs})
    engine.up()
    assert plane.ask(lambda kube: kube.get(CONFIG_MAPS, "default", "moving"))["metadata"]["uid"] == before
    del engine.provider["upsert_existing_objects"]
    engine.declare({"data": theirs})
    engine.up()
    assert engine.preview() == {}
    engine.destroy()


def test_get_reads_what_the_stack_does_not_own(plane: ControlPlane, engine: Engine) -> None:
    plane.ask(lambda kube: kube.create(CONFIG_MAPS, "default", config_map("facts", answer="42")))
    engine.declare({}, gets={"facts": "default/facts"})
    assert "42" in engine.up()
    assert engine.preview() == {}
    engine.destroy()
    assert plane.ask(lambda kube: kube.get(CONFIG_MAPS, "default", "facts"))["data"] == {"answer": "42"}
    plane.ask(lambda kube: kube.delete(CONFIG_MAPS, "default", "facts"))


def test_a_lost_api_server_is_a_sentence_and_the_stack_can_be_forgotten(plane: ControlPlane, engine: Engine) -> None:
    engine.declare({"data": config_map("lost", a="1")})
    engine.up()
    plane.stop_api()
    try:
        engine.declare({"data": config_map("lost", a="2")})
        for said in (engine.up(ok=False), engine.refresh(ok=False), engine.destroy(ok=False)):
            assert "no answer from the Kubernetes API server" in said
            assert "Traceback" not in said, said
        assert "PULUMI_K8S_DELETE_UNREACHABLE=true" in said
        assert "data" in engine.resources()
        engine.destroy(PULUMI_K8S_DELETE_UNREACHABLE="true")
        assert engine.resources() == {}
    finally:
        plane.start_api()
    plane.ask(lambda kube: kube.delete(CONFIG_MAPS, "default", "lost"))


def test_another_cluster_at_the_same_address_gets_everything_anew(plane: ControlPlane, engine: Engine) -> None:
    engine.declare({"data": config_map("moved", a="1")})
    engine.up()
    plane.ask(lambda kube: kube.delete(CONFIG_MAPS, "default", "moved"))  # as if the cluster had been made anew
    engine.provider["cluster_identifier"] = "two"
    engine.declare({"data": config_map("moved", a="1")})
    engine.up()
    assert plane.ask(lambda kube: kube.get(CONFIG_MAPS, "default", "moved"))["data"] == {"a": "1"}
    assert engine.preview() == {}
    engine.destroy()


def test_a_killed_update_leaves_no_process_and_the_next_one_finishes(plane: ControlPlane, engine: Engine) -> None:
    engine.declare({"data": config_map("killed", a="1"), "web": deployment("killed", seconds=60)})
    process = subprocess.Popen(engine.command("up", "--yes", "--skip-preview", "--stack", "test"), cwd=engine.folder,
                               env=engine.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    deadline = time.monotonic() + 60
    while not _exists(plane, "killed"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    address = str(engine.folder)
    deadline = time.monotonic() + 15
    while left := [line for line in _processes() if address in line]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    engine.declare({"data": config_map("killed", a="1"), "web": deployment("killed", replicas=0, seconds=60)})
    said = engine.up()
    assert "removed the lock of a Pulumi that was killed" in said
    assert engine.preview() == {}
    engine.destroy()


def _exists(plane: ControlPlane, name: str) -> bool:
    try:
        plane.ask(lambda kube: kube.get(DEPLOYMENTS, "default", name))
    except KubeError:
        return False
    return True


def _processes() -> list[str]:
    """Working folder and command of every process."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines.append(f"{(folder / 'cwd').readlink()} {(folder / 'cmdline').read_text()}")
        except OSError:
            continue
    return lines


def test_state_of_the_official_plugin_are_refused_and_ours_to_it(engine: Engine) -> None:
    engine.declare({"data": config_map("settings", a="1")})
    engine.up()
    assert MARK in engine.resources()["data"]["outputs"]

    fake = engine.folder / "official" / "pulumi-resource-kubernetes"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'the official plugin was started' >&2\nexit 1\n")
    fake.chmod(0o755)
    with_official = {"PATH": f"{engine.env['PATH']}:{fake.parent}"}
    assert "was made with the stand-in" in engine.up(ok=False, **with_official)
    assert "was made with the stand-in" in engine.destroy(ok=False, **with_official)

    checkpoint = engine.checkpoint
    ours = checkpoint.read_text()
    checkpoint.write_text(ours.replace(MARK, "__initialApiVersion"))
    assert "made with the official Kubernetes plugin" in engine.up(ok=False)
    checkpoint.write_text(ours)
    engine.destroy()
    assert "the official plugin was started" in engine.up(ok=False, **with_official)


def test_the_plugin_refuses_without_its_opt_in() -> None:
    plugin = Path(__file__).parents[3] / "testing" / "pulumi" / "kubernetes" / "plugin" / "pulumi-resource-kubernetes"
    clean = {key: value for key, value in os.environ.items() if key != "EBB_PULUMI_STANDIN"}
    done = subprocess.run([plugin, "127.0.0.1:1"], env=clean, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "source ./env" in done.stderr
    assert json.dumps(done.stdout) == '""'


def test_a_renamed_resource_does_not_delete_its_object(plane: ControlPlane, engine: Engine) -> None:
    engine.declare({"before": config_map("kept", a="1")})
    engine.up()
    engine.declare({"after": config_map("kept", a="1")})
    assert "aliases" in engine.up(ok=False)
    assert plane.ask(lambda kube: kube.get(CONFIG_MAPS, "default", "kept"))["data"] == {"a": "1"}
    engine.destroy()
