"""Daemons that outlive us: start detached with a log file, know again, wait for, stop.

A daemon's identity is its control group `ebb/<box>/daemons/<name>` (see cgroups.py) and, so that a change of its command line
is seen, a digest of it in `<box folder>/daemons/<name>`. `ensure` is safe at any time and after any kill. One that ends by itself
is started again, as a kubelet does with the parts of a control plane. What runs on machines: lifecycle.py.
"""

import asyncio
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.commands import HEARTBEAT_SECONDS, last_lines, say
from devcluster.machines import cgroups
from devcluster.settings import Box, BoxError

HEALTHY_TIMEOUT_SECONDS = 90.0
# A daemon that was running before and does not answer for this long hangs: it is started afresh.
HUNG_SECONDS = 8.0
LOG_BYTES = 20_000_000

# Joins the control groups, then forks the daemon and ends: when it has ended the daemon is in its groups, however loaded the
# host is. As a child of init the daemon is reaped whether we live or not.
LAUNCH = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1" || exit 125; shift; n=$((n-1)); done; exec setsid --fork "$@"'

# Keeps a program running: kube-scheduler ends itself where its cache contradicts the API server. One that never ran for so many
# seconds cannot start, which is for `ensure` to say; one that did may need more than one try, while what it talks to is away.
KEEP = """
least=$1 ran=; shift
while started=$(date +%s); "$@"; code=$?; [ "$ran" ] || [ $(($(date +%s) - started)) -ge "$least" ]; do
  ran=yes; echo "$0 ended with $code: again"; sleep 1
done
"""
LEAST_SECONDS = 10


class ProcessError(BoxError):
    """A daemon died or did not become healthy; the text holds the end of its log."""


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A process to run and keep. `netns` "" is the host's network."""

    name: str
    args: list[str]
    netns: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((self.args, self.netns, sorted(self.env.items()))).encode()).hexdigest()


def launch(args: list[str], *, cgroup: str, log: Path, env: Mapping[str, str] | None = None) -> None:
    """Starts a program detached from us in a control group. Returns when it is forked and in its group."""
    joins = cgroups.create(cgroup)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".old"))
    with log.open("ab") as output:
        subprocess.run(
            ["sh", "-c", LAUNCH, "launch", str(len(joins)), *map(str, joins), *args],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(env or {})}, check=True,
        )  # fmt: skip


def cgroup_of(box: Box, name: str) -> str:
    return f"{box.cgroup}/daemons/{name}"


def is_alive(box: Box, name: str) -> bool:
    return bool(cgroups.members(cgroup_of(box, name)))


async def ensure(box: Box, daemon: Daemon, healthy: Callable[[], Awaitable[bool]]) -> bool:
    """The daemon runs with this command line and is healthy when this returns. Returns whether it had to be started."""
    if (
        is_alive(box, daemon.name)
        and _digest_file(box, daemon.name).exists()
        and _digest_file(box, daemon.name).read_text() == daemon.digest
    ):
        with suppress(ProcessError):
            await await_healthy(box, daemon.name, healthy, patience_seconds=HUNG_SECONDS)
            return False
    await stop(box, daemon.name)
    _digest_file(box, daemon.name).parent.mkdir(parents=True, exist_ok=True)
    enter = ["nsenter", f"--net=/run/netns/{daemon.netns}", "--"] if daemon.netns else []
    kept = ["sh", "-c", KEEP, daemon.name, str(LEAST_SECONDS), *enter, *daemon.args]
    launch(kept, cgroup=cgroup_of(box, daemon.name), log=log_of(box, daemon.name), env=daemon.env)
    # Written last: a daemon without a digest was half started and is started again.
    _digest_file(box, daemon.name).write_text(daemon.digest)
    await await_healthy(box, daemon.name, healthy)
    return True


async def await_healthy(
    box: Box, name: str, healthy: Callable[[], Awaitable[bool]], *, patience_seconds: float = HEALTHY_TIMEOUT_SECONDS
) -> None:
    """Raises ProcessError when the daemon dies, or stays unhealthy for `patience_seconds`."""
    started = told = time.monotonic()
    while not await healthy():
        waited = time.monotonic() - started
        if time.monotonic() - told > HEARTBEAT_SECONDS:
            told = time.monotonic()
            say(f"waiting for {name} to be healthy ... {waited:.0f} s: {last_lines(log_of(box, name), 1)[-80:]}")
        if not is_alive(box, name):
            raise _problem(box, name, "died")
        if waited > patience_seconds:
            raise _problem(box, name, f"is not healthy after {waited:.0f} s")
        await asyncio.sleep(0.05)


async def stop(box: Box, name: str, grace_seconds: float = 0.0) -> None:
    """Ends the daemon and all that it started; with SIGTERM first when there is a grace. Idempotent."""
    group = cgroup_of(box, name)
    deadline = time.monotonic() + grace_seconds
    if grace_seconds:
        for pid in cgroups.members(group):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    while time.monotonic() < deadline and cgroups.members(group):  # noqa: ASYNC110 - the kernel sends no event when a group is empty
        await asyncio.sleep(0.05)
    await cgroups.kill(group)
    await cgroups.remove(group)
    _digest_file(box, name).unlink(missing_ok=True)


def _problem(box: Box, name: str, what: str) -> ProcessError:
    log = log_of(box, name)
    return ProcessError(f"{name} of devcluster {box.name!r} {what}; the end of {log}:\n{last_lines(log, 12)}")


def log_of(box: Box, name: str) -> Path:
    return box.logs / f"{name}.log"


def _digest_file(box: Box, name: str) -> Path:
    return box.folder / "daemons" / name
