"""The real thing on loopback: launchers, workers and etcd; machines leave, vanish and join; nothing is lost or repeated."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.contract import EXIT_FINISHED, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED
from testing import exactness as ledger
from tests.elastic import images
from tests.elastic.machines import Job, kill_with_children, start_etcd, until
from tests.elastic.rendezvous.servers import built

pytestmark = [pytest.mark.e2e, pytest.mark.smoke]


@pytest.fixture
def job(etcd: str, data: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    arguments = ["--epochs", "30", "--min-step-seconds", "0.3", "--checkpoint-min-seconds", "1"]
    job = Job(etcd, tmp_path / "output", images.training(data, *arguments), name=request.node.name)
    yield job
    job.stop_all()
    print(job.logs())


def gap(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> float:
    """Seconds without a step: from the last one before a change to the first one after it."""
    return round(float(after[0]["time"] - max(line["time"] for line in before)), 2)


def last_before(job: Job, generation: int) -> list[dict[str, Any]]:
    return [line for line in job.lines() if line["generation"] < generation]


def test_a_job_survives_its_machines(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    recoveries: dict[str, float] = {}

    def recovered(what: str, world_size: int) -> None:
        now = job.together(world_size, 4)
        recoveries[what] = gap(last_before(job, now[0]["generation"]), now)

    first, second = job.start(planned=2), job.start(planned=2)
    job.together(2, 6)

    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == EXIT_RECLAIMED
    recovered("notice", 1)
    third = job.start(planned=2)
    recovered("join", 2)
    kill_with_children(first)
    recovered("kill -9", 1)
    fourth, fifth = job.start(planned=3), job.start(planned=3)
    recovered("join of two", 3)

    assert [machine.wait(300) for machine in (third, fourth, fifth)] == [EXIT_FINISHED] * 3
    verdict = ledger.check(job.output)
    with capsys.disabled():
        print(f"\nrecovery seconds {json.dumps(recoveries)}; {verdict}")
    assert verdict.exact
    assert verdict.samples == 3600
    assert verdict.steps_redone <= 1  # the step in which the machine was killed
    assert json.loads((job.output / "result.json").read_text())["steps_redone"] == 0


def test_a_machine_that_waits_for_others_leaves_at_once(etcd: str, tmp_path: Path) -> None:
    """SIGTERM in rendezvous, as the child of whatever started it."""
    lonely = Job(etcd, tmp_path / "output", ["--nnodes=2:2", "-m", "trainer"], name="lonely")
    machine = lonely.start()
    try:
        until("meeting", lambda: "meeting the other machines" in lonely.logs())
        machine.send_signal(signal.SIGTERM)
        assert machine.wait(5) == EXIT_RECLAIMED
    finally:
        lonely.stop_all()


def test_restarts_of_etcd_are_survived(data: Path, tmp_path: Path) -> None:
    """With its data, which nobody notices, and without, which costs a generation; a machine that comes later finds the others."""
    program = built("3.6")
    process, endpoint = start_etcd(program, tmp_path)
    # At least a minute for two machines: a third needed 25 s to get ready, beside the tests of the local stack.
    job = Job(endpoint, tmp_path / "output", images.training(data, "--epochs", "40", "--min-step-seconds", "0.3"))

    def restarted(*, keeps_data: bool) -> "subprocess.Popen[bytes]":
        process.kill()
        process.wait()
        if not keeps_data:
            shutil.rmtree(tmp_path / "etcd")
        return start_etcd(program, tmp_path, port=int(endpoint.rpartition(":")[2]))[0]

    try:
        machines = [job.start(planned=2), job.start(planned=2)]
        seen = len(job.together(2, 4))
        process = restarted(keeps_data=True)
        assert {line["generation"] for line in job.together(2, seen + 6)} == {1}
        process = restarted(keeps_data=False)
        until("a new generation", lambda: job.lines()[-1]["generation"] > 1)
        machines.append(job.start(planned=3))
        lines = job.together(3, 4)
        assert [line["generation"] for line in lines] == [3] * len(lines)
        assert [machine.wait(300) for machine in machines] == [EXIT_FINISHED] * 3
        verdict = ledger.check(job.output)
        assert verdict.exact
        assert verdict.samples == 4800
    finally:
        job.stop_all()
        process.kill()
        process.wait()
        print(job.logs())


def test_a_failing_program_ends_the_job_on_all_machines(etcd: str, tmp_path: Path) -> None:
    broken = Job(etcd, tmp_path / "output", ["-m", "trainer", "--data", "/nowhere"], name="broken")
    machine = broken.start(planned=1)
    try:
        assert machine.wait(60) == EXIT_PROGRAM_FAILED
        assert "there is no folder /nowhere/train" in broken.logs()
        late = broken.start()
        assert late.wait(60) == EXIT_PROGRAM_FAILED
        assert "ended by another machine" in broken.logs()
    finally:
        broken.stop_all()
