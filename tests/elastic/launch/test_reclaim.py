"""When a signal interrupts, when it is only noted, and what a main thread inside C does not hear."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebb.elastic.contract import EXIT_RECLAIMED
from ebb.elastic.launch.reclaim import Interrupted, Reclaim
from tests.elastic.machines import until

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture
def reclaim() -> Iterator[Reclaim]:
    before = [(number, signal.getsignal(number)) for number in SIGNALS]
    yield Reclaim()
    signal.set_wakeup_fd(-1)
    for number, handler in before:
        signal.signal(number, handler)


def tell(number: int) -> None:
    os.kill(os.getpid(), number)


def test_while_starting_a_signal_interrupts_once(reclaim: Reclaim) -> None:
    reclaim.listen()
    with pytest.raises(Interrupted):
        tell(signal.SIGTERM)
    assert reclaim.seen
    tell(signal.SIGTERM)  # on the way out
    assert reclaim.exit_code == EXIT_RECLAIMED


def test_a_signal_that_came_before_interrupts_too(reclaim: Reclaim) -> None:
    tell(signal.SIGTERM)
    with pytest.raises(Interrupted):
        reclaim.listen()


def test_while_workers_run_it_is_only_noted_and_the_next_wait_is_interrupted(reclaim: Reclaim) -> None:
    with reclaim.waiting():
        pass
    tell(signal.SIGTERM)
    assert reclaim.seen
    with pytest.raises(Interrupted), reclaim.waiting():
        pytest.fail("must not wait for others after a notice")


def test_a_second_ctrl_c_ends_it_whatever_goes_on(reclaim: Reclaim) -> None:
    tell(signal.SIGINT)
    assert (reclaim.hurried, reclaim.exit_code, reclaim.name) == (False, 130, "SIGINT")
    with pytest.raises(Interrupted):
        tell(signal.SIGINT)
    assert reclaim.hurried
    tell(signal.SIGINT)


# The store of a machine that is not there, as torch waits for it: inside C, for the whole limit.
BLOCKED = """
import signal
from ebb.elastic.launch import reclaim
reclaim._STUCK_SECONDS = 0.3
heard = reclaim.Reclaim()
heard.listen()
import ctypes
libc = ctypes.CDLL(None)
print("waits", flush=True)
libc.pthread_barrier_init(barrier := ctypes.create_string_buffer(64), None, 2)
libc.pthread_barrier_wait(barrier)  # is not ended by a signal
"""


def test_a_main_thread_inside_c_is_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    state = Path(f"/proc/{process.pid}/task/{process.pid}/wchan")
    until("it waits inside C", lambda: "futex" in state.read_text(), 10)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert process.returncode == EXIT_RECLAIMED
    assert "left while waiting for other machines: SIGTERM" in said


def test_nohup_is_respected() -> None:
    script = (
        "import os, signal; from ebb.elastic.launch.reclaim import Reclaim; Reclaim(); os.kill(os.getpid(), 1); print('lives')"
    )
    done = subprocess.run(["nohup", sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "lives\n"
