"""`ebb sweep` on a terminal: what it asks, the table that it keeps current, what Ctrl-C leaves."""

import asyncio
import fcntl
import os
import re
import shlex
import signal
import struct
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ebb.cli.exits import Exit
from tests.cli.program import EBB, MAIN
from tests.cli.serving import serving
from tests.cli.test_sweep import jobs, reports
from tests.cli.world import FakeKube, platform_map


class Terminal:
    """`ebb` on a pseudo-terminal of 80 columns. What it shows is read while the API server answers in this process."""

    def __init__(self, kubeconfig: Path, line: str) -> None:
        self.said = ""
        ours, its = os.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        words = (*MAIN, "--kubeconfig", str(kubeconfig), *shlex.split(line))
        self._process = EBB.start(*words, stdin=its, stdout=its, stderr=its, env=environment | {"TERM": "xterm"})
        os.close(its)
        os.set_blocking(ours, False)
        self._ours, self._news = ours, asyncio.Event()
        asyncio.get_running_loop().add_reader(ours, self._read)

    def _read(self) -> None:
        try:
            self.said += os.read(self._ours, 65536).decode()
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._ours)
        self._news.set()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.said)

    def lines(self) -> list[str]:
        return re.split(r"[\r\n]+", self.plain())

    async def until(self, text: str) -> None:
        async with asyncio.timeout(30):
            while text not in self.plain():
                await self._news.wait()
                self._news.clear()

    async def ended(self) -> int:
        return await asyncio.wait_for(asyncio.to_thread(self._process.wait), 30)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)


Start = Callable[[Path, str], Terminal]


@pytest.fixture
async def started() -> AsyncIterator[Start]:
    """Terminals that end with the test, whatever becomes of it."""
    terminals: list[Terminal] = []

    def start(kubeconfig: Path, line: str) -> Terminal:
        terminals.append(Terminal(kubeconfig, line))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.end()


async def test_on_a_terminal_it_asks_and_shows_one_table(tmp_path: Path, started: Start) -> None:
    """A terminal of 80 columns: the runs are over while it looks."""
    kube = FakeKube(platform_map())
    async with serving(kube, tmp_path) as kubeconfig:
        terminal = started(
            kubeconfig, "sweep --name scan lr=0.1,0.01 wd=range(0,0.1,0.05) --watch --no-code -- train.py --epochs 3"
        )
        await terminal.until("Start them? [Y/n]")
        assert not jobs(kube)
        terminal.type("y\n")
        await terminal.until("4 runs are submitted")
        await terminal.until("scan: 4 waiting")
        reports(kube, "Running", step=150, totalSteps=400)
        await terminal.until("scan: 4 running; best so far lr=0.1 wd=0")
        reports(kube, "Succeeded", step=400, totalSteps=400)
        assert await terminal.ended() == Exit.OK
    assert not [line for line in terminal.lines() if len(line) > 80]


async def test_on_a_terminal_no_means_nothing(tmp_path: Path, started: Start) -> None:
    kube = FakeKube(platform_map())
    async with serving(kube, tmp_path) as kubeconfig:
        terminal = started(kubeconfig, "sweep --name scan lr=1,2 --no-code -- train.py")
        await terminal.until("Start them?")
        terminal.type("n\n")
        assert await terminal.ended() == Exit.FAILED
    assert "Nothing was sent." in terminal.said
    assert not jobs(kube)


async def test_ctrl_c_leaves_the_runs_alone(tmp_path: Path, started: Start) -> None:
    kube = FakeKube(platform_map())
    async with serving(kube, tmp_path) as kubeconfig:
        terminal = started(kubeconfig, "sweep --yes --name scan lr=1,2 --watch --no-code -- train.py")
        await terminal.until("scan: 2 waiting")
        terminal.interrupt()
        assert await terminal.ended() == Exit.INTERRUPTED
        await terminal.until("jobs continue")
    assert [job["spec"].get("suspend") for job in jobs(kube)] == [None, None]


async def test_a_table_that_keeps_itself_current(tmp_path: Path, started: Start) -> None:
    kube = FakeKube(platform_map())
    async with serving(kube, tmp_path) as kubeconfig:
        terminal = started(kubeconfig, "sweep --yes --name scan lr=1,2 --watch --no-code -- train.py")
        await terminal.until("scan: 2 waiting")
        reports(kube, "Running", step=12)
        await terminal.until("scan: 2 running")
        reports(kube, "Succeeded", step=20)
        assert await terminal.ended() == Exit.OK
