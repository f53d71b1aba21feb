"""Machines of a job: launchers on loopback, each a session of its own with a log; told to leave, killed, waited for.

    with Fresh() as starter, or Forked(["trainer.images.train"]) as starter:
        machine = starter.start(["--rdzv_id=...", ...], environment, log)
        machine.tell(); machine.kill(); machine.code       # None while it lives

Both kinds run the same command; Forked ones come from a process that has torch loaded (host.py) and so start in tenths of a
second. The kernel ends all of them when this process dies.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact import processes
from devcluster.commands import dies_with_us
from devcluster.settings import CHECKOUT

LAUNCHER = "ebb.elastic.launch"
HOST_READY_SECONDS = 120.0
T = TypeVar("T")


class Machine(Protocol):
    """A launcher and all that it starts."""

    @property
    def pid(self) -> int: ...
    @property
    def log(self) -> Path: ...
    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""

    def tell(self) -> None:
        """Announce by SIGTERM that the machine is taken back."""

    def kill(self) -> None:
        """As when it loses its power."""


class Starter(Protocol):
    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Machine: ...


class _Fresh:
    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process, self.log, self.pid = process, log, process.pid

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def tell(self) -> None:
        if self.code is None:
            processes.send(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.code is None:
            processes.kill(self.pid)
            self._process.wait()


class Fresh:
    """Starts new interpreters, as a pod does."""

    def __init__(self, module: str = LAUNCHER, within: Sequence[str] = ()) -> None:
        """`within` are the words before a command that put it into a network of its own (recovery/namespaces.py)."""
        self._module, self._within = module, within

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Machine:
        command = [*self._within, *dies_with_us(), sys.executable, "-m", self._module, *arguments]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=dict(environment), cwd=CHECKOUT, start_new_session=True
            )
        return _Fresh(process, log)


class _Fork:
    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log
        self.code: int | None = None

    def tell(self) -> None:
        if self.code is None:
            processes.send(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.code is None:
            processes.kill(self.pid)


class Forked:
    """`preloaded` are modules that cost time to import."""

    def __init__(self, preloaded: Sequence[str], log: Path) -> None:
        with log.open("ab") as output:
            self._host = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.exact.host", *preloaded],  # ends, with all its machines, when its input does
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment(),
                cwd=CHECKOUT,
                start_new_session=True,
            )
        self._log = log
        self._changed = threading.Condition()
        self._ready = False
        self._count = 0
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._forks: dict[int, _Fork] = {}
        self._listener = threading.Thread(target=self._listen, name="forked", daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready, HOST_READY_SECONDS):
                raise BenchmarkError(f"the process that forks machines did not come up; the end of {self._log} says why")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._host.stdin is not None
        with suppress(OSError):
            self._host.stdin.close()
        self._host.wait()
        self._listener.join()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Machine:
        assert self._host.stdin is not None
        with self._changed:
            self._count += 1
            number = self._count
            request = {
                "id": number,
                "module": LAUNCHER,
                "arguments": list(arguments),
                "environment": dict(environment),
                "log": str(log),
            }
            self._host.stdin.write(json.dumps(request).encode() + b"\n")
            self._host.stdin.flush()
            if not self._changed.wait_for(lambda: number in self._pids or self._host.poll() is not None, HOST_READY_SECONDS):
                raise BenchmarkError("the process that forks machines does not answer")
            if number not in self._pids:
                raise BenchmarkError(f"the process that forks machines has ended; the end of {self._log} says why")
            fork = self._forks[number] = _Fork(self._pids[number], log)
            fork.code = self._codes.get(number)
        return fork

    def _listen(self) -> None:
        assert self._host.stdout is not None
        with self._host.stdout as answers:
            for line in answers:
                self._hear(json.loads(line))

    def _hear(self, answer: dict[str, Any]) -> None:
        with self._changed:
            self._ready = self._ready or "ready" in answer
            if "pid" in answer:
                self._pids[answer["id"]] = answer["pid"]
            if "code" in answer:
                self._codes[answer["id"]] = answer["code"]
                if answer["id"] in self._forks:
                    self._forks[answer["id"]].code = answer["code"]
            self._changed.notify_all()


def nccl_host(number: int, interface: str = "lo") -> dict[str, str]:
    """The environment that makes a machine a host of its own to NCCL, which refuses two ranks of one host that share a GPU; their
    sockets join them."""
    return {"NCCL_HOSTID": f"machine{number}", "NCCL_SOCKET_IFNAME": interface}


def environment() -> dict[str, str]:
    """Of the launchers: one thread each, and nothing of a job or launcher that this process runs in."""
    ours = ("EBB_", "PET_", "TORCHELASTIC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    # the last two: what the launcher sets for itself before torch is loaded; in a forked one it is loaded already
    own = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    # and all is on loopback, where torch's look-up of a peer's name finds nothing but lost packets of DNS
    return kept | own | {"RES_OPTIONS": "attempts:0"}


class GivenUpError(Exception):
    """The run was interrupted: nobody waits any more."""


given_up = threading.Event()
"""Set when the run is interrupted: all waits of all threads end by GivenUpError."""


@contextmanager
def side_by_side(most: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for jobs that are played at once: where one fails, or Ctrl-C comes, all others give up."""
    with ThreadPoolExecutor(most) as pool:
        try:
            yield pool
        except BaseException:
            given_up.set()
            pool.shutdown(cancel_futures=True)
            raise


def until(look: Callable[[], T | None], seconds: float, *, progress: Callable[[], object] = lambda: None) -> T | None:
    """The first answer that is not None or False; None when there is none for so long, in which `progress` stays the same too.
    Raises GivenUpError."""
    deadline, before = time.monotonic() + seconds, progress()
    while time.monotonic() < deadline:
        if answer := look():
            return answer
        if (now := progress()) != before:
            deadline, before = time.monotonic() + seconds, now
        if given_up.wait(0.03):  # other processes set no event
            raise GivenUpError
    return None
