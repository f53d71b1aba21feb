"""`ebb ssh` in-process: what it prints and installs, what it becomes, and how it refuses."""

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.verbs import ssh
from tests.cli.world import elastic_job, worker_pod
from tests.reached import session


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    async def prepare() -> None:
        (tmp_path / "config" / "ebb" / "ssh").mkdir(parents=True, exist_ok=True)

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(ssh, "prepare", prepare)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return tmp_path


def ebb(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, list(words), obj=session(home, elastic_job(), worker_pod(0)), env={"COLUMNS": "80"})


def test_an_entry_is_printed_and_installed(home: Path) -> None:
    printed = ebb(home, "ssh", "digits", "--worker", "0", "-n", "team", "--config")
    assert printed.exit_code == 0
    assert "-P -m ebb.cli --kubeconfig /" in printed.stdout
    assert "ssh --stdio digits --worker 0 --namespace team\n" in printed.stdout
    assert not (home / ".ssh").exists()
    installed = ebb(home, "ssh", "digits", "--install", "-o", "json")
    told = json.loads(installed.stdout)
    assert (told["host"], Path(told["file"]).read_text()) == ("ebb-digits", told["config"])
    assert (home / ".ssh" / "config").read_text() == f"Include {told['file']}\n"
    again = ebb(home, "ssh", "digits", "--install")
    assert again.stdout == (
        "ebb-digits is a host now: `ssh ebb-digits`, or choose it in VS Code (Remote-SSH: Connect to Host).\n"
    )
    assert [ebb(home, "ssh", "digits", "--remove").stdout for _ in range(2)] == [
        "ebb-digits is no longer a host of OpenSSH.\n", "ebb-digits was no host of OpenSSH.\n"
    ]  # fmt: skip


def test_openssh_takes_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, words: became.append([program, *words]))
    assert ebb(home, "ssh", "digits", "--", "ls", "-l").exit_code == 0
    [words] = became
    assert (words[:2], words[-4:]) == (["/usr/bin/ssh", "ssh"], ["ebb-digits", "--", "ls", "-l"])
    assert "StrictHostKeyChecking=yes" in words


REFUSED = {
    "no job": (("ssh", "other"), 4, "no job named 'other' in elastic-job"),
    "no worker": (("ssh", "digits", "--worker", "7"), 4, "worker 7 of digits does not run: choose one of 0"),
    "two things": (("ssh", "digits", "--config", "--install"), 2, "--install goes with no --config: choose one of them"),
    "a command": (("ssh", "digits", "--install", "--", "ls"), 2, "--install goes with no command: choose one of them"),
    "json": (("ssh", "digits", "-o", "json"), 2, "output json goes with --install, --config and --remove"),
}


@pytest.mark.parametrize(("words", "code", "sentence"), REFUSED.values(), ids=REFUSED)
def test_misuse(home: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    done = ebb(home, *words)
    assert (done.exit_code, done.stdout) == (code, ""), done.stderr
    assert sentence in " ".join(done.stderr.split())


def test_a_machine_without_openssh(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    for words in (("ssh", "digits"), ("ssh", "digits", "--install")):
        done = ebb(home, *words)
        assert (done.exit_code, "apt-get install openssh-client" in done.stderr) == (2, True)
    assert not (home / ".ssh").exists()
