"""Running the programs of the host: short ones (`run`) and long ones that show progress (`watch`).

Both die with us, even on kill -9: a half-done build must not go on beside the next `up`. As root, a watched program and all
its children have a process and a mount namespace of their own, so nothing that they start or mount outlives them. Daemons:
machines/processes.py.
"""

import asyncio
import fcntl
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TextIO

from devcluster.settings import BoxError

HEARTBEAT_SECONDS = 5.0
_STARTED = time.monotonic()


class CommandError(BoxError):
    """A program ended with an error; the text holds its last lines."""


def lives(pid: int) -> bool:
    """True if there is such a process, also one that is not ours to signal."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def say(text: str) -> None:
    """One line of progress for the person who waits."""
    print(f"[{time.monotonic() - _STARTED:6.1f} s] {text}", flush=True)


async def run(*args: str | Path, stdin: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """Runs a short program to its end and returns what it printed. Raises CommandError."""
    process = await asyncio.create_subprocess_exec(
        *dies_with_us(), *map(str, args), env={**os.environ, **(env or {})},
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await process.communicate(stdin.encode() if stdin is not None else None)
    except asyncio.CancelledError:
        process.kill()
        raise
    if process.returncode != 0:
        said = (err or out).decode(errors="replace").strip()[-1500:]
        raise CommandError(f"`{' '.join(map(str, args))}` failed with {process.returncode}: {said}")
    return out.decode(errors="replace")


async def watch(
    what: str,
    args: Sequence[str | Path],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    outlives_us: bool = False,
) -> None:
    """Runs a long program with its output in `log`, and says at least every 10 s how it goes. Raises CommandError.
    `outlives_us` is for what must not be cut off in the middle."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    say(f"{what} ...")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *([] if outlives_us else [*dies_with_us(), *_sealed()]), *map(str, args), cwd=cwd, env={**os.environ, **(env or {})},
            stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=outlives_us,
        )  # fmt: skip
    ended = asyncio.ensure_future(process.wait())
    try:
        while not (await asyncio.wait([ended], timeout=HEARTBEAT_SECONDS))[0]:
            say(f"{what} ... {time.monotonic() - started:.0f} s: {last_lines(log, 1)[-100:]}")
    except asyncio.CancelledError:
        if not outlives_us:
            process.kill()
            await ended
        raise
    if process.returncode != 0:
        raise CommandError(f"{what} failed with {process.returncode}; all of it is in {log}:\n{last_lines(log, 15)}")
    say(f"{what}: done in {time.monotonic() - started:.1f} s")


def last_lines(log: Path, count: int) -> str:
    """The end of a log that may be long, being written, or missing."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16384))
            # A progress bar redraws its line with carriage returns.
            lines = file.read().decode(errors="replace").replace("\r", "\n").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join([line for line in lines if line.strip()][-count:])


@asynccontextmanager
async def locked(path: Path, what: str) -> AsyncIterator[None]:
    """Holds the lock file `path`; freed by the kernel if we are killed. Says so when it has to wait for another run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a+") as file:
            await _lock(file, what)
            # `down` removes a devcluster's lock: who waited for that one holds a lock that others do not see.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
                yield
                return


async def _lock(file: TextIO, what: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting = asyncio.create_task(asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX))
        while not waiting.done():
            say(f"waiting for another run of ours that holds {what}")
            await asyncio.wait([waiting], timeout=HEARTBEAT_SECONDS)


def holder(path: Path) -> int | None:
    """Pid of who holds the lock file, None if nobody does."""
    with suppress(FileNotFoundError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read() or 0) or None
    return None


def is_root() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0


def dies_with_us() -> list[str]:
    """Put before a command: the kernel kills it when we end, even by kill -9, so that a repeated run does not meet it."""
    return ["setpriv", "--pdeathsig", "KILL", "--"] if sys.platform == "linux" and shutil.which("setpriv") else []


def _sealed() -> list[str]:
    return (
        ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--propagation", "slave"] if is_root() else []
    )
