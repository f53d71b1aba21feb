"""How a local run ends, which signals reach it, and which Python it is given: real processes that are no trainings."""

import errno
import json
import os
import signal
import sys
from collections import UserDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ebb.client import BadRequest, ClientError
from ebb.client.local_run import LocalRun, find_python, start
from ebb.client.local_run.plan import CHECKOUT

BASE = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")  # has nothing installed


def running(tmp_path: Path, program: str, **environment: str) -> LocalRun:
    return LocalRun(
        name="run",
        command=(sys.executable, "-c", program),
        environment=environment,
        folder=str(tmp_path),
        output=str(tmp_path / "output"),
        workers=1,
        left_aside=(),
    )


@pytest.mark.parametrize(
    ("code", "state"), [(0, "finished"), (1, "failed"), (17, "failed"), (130, "stopped"), (138, "stopped"), (129, "stopped")]
)
def test_how_it_ends(tmp_path: Path, code: int, state: str) -> None:
    ended = start(running(tmp_path, f"raise SystemExit({code})"))
    assert (ended.state, ended.exit_code, ended.step, ended.checkpoint_step) == (state, code, None, None)


def test_a_program_that_is_killed_has_failed(tmp_path: Path) -> None:
    ended = start(running(tmp_path, "import os; os.kill(os.getpid(), 9)"))
    assert (ended.state, ended.exit_code) == ("failed", 137)


def test_it_finds_its_folder_its_output_and_its_environment(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    start(running(tmp_path, "import os; print(os.getcwd(), os.path.isdir('output'), os.environ['A'])", A="1"))
    assert capfd.readouterr().out == f"{tmp_path} True 1\n"


def test_quiet_leaves_stdout_to_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = running(tmp_path, "print('loss')")
    start(program, quiet=True)
    assert capfd.readouterr().out == ""


def test_what_it_left_is_told(tmp_path: Path) -> None:
    checkpoints = tmp_path / "output" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for name in ("g00001-s00000007-r0.json", "g00002-s00000030-r1.json", "g00002-s00000090-r1.candidate", "owner.json"):
        (checkpoints / name).touch()
    lines = [json.dumps({"step": step, "loss": step / 100}) for step in (7, 31)]
    (tmp_path / "output" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    ended = start(running(tmp_path, "raise SystemExit(130)"))
    assert (ended.step, ended.loss, ended.checkpoint_step) == (31, 0.31, 30)


HEARS = """
import os, signal, sys
signal.signal(signal.{name}, lambda number, _: sys.exit(128 + number))
os.kill(os.getppid(), signal.{name})
signal.pause()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_signal_goes_on_to_the_training_and_is_waited_for(tmp_path: Path, name: str) -> None:
    """The program itself signals us, as a terminal would."""
    before, notes = signal.getsignal(signal.Signals[name]), list[str]()
    ended = start(running(tmp_path, HEARS.format(name=name)), note=notes.append)
    assert (ended.state, ended.exit_code) == ("stopped", 128 + signal.Signals[name])
    assert notes == [f"{name}: the training is told to write a checkpoint and end"]
    assert signal.getsignal(signal.Signals[name]) is before


def test_a_terminal_that_is_closed_does_not_leave_the_training_behind(tmp_path: Path) -> None:
    def note(_: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    ended = start(running(tmp_path, HEARS.format(name="SIGHUP")), note=note)
    assert (ended.state, ended.exit_code) == ("stopped", 129)


def test_under_nohup_it_goes_on(tmp_path: Path) -> None:
    notes = list[str]()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ended = start(running(tmp_path, "import os, signal; os.kill(os.getppid(), signal.SIGHUP)"), note=notes.append)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (ended.state, notes) == ("finished", [])


class InterruptedWhenRead(UserDict[str, str]):
    """An environment that is read while the training is being started: that is when Ctrl-C comes."""

    def __iter__(self) -> Iterator[str]:
        signal.raise_signal(signal.SIGINT)
        return super().__iter__()


def test_a_signal_before_it_has_started_is_kept_for_it(tmp_path: Path) -> None:
    run, notes = running(tmp_path, "import signal; signal.pause()"), list[str]()
    ended = start(replace(run, environment=InterruptedWhenRead()), note=notes.append)
    assert (ended.state, ended.exit_code) == ("stopped", 130)
    assert notes == ["SIGINT: the training is told to write a checkpoint and end"]


HEARS_TWICE = """
import os, signal, sys
heard = []
def hear(number, _):
    heard.append(number)
    if len(heard) == 2:
        sys.exit(130)
    os.kill(os.getppid(), signal.SIGINT)
signal.signal(signal.SIGINT, hear)
os.kill(os.getppid(), signal.SIGINT)
while True:
    signal.pause()
"""


def test_a_second_ctrl_c_goes_on_too(tmp_path: Path) -> None:
    notes = list[str]()
    assert start(running(tmp_path, HEARS_TWICE), note=notes.append).state == "stopped"
    assert notes[1:] == ["SIGINT: the training is told to end at once"]


def test_a_python_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    run = running(tmp_path, "")
    with pytest.raises(ClientError, match="/nowhere/python cannot be started: No such file or directory"):
        start(LocalRun(**{**vars(run), "command": ("/nowhere/python",)}))


def test_this_python_trains_where_it_has_torch() -> None:
    assert find_python(None).python == sys.executable


def test_one_that_is_named_must_have_torch() -> None:
    with pytest.raises(BadRequest, match=f"python '{BASE}' cannot import torch.*-m pip install torch"):
        find_python(BASE)
    with pytest.raises(BadRequest, match="python 'no-python' is not a program"):
        find_python("no-python")


def test_without_any_torch_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", BASE)
    with pytest.raises(
        BadRequest, match=f"python {BASE} cannot import torch.*`{BASE} -m pip install torch torchvision`, or name"
    ):
        find_python(None, others=())


def test_one_with_torch_and_without_ebb_is_shown_the_trainer(tmp_path: Path) -> None:
    """A Python of the user's own: torch is importable in it, Ebb is not."""
    own = tmp_path / "python"
    folders = [path for path in sys.path if (Path(path) / "torch").is_dir()]
    own.write_text(f'#!/bin/sh\nPYTHONPATH={os.pathsep.join(folders)} exec {BASE} "$@"\n')
    own.chmod(0o755)
    found = find_python(str(own))
    assert (found.python, found.path) == (str(own), str(CHECKOUT))
    assert (CHECKOUT / "ebb" / "elastic" / "launch" / "__main__.py").is_file()
