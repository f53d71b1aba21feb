"""Pods as processes: a launcher with its ranks, whose stdout goes where a container runtime would put it."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.exact import processes
from benchmarks.exact.machines import environment
from benchmarks.logs import program
from benchmarks.logs.cluster import Cluster, pod
from devcluster.commands import dies_with_us
from devcluster.settings import CHECKOUT

WATCHING = Path(__file__).with_name("watching")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Settings that all pods of a run share."""

    folder: Path
    cluster: Cluster
    ranks: int  # of each pod
    rate: float  # lines a second and rank
    watched: bool = True  # whether a ledger is kept, which costs the launcher something

    @property
    def output(self) -> Path:
        return self.folder / "output" / "elastic-job" / "prove"

    def prepare(self) -> None:
        for name in ("counts", "ledger", "tmp"):
            (self.folder / name).mkdir(parents=True)

    def stop(self) -> None:
        """All ranks end by themselves."""
        (self.folder / "stop").touch()

    def counts(self) -> dict[tuple[str, int], int]:
        """By pod and rank, how many of its writes have returned."""
        found = {}
        for path in (self.folder / "counts").iterdir():
            name, _, rank = path.name.rpartition(".")
            found[name, int(rank)] = int.from_bytes(path.read_bytes(), "little")
        return found

    def ledgers(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted((self.folder / "ledger").iterdir())]


class Pod:
    """One that runs, from its start on."""

    def __init__(self, place: Place, worker: int, uid: str) -> None:
        self.worker, self.uid, self._place = worker, uid, place
        command = [*dies_with_us(), sys.executable, "-m", "ebb.elastic.launch", "--standalone", f"--nproc-per-node={place.ranks}"]
        self._process = subprocess.Popen(
            [*command, "--notices=none", str(Path(program.__file__))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment(),
            cwd=CHECKOUT,
            start_new_session=True,
        )
        self._runtime = threading.Thread(target=self._keep_log, daemon=True)
        self._runtime.start()
        place.cluster.put(pod(worker, uid))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def cpu_seconds(self) -> float:
        """Of the launcher's own process; its ranks are others."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def lose(self) -> None:
        """Its machine loses power, and its pod is gone."""
        processes.kill(self.pid)
        self._process.wait()
        self._runtime.join()
        self._place.cluster.remove(pod(self.worker, self.uid))

    def end(self, seconds: float) -> int:
        """Wait for its own end; the exit code."""
        code = self._process.wait(seconds)
        self._runtime.join(seconds)
        self._place.cluster.put(pod(self.worker, self.uid, ended=True))
        return code

    def _keep_log(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._place.cluster.write(self.uid, line.decode().rstrip("\n"))

    def _environment(self) -> Mapping[str, str]:
        folder = self._place.folder
        path = [str(WATCHING), str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
        return environment() | {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "EBB_OUTPUT_DIR": str(self._place.output),
            "EBB_WORKER_INDEX": str(self.worker),
            "EBB_POD_UID": self.uid,
            **({"LEDGER": str(folder / "ledger")} if self._place.watched else {}),
            "COUNTS": str(folder / "counts"),
            "STOP": str(folder / "stop"),
            "RATE": str(self._place.rate),
            "TMPDIR": str(folder / "tmp"),
        }
