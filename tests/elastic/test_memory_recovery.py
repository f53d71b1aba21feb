"""Recovery in memory on loopback: launchers, workers and etcd; survivors keep their processes, and no checkpoint is read."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.contract import EXIT_FINISHED, EXIT_RECLAIMED
from testing import exactness as ledger
from tests.elastic import images
from tests.elastic.machines import Job, kill_with_children, until, workers

pytestmark = pytest.mark.e2e


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> list[str]:
    """The trainer's flags that a test is parametrized with."""
    return list(getattr(request, "param", ()))


@pytest.fixture
def job(etcd: str, data: Path, tmp_path: Path, settings: list[str], request: pytest.FixtureRequest) -> Iterator[Job]:
    """Of the launcher's flags that a test is parametrized with."""
    training = images.training(data, "--epochs", "45", "--min-step-seconds", "0.3", "--recovery", "memory", *settings)
    job = Job(etcd, tmp_path / "output", [*getattr(request, "param", ()), *training], name=request.node.name)
    yield job
    job.stop_all()
    print(job.logs())


# Long enough for five joins on a machine where each takes 25 s.
@pytest.mark.parametrize("settings", [["--epochs", "80"]], indirect=True)
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
    assert verdict.samples == 9600
    assert "resumed after step" not in job.logs()
    for number in (1, 2):
        assert f"getting ready while {number} of the job's machines train" in job.logs()


# Builds its model until the file `built` is there; what it has come to is told by files
BUILDER = """
import os, pathlib, sys, time, torch
from ebb import elastic
folder = pathlib.Path(sys.argv[1])
with elastic.start(global_batch=4, epochs=2, output=folder / "run", workers=0) as run:
    (folder / f"{os.getpid()}.met").touch()
    while not (folder / "built").exists():
        time.sleep(0.01)
    model = run.distribute(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.register_state(model=model, optimizer=optimizer)
    for step in run.steps(run.loader([torch.ones(1)] * 16)):
        for batch in step:
            step.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
(folder / f"{os.getpid()}.finished").touch()
"""


def test_a_machine_that_is_lost_while_models_are_built_ends_no_other(etcd: str, tmp_path: Path) -> None:
    script, told = tmp_path / "builder.py", tmp_path / "told"
    script.write_text(BUILDER)
    told.mkdir()
    job = Job(etcd, tmp_path / "output", [str(script), str(told)], name="building")
    try:
        first, second = job.start(planned=2), job.start(planned=2)
        until("two processes that have met", lambda: len(list(told.glob("*.met"))) == 2)
        met = {path.stem for path in told.glob("*.met")}
        kill_with_children(second)
        (told / "built").touch()
        assert first.wait(60) == EXIT_FINISHED
    finally:
        job.stop_all()
        print(job.logs())
    assert {path.stem for path in told.glob("*.met")} == met, "the other process started anew"
    assert len([path for path in told.glob("*.finished") if path.stem in met]) == 1


# Compiled in no time, as far as the runtime can tell
COMPILED = """
import os, pathlib, sys, torch
from ebb import elastic
folder = pathlib.Path(sys.argv[1])
with elastic.start(global_batch=4, epochs=100_000, output=folder / "run", workers=0, min_step_seconds=0.05) as run:
    network = torch.nn.Linear(1, 1)
    network._compiled_call_impl = network._call_impl
    model = run.distribute(network)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.register_state(model=model, optimizer=optimizer)
    for step in run.steps(run.loader([torch.ones(1)] * 16)):
        for batch in step:
            step.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
        if run.world_size == 2:
            break
"""


def test_a_newcomer_makes_its_first_pass_beside_the_others(etcd: str, tmp_path: Path) -> None:
    script = tmp_path / "compiled.py"
    script.write_text(COMPILED)
    job = Job(etcd, tmp_path / "output", [str(script), str(tmp_path)], name="compiled")
    try:
        first = job.start(planned=2)
        until("training", lambda: (tmp_path / "run" / "metrics.jsonl").exists() or (tmp_path / "run" / "last-step").exists())
        second = job.start(planned=2)
        assert [machine.wait(300) for machine in (first, second)] == [EXIT_FINISHED] * 2
    finally:
        job.stop_all()
        print(job.logs())
    assert "the networks' first pass took " in job.logs()
    assert job.logs().count("1 -> 2 ranks") == 1


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


# One a step, and no checkpoint before the end
SNAPSHOTS = ["--snapshot-overhead", "1000", "--checkpoint-min-seconds", "300", "--epochs", "6"]


def with_snapshots(job: Job) -> dict[str, Any]:
    """Two machines that make them; the last line."""
    job.together(2, 4)
    until("two snapshots", lambda: "snapshots in memory: " in job.logs())
    return job.lines()[-1]


def kill_at_once(processes: list[int]) -> None:
    """None of them notices that another one is gone."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            os.kill(process, number)


def steps_redone(job: Job) -> int:
    """From a snapshot."""
    assert any("from a snapshot in the memory of rank" in path.read_text() for path in job.output.glob("*.log"))
    verdict = ledger.check(job.output)
    assert verdict.exact
    return verdict.steps_redone


@pytest.mark.parametrize("settings", [SNAPSHOTS], indirect=True)
def test_the_loss_of_all_processes_goes_on_from_a_snapshot(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = job.start(planned=2), job.start(planned=2)
    before = with_snapshots(job)
    kill_at_once([*workers(first.pid), *workers(second.pid)])
    until("steps after it", lambda: job.lines()[-1]["generation"] > before["generation"])
    after = next(line for line in job.lines() if line["generation"] > before["generation"])
    assert [machine.wait(300) for machine in (first, second)] == [EXIT_FINISHED] * 2
    redone = steps_redone(job)
    with capsys.disabled():
        print(f"\nall processes lost: {after['time'] - before['time']:.1f} s, {redone} steps redone")
    assert redone <= 2
    assert after["checkpoint_step"] == 0, "there was none"


@pytest.mark.parametrize("settings", [SNAPSHOTS], indirect=True)
@pytest.mark.parametrize("lost", [0, 1])
def test_one_machines_memory_outlives_the_loss_of_all_processes(job: Job, lost: int) -> None:
    """The other machine is gone, its launcher too."""
    machines = [job.start(planned=2), job.start(planned=2)]
    with_snapshots(job)
    gone, left = machines[lost], machines[1 - lost]
    kill_at_once(workers(left.pid) + workers(gone.pid))
    kill_with_children(gone)
    new = job.start(planned=2)
    assert [machine.wait(300) for machine in (left, new)] == [EXIT_FINISHED] * 2
    assert steps_redone(job) <= 2
