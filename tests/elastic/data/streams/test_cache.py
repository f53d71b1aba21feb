"""The machine's copies of shards: made once whoever asks, bounded, readable as long as somebody has them open."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ebb.elastic.data import DataError
from ebb.elastic.data.streams.cache import Cache
from ebb.elastic.data.streams.remote import _patiently, expand
from tests.elastic.machines import until

FORK = multiprocessing.get_context("fork")


def content(cache: Cache, key: str, text: bytes = b"x" * 10) -> bytes:
    with cache.open(key, lambda path: path.write_bytes(text)) as file:
        return file.read()


def kept(cache: Cache) -> int:
    return sum(not path.name.startswith(".") for path in cache.folder.iterdir())


def test_a_file_is_made_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep/er", max_bytes=1000)
    assert content(cache, "a", b"first") == b"first"
    assert content(cache, "a", b"second") == b"first"
    assert content(cache, "b", b"second") == b"second"


def test_processes_that_want_the_same_wait_for_the_one_that_makes_it(tmp_path: Path) -> None:
    cache, made = Cache(tmp_path / "cache", max_bytes=1000), tmp_path / "made"

    def make(path: Path) -> None:
        with made.open("a") as log:
            log.write("x")
        path.write_bytes(b"content")

    def ask() -> None:
        with cache.open("a", make) as file:
            assert file.read() == b"content"

    processes = [FORK.Process(target=ask) for _ in range(8)]
    for each in processes:
        each.start()
    for each in processes:
        each.join(30)
    assert [each.exitcode for each in processes] == [0] * 8
    assert made.read_text() == "x"


def test_a_process_that_is_killed_while_it_makes_one_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", max_bytes=1000)

    def half(path: Path) -> None:
        path.write_bytes(b"half")
        signal.pause()

    process = FORK.Process(target=lambda: cache.open("a", half))
    process.start()
    until("half a file", lambda: list(cache.folder.glob(".tmp-*")) if cache.folder.exists() else None)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    assert content(cache, "a", b"whole") == b"whole"
    assert not list(cache.folder.glob(".tmp-*"))


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=35)
    for age, key in enumerate("cba"):
        content(cache, key)
        newest = max(tmp_path.glob("[!.]*"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, ns=(0, (age + 1) * 10**9))
    content(cache, "c", b"made again")  # used now: the oldest one no more
    content(cache, "d")
    assert kept(cache) == 3
    assert content(cache, "c", b"made again") == b"x" * 10
    assert content(cache, "b", b"made again") == b"made again"


def test_a_file_that_is_open_stays_readable_when_it_is_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=5)
    with cache.open("a", lambda path: path.write_bytes(b"content of a")) as file:
        content(cache, "b")
        assert kept(cache) == 1
        assert file.read() == b"content of a"


def test_a_file_that_is_larger_than_the_cache_is_kept_until_the_next(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=5)
    assert content(cache, "a") == b"x" * 10
    assert kept(cache) == 1


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    def fill(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"cannot write to the cache of shards .*No space left.*Make room there, or name another"):
        Cache(tmp_path, max_bytes=1).open("a", fill)


def test_its_size_is_checked() -> None:
    with pytest.raises(DataError, match="cache_gib is 0; it must be more than 0"):
        Cache.of(None, 0)


def test_temporary_files_that_nobody_writes_any_more_are_removed(tmp_path: Path) -> None:
    old, new = tmp_path / ".tmp-old", tmp_path / ".tmp-new"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    content(Cache(tmp_path, max_bytes=100), "a")
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize(
    ("urls", "found"),
    [
        ("s3://b/{000..002}.tar", ["s3://b/000.tar", "s3://b/001.tar", "s3://b/002.tar"]),
        ("{a,b}-{8..10}", ["a-8", "a-9", "a-10", "b-8", "b-9", "b-10"]),
        (["file:///x.tar", Path("y.tar")], ["/x.tar", "y.tar"]),
        ("https://host/x.tar?key=1", ["https://host/x.tar?key=1"]),
    ],
)
def test_addresses_are_written_out(urls: Any, found: list[str]) -> None:
    assert expand(urls) == found


@pytest.mark.parametrize(("urls", "message"), [
    ([], "an empty list names no file"),
    ("/nowhere/*.tar", r"/nowhere/\*\.tar names no file"),
    (["a", "b", "a"], "a is named twice"),
    ("nosuch://a/*", "cannot read nosuch://a/.*Install the package for that store"),
])  # fmt: skip
def test_addresses_that_say_nothing_are_refused(urls: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        expand(urls)


def test_a_store_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("ebb.elastic.data.streams.remote.time.sleep", pauses.append)
    answers: Iterator[Any] = iter([ConnectionError("reset"), TimeoutError(), 7])

    def act() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert _patiently("s3://x", act) == 7
    assert pauses == [1.0, 2.0]

    def fail() -> None:
        raise ConnectionError("reset")

    with pytest.raises(DataError, match="cannot read s3://x, tried 4 times: ConnectionError: reset"):
        _patiently("s3://x", fail)


def test_what_it_holds_counts_as_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that starts later must not take a full cache for a small disk."""
    monkeypatch.setattr("ebb.elastic.data.streams.cache.shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    assert Cache.of(tmp_path / "new", None).max_bytes == 50
    (tmp_path / "file").write_bytes(b"x" * 60)
    assert Cache.of(tmp_path, None).max_bytes == 80
