"""Loading the files of a folder that a file system fetches from a bucket: all of them, many at once, whatever happens between."""

import errno
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ebb.api.contract import EXIT_COPY_REFUSED
from ebb.buckets import preload


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(100):
        path = tmp_path / "set" / ("train" if number % 2 else "val") / f"{number % 5}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * number)
    return tmp_path / "set"


class Linked:
    """A file system that fetches a file when it is first read, as `open` of the module under test."""

    def __init__(self, together: int = 1) -> None:
        self.fetched: list[str] = []
        self.failing: dict[str, list[OSError]] = {}  # by name
        self._together = threading.Barrier(together)
        self._lock = threading.Lock()

    def __call__(self, path: str, *given: Any, **named: Any) -> Any:
        with self._lock:
            self.fetched.append(path)
            number, errors = len(self.fetched), self.failing.get(Path(path).name)
        if number <= self._together.parties:
            self._together.wait(60)
        if errors:
            raise errors.pop(0)
        return Path(path).open(*given, **named)


def test_every_file_is_fetched_once_and_many_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    linked = Linked(together=preload.READERS)  # fails after a minute, unless all readers wait for the bucket at once
    monkeypatch.setattr(preload, "open", linked, raising=False)
    assert preload.main([str(folder)]) == 0
    assert sorted(linked.fetched) == sorted(str(path) for path in folder.rglob("*.jpg"))
    assert capsys.readouterr().out.startswith(f"{folder} is loaded: 100 files, 5.0 kB in ")


def test_what_fails_for_a_while_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "TRY_SECONDS", 0.0)
    linked = Linked()
    linked.failing = {"7.jpg": [OSError(errno.EIO, "Input/output error")] * 3}
    monkeypatch.setattr(preload, "open", linked, raising=False)
    assert preload.preload(folder, print) == preload.Loaded(files=100, size=sum(range(100)))


def test_what_stays_unreadable_is_named_and_the_rest_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preload, "TRY_SECONDS", 0.0)
    linked = Linked()
    linked.failing = {"7.jpg": [OSError(errno.EIO, "Input/output error", "7.jpg") for _ in range(preload.TRIES)]}
    monkeypatch.setattr(preload, "open", linked, raising=False)
    assert preload.main([str(folder)]) == 1
    said = capsys.readouterr().out
    assert f"1 files of {folder} cannot be read: [Errno 5] Input/output error: '7.jpg'; what is there stays" in said
    assert len(set(linked.fetched)) == 100


def test_a_file_that_is_removed_meanwhile_is_no_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = Linked()
    linked.failing = {"7.jpg": [FileNotFoundError()]}
    monkeypatch.setattr(preload, "open", linked, raising=False)
    assert preload.preload(folder, print).files == 99


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("there", "is not a folder there"), ("empty", "holds no files: is its name in the bucket another one?")],
)
def test_a_wrong_name_is_not_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, sentence: str) -> None:
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    assert preload.main([str(tmp_path / name)]) == EXIT_COPY_REFUSED
    assert sentence in capsys.readouterr().out


def test_a_killed_run_is_taken_up_by_the_next(folder: Path) -> None:
    code = """
import os, sys
from ebb.buckets import preload
touch, seen = preload._touch, []
def dying(path):
    seen.append(path)
    if len(seen) > 30:
        os.kill(os.getpid(), 9)
    return touch(path)
preload._touch = dying
preload.main(sys.argv[1:])
"""
    died = subprocess.run([sys.executable, "-c", code, str(folder)], timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    again = subprocess.run(
        [sys.executable, "-m", "ebb.buckets.preload", str(folder)], timeout=60, check=True, capture_output=True, text=True
    )
    assert again.stdout.startswith(f"{folder} is loaded: 100 files, 5.0 kB in ")
