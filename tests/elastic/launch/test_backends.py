"""Every way to meet that torchrun knows goes through our launcher: --standalone, c10d, static, and torch's etcd on v2."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.ports import free_port
from tests.elastic.machines import kill_with_children, start_etcd
from tests.elastic.rendezvous.servers import built

pytestmark = pytest.mark.e2e

SCRIPT = """
import os, sys
from pathlib import Path
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
Path(sys.argv[1], os.environ["RANK"]).write_text(str(int(total)))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sums").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def etcd_v2(tmp_path: Path) -> Iterator[str]:
    process, endpoint = start_etcd(built("3.5"), tmp_path, "--enable-v2")
    yield endpoint
    process.kill()
    process.wait()


def run(folder: Path, *machines: list[str]) -> list[str]:
    """One launcher for each; what each rank has summed."""
    tail = [str(folder / "script.py"), str(folder / "sums")]
    started = [subprocess.Popen([sys.executable, "-m", "ebb.elastic.launch", *machine, *tail]) for machine in machines]
    try:
        assert [process.wait(90) for process in started] == [0] * len(started)
    finally:
        for process in started:
            kill_with_children(process)
    return [path.read_text() for path in sorted((folder / "sums").iterdir())]


@pytest.mark.parametrize("flags", [["--standalone"], []], ids=["standalone", "nothing"])
def test_one_machine(folder: Path, flags: list[str]) -> None:
    assert run(folder, [*flags, "--nproc-per-node=2"]) == ["3", "3"]


def test_static(folder: Path) -> None:
    where = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    assert run(folder, [*where, "--node-rank=0"], [*where, "--node-rank=1"]) == ["3", "3"]


def test_c10d(folder: Path) -> None:
    where = ["--nnodes=2", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_port()}", "--rdzv_id=job"]
    where += ["--local-addr=127.0.0.1"]
    assert run(folder, [*where, "--rdzv_conf=is_host=true"], [*where, "--rdzv_conf=is_host=false"]) == ["3", "3"]


@pytest.mark.parametrize("backend", ["etcd", "etcd-v2"])
def test_torchs_own_etcd(folder: Path, etcd_v2: str, backend: str) -> None:
    where = ["--nnodes=2", f"--rdzv_backend={backend}", f"--rdzv_endpoint={etcd_v2}", "--rdzv_id=job", "--local-addr=127.0.0.1"]
    assert run(folder, where, where) == ["3", "3"]
