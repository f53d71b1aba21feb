"""When checkpoints are written, that the training hardly stands still, and that a failing disk or etcd costs no training."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from ebb.elastic.checkpoint import CheckpointFolder, EtcdFence, FenceUnreachable, FileFence, NotWritten, Owner
from ebb.elastic.checkpoint.cadence import Cadence, Cost
from ebb.elastic.checkpoint.plain import PlainFile
from ebb.elastic.checkpoint.saver import Saver
from ebb.elastic.checkpoint.state import load
from tests.elastic.checkpoint.making import MEMBERSHIP, FakeRegister, both, claimed, files, found_step, state

CADENCE = Cadence(shortest_seconds=5, longest_seconds=300, overhead=0.01)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_wish_is_a_checkpoint_before_its_time_once(tmp_path: Path) -> None:
    _, writer = saver(tmp_path)  # the clock stands still: nothing is due
    for step in range(1, 9):
        writer.maybe_save(step, dict, soon=step == 4)
        writer.finish()
    assert [int(path.stem[8:16]) for path in (tmp_path / "checkpoints").glob("*.json")] == [4]


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        pytest.param(Cost(), 5.0, id="cheap-the-shortest"),
        pytest.param(Cost(stall_seconds=0.2), 20.0, id="one-percent-of-standing-still"),
        pytest.param(Cost(stall_seconds=0.2, write_seconds=1), 20.0, id="the-larger-one"),
        pytest.param(Cost(stall_seconds=0.125, taken_seconds=0.125), 25.0, id="and-of-computing"),
        pytest.param(Cost(write_seconds=4), 40.0, id="a-tenth-of-writing"),
        pytest.param(Cost(stall_seconds=60), 300.0, id="dear-the-longest"),
    ],
)
def test_the_distance_follows_the_cost(cost: Cost, expected: float) -> None:
    assert CADENCE.seconds_between(cost) == expected


def saver(output: Path, clock: Clock | None = None, **parts: Any) -> tuple[CheckpointFolder, Saver]:
    folder, fence = claimed(output, keep=9)
    return folder, Saver(folder, parts.pop("fence", fence), cadence=CADENCE, clock=clock or Clock(), **parts)


def test_a_checkpoint_is_written_when_one_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    _, writer = saver(tmp_path, clock)

    monkeypatch.setattr("time.thread_time", lambda: 0.0)

    def take_state() -> dict[str, Any]:
        if clock.now >= 5:
            clock.now += 0.125  # one percent of 12.5 s
        return {"at": clock.now}

    for step in range(1, 60):
        clock.now = float(step)
        writer.maybe_save(step, take_state)
        writer.finish()
    written = sorted(int(path.stem[8:16]) for path in (tmp_path / "checkpoints").glob("*.json"))
    assert written == [5, 18, 31, 44, 57]
    assert writer.stalls == [0.125] * 5


def test_saving_now_is_done_when_it_returns_and_only_once(tmp_path: Path) -> None:
    folder, writer = saver(tmp_path)
    calls = []

    def take_state() -> dict[str, Any]:
        calls.append(1)
        return state(7)

    writer.save_now(7, take_state)
    writer.save_now(7, take_state)
    assert (found_step(folder), len(calls)) == (7, 1)


def test_a_checkpoint_that_cannot_be_written_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, writer = saver(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise NotWritten("no space left")

    monkeypatch.setattr(folder, "write", full)
    writer.save_now(3, dict)
    assert writer.saved_step == -1
    assert capsys.readouterr().err == "no space left\n"


def test_the_last_checkpoint_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ebb.elastic.checkpoint.saver._RETRY_SECONDS", 0.0)
    folder, writer = saver(tmp_path)
    write, failures = folder.write, [NotWritten("no space left")] * 3

    def full_at_first(*given: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return write(*given, **named)

    monkeypatch.setattr(folder, "write", full_at_first)
    writer.save_now(3, lambda: state(3), last=True)
    assert (writer.saved_step, found_step(folder), failures) == (3, 3, [])
    assert capsys.readouterr().err == "no space left. It is the last checkpoint: trying again for 300 s\n", "once"


def test_without_its_last_checkpoint_nothing_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebb.elastic.checkpoint.saver.LAST_SECONDS", 0.0)
    folder, writer = saver(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise NotWritten("no space left")

    monkeypatch.setattr(folder, "write", full)
    with pytest.raises(NotWritten, match="no space left"):
        writer.save_now(3, dict, last=True)


def test_the_last_checkpoint_of_a_stale_writer_is_not_its_to_save(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, writer = saver(tmp_path)
    FileFence.claim(tmp_path)
    writer.save_now(5, lambda: state(5), last=True)
    assert "generation 1 was replaced by a newer one (2)" in capsys.readouterr().err


def test_the_cost_is_told_once(tmp_path: Path) -> None:
    clock = Clock()
    _, writer = saver(tmp_path, clock)

    def take_state() -> dict[str, Any]:
        clock.now += 2
        return {}

    writer.save_now(1, take_state)
    assert [writer.take_cost(), writer.take_cost()] == [2.0, 0.0]


def test_a_bug_in_the_writing_thread_ends_the_program(tmp_path: Path) -> None:
    clock = Clock()
    _, writer = saver(tmp_path, clock)
    writer.maybe_save(1, dict)
    writer.finish()
    clock.now = 10
    writer.maybe_save(1, lambda: {"cannot be pickled": threading.Lock()})
    with pytest.raises(TypeError, match="cannot pickle"):
        writer.finish()


def test_what_is_written_is_the_state_of_the_step_however_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next forward pass changes BatchNorm's statistics at once, the next update waits for the copy of the weights."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    clock, gate = Clock(), threading.Event()
    folder, writer = saver(tmp_path, clock, optimizer=optimizer)
    write = folder.write

    def slow(*arguments: Any, **facts: Any) -> Any:
        assert gate.wait(30)
        return write(*arguments, **facts)

    monkeypatch.setattr(folder, "write", slow)

    def take_state() -> dict[str, Any]:
        return {"state_dict": network.state_dict(), "optimizer": optimizer.state_dict()}

    def train() -> None:
        optimizer.zero_grad()
        network(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()

    train()
    writer.maybe_save(1, take_state)
    writer.finish()
    clock.now = 10
    expected = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"].clone()
    writer.maybe_save(1, take_state)
    for _ in range(3):
        train()
    gate.set()
    writer.finish()
    found = folder.newest()
    assert found is not None
    saved = load(found.content)
    assert all(torch.equal(saved["state_dict"][name], tensor) for name, tensor in expected.items())
    assert torch.equal(saved["optimizer"]["state"][0]["momentum_buffer"], momentum)
    assert not torch.equal(network.state_dict()["0.weight"], expected["0.weight"])


def test_the_memory_of_a_snapshot_is_used_again(tmp_path: Path) -> None:
    clock = Clock()
    _, writer = saver(tmp_path, clock)
    weight = torch.ones(1000)
    places = set()
    for step in range(1, 5):
        clock.now = 100.0 * step
        writer.maybe_save(step, lambda: {"state_dict": {"weight": weight}})
        writer.finish()
        places |= {tensor.data_ptr() for tensor in writer._buffers._buffers.values()}
    assert len(places) == 1
    assert writer.saved_step == 4


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebb.elastic.checkpoint.saver._RETRY_SECONDS", 0.01)


def register() -> FakeRegister:
    register = FakeRegister()
    register.form(1)
    return register


def etcd_fence(register: FakeRegister) -> EtcdFence:
    return EtcdFence(register, generation=1, membership=MEMBERSHIP, folder="0123")


def test_while_etcd_is_away_training_goes_on_and_the_candidate_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock, etcd = Clock(), register()
    folder, writer = saver(tmp_path, clock, fence=etcd_fence(etcd))
    writer.maybe_save(1, lambda: state(1))
    writer.finish()
    etcd.away = True
    clock.now = 10
    writer.maybe_save(2, lambda: state(2))
    assert etcd.asked_in_vain.wait(30)
    for step in range(3, 9):
        clock.now += 100
        writer.maybe_save(step, lambda: state(0))  # nothing: the one before waits
    assert writer.saved_step == -1
    etcd.away = False
    thread = writer._thread
    assert thread is not None
    thread.join(30)
    assert (writer.saved_step, found_step(folder, etcd_fence(etcd).newest())) == (2, 2)
    assert files(tmp_path) == both("g00001-s00000002-r0")
    assert "checkpoint g00001-s00000002-r0 is written, but not committed yet: etcd does not answer" in capsys.readouterr().err


def test_leaving_while_etcd_is_away_tries_for_a_while_and_leaves_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ebb.elastic.checkpoint.saver.LEAVE_COMMIT_SECONDS", 0.0)
    etcd = register()
    folder, writer = saver(tmp_path, fence=etcd_fence(etcd))
    etcd.away = True
    writer.save_now(5, lambda: state(5))
    assert (writer.saved_step, found_step(folder)) == (-1, None)
    etcd.away = False
    writer.save_now(5, lambda: state(0))  # it was written already
    assert (writer.saved_step, found_step(folder)) == (5, 5)


def test_the_last_checkpoint_waits_for_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebb.elastic.checkpoint.saver._RETRY_SECONDS", 0.0)
    etcd = register()
    folder, writer = saver(tmp_path, fence=etcd_fence(etcd))
    etcd.away = True
    thread = threading.Thread(target=writer.save_now, args=(5, lambda: state(5)), kwargs={"last": True})
    thread.start()
    assert etcd.asked_in_vain.wait(30)
    etcd.away = False
    thread.join(30)
    assert (writer.saved_step, found_step(folder)) == (5, 5)


def test_an_etcd_that_stays_away_is_an_error_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebb.elastic.checkpoint.saver.LAST_SECONDS", 0.0)
    etcd = register()
    _, writer = saver(tmp_path, fence=etcd_fence(etcd))
    etcd.away = True
    with pytest.raises(FenceUnreachable):
        writer.save_now(5, lambda: state(5), last=True)


def test_a_stale_writer_says_so_and_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, writer = saver(tmp_path)
    FileFence.claim(tmp_path)
    writer.save_now(5, lambda: state(5))
    assert writer.saved_step == -1
    assert "generation 1 was replaced by a newer one (2)" in capsys.readouterr().err
    assert files(tmp_path) == []


def test_the_best_is_kept_and_copied_beside_the_plain_file(tmp_path: Path) -> None:
    plain = PlainFile.claim(tmp_path / "x/checkpoint.pth", Owner())
    _, writer = saver(tmp_path / "job", plain=plain)
    writer.save_now(1, lambda: state(1), metrics={"top1": 50.0}, score=50.0)
    writer.save_now(2, lambda: state(2))
    writer.save_now(2, lambda: state(2), metrics={"top1": 70.0}, score=70.0)  # validated after it was saved
    writer.save_now(3, lambda: state(3), metrics={"top1": 60.0}, score=60.0)
    steps = [torch.load(path)["step"] for path in (plain.path, plain.best)]
    assert steps == [3, 2]
    assert sorted(path.name for path in plain.path.parent.iterdir()) == [
        *("checkpoint.pth", "checkpoint.pth.owner.json", "model_best.pth.tar", "model_best.pth.tar.owner.json")
    ]


def test_a_write_under_way_is_committed_in_the_next_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of machines waits for no disk; the state is one on the way to the present one."""
    folder, writer = saver(tmp_path)
    goes_on, write = threading.Event(), folder.write

    def slow(*arguments: Any, **facts: Any) -> Any:
        assert goes_on.wait(60)
        return write(*arguments, **facts)

    monkeypatch.setattr(folder, "write", slow)
    writer.save(7, lambda: state(7), metrics={}, score=1.0)
    newer, fence = claimed(tmp_path, keep=9)
    writer.move(newer, fence, writer=0, plain=None)
    assert not goes_on.is_set(), "it did not wait"
    goes_on.set()
    writer.finish()
    assert found_step(newer) == 7
    writer.save_now(8, lambda: state(8))
    assert found_step(newer) == 8
    assert [path.stem[:6] for path in sorted((tmp_path / "checkpoints").glob("*.json"))] == ["g00001", "g00002"]
