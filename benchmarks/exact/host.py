"""A process that has torch loaded and forks machines: each runs the same command as `python -m MODULE ...` would, at once.

    echo '{"id": 1, "module": "ebb.elastic.launch", "arguments": [...], "environment": {...}, "log": "/tmp/a.log"}' |
        python -m benchmarks.exact.host PRELOADED [PRELOADED ...]

It answers {"id": 1, "pid": 4711} and, at its end, {"id": 1, "code": 0}; all in lines of JSON, and first {"ready": true}. The
command's own fork server is forked as well where it would be a new interpreter; its workers come from that one, as they always
do. When its input ends, it kills all that it has started, and ends. It imports nothing of the trainer by name.
"""

import atexit
import contextlib
import importlib
import json
import multiprocessing.util
import os
import runpy
import selectors
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, BinaryIO

from benchmarks.exact import processes

_WOKEN_BY = "multiprocessing"  # a helper process of Python: `python -c "from multiprocessing... import main; main(...)"`


class Host:
    """The forking process; single-threaded, so that a fork copies no lock that another thread holds."""

    def __init__(self, requests: BinaryIO, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._running: dict[int, int] = {}  # pid -> id

    def serve(self) -> None:
        waker, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._say({"ready": True})
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests, selectors.EVENT_READ)
            selector.register(waker, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    found = os.read(key.fd, 65536)
                    if key.fd == waker:
                        self._reap()
                        continue
                    if not found:
                        return self._kill_all()
                    *lines, rest = (rest + found).split(b"\n")
                    for line in lines:
                        self._start(json.loads(line))

    def _start(self, request: dict[str, Any]) -> None:
        pid = os.fork()
        if pid == 0:
            _live(request)
        self._running[pid] = request["id"]
        self._say({"id": request["id"], "pid": pid})

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self._running:
                    self._say({"id": self._running.pop(pid), "code": os.waitstatus_to_exitcode(status)})

    def _kill_all(self) -> None:
        for pid in list(self._running):
            processes.kill(pid)

    def _say(self, answer: dict[str, Any]) -> None:
        os.write(self._answers, json.dumps(answer).encode() + b"\n")


def _live(request: dict[str, Any]) -> None:
    """The forked process, to its end."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        _only(())
        os.setsid()
        _quiet_signals()
        os.environ.clear()
        os.environ.update(request["environment"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for number in (1, 2):
            os.dup2(log, number)
        os.close(log)
        multiprocessing.util.spawnv_passfds = _fork_instead  # type: ignore[assignment]
        sys.argv = [request["module"], *request["arguments"]]
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # the edge of a process: whatever it was
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _fork_instead(_path: bytes, arguments: Sequence[Any], keep: Sequence[int]) -> int:
    """In place of multiprocessing's own: the code that a new interpreter would be given runs in a fork of this process."""
    words = [word.decode() if isinstance(word, bytes) else str(word) for word in arguments]
    code = words[words.index("-c") + 1]
    assert _WOKEN_BY in code, code
    pid = os.fork()
    if pid:
        return pid
    try:
        _quiet_signals()
        _only(keep)
        atexit._clear()  # what this process has registered is not the helper's to do
        atexit.register(multiprocessing.util._exit_function)  # type: ignore[attr-defined]
        exec(compile(code, "<helper>", "exec"), {"__name__": "helper"})  # noqa: S102 - multiprocessing's own words
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _quiet_signals() -> None:
    """As after an exec: no handler of this process stays."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _only(keep: Sequence[int]) -> None:
    """As after an exec: no other descriptor stays open; a pipe that is held open never ends."""
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a list: it changes meanwhile
        number = int(entry)
        if number > 2 and number not in keep:
            with contextlib.suppress(OSError):
                os.close(number)


def _preload(name: str) -> None:
    """It only saves time: a module that there is no more is passed over."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(str(error.name)):
            raise


def main(arguments: list[str]) -> None:
    for name in arguments:
        _preload(name)
    answers = os.dup(1)
    os.dup2(2, 1)  # what is printed by accident is no answer
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    Host(requests, answers).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
