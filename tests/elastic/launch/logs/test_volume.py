"""What becomes of lines when the volume is full, away or hangs: nobody waits, what is missing is counted, nothing is torn."""

import contextlib
import errno
import os
import re
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebb.elastic.launch.logs import volume as module
from ebb.elastic.launch.logs.volume import LauncherLog


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)


@pytest.fixture
def largest_file() -> Iterator[Callable[[int | None], None]]:
    """Limits the size of files, as a full disk does: a write comes short, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))

    yield limit
    limit(None)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def lines(*numbers: int) -> bytes:
    return b"".join(b"2026-11-22T12:58:54.000000001Z 0.0.out line %d\n" % number for number in numbers)


def whole_lines(folder: Path) -> list[str]:
    """As a reader takes them: what stands behind the last line end of a part is no line."""
    found = []
    for part in sorted(folder.glob("*.log")):
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            found += part.read_text().split("\n")[:-1]
    return found


def numbers(folder: Path) -> list[int]:
    return [int(match[1]) for line in whole_lines(folder) if (match := re.search(r"line (\d+)$", line))]


def test_lines_are_in_a_file_of_that_start(tmp_path: Path) -> None:
    volume = LauncherLog(tmp_path / "logs" / "worker-3", "20261122T125854-000000001Z.uid", tell=print)
    assert volume.put(lines(1, 2), 2)
    until(lambda: numbers(tmp_path / "logs" / "worker-3") == [1, 2])
    assert volume.put(lines(3), 1)
    assert volume.close() == 0
    assert [path.name for path in (tmp_path / "logs" / "worker-3").iterdir()] == ["20261122T125854-000000001Z.uid.000000.log"]
    assert numbers(tmp_path / "logs" / "worker-3") == [1, 2, 3]


def test_nobody_writes_to_a_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "name.000000.log").write_text("another's\n")
    told: list[str] = []
    volume = LauncherLog(tmp_path, "name", tell=told.append)
    volume.put(lines(1), 1)
    assert volume.close() == 0
    assert "File exists" in told[0]
    assert (tmp_path / "name.000000.log").read_text() == "another's\n"
    assert (tmp_path / "name.000001.log").read_bytes() == lines(1)


def test_a_volume_that_is_away_gets_all_lines_when_it_is_back(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()  # no folder can be made below it
    told: list[str] = []
    volume = LauncherLog(tmp_path / "logs" / "worker-0", "name", tell=told.append)
    volume.put(lines(1), 1)
    until(lambda: told)
    volume.put(lines(2), 1)
    (tmp_path / "logs").unlink()
    until(lambda: numbers(tmp_path / "logs" / "worker-0") == [1, 2])
    assert volume.close() == 0
    assert len(told) == 1, "once, not at each try"
    assert "Not a directory" in told[0]


def test_a_full_disk_tears_no_line_and_repeats_none(tmp_path: Path, largest_file: Callable[[int | None], None]) -> None:
    told: list[str] = []
    volume = LauncherLog(tmp_path, "name", tell=told.append)
    size = len(lines(*range(1000)))
    largest_file(size // 10)
    for number in range(1000):
        volume.put(lines(number), 1)
    until(lambda: told)
    largest_file(None)
    assert volume.close() == 0
    assert len(list(tmp_path.iterdir())) > 1
    assert numbers(tmp_path) == list(range(1000))


QUOTA = OSError(errno.EDQUOT, "Disk quota exceeded")


class Quota:
    """A network file system's: writes go well, and `calls` of an operation say afterwards that they have not."""

    def __init__(self, real: Callable[[int], None], calls: int) -> None:
        self._real, self._calls = real, calls

    def __call__(self, file: int) -> None:
        self._real(file)
        if threading.current_thread().name == "log volume" and self._calls:
            self._calls -= 1
            raise QUOTA


def test_lines_that_a_failed_sync_may_have_lost_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(os, "fdatasync", Quota(os.fdatasync, 1))
    volume = LauncherLog(tmp_path, "name", tell=told.append)
    volume.put(lines(1, 2), 2)
    until(lambda: told)
    volume.put(lines(3), 1)
    assert volume.close() == 0
    assert "Disk quota exceeded" in told[0]
    assert "-.-.err [launcher] up to 2 lines before this may not be here" in whole_lines(tmp_path)[2]
    assert numbers(tmp_path) == [1, 2, 3]


def test_lines_that_a_failed_close_may_have_lost_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 1)
    monkeypatch.setattr(module, "SYNC_SECONDS", 1000)  # none between the write and the close
    volume = LauncherLog(tmp_path, "name", tell=print)
    volume._synced_at = time.monotonic()
    volume.put(lines(1), 1)
    until(lambda: numbers(tmp_path) == [1] and not volume._held)
    monkeypatch.setattr(os, "close", Quota(os.close, 1))
    volume.put(lines(2), 1)
    assert volume.close() == 0
    assert [("up to 1 lines before" in line, line[-6:]) for line in whole_lines(tmp_path)][1:] == [
        (True, "failed"),
        (False, "line 2"),
    ]


def test_at_the_end_they_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdatasync", Quota(os.fdatasync, 1000))
    volume = LauncherLog(tmp_path, "name", tell=print)
    volume.put(lines(1, 2), 2)
    until(lambda: numbers(tmp_path) == [1, 2])
    volume.put(lines(3), 1)
    assert volume.close() == 3


def test_a_volume_that_hangs_holds_up_nobody_and_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 100_000)
    released, real = threading.Event(), os.write

    def hang(file: int, data: bytes) -> int:
        if threading.current_thread().name == "log volume":
            released.wait()
        return real(file, data)

    monkeypatch.setattr(os, "write", hang)
    volume = LauncherLog(tmp_path, "name", tell=print)
    began = time.monotonic()
    taken = [number for number in range(10_000) if volume.put(lines(number), 1)]
    assert time.monotonic() - began < 5, "nobody waited"
    assert 1000 < len(taken) < 3000
    released.set()
    until(lambda: numbers(tmp_path) == taken and not volume._held)
    volume.put(lines(10_000), 1)
    assert volume.close() == 0
    *_, said, last = whole_lines(tmp_path)
    assert f"-.-.err [launcher] {10_000 - len(taken)} lines are not here" in said
    assert last.endswith("line 10000")


def test_the_end_does_not_wait_for_a_volume_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released, real = threading.Event(), os.write
    monkeypatch.setattr(os, "write", lambda file, data: (released.wait(), real(file, data))[1])
    volume = LauncherLog(tmp_path, "name", tell=print)
    volume.put(lines(1, 2, 3), 3)
    assert volume.close(0.05) == 3
    released.set()
    volume._thread.join()


def test_parts_are_limited_in_size_and_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 1000)
    monkeypatch.setattr(module, "PARTS", 3)
    volume = LauncherLog(tmp_path, "name", tell=print)
    for number in range(200):
        volume.put(lines(number), 1)
        until(lambda: number in numbers(tmp_path))  # noqa: B023 - called at once
    assert volume.close() == 0
    parts = sorted(path.name for path in tmp_path.iterdir())
    assert len(parts) == 3
    assert parts[0] == "name.000000.log", "how it began"
    assert all(path.stat().st_size < 1300 for path in tmp_path.iterdir())
    found = numbers(tmp_path)
    assert found[0] == 0
    assert found[-1] == 199
    assert found == sorted(found)
    assert any("is removed: a launcher keeps its first part and its 2 newest" in line for line in whole_lines(tmp_path))
