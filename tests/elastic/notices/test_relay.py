"""What the launcher leaves for its workers, and what a worker makes of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ebb.elastic.launch.agent import end_workers
from ebb.elastic.notices.notice import Notice, seconds_to_leave
from ebb.elastic.notices.relay import FOLDER_VARIABLE, Relay


def test_both_sides_know_the_folder_and_it_goes_with_the_launcher() -> None:
    environment: dict[str, str] = {}
    launcher = Relay.create(environment)
    worker = Relay.find(environment)
    assert worker is not None
    assert (worker.deadline(), worker.wishes()) == (None, 0)
    launcher.tell_deadline(12.5)
    launcher.wish_for_checkpoint()
    launcher.wish_for_checkpoint()
    assert (worker.deadline(), worker.wishes()) == (12.5, 2)
    launcher.remove()
    assert not Path(environment[FOLDER_VARIABLE]).exists()
    assert (worker.deadline(), worker.wishes()) == (None, 0)


def test_a_worker_without_such_a_launcher_has_none() -> None:
    assert Relay.find({}) is None
    notice = Notice()
    notice.hear()
    assert (notice.seen, notice.leave_by, notice.take_wish()) == (True, None, False)


def test_a_deadline_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "leave-by").write_text("soon")
    assert Relay(tmp_path).deadline() is None


def test_a_wish_is_taken_once(tmp_path: Path) -> None:
    relay = Relay(tmp_path)
    notice = Notice(relay)
    assert not notice.take_wish()
    relay.wish_for_checkpoint()
    relay.wish_for_checkpoint()
    assert [notice.take_wish() for _ in range(3)] == [True, False, False]
    relay.wish_for_checkpoint()
    assert notice.take_wish()
    assert not notice.seen


def test_the_deadline_is_read_when_the_signal_comes_and_stays(tmp_path: Path) -> None:
    relay = Relay(tmp_path)
    notice = Notice(relay)
    notice.hear()
    assert (notice.seen, notice.leave_by) == (True, None)
    relay.tell_deadline(40.0)
    notice.hear()  # the launcher repeats its signal
    assert notice.leave_by == 40.0


@pytest.mark.parametrize(
    ("longest", "leave_by", "expected"),
    [
        pytest.param(20, None, 20, id="nobody-said"),
        pytest.param(20, 1118.0, 20, id="aws-has-time"),
        pytest.param(60, 1030.0, 28, id="thirty-seconds-less-the-margin"),
        pytest.param(20, 1008.0, 6, id="late"),
        pytest.param(20, 1001.0, 5, id="too-late-is-tried"),
        pytest.param(20, 900.0, 5, id="past-is-tried"),
        pytest.param(3, 900.0, 3, id="never-longer-than-asked"),
    ],
)
def test_how_long_a_step_boundary_is_waited_for(longest: float, leave_by: float | None, expected: float) -> None:
    assert seconds_to_leave(longest, leave_by, 1000.0) == expected


@pytest.mark.parametrize(
    ("deadlines", "code"),
    [
        pytest.param("n.give(time.monotonic() + 0.1)", 75, id="known-at-once"),
        pytest.param("n.give(); n.give(time.monotonic() + 0.1)", 75, id="known-with-the-second-signal"),
        pytest.param("n.give(); n.give()", 3, id="never-known"),
    ],
)
def test_a_process_that_cannot_leave_is_ended_by_the_deadline(deadlines: str, code: int) -> None:
    program = (
        "import time; from ebb.elastic.notices import notice; notice._LEAST_SECONDS = 0.05; n = notice.Notice(); "
        f"n.leave_within(600, 75); {deadlines}; time.sleep(2); raise SystemExit(3)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == code


def test_a_worker_saves_until_it_has_saved_or_ended(tmp_path: Path) -> None:
    relay = Relay(tmp_path)
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as worker:
        assert not relay.is_saving(worker.pid)
        for _ in range(2):
            relay.begin_saving(worker.pid)
            assert relay.is_saving(worker.pid)
            relay.end_saving(worker.pid)
            assert not relay.is_saving(worker.pid)
        relay.begin_saving(worker.pid)
        worker.kill()
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has asked for its code yet
        assert not relay.is_saving(worker.pid)


def test_a_notice_says_that_its_process_saves(tmp_path: Path) -> None:
    relay = Relay(tmp_path)
    with Notice(relay).saving():
        assert relay.is_saving(os.getpid())
    assert not relay.is_saving(os.getpid())


WORKER = """
import pathlib, signal, time
from ebb.elastic.notices.notice import install
notice = install()
print("ready", flush=True)
notice.wait(60)
time.sleep({notices})  # in a pass: the main thread has not noticed yet that a peer is gone
if {saves}:
    with notice.saving():
        time.sleep({saves})
        print("saved", flush=True)
time.sleep({hangs})
"""


@pytest.mark.parametrize(
    ("worker", "said", "code"),
    [
        # a save that began after the launcher had looked was ended with the grace before
        pytest.param({"notices": 0.3, "saves": 2.0, "hangs": 0}, "saved\n", 0, id="one-that-notices-late-saves"),
        pytest.param({"notices": 0, "saves": 0, "hangs": 60}, "", -signal.SIGKILL, id="one-that-hangs-is-killed"),
        pytest.param({"notices": 0, "saves": 60, "hangs": 0}, "", -signal.SIGKILL, id="one-that-saves-for-ever-too"),
        pytest.param({"notices": 0, "saves": 0.1, "hangs": 60}, "saved\n", -signal.SIGKILL, id="one-that-hangs-after-it-saved"),
    ],
)
def test_workers_are_given_time_to_save(tmp_path: Path, worker: dict[str, float], said: str, code: int) -> None:
    command = [sys.executable, "-c", WORKER.format(**worker)]
    environment = {**os.environ, FOLDER_VARIABLE: str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        end_workers(Relay(tmp_path), [process.pid], grace_seconds=1.0, saving_seconds=5.0, stop=lambda: False)
        assert process.stdout.read() == said
    assert process.returncode == code
