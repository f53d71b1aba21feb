"""Every verb of `ebb` on a devcluster, with a researcher's rights alone: what somebody does who never heard of Kubernetes.

They share one box with the other end-to-end tests (see conftest.py) and leave it as they found it.
"""

import contextlib
import copy
import errno
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.settings import Box
from ebb.api.contract import GATEWAY, GATEWAY_PORT
from testing.ports import free_port
from tests.e2e.conftest import BOX, Object, Platform
from tests.e2e.test_platform import TRAINER

pytestmark = pytest.mark.e2e

COLLIDING = ("infra", "local", "trainer", "utils", "workloads")  # modules of a user that are named as folders of this repository
PROGRAM = """
import os, pathlib, sys, time
import infra, local, trainer, utils, workloads
from ebb import elastic

assert elastic.start
out = pathlib.Path(os.environ["EBB_OUTPUT_DIR"])
print("hello from", sys.argv[1:], flush=True)
print("with", infra.NAME + ",", local.NAME + ",", trainer.NAME + ",", utils.NAME + ",", workloads.NAME, flush=True)
(out / "result.txt").write_text("42")
while not (out / "end").exists():
    time.sleep(0.1)
print("goodbye", flush=True)
"""


@pytest.fixture(scope="module")
def mine(platform: Platform) -> Platform:
    """The same platform as a researcher: another kubeconfig, and a home of their own."""
    config = str(Box.load(BOX).researcher_kubeconfig)
    researcher = copy.copy(platform)
    researcher.env = platform.env | {"EBB_KUBECONFIG": config, "KUBECONFIG": config, "XDG_CONFIG_HOME": str(platform.folder)}
    return researcher


def told(mine: Platform, *words: str) -> Object:
    """What a verb says with -o json."""
    found: Object = json.loads(mine.ebb(*words, "-o", "json"))
    return found


def job(mine: Platform, name: str) -> Object:
    found: Object = told(mine, "status", name)["job"]
    return found


@contextlib.contextmanager
def waiting(mine: Platform, name: str) -> Iterator[str]:
    """A job whose code is a folder of this machine, and which waits for a file; deleted afterwards."""
    folder = mine.folder / f"code-{name}"
    folder.mkdir()
    (folder / "hello.py").write_text(PROGRAM)
    for module in COLLIDING:
        (folder / f"{module}.py").write_text(f"NAME = 'my {module}'\n")
    (folder / ".gitignore").write_text("big\n")
    (folder / "big").write_bytes(b"0" * 2**20)
    said = mine.ebb("submit", "--name", name, "--gpus", "1", "--max", "2", "--gpu", "T4", "--code", str(folder),
                    "--env", "LR=0.1", "--max-cost", "5", "--", "hello.py", "--lr", "0.1")  # fmt: skip
    try:
        assert f"{name} is submitted" in said
        mine.until("it says hello", lambda: "hello from" in mine.ebb("logs", name) if job(mine, name)["workers"] else "")
        yield name
    finally:
        mine.ebb("delete", name)


@pytest.fixture(scope="module")
def hello(mine: Platform) -> Iterator[str]:
    """One for all who only look at it."""
    with waiting(mine, "hello") as name:
        yield name


def test_a_healthy_platform_passes_its_check(mine: Platform) -> None:
    assert "problem" not in mine.ebb("check")


def test_nothing_of_the_platform_can_be_changed(mine: Platform) -> None:
    assert "orbidden" in mine.kubectl("delete", "deployment", "--all", "-n", "ebb-system", ok=False)


def test_what_travels_with_the_job_is_what_runs(mine: Platform, hello: str) -> None:
    assert "hello from ['--lr', '0.1']" in mine.ebb("logs", hello)
    assert "with my infra, my local, my trainer, my utils, my workloads" in mine.ebb("logs", hello), "beside ebb.elastic"
    assert mine.ebb("exec", hello, "--", "sh", "-c", "echo $LR") == "0.1\n"
    assert mine.ebb("exec", hello, "--", "sh", "-c", "ls -A /tmp/code-*").split() == [
        ".gitignore",
        *sorted(["hello.py", *(f"{name}.py" for name in COLLIDING)]),
    ]


def test_what_a_command_in_a_worker_ends_with(mine: Platform, hello: str) -> None:
    said = mine.ebb("exec", hello, "--", "sh", "-c", "echo out; echo err >&2; exit 7", ok=False)
    assert {"out", "err"} <= set(said.split())


def test_looking(mine: Platform, hello: str) -> None:
    for words in (["list"], ["status", hello], ["events", hello], ["top", "--once"], ["gpus"], ["cost"], ["cost", "--gpus", "2"]):
        said = mine.ebb(*words)
        assert said.strip(), words
        assert max(map(len, said.splitlines())) <= 80, said
    assert job(mine, hello)["state"] == "running"
    assert [seen["name"] for seen in told(mine, "list")["jobs"]] == [hello]
    assert told(mine, "gpus")["groups"]


def test_outputs_and_data(mine: Platform, hello: str, tmp_path: Path) -> None:
    assert "result.txt" in mine.ebb("outputs", hello)
    mine.ebb("outputs", "get", hello, "result.txt", str(tmp_path))
    assert (tmp_path / "result.txt").read_text() == "42"
    big = tmp_path / "folder" / "big.bin"
    big.parent.mkdir()
    big.write_bytes(bytes(range(256)) * 2**14)
    mine.ebb("data", "put", str(big.parent), "data/e2e")
    assert "big.bin" in mine.ebb("data", "ls", "data/e2e")
    mine.ebb("data", "get", "data/e2e/big.bin", str(tmp_path / "back.bin"))
    assert (tmp_path / "back.bin").read_bytes() == big.read_bytes()
    mine.ebb("data", "rm", "-r", "data/e2e")
    assert "e2e" not in mine.ebb("data", "ls", "data")


def test_other_pods_cannot_reach_the_gateway(mine: Platform, hello: str) -> None:
    """The network policy refuses them; and behind it nothing but the loopback listens, if a cluster enforces none."""
    space = ["-n", "elastic-job"]
    (gateway,) = mine.get("pods", *space, "-l", f"app.kubernetes.io/name={GATEWAY}")["items"]
    dial = f"import socket; print(socket.socket().connect_ex(('{gateway['status']['podIP']}', {GATEWAY_PORT})))"
    assert int(mine.ebb("exec", hello, "--", "python3", "-c", dial)) == errno.EHOSTUNREACH
    sockets = mine.kubectl("exec", *space, gateway["metadata"]["name"], "--", "cat", "/proc/net/tcp", "/proc/net/tcp6")
    listening = [words[1] for words in map(str.split, sockets.splitlines()) if words[3] == "0A"]
    assert listening == [f"0100007F:{GATEWAY_PORT:04X}"]


def test_a_port_of_a_worker(mine: Platform, hello: str) -> None:
    mine.ebb("exec", hello, "--", "sh", "-c", "cd /tmp/code-* && python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &")
    local = free_port()
    command = [str(Path(sys.executable).with_name("ebb")), "port", hello, "8123", "--local", str(local)]
    with subprocess.Popen(command, env=mine.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as opened:
        try:
            assert opened.stdout
            assert str(local) in opened.stdout.readline()
            with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=20) as answer:
                assert "hello.py" in answer.read().decode()
        finally:
            opened.send_signal(signal.SIGINT)
        assert opened.wait(20) == 130


def test_scale_stop_resume_and_wait(mine: Platform) -> None:
    with waiting(mine, "moved") as name:
        mine.ebb("scale", name, "2")
        mine.until("two workers", lambda: job(mine, name)["workers"] == 2)
        mine.ebb("scale", name, "1")
        mine.ebb("stop", name)
        assert job(mine, name)["state"] == "stopped"
        mine.ebb("resume", name)
        mine.until("it runs again", lambda: job(mine, name)["state"] == "running")
        mine.ebb("exec", name, "--", "sh", "-c", "touch $EBB_OUTPUT_DIR/end")
        assert "finished" in mine.ebb("wait", name, "-o", "json", "--timeout", "3m")


def runs(mine: Platform) -> list[Object]:
    found: list[Object] = told(mine, "sweep", "show", "scan")["sweep"]["runs"]
    return found


def test_a_sweep_of_two_and_its_report(mine: Platform, tmp_path: Path) -> None:
    sweep = ["sweep", "--name", "scan", "--gpus", "1", "--gpu", "T4", "--max-parallel", "2", "lr=0.1,0.01", "--",
             *TRAINER, "--epochs", "1"]  # fmt: skip
    mine.ebb(*sweep)
    assert "2 were there" in mine.ebb(*sweep)
    mine.until(
        "both are over",
        lambda: {run["state"] for run in told(mine, "sweep", "show", "scan")["sweep"]["runs"]} == {"finished"},
        400,
    )
    page = tmp_path / "scan.html"
    mine.ebb("report", "scan", "-o", str(page))
    assert len(re.findall("<svg", page.read_text())) >= 1
    first = runs(mine)[0]["job"]
    mine.ebb("report", first, "-o", str(page))
    assert first in page.read_text()
    mine.ebb("sweep", "delete", "scan")
    rows = {row["name"]: row for row in told(mine, "cost", "--since", "all")["rows"]}
    assert rows[first]["usd"] > 0, "a deleted job still counts"


def test_platforms_by_name(mine: Platform) -> None:
    mine.ebb("platform", "add", "here", "--kubeconfig", mine.env["EBB_KUBECONFIG"])
    assert "here" in mine.ebb("platform", "list")
    assert "GPU" in mine.ebb("gpus", "--platform", "here")
    mine.ebb("platform", "remove", "here")


def test_completion_of_job_names(mine: Platform, hello: str) -> None:
    words = {"_EBB_COMPLETE": "complete_bash", "COMP_WORDS": "ebb status he", "COMP_CWORD": "2"}
    said = subprocess.run(
        [str(Path(sys.executable).with_name("ebb"))],
        env=mine.env | words,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout
    assert "hello" in said.split()
