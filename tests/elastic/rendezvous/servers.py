"""Real etcd servers on loopback, of each version that we promise to work with: started, killed, robbed of their data."""

import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from devcluster import tools
from devcluster.commands import dies_with_us
from ebb.elastic.rendezvous.etcd import Etcd, Refused, Tls, Unreachable
from testing.ports import free_port
from tests.elastic.machines import until


def _series(tool: tools.Tool) -> str:
    return ".".join(tool.version.removeprefix("v").split(".")[:2])


VERSIONS = {_series(tool): name for name, tool in tools.TOOLS.items() if name.startswith("etcd")}
assert {"3.5", "3.6", "3.7"} <= VERSIONS.keys(), VERSIONS


def built(version: str) -> Path:
    tool = VERSIONS[version]
    program = tools.folder_of(tool) / "etcd"
    if not program.exists():
        get = f"import asyncio, devcluster.tools as tools; asyncio.run(tools.ensure({tool!r}))"
        pytest.skip(f'{program} is not built yet: python -c "{get}"')
    return program


@dataclass
class Server:
    """`flags` replace nothing: they come after ours. `scheme` https needs the flags for its certificates."""

    program: Path
    folder: Path
    flags: list[str] = field(default_factory=list)
    scheme: str = "http"
    tls: Tls | None = None
    durable: bool = False

    def __post_init__(self) -> None:
        self.port, self._peer = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> "Server":
        peer = f"http://127.0.0.1:{self._peer}"
        command = [
            *[
                *dies_with_us(),
                str(self.program),
                "--name=test",
                f"--data-dir={self.folder}/etcd",
                f"--initial-cluster=test={peer}",
            ],
            *[f"--listen-client-urls={self.endpoint}", f"--advertise-client-urls={self.endpoint}"],
            *[f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"],
            *([] if self.durable else ["--unsafe-no-fsync"]),
            *self.flags,
        ]
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until("etcd answers", self._answers, 30)
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def lose_data(self) -> None:
        shutil.rmtree(self.folder / "etcd")

    def client(self, **more: str) -> Etcd:
        return Etcd([self.endpoint], tls=self.tls, **more)  # type: ignore[arg-type]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "etcd.log").read_text()[-2000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        if self.scheme == "https":
            return True
        try:
            return self.client().keep_alive(1) == 0  # answered only once there is a leader
        except Unreachable:
            return False
        except Refused:
            return True  # it asks for a user
