"""Recovery in memory beside faults that end no process: a machine stands still, is cut off from etcd, or etcd is down.

Leases are short here (4 s for 10): what lasts three of them lasts 12 s, as 30 s with the default.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ebb.elastic.contract import EXIT_FINISHED
from testing import exactness as ledger
from tests.elastic import images
from tests.elastic.machines import Job, children, start_etcd, until, workers
from tests.elastic.rendezvous.proxy import Proxy
from tests.elastic.rendezvous.servers import built

pytestmark = pytest.mark.e2e

LEASE_SECONDS = 4
FAULT_SECONDS = 3 * LEASE_SECONDS
QUICK = f"--rdzv_conf=lease_seconds={LEASE_SECONDS},last_call_timeout=1,join_batch_seconds=0.3"


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    process, endpoint = start_etcd(built("3.6"), tmp_path)
    yield process, endpoint
    process.kill()
    process.wait()


@pytest.fixture
def job(
    own_etcd: tuple["subprocess.Popen[bytes]", str], data: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Job]:
    """90 steps; checkpoints each second, so that a rank 0 that may not write any more would have something to write."""
    training = images.training(data, "--epochs", "18", "--min-step-seconds", "0.3", "--recovery", "memory")
    training += ["--evaluate-every", "0", "--checkpoint-seconds", "1", "--checkpoint-min-seconds", "0.2"]
    job = Job(own_etcd[1], tmp_path / "output", [QUICK, *training], name=request.node.name)
    yield job
    job.stop_all()
    print(job.logs())


def trained_for(job: Job, seconds: float, *, world_size: int) -> None:
    """Wait until the newest generation, of this size, has trained for so long."""

    def long_enough() -> bool:
        lines = job.lines()
        newest = [line for line in lines if line["generation"] == lines[-1]["generation"]]
        return bool(newest[0]["world_size"] == world_size and newest[-1]["time"] - newest[0]["time"] >= seconds)

    until(f"{seconds} s of steps by {world_size}", long_enough)


def check(job: Job) -> None:
    """Every sample once, and nobody of an older generation has written beside a newer one."""
    verdict = ledger.check(job.output)
    assert verdict.exact
    assert verdict.samples == 2160
    assert verdict.steps_redone <= 1
    written = [line["generation"] for line in job.lines()]
    assert written == sorted(written)
    assert [line["step"] for line in job.lines()] == sorted({line["step"] for line in job.lines()})
    assert not any("resumed after step" in path.read_text() for path in job.output.glob("*.log")), "a checkpoint was read"


def test_rank_zero_that_stood_still_writes_nothing_when_it_wakes(job: Job) -> None:
    machines = [job.start(planned=2), job.start(planned=2)]
    job.together(2, 6)
    speaks = ["generation 1: 2 ranks" in job.log(number) for number in range(2)]
    still, other = machines[speaks.index(True)], machines[speaks.index(False)]
    kept = workers(other.pid)
    stopped = [still.pid, *children(still.pid)]
    signal_all(stopped, signal.SIGSTOP)
    trained_for(job, FAULT_SECONDS, world_size=1)
    signal_all(stopped, signal.SIGCONT)
    job.together(2, 4)
    assert workers(other.pid) == kept
    assert [machine.wait(300) for machine in machines] == [EXIT_FINISHED] * 2
    check(job)


def test_a_machine_that_is_cut_off_from_etcd_is_left_behind_and_comes_back(
    job: Job, own_etcd: tuple["subprocess.Popen[bytes]", str]
) -> None:
    proxy = Proxy(int(own_etcd[1].rpartition(":")[2]))
    try:
        machines = [job.start(planned=3), job.start(planned=3), job.start(planned=3, endpoint=proxy.endpoint)]
        job.together(3, 6)
        kept = [workers(machine.pid) for machine in machines]
        proxy.cut()
        trained_for(job, FAULT_SECONDS, world_size=2)
        proxy.heal()
        job.together(3, 4)
        assert [workers(machine.pid) for machine in machines] == kept, "that one too"
        assert [machine.wait(300) for machine in machines] == [EXIT_FINISHED] * 3
        check(job)
    finally:
        proxy.close()


def test_training_goes_on_while_etcd_is_down(job: Job, own_etcd: tuple["subprocess.Popen[bytes]", str], tmp_path: Path) -> None:
    process, endpoint = own_etcd
    machines = [job.start(planned=2), job.start(planned=2)]
    job.together(2, 6)
    kept = [workers(machine.pid) for machine in machines]
    process.kill()
    process.wait()
    before = len(job.lines())
    down = job.lines()[-1]["time"]
    until("steps without etcd", lambda: job.lines()[-1]["time"] - down >= FAULT_SECONDS)
    assert {line["generation"] for line in job.lines()} == {1}
    pauses = [late["time"] - early["time"] for early, late in zip(job.lines()[before:], job.lines()[before + 1 :], strict=False)]
    assert max(pauses) < LEASE_SECONDS, "no step waits for etcd"
    restarted, _ = start_etcd(built("3.6"), tmp_path, port=int(endpoint.rpartition(":")[2]))
    try:
        machines.append(job.start(planned=3))
        job.together(3, 4)
        assert [workers(machine.pid) for machine in machines[:2]] == kept
        assert [machine.wait(300) for machine in machines] == [EXIT_FINISHED] * 3
        check(job)
    finally:
        restarted.kill()
        restarted.wait()


def signal_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
