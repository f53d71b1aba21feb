"""ebb.rdma on real processes, which are its own here: those of the machine are left alone."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebb import rdma

LITTLE = 1 << 16
MOST = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]  # a program without rights may go up to its hard limit
STAT = "{pid} ({name}) S {parent} 1 1 0 -1"


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The process ids of a shell that is called like the runtime, and of its child, both with a low limit."""
    shell = shutil.copy("/bin/sh", tmp_path / "containerd-shim")
    started = subprocess.Popen(
        ["prlimit", f"--memlock={LITTLE}:{'unlimited' if MOST < 0 else MOST}", shell, "-c", "sleep 600 & echo $!; wait"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    child = int(started.stdout.readline())
    yield started.pid, child
    os.kill(child, 9)
    started.communicate()


def limit(pid: int) -> tuple[int, int]:
    return resource.prlimit(pid, resource.RLIMIT_MEMLOCK)


def test_the_runtime_and_what_it_runs_may_lock_their_memory(family: tuple[int, int]) -> None:
    assert set(family) <= rdma.descendants()
    assert os.getpid() not in rdma.descendants()
    assert [limit(pid) for pid in family] == [(LITTLE, MOST)] * 2
    assert rdma.lift(family, (MOST, MOST)) == 2
    assert [limit(pid) for pid in family] == [(MOST, MOST)] * 2
    assert rdma.lift(family, (MOST, MOST)) == 0


def test_a_process_that_ends_meanwhile_is_no_error(family: tuple[int, int]) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert rdma.lift([ended.pid, *family], (MOST, MOST)) == 2


def test_a_name_with_blanks_and_brackets_is_read_whole(tmp_path: Path) -> None:
    """/proc/<pid>/stat does not escape them; and a process may end while it is read."""
    for pid, name, parent in ((4000001, "containerd", 1), (4000002, "a) S 1 (b", 4000001), (4000003, "other", 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(STAT.format(pid=pid, name=name, parent=parent))
    (tmp_path / "4000004").mkdir()
    assert rdma.descendants(tmp_path) == {4000001, 4000002}


def test_a_kernel_without_the_drivers_ends_the_program_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["ebb.rdma", "--modules", "no_such_module_at_all"])
    monkeypatch.setattr(rdma, "HOST", Path("/"))
    assert rdma.main() == 1
    assert "no drivers for RDMA" in capsys.readouterr().err
