"""Which engine and plugin the launcher takes, and which stacks it refuses."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devcluster.pulumi import launcher
from devcluster.pulumi.launcher import Folders, LauncherError
from devcluster.pulumi.stand_in import MARK

ENGINE = Path("/opt/engine")


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., dict[str, str]]:
    def made(**given: str) -> dict[str, str]:
        return launcher.environment_for({"HOME": str(tmp_path / "home"), "PATH": "/usr/bin", **given}, ENGINE)

    return made


def install(folder: Path) -> Path:
    """Something executable under the plugin's name."""
    folder.mkdir(parents=True)
    plugin = folder / launcher.PLUGIN
    plugin.write_text("#!/bin/sh\n")
    plugin.chmod(0o755)
    return folder


def test_without_an_official_plugin_the_stand_in_is_asked_for(environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    found = environment(PULUMI_HOME=str(tmp_path))
    assert found["EBB_PULUMI_STANDIN"] == "1"
    assert found["PATH"].split(":")[:2] == [str(launcher.PLUGIN_FOLDER), str(ENGINE)]
    assert found["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"


@pytest.mark.parametrize(
    ("where", "version", "official"),
    [
        pytest.param("own", "v4.34.2", True, id="in PULUMI_HOME"),
        pytest.param("own", "v4.99.0", True, id="newer"),
        pytest.param("own", "v4.1.0", False, id="too old"),
        pytest.param("own", "v5.0.0", False, id="another major version"),
        pytest.param("home/.pulumi", "v4.34.2", True, id="in the usual home"),
    ],
)
def test_an_installed_official_plugin_is_used(
    environment: Callable[..., dict[str, str]], tmp_path: Path, where: str, version: str, official: bool
) -> None:
    install(tmp_path / where / "plugins" / f"resource-kubernetes-{version}")
    found = environment(PULUMI_HOME=str(tmp_path / "own"), EBB_PULUMI_STANDIN="1")
    assert ("EBB_PULUMI_STANDIN" not in found) is official
    assert (str(launcher.PLUGIN_FOLDER) not in found["PATH"]) is official
    assert found["PULUMI_HOME"] == str(tmp_path / where if official else tmp_path / "own")


def test_an_official_plugin_on_path_is_used(environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    folder = install(tmp_path / "bin")
    found = environment(PULUMI_HOME=str(tmp_path), PATH=f"{folder}:/usr/bin")
    assert "EBB_PULUMI_STANDIN" not in found
    assert str(launcher.PLUGIN_FOLDER) not in found["PATH"].split(":")


def test_the_launcher_does_not_find_itself(environment: Callable[..., dict[str, str]]) -> None:
    found = environment(PATH=f"{launcher.HERE / 'bin'}:/usr/bin")
    assert str(launcher.HERE / "bin") not in found["PATH"].split(":")


@pytest.mark.parametrize(
    ("given", "passphrase"),
    [
        pytest.param({}, "ebb", id="our state folder"),
        pytest.param({"PULUMI_CONFIG_PASSPHRASE": "x"}, "ebb", id="our state folder has its own"),
        pytest.param({"PULUMI_BACKEND_URL": "file:///y"}, "ebb", id="another folder"),
        pytest.param({"PULUMI_BACKEND_URL": "s3://y", "PULUMI_CONFIG_PASSPHRASE": "x"}, "x", id="the user's own"),
        pytest.param(
            {"PULUMI_BACKEND_URL": "s3://y", "PULUMI_CONFIG_PASSPHRASE_FILE": "x"}, None, id="the user's own, in a file"
        ),
    ],
)
def test_the_passphrase(environment: Callable[..., dict[str, str]], given: dict[str, str], passphrase: str | None) -> None:
    assert environment(**given).get("PULUMI_CONFIG_PASSPHRASE") == passphrase


def checkpoint(state: Path, stack: str, *outputs: dict[str, Any]) -> None:
    path = state / ".pulumi" / "stacks" / "ebb" / f"{stack}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    managed = [{"custom": True, "type": "kubernetes:core/v1:ConfigMap", "outputs": one} for one in outputs]
    read = {"custom": True, "external": True, "type": "kubernetes:core/v1:ConfigMap", "outputs": {}}
    provider = {"custom": True, "type": "pulumi:providers:kubernetes", "outputs": {}}
    path.write_text(json.dumps({"checkpoint": {"latest": {"resources": [provider, read, *managed]}}}))


@pytest.mark.parametrize(
    ("outputs", "stand_in", "maker"),
    [
        pytest.param([{MARK: {}}], True, None, id="ours by the stand-in"),
        pytest.param([{MARK: {}}], False, "the stand-in", id="ours by the official plugin"),
        pytest.param([{"__initialApiVersion": "v1"}], True, "the official Kubernetes plugin", id="theirs by the stand-in"),
        pytest.param([{"__initialApiVersion": "v1"}], False, None, id="theirs by the official plugin"),
        pytest.param([{MARK: {}}, {}], True, "the official Kubernetes plugin", id="mixed"),
        pytest.param([], True, None, id="empty, by the stand-in"),
        pytest.param([], False, None, id="empty, by the official plugin"),
    ],
)
def test_the_state_of_another_plugin_is_refused(
    tmp_path: Path, outputs: list[dict[str, Any]], stand_in: bool, maker: str | None
) -> None:
    checkpoint(tmp_path, "x", *outputs)
    if maker is None:
        launcher.refuse_foreign(tmp_path, "x", stand_in=stand_in)
    else:
        with pytest.raises(LauncherError, match=f"was made with {maker}.*docs/pulumi-stand-in.md"):
            launcher.refuse_foreign(tmp_path, "x", stand_in=stand_in)


def test_a_stack_that_does_not_exist_is_not_refused(tmp_path: Path) -> None:
    launcher.refuse_foreign(tmp_path, "none", stand_in=True)


@pytest.mark.parametrize(
    ("arguments", "selected", "stack"),
    [
        pytest.param(["up", "--stack", "a"], "b", "a", id="said"),
        pytest.param(["up", "-s", "org/ebb/a"], "b", "a", id="said in full"),
        pytest.param(["up", "--stack=a"], "b", "a", id="said with ="),
        pytest.param(["up"], "b", "b", id="selected"),
        pytest.param(["up"], "gone", "local", id="selected, but gone"),
        pytest.param(["up"], None, "local", id="none"),
    ],
)
def test_which_stack(tmp_path: Path, arguments: list[str], selected: str | None, stack: str) -> None:
    checkpoint(tmp_path / "state", "b")
    if selected:
        (tmp_path / "workspaces").mkdir()
        (tmp_path / "workspaces" / "ebb-1-workspace.json").write_text(json.dumps({"stack": f"organization/ebb/{selected}"}))
    assert launcher.chosen(arguments, Folders(tmp_path, tmp_path / "state")) == stack


@pytest.mark.parametrize(
    ("content", "stays"),
    [
        pytest.param({"pid": 2**22 + 1, "hostname": socket.gethostname()}, False, id="of a dead process"),
        pytest.param({"pid": os.getpid(), "hostname": socket.gethostname()}, False, id="of a process that is not Pulumi"),
        pytest.param({"pid": 2**22 + 1, "hostname": "elsewhere"}, True, id="of another machine"),
        pytest.param({}, True, id="not understood"),
    ],
)
def test_locks_of_killed_runs_go(tmp_path: Path, content: dict[str, Any], stays: bool) -> None:
    lock = tmp_path / ".pulumi" / "locks" / "organization" / "ebb" / "local" / "x.json"
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps(content))
    launcher.remove_stale_locks(tmp_path)
    assert lock.exists() is stays


def test_the_lock_of_a_killed_pulumi_goes_before_its_parent_has_noticed(tmp_path: Path) -> None:
    pulumi = tmp_path / "pulumi"
    pulumi.symlink_to("/bin/sleep")
    lock = tmp_path / ".pulumi" / "locks" / "x.json"
    lock.parent.mkdir(parents=True)
    with subprocess.Popen([pulumi, "60"]) as process:
        lock.write_text(json.dumps({"pid": process.pid, "hostname": socket.gethostname()}))
        whole, cut_short = lock.with_name("whole.attrs"), lock.with_name("cut-short.attrs")
        whole.write_text("{}")
        cut_short.touch()
        launcher.remove_stale_locks(tmp_path)
        assert lock.exists(), "it works"
        assert cut_short.exists()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped
        launcher.remove_stale_locks(tmp_path)
        assert not lock.exists()
        assert [path.name for path in lock.parent.iterdir()] == ["whole.attrs"]


def test_an_interrupted_program_says_nothing(tmp_path: Path) -> None:
    script = tmp_path / "exec"
    script.write_text(launcher._quiet_script("#!/usr/bin/env python\nimport time\nprint('runs', flush=True)\ntime.sleep(60)\n"))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "runs\n"
        program.send_signal(signal.SIGINT)
        assert program.communicate()[1] == ""
    assert program.returncode == -signal.SIGINT


def test_a_file_backend_is_a_folder() -> None:
    url = {"PULUMI_HOME": "/h", "PULUMI_BACKEND_URL": "file:///a/b?no_tmp_dir=true"}
    assert launcher.folders_of(url) == Folders(Path("/h"), Path("/a/b"))
    assert launcher.folders_of({**url, "PULUMI_BACKEND_URL": "s3://bucket"}).state is None


def test_an_interrupt_while_python_starts_says_nothing_either(tmp_path: Path) -> None:
    script = tmp_path / "exec"
    script.write_text(launcher._quiet_script("#!/usr/bin/env python\nprint('runs')\n"))
    (tmp_path / "sitecustomize.py").write_text("import time\nprint('starts', flush=True)\ntime.sleep(0.5)\n")
    command = [launcher.HERE / "program" / "python", script]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "starts\n"
        program.send_signal(signal.SIGINT)
        assert program.communicate() == ("", "")
    assert program.returncode == -signal.SIGINT
