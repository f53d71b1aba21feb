"""Machines of a job, on loopback: launchers on a real etcd, told to leave, killed, watched through what they write."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from testing.ports import free_port

T = TypeVar("T")
LIMIT_SECONDS = 120.0
_READY = b"ready to serve client requests"  # in its log
# All is on loopback. torch looks up each peer of a store, and a resolver that does not answer costs five seconds a generation.
NO_DNS = {"RES_OPTIONS": "attempts:0"}


def until(what: str, look: Callable[[], T | None], limit_seconds: float = LIMIT_SECONDS) -> T:
    """The first answer that is not None or False."""
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        answer = look()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"waited {limit_seconds:.0f} s in vain for: {what}")


def start_etcd(program: Path, folder: Path, *flags: str, port: int = 0) -> tuple["subprocess.Popen[bytes]", str]:
    """Its data stays in `folder`. Returns the process and its endpoint."""
    client, peer = port or free_port(), free_port()
    log = folder / "etcd.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *[str(program), "--data-dir", str(folder / "etcd"), "--name", "test"],
                *["--listen-client-urls", f"http://127.0.0.1:{client}", "--advertise-client-urls", f"http://127.0.0.1:{client}"],
                *["--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"],
                *["--initial-cluster", f"test=http://127.0.0.1:{peer}"],
                *flags,
            ],
            stdout=output,
            stderr=output,
        )
    until("etcd listening", lambda: process.poll() is not None or _READY in log.read_bytes())
    assert process.poll() is None, log.read_text()[-2000:]
    return process, f"127.0.0.1:{client}"


class Job:
    """One job and its machines."""

    def __init__(self, endpoint: str, output: Path, arguments: list[str], name: str = "job", backend: str = "etcd3") -> None:
        self.output, self._endpoint = output, endpoint
        self._command = [
            *[sys.executable, "-m", "ebb.elastic.launch", f"--rdzv_backend={backend}", f"--rdzv_endpoint={endpoint}"],
            *[f"--rdzv_id={name}", "--nnodes=1:4", *arguments],
        ]
        self._machines: list[subprocess.Popen[bytes]] = []
        output.mkdir()

    def start(
        self, planned: int = 0, endpoint: str = "", within: Sequence[str] = (), address: str = ""
    ) -> "subprocess.Popen[bytes]":
        """`planned` is how many machines a controller would tell it that the job is to have; 0: none tells it anything.
        `endpoint`: its own way to etcd. `within` are the words before a command that put it into a network of its own
        (benchmarks/recovery/namespaces.py), where it has this address on eth0."""
        own = {f"--rdzv_endpoint={self._endpoint}": f"--rdzv_endpoint={endpoint or self._endpoint}"}
        command = [*within, *(own.get(word, word) for word in self._command)]
        if address:
            command.insert(command.index("ebb.elastic.launch") + 1, f"--local-addr={address}")
        with (self.output / f"machine{len(self._machines)}.log").open("wb") as log:
            machine = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    **NO_DNS,
                    "EBB_OUTPUT_DIR": str(self.output),
                    "EBB_PLANNED_WORKERS": str(planned),
                    "OMP_NUM_THREADS": "1",
                    **({"GLOO_SOCKET_IFNAME": "eth0"} if address else {}),
                },
                start_new_session=True,
            )
        self._machines.append(machine)
        return machine

    def stop_all(self) -> None:
        for machine in self._machines:
            kill_with_children(machine)

    def lines(self) -> list[dict[str, Any]]:
        path = self.output / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def together(self, world_size: int, steps: int) -> list[dict[str, Any]]:
        """Wait until the newest generation, of this size, has made so many steps; its lines."""

        def enough() -> list[dict[str, Any]] | None:
            lines = self.lines()
            newest = [line for line in lines if line["generation"] == lines[-1]["generation"]]
            return newest if len(newest) >= steps and newest[0]["world_size"] == world_size else None

        return until(f"{steps} steps by {world_size} machines", enough)

    def log(self, number: int) -> str:
        """Of the machine that was started as this one, from 0."""
        return (self.output / f"machine{number}.log").read_text()

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.output.glob("*.log")))


def kill_with_children(machine: "subprocess.Popen[bytes]") -> None:
    """As a machine that loses its power: nobody in it runs a line any more."""
    processes = [machine.pid, *children(machine.pid)] if machine.poll() is None else []
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                continue
        processes += [child for child in children(machine.pid) if child not in processes]
    machine.wait(10)


def workers(launcher: int) -> list[int]:
    """Its training processes: its fork server has made them, and their own children are loader processes."""
    every = children(launcher)
    direct = [each for each in every if _parent(each) == launcher]
    return sorted(each for each in every if _parent(each) in direct)


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            child = int(path.parent.name)
            found += [child, *children(child)]
    return found
