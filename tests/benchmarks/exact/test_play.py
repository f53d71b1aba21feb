"""How a history is let happen: what machines are told, and when the next event is due."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.exact import play, watch
from benchmarks.exact.history import LARGEST_WORLD, Event, History, Recovery, draw
from benchmarks.exact.machines import Machine
from benchmarks.exact.play import BrokenError, Play, Stage
from tests.benchmarks.exact import records
from tests.benchmarks.exact.test_watch import Standing

TWO = replace(draw(1, agents=False, virtual=False, recovery="restart"), machines=2, processes=1)

NOBODY = 1 << 30  # no process has such an id, so that none is hit


class Starter:
    """Starts nothing, and knows what it was told."""

    def __init__(self) -> None:
        self.told: list[Sequence[str]] = []

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Standing:
        self.told.append(arguments)
        return Standing(NOBODY, log)


def playing(folder: Path, history: History = TWO, *, epochs: int = 12) -> tuple[Play, Starter]:
    starter = Starter()
    stage = Stage(data=folder, endpoint="127.0.0.1:1", fresh=starter, forked=starter)
    (folder / "output").mkdir(parents=True, exist_ok=True)
    return Play(history, stage, folder, epochs=epochs), starter


def told(starter: Starter) -> str:
    return " ".join(starter.told[-1])


def test_a_history_that_is_played_again_is_another_job(tmp_path: Path) -> None:
    """The first has closed its rendezvous."""
    found = set()
    for epochs in (12, 24):
        job, starter = playing(tmp_path, epochs=epochs)
        job._start(1, planned=1)
        found |= {flag for flag in starter.told[0] if flag.startswith("--rdzv_id=")}
    assert len(found) == 2


def test_each_history_trains_its_own_network(tmp_path: Path) -> None:
    job, starter = playing(tmp_path)
    job._start(1, planned=1)
    assert "-m trainer.text.train --size tiny --data" in told(starter)
    assert "--virtual-workers" not in told(starter)
    job, starter = playing(tmp_path, draw(3, agents=False, virtual=True, recovery="restart"))
    job._start(1, planned=1)
    assert "-m trainer --image-size 32 --arch shufflenet_v2_x0_5 --data" in told(starter)
    assert f"--virtual-workers {LARGEST_WORLD}" in told(starter)


@pytest.mark.parametrize("recovery", ["memory", "restart"])
def test_each_history_recovers_its_own_way(tmp_path: Path, recovery: Recovery) -> None:
    job, starter = playing(tmp_path, replace(TWO, recovery=recovery))
    job._start(1, planned=1)
    assert ("--recovery memory" in told(starter)) is (recovery == "memory")


def test_processes_that_no_event_has_hit_are_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = playing(tmp_path, replace(TWO, recovery="memory"))
    job._start(2, planned=2)
    first, second = job.machines

    def compare(found: dict[int, watch.Rank]) -> tuple[int, int]:
        monkeypatch.setattr(watch, "ranks", lambda *_: found)
        before = job._pids_kept, job._pids_lost
        job._compare_processes(job._ranks())
        return job._pids_kept - before[0], job._pids_lost - before[1]

    assert compare({0: watch.Rank(first, NOBODY + 11, 1), 1: watch.Rank(second, NOBODY + 21, 1)}) == (0, 0)
    assert compare({0: watch.Rank(second, NOBODY + 21, 1), 1: watch.Rank(first, NOBODY + 11, 1)}) == (2, 0)
    assert compare({0: watch.Rank(second, NOBODY + 22, 1), 1: watch.Rank(first, NOBODY + 11, 1)}) == (1, 1)
    job._happen(Event(kind="kill-process", target=0))
    assert compare({0: watch.Rank(first, NOBODY + 11, 1), 1: watch.Rank(second, NOBODY + 23, 1)}) == (1, 0), (
        "the machine whose process was killed"
    )
    job._happen(Event(kind="notice", target=0))
    assert compare({0: watch.Rank(second, NOBODY + 23, 1)}) == (1, 0), "the machine that has left"
    job._happen(Event(kind="kill-machine", target=0))
    assert not job._trained, "no process is left that has trained"


def test_a_checkpoint_is_needed_only_where_nobody_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = playing(tmp_path, replace(TWO, recovery="memory"))
    job._start(1, planned=1)
    counted: list[int] = []
    for reads, nobody_left in ((1, False), (1, False), (3, True), (4, False)):
        monkeypatch.setattr(watch, "checkpoints_read", lambda _, reads=reads: reads)
        job._may_read |= nobody_left
        job._count_reads()
        counted.append(job._needlessly_read)
    assert counted == [0, 0, 0, 1]


def test_an_event_is_due_at_its_world_size_and_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "PATIENCE_SECONDS", 0.1)
    job, _ = playing(tmp_path)
    job._start(2, planned=2)
    records.write(job.output, finished=False, generations=1)
    train(monkeypatch, *job.machines)
    assert job._wait_for(Event(kind="join", steps=3))
    with pytest.raises(BrokenError, match="in vain for 4 steps by 2 ranks"):
        job._wait_for(Event(kind="join", steps=4))


def test_a_job_that_ends_while_it_is_looked_at_has_lost_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = playing(tmp_path, replace(TWO, recovery="memory"))
    job._start(2, planned=2)
    records.write(job.output, finished=False, generations=1)
    all_there = train(monkeypatch, *job.machines)
    assert job._wait_for(Event(kind="join", steps=3))
    looks = iter([all_there, {0: all_there[0]}])
    monkeypatch.setattr(watch, "ranks", lambda *_: next(looks))
    assert job._wait_for(Event(kind="join", steps=3))
    assert (job._pids_kept, job._pids_lost) == (2, 0)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([Event(kind="kill-process")], id="the machine starts its process again"),
        pytest.param([Event(kind="join"), Event(kind="kill-machine", target=1)], id="another has come meanwhile"),
        pytest.param([Event(kind="join"), Event(kind="notice", target=1)], id="another has come and one leaves"),
        pytest.param([Event(kind="kill-all", machines=2)], id="all are others"),
    ],
)
def test_the_steps_of_a_generation_that_was_hit_do_not_count_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Event]
) -> None:
    """It has as many ranks, and has done the steps."""
    monkeypatch.setattr(play, "PATIENCE_SECONDS", 0.1)
    job, _ = playing(tmp_path)
    job._start(2, planned=2)
    records.write(job.output, finished=False, generations=1)
    before = train(monkeypatch, *job.machines)
    assert job._wait_for(Event(kind="join", steps=3))
    for event in events:
        job._happen(event)
    left = {rank: at for rank, at in before.items() if at.machine in job.machines}  # a killed process may not have ended yet
    monkeypatch.setattr(watch, "ranks", lambda *_: left)
    with pytest.raises(BrokenError, match="in vain"):
        job._wait_for(Event(kind="join", steps=0))
    train(monkeypatch, *job.machines, generation=2)
    assert job._wait_for(Event(kind="join", steps=0))


def test_the_ranks_that_an_event_has_killed_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = playing(tmp_path)
    job._start(3, planned=3)
    train(monkeypatch, *job.machines, generation=4)
    job._happen(Event(kind="notice", target=0))
    assert job._killed == set(), "it leaves at a step boundary"
    train(monkeypatch, *job.machines, generation=5)
    job._happen(Event(kind="kill-process", target=1))
    assert job._killed == {(5, 1)}
    train(monkeypatch, *job.machines, generation=6)
    job._happen(Event(kind="kill-rank-zero"))
    assert job._killed == {(5, 1), (6, 0)}


def train(monkeypatch: pytest.MonkeyPatch, *machines: Machine, generation: int = 1) -> dict[int, watch.Rank]:
    """Let each machine have one rank, in their order."""
    found = {rank: watch.Rank(machine, NOBODY + 10 * generation + rank, generation) for rank, machine in enumerate(machines)}
    monkeypatch.setattr(watch, "ranks", lambda *_: found)
    return found


def test_a_launcher_that_was_told_before_its_first_line_has_no_exit_code(tmp_path: Path) -> None:
    job, _ = playing(tmp_path)
    (job.output / "result.json").write_text("{}")
    for number, (code, said) in enumerate([(0, "trained"), (-15, ""), (-15, "trained")]):
        log = tmp_path / f"machine{number}.log"
        log.write_text(said)
        job._gone.append((Standing(NOBODY, log, code), True))
    assert job._wait_for_end() == (0, -15)
