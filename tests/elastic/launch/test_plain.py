"""An unmodified DDP script under our launcher on `etcd3`: machines vanish, leave and join; an epoch is what it costs."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebb.elastic.contract import EXIT_FINISHED, EXIT_HARDWARE, EXIT_RECLAIMED
from ebb.elastic.launch.exit_policy import KILLED_LIMIT
from tests.elastic.machines import Job, children, kill_with_children, until

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).with_name("plain.py")
SAVES_LATE = """
import os, pathlib, sys, time
from ebb.elastic.notices.notice import install

folder, notice = pathlib.Path(sys.argv[1]), install()
(folder / f"rank{os.environ['RANK']}-of-{os.environ['WORLD_SIZE']}").touch()
notice.wait(600)  # for the launcher's word
time.sleep(1)  # it looks before this one begins
with notice.saving():
    time.sleep(6)  # longer than the grace after a loss
    (folder / "saved").touch()
"""


class Plain(Job):
    """A job of the script above."""

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, size of the world) of every epoch that was finished."""
        path = self.output / "epochs"
        text = path.read_text() if path.exists() else ""
        return [(int(epoch), int(size)) for epoch, size, *_ in map(str.split, text.splitlines())]

    def epoch_by(self, size: int) -> None:
        """Wait for a new epoch, by a world of this size."""
        before = len(self.epochs())
        until(f"an epoch by {size}", lambda: any(each == size for _, each in self.epochs()[before:]))


@pytest.fixture
def job(etcd: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Plain]:
    settings = "--rdzv_conf=last_call_timeout=1,join_batch_seconds=0.3"
    job = Plain(etcd, tmp_path / "output", [settings, str(SCRIPT), str(tmp_path / "output")], name=request.node.name)
    yield job
    job.stop_all()
    print(job.logs(), job.epochs())


def test_machines_come_and_go(job: Plain) -> None:
    first, second = job.start(), job.start()
    job.epoch_by(2)
    kill_with_children(second)
    job.epoch_by(1)
    third = job.start()
    job.epoch_by(2)
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == EXIT_RECLAIMED
    job.epoch_by(1)
    assert third.wait(120) == EXIT_FINISHED
    assert [epoch for epoch, _ in job.epochs()] == list(range(1, 13)), "each once: a loss costs what is not saved yet"


def test_a_killed_worker_costs_no_machine(job: Plain) -> None:
    first, second = job.start(), job.start()
    job.epoch_by(2)
    os.kill(children(second.pid)[0], signal.SIGKILL)
    job.epoch_by(2)
    assert [machine.wait(120) for machine in (first, second)] == [EXIT_FINISHED] * 2
    assert "a worker was killed by signal 9; starting it again, 2 more times" in job.logs()


def test_a_mistake_ends_it_on_all_machines_at_once(job: Plain) -> None:
    (job.output / "checkpoint.pt").mkdir()  # torch.load cannot read it: each of them fails
    first, second = job.start(), job.start()
    codes = [machine.wait(60) for machine in (first, second)]
    assert codes == [1, 1]
    assert "IsADirectoryError" in job.logs()
    assert "the job ends" in job.logs()


def test_a_survivor_that_notices_late_saves_as_long_as_it_takes(etcd: str, tmp_path: Path) -> None:
    """The launcher looked once whether it saves, and ended it after 5 s."""
    (tmp_path / "late.py").write_text(SAVES_LATE)
    output = tmp_path / "output"
    job = Job(etcd, output, ["--rdzv_conf=last_call_timeout=1", str(tmp_path / "late.py"), str(output)], name="late")
    try:
        first, second = job.start(planned=2), job.start(planned=2)
        until("two ranks", lambda: len(list(output.glob("rank?-of-2"))) == 2)
        kill_with_children(second)
        until("one rank that starts anew", (output / "rank0-of-1").exists)
        assert (output / "saved").exists()
        assert first.poll() is None
    finally:
        job.stop_all()
        print(job.logs())


BROKEN = """
import os, runpy, sys
sys.argv[:1] = [os.environ["PLAIN"]]
if os.environ["RANK"] == "1":
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_machine_whose_gpu_failed_leaves_and_the_others_go_on(
    etcd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setenv("PLAIN", str(SCRIPT))
    settings = "--rdzv_conf=last_call_timeout=1,join_batch_seconds=0.3"
    job = Plain(etcd, tmp_path / "output", [settings, str(tmp_path / "broken.py"), str(tmp_path / "output")], name="broken")
    try:
        machines = [job.start(planned=2), job.start(planned=2)]
        until("one of them leaves", lambda: any(machine.poll() is not None for machine in machines))
        assert sorted(machine.wait(120) for machine in machines) == [EXIT_FINISHED, EXIT_HARDWARE]
    finally:
        job.stop_all()
        print(job.logs())
    assert [size for _, size in job.epochs()] == [1] * 12
    assert "a GPU of this machine failed: RuntimeError: CUDA error: uncorrectable ECC error encountered" in job.logs()


BROKEN_ONCE = """
import os, pathlib, runpy, sys
sys.argv[:1] = [os.environ["PLAIN"]]
if os.environ["RANK"] == "1" and os.environ["WORLD_SIZE"] == "2":
    try:
        (pathlib.Path(sys.argv[1]) / "broken").touch(exist_ok=False)
    except FileExistsError:
        pass
    else:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_machine_whose_gpu_passes_a_test_after_a_fault_comes_back(
    etcd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was avoided for the life of the job."""
    (tmp_path / "broken.py").write_text(BROKEN_ONCE)
    (tmp_path / "devices").mkdir()
    monkeypatch.setenv("PLAIN", str(SCRIPT))
    settings = "--rdzv_conf=last_call_timeout=1,join_batch_seconds=0.3"
    job = Plain(etcd, tmp_path / "output", [settings, str(tmp_path / "broken.py"), str(tmp_path / "output")], name="once")
    well = """print('{"ready": true}\\n{"done": 1}')"""
    job._command[1:3] = [str(SCRIPT.with_name("with_gpus.py")), str(tmp_path / "devices"), "20", well]
    try:
        machines = [job.start(planned=2), job.start(planned=2)]
        job.epoch_by(2)
        assert [machine.wait(120) for machine in machines] == [EXIT_FINISHED] * 2
    finally:
        job.stop_all()
        print(job.logs())
    assert (job.output / "broken").exists()
    assert "this machine's GPUs pass a test: starting again here" in job.logs()


ABORTS = """
import os, sys, time
from pathlib import Path
import torch, torch.distributed as dist
folder = Path(sys.argv[1])
dist.init_process_group("gloo")
with (folder / "epochs").open("a") as lines:
    if dist.get_rank() == 0:
        lines.write(f"0 {dist.get_world_size()}\\n")
try:
    while True:
        told = torch.tensor([float((folder / "stop").exists())])
        dist.all_reduce(told)
        if told.item():
            break
        time.sleep(0.05)
except RuntimeError:
    with (folder / "aborts").open("a") as lines:
        lines.write("aborted\\n")
    os.abort()
"""


def test_aborts_beside_lost_machines_spend_nothing(etcd: str, tmp_path: Path) -> None:
    """As NCCL's watchdog ends a survivor. By itself a worker may end so three times. In some of the losses, ten at most, the
    launcher has heard of it first, and has ended the survivor before it aborts."""
    (tmp_path / "aborts.py").write_text(ABORTS)
    settings = "--rdzv_conf=last_call_timeout=1,join_batch_seconds=0.3"
    job = Plain(etcd, tmp_path / "output", [settings, str(tmp_path / "aborts.py"), str(tmp_path / "output")], name="aborts")
    aborts = job.output / "aborts"
    aborts.touch()

    def enough() -> bool:
        return len(aborts.read_text().splitlines()) > KILLED_LIMIT

    try:
        first = job.start()
        for _ in range(10):
            other = job.start()
            job.epoch_by(2)
            kill_with_children(other)
            job.epoch_by(1)
            if enough():
                break
        (job.output / "stop").touch()
        assert first.wait(60) == EXIT_FINISHED
        assert enough()
        assert "starting it again" not in job.logs()
    finally:
        job.stop_all()
        print(job.logs())
