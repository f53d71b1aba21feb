"""SIGTERM to a launcher that is PID 1, at every moment of its life: it always leaves, quickly, with 138 and without a traceback.

PID 1 ignores a signal for which it has no handler; here it is one in a PID namespace of its own.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebb.elastic.contract import EXIT_RECLAIMED
from tests.elastic import images
from tests.elastic.machines import children, start_etcd, until
from tests.elastic.rendezvous.servers import built

pytestmark = pytest.mark.e2e
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
CHECKOUT = Path(__file__).parents[3]
LIMIT_SECONDS = 12.0  # a machine that is taken back has 30


class First:
    """A launcher as PID 1."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / "log"
        with self._log.open("wb") as file:
            self._outer = subprocess.Popen(
                [*NAMESPACE, sys.executable, "-m", "ebb.elastic.launch", *arguments],
                stdout=file,
                stderr=file,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(folder), str(CHECKOUT)])},
            )
        self._pid = int(until("PID 1", lambda: children(self._outer.pid), 10)[0])

    def catches(self) -> bool:
        status = Path(f"/proc/{self._pid}/status").read_text()
        caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def log(self) -> str:
        return self._log.read_text()

    def tell(self) -> float:
        """Returns the seconds that it took to leave."""
        before = time.monotonic()
        os.kill(self._pid, signal.SIGTERM)
        assert self._outer.wait(LIMIT_SECONDS) == EXIT_RECLAIMED, self.log()
        assert "Traceback" not in self.log()
        return time.monotonic() - before

    def end(self) -> None:
        self._outer.kill()
        self._outer.wait()
        print(self.log())


Start = Callable[..., First]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[First] = []

    def begin(*arguments: str) -> First:
        started.append(First(tmp_path, *arguments))
        return started[-1]

    yield begin
    for each in started:
        each.end()


@pytest.mark.parametrize("seconds", [0, 0.05, 0.2, 0.5, 1.0, 1.5, 2.2, 3.0])
def test_from_its_first_moment_on(start: Start, tmp_path: Path, seconds: float) -> None:
    """Python begins, torch is imported, the fork server starts, the settings are read, the workers start."""
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(600)\n")
    first = start("--standalone", "-m", "endless")
    until("a handler", first.catches, 10)
    time.sleep(seconds)  # it is about that time
    print(f"left in {first.tell():.2f} s")


@pytest.mark.parametrize("seconds", [0, 0.03, 0.1, 0.2, 0.4, 0.8])
def test_between_generations(start: Start, tmp_path: Path, seconds: float) -> None:
    """A program that misses a peer at once, again and again: the launcher goes round in a circle of all its states."""
    (tmp_path / "alone.py").write_text("import sys\nsys.exit(75)\n")
    first = start("--standalone", "-m", "alone")
    until("generations", lambda: first.log().count("meeting the other machines") >= 3)
    time.sleep(seconds)
    print(f"left in {first.tell():.2f} s")


@pytest.mark.parametrize("backend", ["etcd3", "c10d"])
def test_while_it_waits_for_others(start: Start, tmp_path: Path, backend: str) -> None:
    process, endpoint = start_etcd(built("3.6"), tmp_path)
    try:
        where = endpoint if backend == "etcd3" else "127.0.0.1:0"
        first = start(
            "--nnodes=2:2", f"--rdzv_backend={backend}", f"--rdzv_endpoint={where}", "--rdzv_id=lonely", "-m", "trainer"
        )
        until("it waits", lambda: "meeting the other machines" in first.log())
        time.sleep(0.5)
        assert first.tell() < 5
    finally:
        process.kill()
        process.wait()


def test_while_torch_waits_inside_c(start: Start, tmp_path: Path) -> None:
    """For the store of a machine that is not there: torch's own rendezvous does not come back to Python for a minute."""
    where = ["--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", "--master-port=1"]
    first = start(*where, "-m", "trainer")
    until("it waits", lambda: "meeting the other machines" in first.log())
    time.sleep(0.5)
    print(f"left in {first.tell():.2f} s")


def test_in_the_first_step_of_an_unmodified_script(start: Start, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import time\nprint('a long first step', flush=True)\ntime.sleep(1800)\n")
    first = start("--standalone", str(tmp_path / "script.py"))
    until("the first step", lambda: "a long first step" in first.log())
    assert first.tell() < 5


def test_in_the_first_step_of_the_trainer(start: Start, tmp_path: Path) -> None:
    data = images.make(tmp_path / "images")
    training = ["-m", "trainer", "--data", str(data), "--output", str(tmp_path / "output"), "--arch", "resnet18"]
    first = start("--standalone", *training, "--image-size", "32", "--global-batch", "24", "--epochs", "400", "--workers", "0")
    until("the first step", lambda: "steps in all" in first.log())
    print(f"left in {first.tell():.2f} s")
    assert list((tmp_path / "output" / "checkpoints").glob("g*.json")), "it has saved the step"
    assert "Warning" not in first.log()
