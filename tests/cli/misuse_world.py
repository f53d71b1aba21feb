"""What the misuses of misuse.yaml meet, and how one of them is run."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.client.secrets.uses import variables
from tests.cli.test_look import RUNNING
from tests.cli.world import FakeKube, elastic_job, known_secret, node_group, platform_map, session, worker_pod

QUEUED = elastic_job("queued", state="Waiting")  # with the secret wandb
QUEUED["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = variables({"WANDB": "wandb"})
# What is there of them for researchers: a value, the login to a registry, and a value that is no text.
SECRETS = [
    known_secret("wandb", variable="WANDB"),
    known_secret("hub", kind="registry", registry="ghcr.io", username="ada"),
    known_secret("blob"),
]
EIGHT = node_group("a100", "local-a", gpuType="A100", gpusPerNode=8, cpu=96, memoryGiB=1152, max=11)


@dataclass(frozen=True, kw_only=True)
class Misuse:
    """One entry: the command as a user types it, what else is there, and what `ebb` says to it, all of stderr."""

    command: str
    code: int
    message: str
    files: tuple[tuple[str, str], ...] = ()  # in the folder in which it is typed


def cluster() -> FakeKube:
    """A platform with T4 on spot and one group of A100; a job that runs, one that waits, one that stopped, two that are over."""
    jobs = [
        RUNNING,
        QUEUED,
        elastic_job("paused", state="Suspended"),
        elastic_job("done", state="Succeeded"),
        elastic_job("broken", state="Failed", message="exit code 1."),
    ]
    return FakeKube(platform_map(EIGHT), *jobs, *SECRETS, worker_pod(0, node="n1"), worker_pod(1, state="waiting"))


def run(misuse: Misuse, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """In the folder, with no platform but the fake one and nobody's settings."""
    for name, content in (("train.py", ""), *misuse.files):
        (folder / name).write_text(content)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("HOME", str(folder / "home"))
    words = shlex.split(misuse.command)
    assert words[0] == "ebb", misuse.command
    return CliRunner().invoke(app, words[1:], obj=session(cluster()), prog_name="ebb", env={"COLUMNS": "80", "TERM": "dumb"})
