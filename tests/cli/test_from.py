"""`ebb submit --from JOB`: here and to another platform, with code and checkpoint, and how it is misused."""

import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.options import Session
from ebb.client.platform.connection import Ebb
from ebb.kube import ELASTIC_JOBS, Kube, Object
from tests.cli.world import NS, FakeKube, platform_map
from tests.client.cloned import FOLDER, Volume, far_map, submitted


@pytest.fixture
def volumes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Volume]:
    """By stack; the way to a gateway is tested beside it."""
    found = {"local": Volume(), "far": Volume()}

    @asynccontextmanager
    async def gateway(ebb: Ebb) -> AsyncIterator[Volume]:
        yield found[ebb.platform.stack]

    monkeypatch.setattr(sys.modules["ebb.client.staging.clone"], "gateway", gateway)  # clone is the function, too
    monkeypatch.setattr("ebb.client.files.transfer.gateway", gateway)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("EBB_KUBECONFIG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "EBB_PLATFORM", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("local", "far"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.fixture
def world(home: Path, volumes: dict[str, Volume]) -> dict[str, FakeKube]:
    """The job runs on the current platform; another one is known beside it."""
    found = {"local": FakeKube(platform_map(), submitted(gpus=2, max_gpus=4, zone="local-b")), "far": FakeKube(far_map())}
    found["far"].server = "https://far:6443"
    for name, kube in found.items():
        result = invoke(found, "platform", "add", name, "--kubeconfig", str(home / name))
        assert result.exit_code == 0, result.stderr
        kube.sent.clear()
    return found


def invoke(world: dict[str, FakeKube], *words: str) -> Result:
    @asynccontextmanager
    async def connect(kubeconfig: str | None, context: str | None) -> AsyncIterator[Kube]:
        assert kubeconfig is not None
        yield world[Path(kubeconfig).name]

    return CliRunner().invoke(app, list(words), obj=Session(connect=connect), env={"COLUMNS": "80", "EBB_USER": "ada"})


def made(kube: FakeKube) -> Object:
    """The one job that is new."""
    jobs = [item for path, item in kube._objects.items() if item["kind"] == "ElasticJob" and item["metadata"]["name"] != "digits"]
    (job,) = jobs
    return job


def variables(job: Object) -> dict[str, str]:
    (container,) = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    return {item["name"]: item["value"] for item in container["env"]}


def test_a_clone_begins_anew_and_flags_win(world: dict[str, FakeKube]) -> None:
    result = invoke(world, "submit", "--from", "digits", "--gpus", "3", "--env", "A=1", "--", "-m", "trainer", "--lr", "0.2")
    assert result.exit_code == 0, result.stderr
    job = made(world["local"])
    assert job["metadata"]["name"].startswith("digits-")
    assert len(job["metadata"]["name"]) == len("digits-1a2b")
    assert job["spec"]["placement"]["zone"] == "local-b"
    assert job["spec"]["replicaSpecs"]["Worker"]["replicas"] == 3
    assert job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] == ["-m", "trainer", "--lr", "0.2"]
    assert "EBB_RESUME_FROM" not in variables(job)
    assert "  starts    anew, as digits did\n" in result.stdout


def test_on_the_same_platform_it_goes_on_from_the_jobs_own_folder(world: dict[str, FakeKube], volumes: dict[str, Volume]) -> None:
    volumes["local"].save(FOLDER, 2, 120)
    result = invoke(world, "submit", "--from", "digits", "--resume-from-checkpoint", "--name", "more")
    assert result.exit_code == 0, result.stderr
    assert variables(made(world["local"]))["EBB_RESUME_FROM"] == FOLDER
    assert "  starts    digits's newest checkpoint (step 120, 7 B)\n" in result.stdout
    assert volumes["local"].sent == []


def test_to_another_platform_it_takes_its_newest_checkpoint(world: dict[str, FakeKube], volumes: dict[str, Volume]) -> None:
    volumes["local"].save(FOLDER, 2, 120)
    result = invoke(world, "submit", "--from", "digits", "--platform", "far")
    assert result.exit_code == 0, result.stderr
    job = made(world["far"])
    place = variables(job)["EBB_RESUME_FROM"]
    assert sorted(volumes["far"].files) == [f"{place}/checkpoints/g00002-s00000120-r0{suffix}" for suffix in (".json", ".pt")]
    assert job["spec"]["placement"] == {"gpuType": "T4", "capacity": "on-demand", "zone": "single"}
    assert job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"] == "far/trainer:9"
    assert [verb for verb, _ in world["local"].sent if verb != "GET"] == []


@pytest.mark.parametrize("words", [[], ["--fresh"]], ids=["it-has-none", "none-is-wanted"])
def test_to_another_platform_without_a_checkpoint(
    words: list[str], world: dict[str, FakeKube], volumes: dict[str, Volume]
) -> None:
    if words:
        volumes["local"].save(FOLDER, 2, 120)
    result = invoke(world, "submit", "--from", "digits", "--platform", "far", *words)
    assert result.exit_code == 0, result.stderr
    assert "EBB_RESUME_FROM" not in variables(made(world["far"]))
    assert ("digits has no checkpoint yet: the new job starts fresh." in result.stderr) is not bool(words)


def test_a_checkpoint_that_is_insisted_on_must_be_there(world: dict[str, FakeKube]) -> None:
    result = invoke(world, "submit", "--from", "digits", "--resume-from-checkpoint")
    assert (result.exit_code, "digits has no checkpoint to resume from" in result.stderr) == (1, True)


@pytest.mark.parametrize("size", [10, 800_000], ids=["small", "large"])
@pytest.mark.parametrize("target", ["local", "far"])
def test_the_code_goes_along(size: int, target: str, world: dict[str, FakeKube], volumes: dict[str, Volume], home: Path) -> None:
    (home / "src").mkdir()
    (home / "src" / "train.py").write_bytes(hashlib.shake_256(b"seed").digest(size))  # nothing that packs well
    first = invoke(world, "submit", "--name", "coded", "--code", str(home / "src"), "--", "train.py")
    assert first.exit_code == 0, first.stderr
    world["local"].remove(world["local"]._objects[ELASTIC_JOBS.path(NS, "digits")])
    coded = world["local"]._objects[ELASTIC_JOBS.path(NS, "coded")]
    sent = len(volumes["local"].sent)
    result = invoke(world, "submit", "--from", "coded", "--name", "again", "--platform", target)
    assert result.exit_code == 0, result.stderr
    job = world[target]._objects[ELASTIC_JOBS.path(NS, "again")]
    assert job["metadata"]["annotations"]["ebb.dev/code"] == coded["metadata"]["annotations"]["ebb.dev/code"]
    if size == 10:
        config_map = world[target]._objects[f"/api/v1/namespaces/{NS}/configmaps/again-code"]
        assert config_map["metadata"]["ownerReferences"][0]["name"] == "again"
    else:
        archive = variables(job)["EBB_CODE_ARCHIVE"]
        assert hashlib.sha256(volumes[target].files[archive]).hexdigest() == job["metadata"]["annotations"]["ebb.dev/code"]
        assert len(volumes["local"].sent) == sent, "it is there"


def test_a_clone_keeps_the_way_of_its_job_whatever_is_here(
    world: dict[str, FakeKube], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the image stays one though a file of its name lies here, and code goes only where it is named."""
    (home / "here").mkdir()
    monkeypatch.chdir(home / "here")
    (home / "here" / "train.py").write_text("1")
    assert invoke(world, "submit", "--name", "bare", "--no-code", "--", "train.py").exit_code == 0
    assert invoke(world, "submit", "--name", "coded", "--", "train.py").exit_code == 0
    clones = {"bare": False, "bare --code .": True, "coded": True, "coded --no-code": False}
    for number, (words, coded) in enumerate(clones.items()):
        result = invoke(world, "submit", "--name", f"clone-{number}", "--from", *words.split())
        assert result.exit_code == 0, result.stderr
        annotations = world["local"]._objects[ELASTIC_JOBS.path(NS, f"clone-{number}")]["metadata"]["annotations"]
        assert ("ebb.dev/code" in annotations) is coded, words
    (home / "here" / "src").mkdir()
    result = invoke(world, "submit", "--from", "coded", "--code", "src")
    assert (result.exit_code, f"program 'train.py' is not in {home}/here/src" in result.stderr) == (2, True)


def test_code_that_is_gone_is_said(world: dict[str, FakeKube], home: Path) -> None:
    (home / "src").mkdir()
    (home / "src" / "train.py").write_text("1")
    assert invoke(world, "submit", "--name", "coded", "--code", str(home / "src"), "--", "train.py").exit_code == 0
    world["local"].remove(world["local"]._objects[f"/api/v1/namespaces/{NS}/configmaps/coded-code"])
    result = invoke(world, "submit", "--from", "coded")
    assert (result.exit_code, "the code of coded is gone" in result.stderr) == (4, True)
    assert invoke(world, "submit", "--from", "coded", "--code", str(home / "src")).exit_code == 0


def test_a_dry_run_shows_the_clone_and_sends_nothing(world: dict[str, FakeKube], volumes: dict[str, Volume]) -> None:
    volumes["local"].save(FOLDER, 2, 120)
    result = invoke(world, "submit", "--from", "digits", "--platform", "far", "--dry-run")
    assert yaml.safe_load(result.stdout)["spec"]["minReplicas"] == 1
    assert volumes["far"].files == {}
    assert {verb for kube in world.values() for verb, _ in kube.sent} == {"GET"}


MISUSES = {
    "no job": (["--fresh"], 2, "name the job with --from JOB"),
    "an unknown job": (["--from", "nothing"], 4, "no job named 'nothing'"),
    "an unknown platform": (
        ["--from", "digits", "--platform", "moon"],
        4,
        "platform 'moon' is not known: there are: far, local.",
    ),
    "too many for it": (["--from", "digits", "--gpus", "9"], 2, "gpus 9 is more than one zone can hold"),
}


@pytest.mark.parametrize(("words", "code", "sentence"), MISUSES.values(), ids=MISUSES)
def test_misuses(words: list[str], code: int, sentence: str, world: dict[str, FakeKube]) -> None:
    result = invoke(world, "submit", *words)
    assert (result.exit_code, sentence in result.stderr) == (code, True), result.stderr
