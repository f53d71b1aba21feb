"""Python programs in processes of their own, forked from an interpreter that has imported what they need.

    program = EBB.start(*MAIN, "list", stdout=terminal, env={"EBB_KUBECONFIG": ...})
    program.send_signal(signal.SIGINT)
    assert program.wait() == 130

Importing `ebb` is most of what a short command costs. Each program has a session, an environment, a folder and files of its own,
as if it had been started by a shell; only its modules are there already. What is said about imports is tested elsewhere.
"""

import asyncio
import fcntl
import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ebb.cli import verbs

MOST_BYTES = 100_000  # of a request: words and environment


class Program:
    """One of them, while it runs. `descriptor` says its process id and later its exit code, a line each."""

    def __init__(self, descriptor: int) -> None:
        self._news = os.fdopen(descriptor, "rb", buffering=0)
        self.pid = int(self._news.readline())

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Return its exit code, negative for a signal as in subprocess. To be called once."""
        with self._news:
            return int(self._news.readline())


class Interpreter:
    """The process that they are forked from; it starts with the first and ends with this one."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._requests: socket.socket | None = None

    def start(
        self, *words: str, env: Mapping[str, str], stdin: int = -1, stdout: int = -1, stderr: int = -1, cwd: Path | str = "."
    ) -> Program:
        """Start it; `words` are those of `python -c`. -1: nothing to read, and nobody who reads."""
        news, its = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        request = {"words": words, "env": dict(env), "cwd": str(Path(cwd).absolute())}
        files = [nothing if each == -1 else each for each in (stdin, stdout, stderr)]
        socket.send_fds(self._connected(), [json.dumps(request).encode()], [*files, its])
        os.close(nothing)
        os.close(its)
        return Program(news)

    async def run(
        self, *words: str, env: Mapping[str, str], stdin: bytes | int = -1, cwd: Path | str = "."
    ) -> tuple[int, bytes, bytes]:
        """Its exit code, and what it wrote into two pipes."""
        pipes = [os.pipe() for _ in range(3)]
        (source, sink), (out, its_out), (err, its_err) = pipes
        given = stdin if isinstance(stdin, int) else source
        program = self.start(*words, env=env, stdin=given, stdout=its_out, stderr=its_err, cwd=cwd)
        for descriptor in (source, its_out, its_err):
            os.close(descriptor)
        said = asyncio.to_thread(_read, out), asyncio.to_thread(_read, err)
        _, output, errors = await asyncio.gather(asyncio.to_thread(_write, sink, stdin), *said)
        return await asyncio.to_thread(program.wait), output, errors

    def _connected(self) -> socket.socket:
        if self._requests is None:
            self._requests, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-m", __name__, str(its.fileno()), *self._modules]
            self._process = subprocess.Popen(command, pass_fds=[its.fileno()], cwd=Path(__file__).parents[2], stdin=-3)
            its.close()
        return self._requests


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _write(descriptor: int, data: bytes | int) -> None:
    with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as file:
        file.write(data if isinstance(data, bytes) else b"")


EBB = Interpreter(
    "ebb.cli.app", "typer._adapters", "pydantic.type_adapter", "rich.live",
    *(f"{verbs.__name__}.{module.name}" for module in pkgutil.iter_modules(verbs.__path__)),
)  # fmt: skip
MAIN = ("-c", "from ebb.cli import main; main()")


# --- In the other process -------------------------------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request; return in the new process, with what it is to do."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, descriptors, *_ = socket.recv_fds(requests, MOST_BYTES, 4)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *files, news = descriptors
    if (child := os.fork()) != 0:  # between the two: waits, and passes the exit code on
        for descriptor in files:
            os.close(descriptor)
        os.write(news, b"%d\n" % child)
        os.write(news, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    os.close(news)
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
        os.close(descriptor)
    done: dict[str, Any] = json.loads(data)
    return done


def _become(words: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
    """Make of this process what `python -c PROGRAM ...` in that folder would be, and run it."""
    os.setsid()
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = os.fdopen(number, "w" if number else "r", 1 if number == 2 or os.isatty(number) else -1, "utf-8", closefd=False)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    sys.argv, sys.path[0] = ["-c", *words[2:]], ""
    sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(words[1], "<string>", "exec"), vars(sys.modules["__main__"]))


if __name__ == "__main__":
    for module in sys.argv[2:]:
        with suppress(ImportError):  # then it is imported where it is needed, and the error is seen
            import_module(module)
    gc.freeze()
    _become(**_serve(socket.socket(fileno=int(sys.argv[1]))))
