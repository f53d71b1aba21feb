"""A notice is seen at once, by a process whose main thread cannot run a line of Python."""

import signal
import subprocess
import sys
import time

import pytest

from ebb.elastic.notices.notice import Notice

# pbkdf2 stays in C without running signal handlers, as a collective does; the side thread must see the signal meanwhile
BUSY = """
import hashlib, os, signal, threading, time
from ebb.elastic.notices.notice import install
notice = install()
assert install() is notice and not notice.seen
seen = []
def watch():
    notice.wait(20)
    seen.append(time.monotonic())
threading.Thread(target=watch).start()
threading.Timer(0.1, os.kill, [os.getpid(), signal.{name}]).start()
hashlib.pbkdf2_hmac("sha256", b"", b"", {rounds})
print(time.monotonic() - seen[0] > 0.2 if seen else "not seen")
"""

CHILD = """
import os, signal
from ebb.elastic.notices.notice import install
notice = install()
ready, done = os.pipe()
child = os.fork()
if child == 0:
    os.write(done, b"!")
    signal.pause()
os.read(ready, 1)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), notice.seen)
"""


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_it_is_seen_while_the_main_thread_is_in_a_long_call(name: str) -> None:
    done = run(BUSY.format(name=name, rounds=3_000_000))
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_process_that_cannot_leave_is_ended() -> None:
    program = "import signal; from ebb.elastic.notices.notice import *; n = install(); n.leave_within(0.1, 75); n.give(); "
    program += "signal.pause()"
    assert run(program).returncode == 75


def test_a_notice_that_came_before_counts_too() -> None:
    program = "import signal; from ebb.elastic.notices.notice import *; n = install(); n.give(); n.leave_within(0.1, 75); "
    program += "signal.pause()"
    assert run(program).returncode == 75


SAVING = """
import os, sys, time
from ebb.elastic.notices import notice as notices
notices._LEAST_SECONDS = {least}
notice = notices.install()
notice.leave_within(0.1, 75)
notice.give({leave_by})
with notice.saving():
    time.sleep(1)
    print("saved", flush=True)
{after}
os._exit(3)
"""


@pytest.mark.parametrize(
    ("leave_by", "after", "expected"),
    [
        pytest.param("None", "", (3, "saved\n"), id="nobody-said-when-the-machine-goes"),
        pytest.param("time.monotonic() + 120", "", (3, "saved\n"), id="a-machine-that-has-120-s"),
        pytest.param("time.monotonic() + 2.2", "time.sleep(9)", (75, ""), id="a-machine-that-goes-during-the-save"),
        pytest.param("None", "time.sleep(9)", (75, "saved\n"), id="what-hangs-after-the-save-is-ended"),
    ],
)
def test_a_save_is_not_ended_by_the_wait_for_a_step_boundary(leave_by: str, after: str, expected: tuple[int, str]) -> None:
    done = run(SAVING.format(leave_by=leave_by, after=after, least=0.05 if after else 5.0))
    assert (done.returncode, done.stdout) == expected


def test_a_loader_process_ends_by_sigterm() -> None:
    assert run(CHILD).stdout == f"{-signal.SIGTERM} False\n"


def test_waiting_ends_with_the_notice() -> None:
    notice = Notice()
    notice.give()
    started = time.monotonic()
    notice.wait(60)
    assert notice.seen
    assert time.monotonic() - started < 30
