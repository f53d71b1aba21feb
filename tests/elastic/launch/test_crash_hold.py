"""The container of a program that failed stays for a while: what it says meanwhile, and by what it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ebb.controller.launchers import read_crash
from ebb.elastic.contract import EXIT_RECLAIMED
from ebb.elastic.launch.crash_hold import CrashHold
from ebb.elastic.launch.exit_policy import ProgramFailedError
from ebb.elastic.launch.node_agent import run
from ebb.elastic.launch.page import LauncherPage
from ebb.elastic.launch.reclaim import Interrupted
from testing.ports import free_port
from tests.elastic.machines import until

WORDS = 'a worker failed with exit code 3: KeyError: "lr\\n"\nin b'


class FakeNotices:
    name, exit_code = "SIGTERM", EXIT_RECLAIMED

    def __init__(self, *, comes: bool = False) -> None:
        self._comes = comes

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        if self._comes:
            raise Interrupted
        yield


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[float]:
    """A clock that sleep moves on, and a folder for temporary files."""
    now = [1000.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now[-1] + seconds))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return now


def begun(moments: list[float], said: list[str]) -> tuple[CrashHold, LauncherPage]:
    page = LauncherPage()
    hold = CrashHold(60.0, page, said.append, clock=lambda: moments[-1])
    assert page.text() == ""
    hold.begin(f"{WORDS}: the job ends", 3)
    return hold, page


def test_its_page_is_what_the_controller_reads(moments: list[float]) -> None:
    _, page = begun(moments, [])
    moments.append(1012.0)
    crash = read_crash(page.text(), 5000.0)
    assert crash is not None
    assert (crash.exit_code, crash.message, crash.until) == (3, WORDS, 5048.0)
    moments.append(1061.0)
    assert read_crash(page.text(), 5000.0) is None


def test_it_ends_with_the_programs_code_and_last_words(moments: list[float]) -> None:
    said: list[str] = []
    hold, _ = begun(moments, said)
    assert hold.wait(FakeNotices()) == 3
    assert moments[-1] == pytest.approx(1060.0, abs=0.3)
    assert said == ["this machine is held for 1 min: `ebb exec` opens a shell in it", f"{WORDS}: the job ends"]


def test_a_reclaim_ends_it_at_once(moments: list[float]) -> None:
    said: list[str] = []
    hold, _ = begun(moments, said)
    assert hold.wait(FakeNotices(comes=True)) == EXIT_RECLAIMED
    assert (said[-1], moments) == ("this machine is held no longer: SIGTERM", [1000.0])


def test_the_script_is_for_its_owner_alone_and_made_anew(moments: list[float], tmp_path: Path) -> None:
    begun(moments, [])
    begun(moments, [])
    script = tmp_path / "ebb-hold" / "enter"
    assert (script.stat().st_mode & 0o777, script.parent.stat().st_mode & 0o777) == (0o700, 0o700)


def test_a_disk_that_takes_nothing_costs_the_script_alone(moments: list[float], tmp_path: Path) -> None:
    (tmp_path / "ebb-hold").write_text("in the way")
    said: list[str] = []
    _, page = begun(moments, said)
    assert "no ebb-hold/enter is left: " in said[0]
    assert read_crash(page.text(), 0.0)


@pytest.mark.parametrize("text", [None, "", "0", "soon", "-5"])
def test_nobody_who_did_not_ask_is_held(text: str | None) -> None:
    environment = {} if text is None else {"EBB_HOLD_ON_FAILURE_SECONDS": text}
    assert CrashHold.of(environment, LauncherPage(), print) is None


class FakeHandler:
    """Of a rendezvous: the page as it is when the other workers hear of the failure."""

    def __init__(self, page: LauncherPage) -> None:
        self._page, self.seen = page, ""

    def shutdown(self) -> None:
        self.seen = self._page.text()


class FakeAgent:
    def __init__(self, handler: FakeHandler) -> None:
        self._group = SimpleNamespace(spec=SimpleNamespace(rdzv_handler=handler))

    def get_worker_group(self) -> SimpleNamespace:
        return self._group

    def run(self) -> None:
        raise ProgramFailedError("KeyError", 3)


def test_the_page_says_it_before_the_others_hear_of_it(moments: list[float]) -> None:
    pytest.importorskip("torch")
    page = LauncherPage()
    hold, handler = CrashHold(60.0, page, print, clock=lambda: moments[-1]), FakeHandler(page)
    agent: Any = FakeAgent(handler)
    notices: Any = FakeNotices()
    assert run(agent, notices, None, hold) == 3
    assert read_crash(handler.seen, 0.0)


FAILS = """
import os, pathlib, sys
pathlib.Path("left-behind").write_text(str(os.getpid()))
raise KeyError("lr")
"""


@pytest.mark.e2e
def test_a_launcher_stays_and_its_program_is_gone(tmp_path: Path) -> None:
    """As in a pod: the others hear of the failure, the page says it, exec gets in, and SIGTERM ends it."""
    (tmp_path / "train.py").write_text(FAILS)
    port = free_port()
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3]), "TMPDIR": str(tmp_path),
        "EBB_LAUNCHER_PORT": str(port), "EBB_HOLD_ON_FAILURE_SECONDS": "600",
    }  # fmt: skip
    command = [sys.executable, "-m", "ebb.elastic.launch", "--standalone", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as launcher:
        try:
            crash = until("the page of a held machine", lambda: read_crash(_page(port), 0.0))
            assert (crash.exit_code, crash.message) == (1, "a worker failed with exit code 1: KeyError: 'lr'")
            program = (tmp_path / "left-behind").read_text()
            assert not Path(f"/proc/{program}").exists()
            assert launcher.poll() is None
            entered = subprocess.run(
                [tmp_path / "ebb-hold" / "enter", "sh", "-c", "pwd; echo $EBB_LAUNCHER_PORT"],
                env={}, cwd="/", capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert entered.stdout == f"{tmp_path}\n{port}\n"
            launcher.send_signal(signal.SIGTERM)
            _, said = launcher.communicate(timeout=20)
            assert launcher.returncode == EXIT_RECLAIMED, said
            assert "this machine is held for 10 min" in said
        finally:
            launcher.kill()


def _page(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""
