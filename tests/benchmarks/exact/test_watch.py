"""What is seen of a job while it trains."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.exact import processes, watch
from benchmarks.exact.machines import until
from ebb.elastic.rendezvous.participant import LEFT_BEHIND
from tests.benchmarks.exact import records


@dataclass
class Standing:
    """A machine that only is."""

    pid: int
    log: Path = Path()
    code: int | None = None

    def tell(self) -> None: ...
    def kill(self) -> None: ...


def test_before_the_first_line_there_is_nothing(tmp_path: Path) -> None:
    assert watch.look(tmp_path) is None
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "g1-r0.jsonl").write_text('{"generation": 1, "wor')
    assert watch.look(tmp_path) is None


def test_the_last_step_goes_up_only_as_the_job_goes_on(tmp_path: Path) -> None:
    last = watch.LastStep(tmp_path)
    assert last.look() == -1
    records.write(tmp_path, generations=1)
    assert last.look() == 2
    with (tmp_path / "ledger" / "g2-r0.jsonl").open("w") as file:
        file.write('{"generation": 2}\n')
        file.flush()
        assert last.look() == 2, "another generation is no step"
        file.write('{"step": 3, "ids": []}\n{"st')
        file.flush()
        assert last.look() == 3
        file.write('ep": 4, "ids": []}\n')
        file.flush()
        assert last.look() == watch.LastStep(tmp_path).look() == 4


def test_a_look_at_the_last_step_reads_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records.write(tmp_path, generations=2)
    last = watch.LastStep(tmp_path)
    before, opened = last.look(), list[str]()

    def read_on(_self: watch.LastStep, path: Path, start: int) -> int:
        opened.append(f"{path.name} {start}")
        return 9

    monkeypatch.setattr(watch.LastStep, "_read_on", read_on)
    assert last.look() == before
    path = tmp_path / "ledger" / "g2-r0.jsonl"
    size = path.stat().st_size
    with path.open("a") as file:
        file.write('{"step": 9')
    assert last.look() == 9
    assert opened == [f"g2-r0.jsonl {size}"]


def test_one_waits_on_while_there_is_progress() -> None:
    began, looks = time.monotonic(), iter(range(100))
    assert until(lambda: time.monotonic() - began > 0.6, 0.3, progress=lambda: next(looks))
    began = time.monotonic()
    assert until(lambda: None, 0.2, progress=lambda: 1) is None
    assert time.monotonic() - began < 2


def test_the_newest_generation_counts(tmp_path: Path) -> None:
    records.write(tmp_path)
    assert watch.look(tmp_path) == watch.Sight(generation=2, world_size=1, steps=3)
    with (tmp_path / "ledger" / "g2-r0.jsonl").open("a") as file:
        file.write('{"step": 6')
    assert watch.look(tmp_path) == watch.Sight(generation=2, world_size=1, steps=3)
    assert watch.is_finished(tmp_path)


def test_the_losses_are_those_of_steps_as_done_last(tmp_path: Path) -> None:
    records.write(tmp_path, loss=0.5)
    assert watch.losses(tmp_path) == {str(step): 0.5 for step in range(1, 7)}
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "loss": 1.5}\n')
    assert watch.losses(tmp_path) == {str(step): 0.5 for step in range(1, 6)} | {"6": 1.5}


def test_the_checkpoints_that_were_read_are_counted_in_the_logs(tmp_path: Path) -> None:
    (tmp_path / "machine0.log").write_text("generation 1: 2 ranks, from the start; 47 steps in all\n")
    (tmp_path / "machine1.log").write_text(
        "generation 3: 1 ranks, joined after step 4, with the state of rank 0; 47 steps in all\n"
    )
    assert watch.checkpoints_read(tmp_path) == 0
    (tmp_path / "machine2.log").write_text("generation 4: 1 ranks, resumed after step 7 of generation 3; 47 steps in all\n")
    assert watch.checkpoints_read(tmp_path) == 1


def test_a_machine_that_was_taken_for_dead_says_so(tmp_path: Path) -> None:
    (tmp_path / "machine0.log").write_text(f"[launcher 10:00:00] {LEFT_BEHIND}\n" * 2)
    assert watch.left_behind(tmp_path) == 2


def test_a_rank_is_found_by_the_file_that_it_has_open(tmp_path: Path) -> None:
    records.write(tmp_path)
    code = "import sys, time; files = [open(name) for name in sys.argv[1:]]; print(flush=True); time.sleep(60)"
    names = [str(tmp_path / "ledger" / name) for name in ("g1-r1.jsonl", "g2-r0.jsonl")]
    worker = subprocess.Popen([sys.executable, "-c", code, *names], stdout=subprocess.PIPE)
    try:
        assert worker.stdout is not None
        worker.stdout.readline()
        machine = Standing(os.getpid())
        assert watch.ranks(tmp_path, [machine]) == {0: watch.Rank(machine, worker.pid, 2)}
        assert watch.ranks(tmp_path, [Standing(1 << 30)]) == {}
    finally:
        worker.kill()
        worker.communicate()


def test_a_machine_is_killed_with_all_that_it_has_started(tmp_path: Path) -> None:
    script = f"sh -c 'echo $$ > {tmp_path}/inner; exec sleep 60' & echo $! ; wait"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE) as machine:
        inner = until(lambda: _text(tmp_path / "inner"), 10)
        assert inner
        assert int(inner) in processes.family(machine.pid)
        processes.kill(machine.pid)
        assert machine.wait(10) == -9
        assert until(lambda: not _runs(int(inner)), 10)


def test_all_stand_still_before_any_of_them_is_killed() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as one, subprocess.Popen(["sleep", "60"]) as other:
        until(lambda: len(processes.family(one.pid)) == 2, 10)
        stopped = processes.stop(one.pid, other.pid)
        assert stopped == {*processes.family(one.pid), other.pid}
        assert until(lambda: all(_state(pid) == "T" for pid in stopped), 10)
        for pid in (one.pid, other.pid):
            processes.kill(pid)


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _runs(pid: int) -> bool:
    return _state(pid) not in ("Z", "")


def _state(pid: int) -> str:
    """As proc(5) has it; "" of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
