"""`ebb local`: a real training without a cluster, stopped and gone on with, and what is refused."""

import fcntl
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.exits import Exit
from ebb.cli.options import Session
from ebb.kube import Kube
from tests.cli.world import FakeKube, elastic_job, platform_map
from tests.elastic.machines import until

EBB = "from ebb.cli import main; main()"
TRAIN = '''
"""A line through noise: 60 steps of an elastic run."""

import os
from pathlib import Path

import infra.settings
import local
import torch
import trainer
import utils
import workloads
from torch.utils.data import TensorDataset

from ebb import elastic

for module in (infra.settings, local, trainer, utils, workloads):
    assert Path(__file__).parent in Path(module.__file__).parents, f"{module.__file__} is not the user's"

x = torch.linspace(-1, 1, 240).unsqueeze(1)
with elastic.start(global_batch=24, epochs=6, seed=0, log_every=1, min_step_seconds=float(os.environ["STEP"])) as run:
    loader = run.loader(TensorDataset(x, 3 * x + 1), workers=0)
    model = run.distribute(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.register_state(model=model, optimizer=optimizer)
    for step in run.steps(loader):
        for features, target in step:
            step.backward(torch.nn.functional.mse_loss(model(features), target))
        optimizer.step()
        optimizer.zero_grad()
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: a program, and modules whose names stand in Ebb's repository too."""
    (tmp_path / "train.py").write_text(TRAIN)
    for name in ("infra/__init__", "infra/settings", "local", "trainer", "utils", "workloads"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EBB_OUTPUT_DIR", raising=False)
    return tmp_path


def ebb(line: str) -> Result:
    return CliRunner().invoke(app, shlex.split(line), env={"COLUMNS": "80"})


def steps(folder: Path) -> list[int]:
    path = folder / "ebb-output" / "line" / "metrics.jsonl"
    return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.e2e
def test_a_training_ends_whatever_the_users_modules_are_called(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EBB, "local", "--name", "line", "--env", "STEP=0", "-o", "json", "--", "python", "train.py"],
        cwd=here, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == Exit.OK, done.stderr
    run = json.loads(done.stdout)["run"]
    assert list(run) == ["name", "state", "exit_code", "output", "step", "loss", "checkpoint_step", "resume"]
    assert run["resume"] == "ebb local --name line --env STEP=0 -- python train.py"
    assert (run["state"], run["step"], run["checkpoint_step"]) == ("finished", 60, 60)
    assert run["loss"] < 0.1
    assert run["output"] == str(here / "ebb-output" / "line")
    assert steps(here)[-1] == 60


@pytest.mark.e2e
def test_ctrl_c_leaves_a_checkpoint_and_the_printed_command_goes_on(here: Path) -> None:
    command = [sys.executable, "-c", EBB, "local", "--name", "line", "--workers", "2", "--env", "STEP=0.05", "--", "train.py"]
    process = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until("ten steps", lambda: len(steps(here)) >= 10)
    process.send_signal(signal.SIGINT)
    said, noted = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED, noted
    stopped = steps(here)[-1]
    assert "line is stopped at step" in said
    assert "Its last checkpoint is from step" in said
    again = said.splitlines()[-1].partition("Continue: ebb ")[2]
    assert again == "local --name line --env STEP=0.05 --workers 2 -- python train.py"
    environment = {**os.environ, "STEP": "0"}
    line = [word.replace("STEP=0.05", "STEP=0") for word in shlex.split(again)]
    done = subprocess.run(
        [sys.executable, "-c", EBB, *line], cwd=here, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == Exit.OK, done.stderr
    assert "line is finished at step 60" in done.stdout
    found = steps(here)
    assert found == sorted(set(found)), "no step is done twice"
    assert 10 <= stopped < 60


@pytest.mark.e2e
def test_a_terminal_that_closes_ends_the_training_in_order(here: Path) -> None:
    """Nothing can be said any more, which changes neither what the training is told nor the exit code."""
    terminal, own = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", EBB, "local", "--name", "line", "--env", "STEP=0.05", "--", "train.py"],
        cwd=here, stdin=own, stdout=own, stderr=own, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - as a terminal starts a shell
    )  # fmt: skip
    os.close(own)
    until("ten steps", lambda: len(steps(here)) >= 10)
    os.close(terminal)
    assert process.wait(60) == Exit.INTERRUPTED
    assert list((here / "ebb-output" / "line" / "checkpoints").glob("g*-s*.json"))


@pytest.mark.e2e
def test_a_failing_program_is_told_by_its_code_and_how_to_go_on(here: Path) -> None:
    (here / "broken.py").write_text("raise ValueError('no such data')")
    done = subprocess.run(
        [sys.executable, "-c", EBB, "local", "--name", "line", "--", "broken.py"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.JOB_FAILED
    assert "ValueError: no such data" in done.stderr
    assert "line failed with exit code 1; the reason is above. It left no checkpoint" in done.stdout


def test_dry_run_prints_the_command_and_what_is_left_aside(here: Path) -> None:
    result = ebb("local --name line --gpus 2 --zone a --workers 1 --dry-run -- python train.py --lr 0.1")
    assert result.exit_code == Exit.OK
    command = f"{sys.executable} -m ebb.elastic.launch --standalone --nproc-per-node=1 train.py --lr 0.1"
    assert result.stdout == f"EBB_JOB=line EBB_OUTPUT_DIR={here}/ebb-output/line {command}\n"
    assert result.stderr == "ignored, as there is no platform here: --zone\n"
    assert "processes instead of 999, as this machine has no more cores" in ebb("local --gpus 999 --dry-run -- train.py").stderr
    told = json.loads(ebb("local --name line --dry-run -o json -- train.py").stdout)["run"]
    assert told["command"][1:3] == ["-m", "ebb.elastic.launch"]
    assert not (here / "ebb-output").exists()


def test_a_job_file_and_a_whole_elastic_job(here: Path) -> None:
    (here / "job.yaml").write_text("name: line\ngpus: 1\nenv: {STEP: 0}\ncommand: python train.py\n")
    assert "STEP=0" in ebb("local -f job.yaml --dry-run").stdout
    job = elastic_job("whole")
    job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] = ["-m", "trainer", "--epochs", "2"]
    (here / "whole.yaml").write_text(yaml.safe_dump(job))
    found = ebb("local -f whole.yaml --data . --env A=1 --dry-run")
    assert found.stdout.endswith(f"-m trainer --epochs 2 --data {here}\n")
    assert "A=1 " in found.stdout


def test_without_a_box_it_says_how_to_get_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_HOME", str(here / "home"))
    result = ebb("local --in-box -- train.py")
    assert result.exit_code == Exit.NO_PLATFORM
    assert (
        f"no devcluster on this machine: {here}/home/boxes/ebb/researcher.kubeconfig is not there. Bring it up with `make up`"
        in result.stderr
    )


def test_in_the_box_it_is_a_job_like_any_other(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = here / "home" / "boxes" / "ebb" / "researcher.kubeconfig"
    box.parent.mkdir(parents=True)
    box.touch()
    monkeypatch.setenv("EBB_HOME", str(here / "home"))
    monkeypatch.setenv("EBB_KUBECONFIG", "/of/a/cloud")
    asked: list[str | None] = []

    @asynccontextmanager
    async def connect(kubeconfig: str | None, context: str | None) -> AsyncIterator[Kube]:
        asked.append(kubeconfig)
        yield FakeKube(platform_map())

    line = "local --in-box --name line --dry-run -- train.py"
    result = CliRunner().invoke(app, shlex.split(line), obj=Session(connect=connect))
    assert result.exit_code == Exit.OK, result.output
    assert asked == [str(box)]
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "line"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("local", "nothing to run: give the program after --"),
        ("local --workers 0 -- train.py", "workers 0 is too few"),
        ("local --data nowhere -- train.py", "data 'nowhere' is not on this machine"),
        ("local --python nowhere -- train.py", "python 'nowhere' is not a program"),
        (
            "local -f whole.yaml --zone a",
            "zone: of a file of kind ElasticJob only name, gpus, data, env, secret can be",
        ),
        ("local -f whole.yaml -- train.py", "the program: of a file of kind ElasticJob"),
        ("local -f whole.yaml", "its container starts a program of its own"),
        ("local --in-box --workers 2 -- train.py", "--workers and --python are for training without --in-box"),
        ("local -f nowhere.yaml", "file 'nowhere.yaml' cannot be read"),
    ],
)
def test_misuses(here: Path, line: str, said: str) -> None:
    (here / "whole.yaml").write_text(yaml.safe_dump(elastic_job("whole")))
    result = ebb(line)
    assert result.exit_code == Exit.USAGE, result.output
    assert said in result.stderr
    assert not (here / "ebb-output").exists()
