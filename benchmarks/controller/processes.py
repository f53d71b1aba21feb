"""The programs of the benchmark: started with a log of their own, measured from /proc, ended for certain.

    process = await Process.start("etcd", [path, "--data-dir=..."], folder); process.memory(); await process.stop()

The kernel kills them when we die, even by kill -9. A terminal's Ctrl-C reaches us alone: we stop them in order.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from devcluster.commands import dies_with_us, last_lines

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.2
KIB = 1024


class BenchmarkError(Exception):
    """A reason why the benchmark cannot measure; the text says what to do or where to look."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Resident memory of a process in MB of 10^6 bytes."""

    now: float
    peak: float


class Process:
    """One running program."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name, self.log = name, log
        self._process = process

    @classmethod
    async def start(
        cls, name: str, args: Sequence[str | Path], folder: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Self:
        """Its output goes to `<folder>/<name>.log`."""
        log = folder / f"{name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *dies_with_us(), *map(str, args), env={**os.environ, **(env or {})}, cwd=cwd,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        return cls(name, process, log)

    def check(self) -> None:
        """Raises BenchmarkError when it has ended."""
        if self._process.returncode is not None:
            raise BenchmarkError(f"{self.name} ended with {self._process.returncode}; the end of {self.log}:\n{self.last_words}")

    async def ended(self) -> None:
        """Wait for its end."""
        await self._process.wait()

    @property
    def last_words(self) -> str:
        return last_lines(self.log, 15)

    def memory(self) -> Memory:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        values = parse_status(status)
        return Memory(now=values["VmRSS"] * KIB / 1e6, peak=values["VmHWM"] * KIB / 1e6)

    def cpu_seconds(self) -> float:
        """Processor time that it has used, in user mode and in the kernel."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """As a machine dies: at once and without a word."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self) -> None:
        """Ask, wait, kill. Idempotent."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), GRACE_SECONDS)
        except TimeoutError:
            self.kill()
            await self._process.wait()


async def eventually(reached: Callable[[], Awaitable[bool]], seconds: float, problem: Callable[[], str]) -> None:
    """Ask until the answer is yes. Raises BenchmarkError with the text of `problem`."""
    try:
        async with asyncio.timeout(seconds):
            while not await reached():  # noqa: ASYNC110 - other programs set no event
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        raise BenchmarkError(f"{problem()} (waited {seconds:.0f} s)") from error


def parse_status(text: str) -> dict[str, int]:
    """The figures in KiB of /proc/PID/status."""
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            values[name] = int(words[0])
    return values
