"""--recovery memory on loopback: launchers, workers and etcd; survivors keep their processes, and no checkpoint is read."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebb.elastic.contract import EXIT_FINISHED, EXIT_RECLAIMED
from testing import exactness as ledger
from tests.elastic import images
from tests.elastic.machines import Job, kill_with_children, until, workers

pytestmark = pytest.mark.e2e


@pytest.fixture
def job(etcd: str, data: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    """Of the launcher's flags that a test is parametrized with."""
    training = images.training(data, "--epochs", "30", "--min-step-seconds", "0.2", "--recovery", "memory")
    job = Job(etcd, tmp_path / "output", [*getattr(request, "param", ()), *training], name=request.node.name)
    yield job
    job.stop_all()
    print(job.logs())


def test_survivors_keep_their_process_and_their_state(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    recoveries: dict[str, float] = {}

    def recovered(what: str, world_size: int) -> None:
        now = job.together(world_size, 4)
        before = [line for line in job.lines() if line["generation"] < now[0]["generation"]]
        recoveries[what] = round(now[0]["time"] - max(line["time"] for line in before), 2)

    first, second = job.start(planned=2), job.start(planned=2)
    job.together(2, 6)
    kept = workers(first.pid)
    assert len(kept) == 1
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == EXIT_RECLAIMED
    recovered("notice", 1)
    third = job.start(planned=2)
    recovered("join", 2)
    fourth = job.start(planned=3)
    recovered("second join", 3)
    kill_with_children(fourth)
    recovered("kill -9", 2)
    assert workers(first.pid) == kept
    kept = workers(third.pid)
    kill_with_children(first)
    recovered("kill -9 of rank 0", 1)
    assert workers(third.pid) == kept
    fourth, fifth = job.start(planned=3), job.start(planned=3)
    recovered("join of two", 3)
    assert [machine.wait(300) for machine in (third, fourth, fifth)] == [EXIT_FINISHED] * 3
    verdict = ledger.check(job.output)
    with capsys.disabled():
        print(f"\nrecovery seconds {json.dumps(recoveries)}; {verdict}")
    assert verdict.exact
    assert verdict.samples == 3600
    assert "resumed after step" not in job.logs()
    for number in (1, 2):
        assert f"getting ready while {number} of the job's machines train" in job.logs()


@pytest.mark.parametrize("job", [["--nproc-per-node=2"]], indirect=True)
def test_the_ranks_of_a_machine_go_together(job: Job) -> None:
    """Two machines of two processes: one is killed, its machine's start anew beside the others, which train on."""
    first, second = job.start(planned=2), job.start(planned=2)
    job.together(4, 4)
    kept = workers(first.pid)
    assert len(kept) == 2
    before = job.lines()[-1]["generation"]
    os.kill(workers(second.pid)[0], signal.SIGKILL)
    until("four ranks again", lambda: job.lines()[-1]["generation"] > before and job.lines()[-1]["world_size"] == 4)
    assert workers(first.pid) == kept
    alone = [line for line in job.lines() if line["generation"] > before and line["world_size"] == 2]
    assert alone, "the others did not wait for the new processes"
    assert [machine.wait(300) for machine in (first, second)] == [EXIT_FINISHED] * 2
    assert ledger.check(job.output).exact
