"""Which command trains on this machine, from a request and from a whole ElasticJob."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb.client import BadRequest, Request
from ebb.client.local_run import Interpreter, LocalRun, plan, request_of_elastic_job
from ebb.client.local_run.plan import Here
from ebb.client.secrets.uses import variables
from ebb.kube import Object

PYTHON = Interpreter(python="/opt/python")
JOBS = Path(__file__).parents[3] / "workloads" / "jobs"


def planned(folder: Path, *, workers: int | None = None, output_root: str | None = None, **changes: object) -> LocalRun:
    values: dict[str, object] = {"name": "exp1", "arguments": ("train.py", "--lr", "0.1"), **changes}
    here = Here(folder=folder, cores=4, output_root=output_root)
    return plan(Request(**values), PYTHON, here, workers=workers)  # type: ignore[arg-type]


def test_the_launcher_of_a_pod_on_loopback(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    run = planned(tmp_path, gpus=2, env={"A": "1 2"}, data="digits")
    output = str(tmp_path / "ebb-output" / "exp1")
    assert run == LocalRun(
        name="exp1",
        command=(
            *("/opt/python", "-m", "ebb.elastic.launch", "--standalone", "--nproc-per-node=2"),
            *("train.py", "--lr", "0.1", "--data", str(tmp_path / "digits")),
        ),
        environment={"EBB_JOB": "exp1", "EBB_OUTPUT_DIR": output, "A": "1 2"},
        folder=str(tmp_path),
        output=output,
        workers=2,
        left_aside=(),
    )
    assert str(run).startswith(f"EBB_JOB=exp1 EBB_OUTPUT_DIR={output} A='1 2' /opt/python -m ebb.elastic.launch --standalone")


def test_progress_by_the_log_is_read_here_too(tmp_path: Path) -> None:
    regex = r"step (?P<step>\d+)"
    assert planned(tmp_path, progress_regex=regex).environment["EBB_PROGRESS_REGEX"] == regex
    body = yaml.safe_load((JOBS / "digits.yaml").read_text())
    container = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "EBB_PROGRESS_REGEX", "value": regex}]
    assert request_of_elastic_job(body).progress_regex == regex


@pytest.mark.parametrize(("gpus", "workers", "count"), [(1, None, 1), (64, None, 4), (2, 8, 8)], ids=["as GPUs", "cores", "told"])
def test_how_many_processes(tmp_path: Path, gpus: int, workers: int | None, count: int) -> None:
    assert planned(tmp_path, gpus=gpus, workers=workers).command[4] == f"--nproc-per-node={count}"


def test_the_output_folder_may_be_elsewhere(tmp_path: Path) -> None:
    assert planned(tmp_path, output_root="/big/run").environment["EBB_OUTPUT_DIR"] == "/big/run"


def test_code_is_where_the_program_starts(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    run = planned(tmp_path, code="source")
    assert run.folder == str(tmp_path / "source")
    assert run.output == str(tmp_path / "ebb-output" / "exp1")


def test_a_python_without_the_trainer_is_told_where_it_is(tmp_path: Path) -> None:
    here = Here(folder=tmp_path, cores=1, python_path="/mine")
    run = plan(Request(name="a", arguments=("-m", "trainer")), Interpreter(python="/p", path="/ebb"), here)
    assert run.environment["PYTHONPATH"] == "/ebb:/mine"


@pytest.mark.parametrize(("path", "found"), [("/ebb", "/ebb:src:/mine"), ("", "src:/mine")], ids=["told", "inherited"])
def test_a_path_of_the_users_own_does_not_hide_the_launcher(tmp_path: Path, path: str, found: str) -> None:
    here = Here(folder=tmp_path, cores=1, python_path="/mine")
    request = Request(name="a", arguments=("train.py",), env={"PYTHONPATH": "src"})
    assert plan(request, Interpreter(python="/p", path=path), here).environment["PYTHONPATH"] == found


def test_what_only_a_platform_has_is_left_aside(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_cost": 3.0, "hold_on_failure": 60, "burn_in": 60}
    run = planned(tmp_path, gpu="T4", zone="a", capacity="spot", image="i", shm="1Gi", max_gpus=2, **limits)
    assert run.left_aside == ("gpu", "zone", "spot", "image", "shm", "max", "max-cost", "hold-on-failure", "burn-in")


def test_a_secret_is_what_this_machine_has_and_in_no_command(tmp_path: Path) -> None:
    """The program inherits the variable, and opens the file."""
    secrets = {"HF_TOKEN": "hf-token", "/etc/passwd": "gcs"}  # a file that is there, and in no folder that a pod mounts
    here = Here(folder=tmp_path, cores=1, variables=frozenset({"HF_TOKEN"}))
    run = plan(Request(name="a", arguments=("train.py",), secrets=secrets, registry_secret="lab"), PYTHON, here)
    assert set(run.environment) == {"EBB_JOB", "EBB_OUTPUT_DIR"}
    assert run.left_aside == ("registry-secret",)


def test_an_elastic_job_has_its_secrets_here_too() -> None:
    container = {"name": "elasticjob-worker", "args": ["train.py"], "env": variables({"HF_TOKEN": "hf-token"})}
    worker = {"template": {"spec": {"containers": [container]}}}
    request = request_of_elastic_job({"metadata": {"name": "a"}, "spec": {"replicaSpecs": {"Worker": worker}}})
    assert (request.secrets, request.env) == ({"HF_TOKEN": "hf-token"}, {})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arguments": ()}, "nothing to run"),
        (
            {"secrets": {"HF_TOKEN": "hf"}},
            r"HF_TOKEN is not set in this shell.*read -rs HF_TOKEN && export HF_TOKEN",
        ),
        ({"secrets": {"/keys/hf": "hf"}}, "secret 'hf': /keys/hf is not on this machine"),
        ({"data": "digits"}, "data 'digits' is not on this machine: give a folder that is"),
        ({"code": "nowhere"}, "code 'nowhere' is not a folder"),
        ({"workers": 0}, "workers 0 is too few"),
        ({"name": "Exp"}, "name 'Exp' is not usable"),
    ],
)
def test_refusals(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        planned(tmp_path, **changes)  # type: ignore[arg-type]


def test_an_ebb_of_the_users_own_would_be_started_instead(tmp_path: Path) -> None:
    (tmp_path / "ebb.py").touch()
    with pytest.raises(BadRequest, match=r"ebb\.py hides Ebb's package of that name"):
        planned(tmp_path)


@pytest.mark.parametrize("name", ["trainer", "workloads", "local", "infra", "utils"])
def test_other_names_are_the_users(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").touch()
    planned(tmp_path)


def test_a_whole_elastic_job_runs_what_its_container_runs() -> None:
    request = request_of_elastic_job(yaml.safe_load((JOBS / "digits.yaml").read_text()))
    assert (request.name, request.gpus) == ("digits", 2)
    assert request.arguments[:4] == ("-m", "trainer", "--data", "/mnt/data/digits")


def elastic_job(**container: object) -> Object:
    template = {"spec": {"containers": [{"name": "elasticjob-worker", **container}]}}
    return {"metadata": {"name": "own"}, "spec": {"replicaSpecs": {"Worker": {"replicas": 3, "template": template}}}}


def test_of_its_environment_comes_what_is_no_pods() -> None:
    env = [{"name": "LR", "value": "0.1"}, {"name": "HOME", "value": "/tmp"}, {"name": "SECRET", "valueFrom": {}}]
    assert request_of_elastic_job(elastic_job(args=["train.py"], env=env)).env == {"LR": "0.1"}


@pytest.mark.parametrize("container", [{"command": ["/bin/mine"], "args": ["x"]}, {}], ids=["own program", "no program"])
def test_a_container_without_the_launcher_is_refused(container: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match="name 'own': its container starts a program of its own"):
        request_of_elastic_job(elastic_job(**container))
