"""Who does it, who waits, and what becomes of a holder that is killed. Times are tenths of a second instead of a minute."""

import contextlib
import errno
import os
import threading
import time
from pathlib import Path

import pytest

from ebb.elastic.launch import lease
from ebb.elastic.launch.lease import Lease


def turn(path: Path, told: list[str], holder: str = "worker 0 of digits", silent_seconds: float = 5.0) -> Lease:
    return Lease(
        path=path,
        holder=holder,
        say=told.append,
        doing="installs",
        renew_seconds=0.02,
        silent_seconds=silent_seconds,
        look_seconds=0.01,
    )


def test_alone_it_is_ours_and_then_nobodys(tmp_path: Path) -> None:
    path, told = tmp_path / "lock", list[str]()
    with turn(path, told).take(lambda: False) as mine:
        assert mine
        assert path.read_text().endswith("worker 0 of digits\n")
    assert not path.exists()
    assert told == []


def test_nothing_is_taken_for_what_is_done(tmp_path: Path) -> None:
    with turn(tmp_path / "lock", []).take(lambda: True) as mine:
        assert not mine
    assert list(tmp_path.iterdir()) == []


def test_the_second_waits_for_the_first_which_counts_all_the_while(tmp_path: Path) -> None:
    """For longer than its silence may last: only a holder that does not count is taken over."""
    path, done, told, held = tmp_path / "lock", threading.Event(), list[str](), threading.Event()

    def first() -> None:
        with turn(path, []).take(lambda: False):
            held.set()
            time.sleep(0.4)
            done.set()

    other = threading.Thread(target=first)
    other.start()
    assert held.wait(5)
    second = turn(path, told, "worker 1 of digits", silent_seconds=0.2)
    with second.take(done.is_set) as mine:
        assert not mine
    other.join()
    assert second.waited
    assert told == ["worker 0 of digits installs; waiting for it since 0 s"]


@pytest.mark.parametrize("left", ["4f1c 000000000007 worker 0 of digits\n", ""], ids=["counted", "killed-as-it-began"])
def test_a_killed_holder_is_taken_over(left: str, tmp_path: Path) -> None:
    path, told = tmp_path / "lock", list[str]()
    path.write_text(left)
    with turn(path, told, "worker 1 of digits", silent_seconds=0.1).take(lambda: False) as mine:
        assert mine
        assert "worker 1 of digits" in path.read_text()
    assert told[-1].endswith("has been silent for 0 s: taking over")


def test_a_holder_that_was_taken_over_leaves_the_others_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    slow = turn(path, [])
    with slow.take(lambda: False):
        path.unlink()
        with turn(path, [], "worker 1 of digits").take(lambda: False) as mine:
            assert mine
            time.sleep(0.1)  # the slow one counts now, if it does
            assert "worker 1 of digits" in path.read_text()
    assert not path.exists()


def test_a_read_that_fails_once_does_not_end_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, failed, real = tmp_path / "lock", threading.Event(), Path.read_text

    def read(place: Path, **words: str) -> str:
        if threading.current_thread().name == "lease" and not failed.is_set():
            failed.set()
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(place, **words)

    monkeypatch.setattr(Path, "read_text", read)
    with turn(path, []).take(lambda: False):
        assert failed.wait(5)
        before, deadline = path.read_bytes(), time.monotonic() + 5
        while path.read_bytes() in (before, b""):
            assert time.monotonic() < deadline, "it counts no more"
            time.sleep(0.005)
    assert not path.exists()


def test_a_disk_that_hangs_holds_up_the_end_for_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_END_SECONDS", 0.05)
    hangs, released = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        hangs.set()
        released.wait(5)

    monkeypatch.setattr(os, "fsync", hang)
    with contextlib.ExitStack() as stack:
        stack.callback(released.set)
        with turn(tmp_path / "lock", []).take(lambda: False):
            assert hangs.wait(5)
            began = time.monotonic()
        assert time.monotonic() - began < 2


def test_of_many_one_does_it(tmp_path: Path) -> None:
    place, times, lock = tmp_path / "done", list[int](), threading.Lock()

    def work(number: int) -> None:
        with turn(tmp_path / "lock", [], f"worker {number}").take(place.exists) as mine:
            if mine:
                with lock:
                    times.append(number)
                time.sleep(0.05)
                place.touch()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(times) == 1
    assert os.listdir(tmp_path) == ["done"]  # noqa: PTH208 - the names
