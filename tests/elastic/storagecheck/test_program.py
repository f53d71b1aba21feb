"""The storage's check: what a machine does with files, and two machines that read each other's."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ebb.client.diagnostics.storage import FIGURES, StorageReading
from ebb.elastic.contract import EXIT_PEER_LOST
from ebb.elastic.netcheck.measure import Ranks
from ebb.elastic.storagecheck import __main__ as program
from ebb.elastic.storagecheck import measure
from ebb.elastic.storagecheck.measure import OPERATIONS, RANDOM_READ, READ, SMALL_READ, SMALL_WRITE, WRITE, MachineFiles, run


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    for name, value in {"THREADS": 3, "BLOCK": 8192, "MOST_BLOCKS": 7, "MOST_FILES": 5, "MOST_READS": 11}.items():
        monkeypatch.setattr(measure, name, value)


def test_a_machine_writes_files_of_its_own_and_reads_all_of_anothers(tmp_path: Path) -> None:
    one, two = (MachineFiles(tmp_path / name, sample_bytes=100) for name in ("0", "1"))
    for machine in (one, two):
        machine.folder.mkdir()
        assert run(WRITE, machine, machine, seconds=60)[:2] == (7 * 8192, 7)
        assert run(SMALL_WRITE, machine, machine, seconds=60)[:2] == (500, 5)
    for path in one.folder.iterdir():
        path.unlink()  # nothing of it is read any more
    assert run(READ, one, two, seconds=60)[:2] == (7 * 8192, 7)
    assert run(SMALL_READ, one, two, seconds=60)[:2] == (500, 5)
    assert run(RANDOM_READ, one, two, seconds=60)[:2] == (11 * 4096, 11)
    assert list(one.folder.iterdir()) == []


def test_it_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MOST_FILES", 10**9)
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    mine = MachineFiles(tmp_path, sample_bytes=10)
    assert 0 < run(SMALL_WRITE, mine, mine, seconds=50.0).operations < 60


def test_what_the_volume_refuses_is_an_error(tmp_path: Path) -> None:
    mine = MachineFiles(tmp_path / "missing", sample_bytes=10)
    with pytest.raises(FileNotFoundError):
        run(WRITE, mine, mine)


class Together:
    """Two ranks, each of a machine of its own, as threads."""

    def __init__(self, size: int) -> None:
        self.size, self._told, self._meeting = size, [None] * size, threading.Barrier(size)

    def of(self, rank: int) -> Any:
        class One:
            size = self.size

            def gather(_, facts: Any) -> list[Any]:
                self._told[rank] = facts
                self._meeting.wait(30)
                told = list(self._told)
                self._meeting.wait(30)
                return told

            def agree(one, value: float) -> float:
                return max(map(float, one.gather(value)))

            tell = Ranks.tell

        made = One()
        made.rank = rank  # type: ignore[attr-defined]
        return made


def test_two_machines_measure_at_once_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    together, numbers, failed = Together(2), iter(range(2)), list[BaseException]()
    lock = threading.Lock()

    def meet(device: object) -> Any:
        with lock:
            return together.of(next(numbers))

    monkeypatch.setattr(Ranks, "meet", meet)
    pairs: list[tuple[str, str, str]] = []

    def watched(operation: str, mine: MachineFiles, theirs: MachineFiles, *, seconds: float) -> Any:
        pairs.append((operation, mine.folder.name, theirs.folder.name))
        return run(operation, mine, theirs, seconds=seconds)

    monkeypatch.setattr(program, "run", watched)
    left = tmp_path / ".ebb-storage-check-killed-1"
    left.mkdir()
    os.utime(left, (0, 0))

    def one() -> None:
        try:
            program.check(tmp_path, 100, 60.0)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert list(tmp_path.iterdir()) == [], "its own files are gone, and what a killed check left"
    assert sorted(pairs) == sorted((name, *each) for name in OPERATIONS for each in (("0", "1"), ("1", "0")))
    reading = StorageReading()
    assert sum(reading.feed(line) for line in capsys.readouterr().out.splitlines()) == 2 + FIGURES, "rank 0 alone prints"
    assert (reading.is_complete, reading.start["machines"]) == (True, 2)
    assert {one.operation: one.bytes for one in reading.figures} == {
        WRITE: 2 * 7 * 8192, SMALL_WRITE: 1000, READ: 2 * 7 * 8192, SMALL_READ: 1000, RANDOM_READ: 22 * 4096,
    }  # fmt: skip
    assert all(one.per_second > 0 and one.least_bytes_per_second <= one.bytes_per_second for one in reading.figures)


@pytest.mark.parametrize(
    ("error", "code"), [(PermissionError(13, "Permission denied"), 1), (RuntimeError("Connection closed by peer"), None)]
)
def test_errors_become_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int | None
) -> None:
    def refuse(*_: object) -> None:
        raise error

    class Notice:
        def leave_within(self, *_: object) -> None:
            """There is none."""

    monkeypatch.setattr(program, "check", refuse)
    monkeypatch.setattr(program, "install", Notice)
    assert program.main([str(tmp_path)]) == (EXIT_PEER_LOST if code is None else code)
    assert str(error) in capsys.readouterr().err
