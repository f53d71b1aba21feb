"""`etcd3` under plain torchrun with a script that knows nothing of us: found by the entry point, grows, shrinks, finishes."""

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.elastic.machines import kill_with_children, until
from tests.elastic.rendezvous.servers import Server

pytestmark = pytest.mark.e2e
CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """What pip would leave of this package beside its code: the entry point, word for word."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site" / "ebb-0.1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"]
    lines = [line for group in groups for line in (f"[{group}]", *(f"{name} = {value}" for name, value in groups[group].items()))]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder.parent


class Agents:
    def __init__(self, endpoint: str, site: Path, folder: Path) -> None:
        self.folder = folder
        self._command = [
            *[sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3"],
            *["--rdzv_backend=etcd3", f"--rdzv_endpoint={endpoint}", f"--rdzv_id={folder.parent.name}", "--local-addr=127.0.0.1"],
            "--rdzv_conf=last_call_timeout=1,join_batch_seconds=0.3",
        ]
        self._script = [str(CHECKOUT / "tests" / "elastic" / "rendezvous" / "script.py"), str(folder)]
        path = os.pathsep.join([str(site), str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
        self._environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self.all: list[subprocess.Popen[bytes]] = []
        folder.mkdir()

    def start(self, *flags: str) -> "subprocess.Popen[bytes]":
        """The last of a flag that is given twice counts."""
        command = [*self._command, *flags, *self._script]
        with (self.folder / f"agent{len(self.all)}.log").open("wb") as log:
            agent = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment, start_new_session=True)
        self.all.append(agent)
        return agent

    def worlds(self) -> list[str]:
        """One line for each worker process that ever met its peers: "rank size pid"."""
        found = [path.read_text() for path in self.folder.glob("world-*")]
        return [line for line in found if len(line.split()) == 3]  # the others are being written

    def world(self, size: int, besides: set[str]) -> set[str]:
        """Wait for as many new workers that found each other."""

        def met() -> set[str] | None:
            new = {line for line in self.worlds() if line not in besides and line.split()[1] == str(size)}
            return new if len(new) == size else None

        return until(f"a world of {size}", met, 60)


@pytest.fixture
def agents(etcd: Server, installed: Path, tmp_path: Path) -> Iterator[Agents]:
    agents = Agents(etcd.endpoint, installed, tmp_path / "run")
    yield agents
    for agent in agents.all:
        kill_with_children(agent)
    print("\n".join(f"--- {path.name}\n{path.read_text()[-4000:]}" for path in agents.folder.glob("*.log")))


def test_torchrun_grows_and_shrinks(agents: Agents) -> None:
    first = agents.start()
    seen = agents.world(1, set())
    second = agents.start()
    seen |= agents.world(2, seen)
    second.send_signal(signal.SIGTERM)
    seen |= agents.world(1, seen)
    second.wait(60)
    (agents.folder / "finish").touch()
    assert first.wait(60) == 0
    assert len(list(agents.folder.glob("finished-*"))) == 1


def test_told_to_end_while_it_waits_for_others_it_leaves_nothing_behind(agents: Agents, etcd: Server) -> None:
    agent = agents.start("--nnodes=2:2")
    client, members = etcd.client(), f"/ebb/{agents.folder.parent.name}/members/"
    until("it waits", lambda: client.list(members)[0], 30)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) != 0
    assert client.list(members)[0] == [], "its lease would go on for ten seconds"


def test_a_wrong_setting_is_said_at_once(agents: Agents) -> None:
    assert agents.start("--rdzv_conf=last_cal=1").wait(60) == 1
    assert "has no 'last_cal' for the backend etcd3" in (agents.folder / "agent0.log").read_text()
