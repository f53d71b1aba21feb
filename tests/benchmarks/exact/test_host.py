"""The process that forks machines: a command runs in a fork as it would in a new interpreter, and dies with the host."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.exact import machines
from benchmarks.exact.machines import Forked, environment, until

MODULE = "tests.benchmarks.exact.program"


def waits(log: Path) -> bool:
    return log.exists() and "waiting" in log.read_text()


@pytest.fixture
def forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forked]:
    monkeypatch.setattr(machines, "LAUNCHER", MODULE)
    with Forked(["json", "no_such_module_at_all"], tmp_path / "host.log") as host:
        yield host


def test_arguments_environment_output_and_exit_code(forked: Forked, tmp_path: Path) -> None:
    log = tmp_path / "log"
    machine = forked.start(["say", "hello"], environment() | {"WORD": "there"}, log)
    assert until(lambda: machine.code is not None, 20)
    assert (machine.code, log.read_text()) == (7, "hello there\natexit\n")
    failing = forked.start(["raise"], environment(), log)
    assert until(lambda: failing.code is not None, 20)
    assert failing.code == 1
    assert "ZeroDivisionError" in log.read_text()


def test_told_and_killed(forked: Forked, tmp_path: Path) -> None:
    polite = forked.start(["wait"], environment(), tmp_path / "polite")
    stubborn = forked.start(["wait"], environment(), tmp_path / "stubborn")
    assert until(lambda: waits(tmp_path / "polite") and waits(tmp_path / "stubborn"), 20)
    polite.tell()
    stubborn.kill()
    assert until(lambda: polite.code is not None and stubborn.code is not None, 20)
    assert (polite.code, stubborn.code) == (138, -9)


def test_its_own_fork_server_is_forked_and_gives_children_with_the_same_modules(forked: Forked, tmp_path: Path) -> None:
    log = tmp_path / "log"
    machine = forked.start(["forkserver"], environment(), log)
    assert until(lambda: machine.code is not None, 20)
    assert (machine.code, log.read_text()) == (0, "in a child: json is loaded, 1 thread\nchild ended with 3\n")


def test_all_end_with_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "LAUNCHER", MODULE)
    with Forked([], tmp_path / "host.log") as host:
        machine = host.start(["wait"], environment(), tmp_path / "log")
        assert until(lambda: waits(tmp_path / "log"), 20)
    assert until(lambda: not Path(f"/proc/{machine.pid}").exists(), 20)
    assert sys.executable  # the test's own interpreter goes on
