"""A real etcd on loopback for as long as a benchmark runs: of the newest version that the platform builds."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.machines import until
from devcluster import tools
from devcluster.commands import dies_with_us, last_lines
from testing.ports import free_port

READY_SECONDS = 30.0
_READY = "ready to serve client requests"  # its log's words: a port in another network cannot be asked
SUPPORTED = ("etcd36", "etcd")  # the first that there is


@contextlib.contextmanager
def etcd(
    folder: Path, *, tool: str = "", flags: Sequence[str] = (), host: str = "127.0.0.1", within: Sequence[str] = ()
) -> Iterator[str]:
    """Its endpoint, host:port. Nothing of it outlives this process, so it need not wait for the disk. `within` are the words
    before its command that put it into the network where it has the address `host` (recovery/namespaces.py)."""
    name = tool or next(name for name in SUPPORTED if name in tools.TOOLS)
    program = tools.main_ensure(name) / "etcd"
    client, peer = free_port(), f"http://127.0.0.1:{free_port()}"
    data = folder / f"etcd-{client}"
    log = folder / f"etcd-{client}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *[
                    *within,
                    *dies_with_us(),
                    str(program),
                    "--name=bench",
                    f"--data-dir={data}",
                    f"--initial-cluster=bench={peer}",
                ],
                *[f"--listen-client-urls=http://{host}:{client}", f"--advertise-client-urls=http://{host}:{client}"],
                *[f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", "--unsafe-no-fsync", *flags],
            ],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        if (
            not until(lambda: process.poll() is not None or _READY in log.read_text(), READY_SECONDS)
            or process.poll() is not None
        ):
            raise BenchmarkError(f"etcd did not come up; the end of {log}:\n{last_lines(log, 10)}")
        yield f"{host}:{client}"
    finally:
        process.kill()
        process.wait()
