"""One's own script in one's own folder: it goes along by itself, or nothing is created; also without any platform."""

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.options import Session
from ebb.kube import Kube, Object, Unreachable
from tests.cli.world import NS, FakeKube, elastic_job, platform_map, session

HERE = ("--name", "x", "--gpus", "1")
TRAIN = ("--", "python", "train.py")


def unreachable(kubeconfig: str | None, context: str | None) -> AbstractAsyncContextManager[Kube]:
    raise Unreachable("127.0.0.1:6443 does not answer")


NOWHERE = Session(kubeconfig="/nowhere/config")
DOWN = Session(kubeconfig=__file__, connect=unreachable)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(folder: Path) -> Path:
    (folder / "train.py").write_text("print(1)\n")
    return folder / "train.py"


def ebb(*words: str, place: Session | None = None, kube: FakeKube | None = None) -> Result:
    where = place or session(kube or FakeKube(platform_map()))
    return CliRunner().invoke(app, list(words), obj=where, env={"COLUMNS": "80", "EBB_USER": "ada"})


def pod_of(body: Object) -> Any:
    return body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]


@pytest.mark.parametrize("place", [None, NOWHERE, DOWN], ids=["a platform", "no kubeconfig", "no answer"])
@pytest.mark.usefixtures("script")
def test_a_dry_run_carries_the_folder(place: Session | None) -> None:
    result = ebb("submit", "--dry-run", *HERE, *TRAIN, place=place)
    assert result.exit_code == 0, result.stderr
    body = yaml.safe_load(result.stdout)
    assert (body["kind"], body["metadata"]["name"]) == ("ElasticJob", "x")
    assert len(body["metadata"]["annotations"]["ebb.dev/code"]) == 64
    assert pod_of(body)["volumes"][-1] == {"name": "ebb-code", "configMap": {"name": "x-code"}}
    assert pod_of(body)["containers"][0]["args"] == ["train.py"]
    explicit = yaml.safe_load(ebb("submit", "--dry-run", *HERE, "--code", ".", *TRAIN, place=place).stdout)
    assert body == explicit


@pytest.mark.parametrize("dry", [True, False], ids=["dry", "sent"])
@pytest.mark.parametrize("verb", ["submit", "sweep"])
@pytest.mark.parametrize("place", [None, NOWHERE, DOWN], ids=["a platform", "no kubeconfig", "no answer"])
def test_a_program_that_is_nowhere_is_one_sentence(verb: str, place: Session | None, dry: bool, folder: Path) -> None:
    kube = FakeKube(platform_map())
    more = ["lr=1,2"] if verb == "sweep" else []
    result = ebb(verb, *HERE, *(["--dry-run"] if dry else []), *more, *TRAIN, place=place, kube=kube)
    assert (result.exit_code, result.stdout, kube.sent) == (2, "", [])
    assert result.stderr == (
        f"ebb: program 'train.py' is not in {folder}: name its folder with --code DIR, or say --no-code if the image has it.\n"
    )


@pytest.mark.usefixtures("script")
def test_what_only_a_platform_knows_is_left_out_and_listed() -> None:
    result = ebb("submit", "--dry-run", "--name", "x", "--gpus", "4", *TRAIN, place=NOWHERE)
    comments = [line for line in result.stdout.splitlines() if line.startswith("#")]
    assert comments[0].startswith(
        "# no platform answers, so this is not all of the job: kubeconfig '/nowhere/config' is not a file."
    )
    assert comments[2:] == [
        "# metadata.namespace: the platform's own for jobs",
        "# spec.rdzvEndpoint, spec.rdzvBackend: where the workers meet",
        "# spec.placement.gpuType and its node selector: the platform's only or usual one",
        "# spec.placement.capacity and its node selector: the platform's only or usual one",
        "# the split of GPUs: 4 workers of 1 GPU here, fewer and larger ones on machines with several",
        "# the image: the platform's trainer image",
        "# CPUs and memory, /dev/shm, the shared volumes and tolerations: by its machines and volumes",
    ]
    body = yaml.safe_load(result.stdout)
    assert body["spec"]["placement"] == {"zone": "single"}
    assert not {"rdzvEndpoint", "rdzvBackend"} & set(body["spec"])
    assert not {"image", "command"} & set(pod_of(body)["containers"][0])
    assert pod_of(body)["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


@pytest.mark.usefixtures("script")
def test_what_was_said_stands_without_a_platform() -> None:
    words = (
        "--gpu",
        "T4",
        "--on-demand",
        "--image",
        "mine:1",
        "-n",
        "team",
        "--data",
        "/mnt/efs/x",
        "--max-cost",
        "4",
        "-o",
        "json",
    )
    result = ebb("submit", "--dry-run", *HERE, *words, *TRAIN, place=DOWN)
    body = json.loads(result.stdout)
    assert "127.0.0.1:6443 does not answer" in result.stderr
    assert body["metadata"]["namespace"] == "team"
    assert body["spec"]["placement"] == {"gpuType": "T4", "capacity": "on-demand", "zone": "single"}
    assert body["spec"]["budget"] == {"maxUSD": 4.0}
    assert pod_of(body)["containers"][0]["image"] == "mine:1"
    assert pod_of(body)["containers"][0]["args"] == ["train.py", "--data", "/mnt/efs/x"]


def test_a_whole_elastic_job_is_shown_without_a_platform(folder: Path) -> None:
    (folder / "job.yaml").write_text(yaml.safe_dump(elastic_job()))
    result = ebb("submit", "--dry-run", "-f", "job.yaml", place=NOWHERE)
    assert result.exit_code == 0, result.stderr
    assert yaml.safe_load(result.stdout) == elastic_job()


@pytest.mark.usefixtures("script")
def test_only_a_dry_run_does_without_a_platform() -> None:
    result = ebb("submit", *HERE, *TRAIN, place=NOWHERE)
    assert (result.exit_code, result.stderr[:36]) == (3, "ebb: kubeconfig '/nowhere/config' is")


@pytest.mark.usefixtures("script")
def test_the_folder_is_sent_with_the_job() -> None:
    kube = FakeKube(platform_map())
    result = ebb("submit", *HERE, *TRAIN, kube=kube)
    assert result.exit_code == 0, result.stderr
    assert "  code      .: 1 file," in result.stdout
    assert [path.rsplit("/", 1)[-1] for verb, path in kube.sent if verb != "GET"] == ["configmaps", "elasticjobs", "x-code"]


@pytest.mark.parametrize("said", ["flag", "file"])
@pytest.mark.usefixtures("script")
def test_no_code_sends_the_job_alone(said: str, folder: Path) -> None:
    kube = FakeKube(platform_map())
    (folder / "job.yaml").write_text("code: false\n")
    result = ebb("submit", *HERE, *(["--no-code"] if said == "flag" else ["-f", "job.yaml"]), *TRAIN, kube=kube)
    assert result.exit_code == 0, result.stderr
    assert [verb_path for verb_path in kube.sent if verb_path[0] != "GET"] == [
        ("POST", f"/apis/elastic.pytorch.org/v1alpha1/namespaces/{NS}/elasticjobs")
    ]


def test_a_job_file_means_the_program_beside_it(script: Path, folder: Path) -> None:
    (folder / "jobs").mkdir()
    (folder / "jobs" / "near.py").touch()
    for program in ("near.py", "train.py"):
        (folder / "jobs" / "job.yaml").write_text(f"name: x\ncommand: python {program}\n")
        result = ebb("submit", "-f", "jobs/job.yaml")
        assert f"  code      {'jobs' if program == 'near.py' else '.'}: " in result.stdout, result.stderr
    asked = ebb("submit", "-f", "jobs/job.yaml", "--dry-run", "--", "python", "near.py")
    assert (asked.exit_code, f"program 'near.py' is not in {folder}:" in asked.stderr) == (2, True), (
        "what is typed is meant from here"
    )


CONTRADICTIONS = {
    "both": (["--code", ".", "--no-code"], "--no-code says the opposite of --code: give one of the two."),
    "an empty folder": (["--code", ""], "code is empty: name the folder of your program, as in --code ."),
}


@pytest.mark.parametrize(("flags", "sentence"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_contradictions(flags: list[str], sentence: str) -> None:
    result = ebb("submit", *flags, *TRAIN)
    assert (result.exit_code, result.stderr) == (2, f"ebb: {sentence}\n")


@pytest.mark.usefixtures("script")
def test_a_large_folder_is_named_with_what_makes_it_large(folder: Path) -> None:
    (folder / "runs").mkdir()
    (folder / "runs" / "old.pt").write_bytes(bytes(12_000_000))
    result = ebb("submit", "--dry-run", *HERE, *TRAIN)
    assert result.exit_code == 0, result.stderr
    assert (
        "packing .: 12 MB in 2 files, most of it in runs/ (12 MB), train.py (9 B); .gitignore keeps out what need not travel"
        in result.stderr
    )
