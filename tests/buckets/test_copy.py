"""The copy itself, against obstore's store in memory: kills at every point, changes, names, full volumes."""

import errno
import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from obstore.store import MemoryStore

from ebb.api.buckets import parse_url
from ebb.buckets import copy as copying
from ebb.buckets.copy import NOTE, Result, copy
from ebb.buckets.stores import Bucket, BucketError, Interrupted, Item

PART = 1000
SIZES = {
    "train/a/1.jpg": 10,
    "train/a/2.jpg": 0,
    "train/b/3.jpg": 999,
    "val/a/4.jpg": 1,
    "shard-0.tar": 3500,
    "shard-1.tar": 2000,
}


class Killed(BaseException):
    """The process is gone: nobody handles it."""


class Watched(Bucket):
    """Counts what is read, and may be told to do something at a read."""

    def __init__(self, store: MemoryStore, url: str = "s3://bucket/set") -> None:
        super().__init__(parse_url(url), store)
        self.reads = self.bytes = 0
        self.at_read: Callable[[int, Item], None] = lambda number, item: None
        self._counting = threading.Lock()

    def read(self, item: Item, start: int, length: int) -> memoryview:
        with self._counting:
            self.reads += 1
            self.at_read(self.reads, item)
        data = super().read(item, start, length)
        with self._counting:
            self.bytes += length
        return data


def content(name: str, size: int) -> bytes:
    return (name.encode() * (size // len(name) + 1))[:size]


def filled(sizes: dict[str, int] = SIZES) -> MemoryStore:
    store = MemoryStore()
    for name, size in sizes.items():
        store.put(f"set/{name}", content(name, size))
    store.put("settled/other.txt", b"begins with the same letters")
    return store


def run(bucket: Bucket, target: Path) -> Result:
    return copy(bucket, target, say=lambda text: None, part_bytes=PART)


def tree(folder: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files.pop(NOTE)
    return files


WHOLE = {name: content(name, size) for name, size in SIZES.items()}


def test_all_objects_below_the_prefix_become_files(tmp_path: Path) -> None:
    result = run(Watched(filled()), tmp_path / "data" / "set")
    assert tree(tmp_path / "data" / "set") == WHOLE
    assert result == Result(files=6, size=6510, fetched=6510)
    assert not list((tmp_path / "data").glob(".copying-set"))


def test_the_folder_gets_its_name_in_one_step(tmp_path: Path) -> None:
    bucket, seen = Watched(filled()), set[int]()
    bucket.at_read = lambda number, item: seen.add((tmp_path / ".copying-set" / "tree").stat().st_ino)
    run(bucket, tmp_path / "set")
    assert seen == {(tmp_path / "set").stat().st_ino}


def test_a_copy_that_is_there_costs_no_request(tmp_path: Path) -> None:
    run(Watched(filled()), tmp_path / "set")
    empty = Watched(MemoryStore())
    assert run(empty, tmp_path / "set") == Result(files=6, size=6510, fetched=0)


@pytest.mark.parametrize("point", range(1, 12))
def test_killed_at_any_read_it_goes_on_and_leaves_the_same_tree(
    tmp_path: Path, point: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "READERS", 2)
    killed = Watched(filled())

    def kill(number: int, item: Item) -> None:
        if number >= point:
            raise Killed

    killed.at_read = kill
    if point <= 10:  # reads of a whole copy: 4 small files, 4 parts and 2
        with pytest.raises(Killed):
            run(killed, tmp_path / "set")
        assert not (tmp_path / "set").exists()
    again = Watched(filled())
    run(again, tmp_path / "set")
    assert tree(tmp_path / "set") == WHOLE
    assert killed.bytes + again.bytes == 6510  # nothing came twice
    assert {path.name for path in tmp_path.iterdir()} == {"set", ".copying-set.lock"}


def test_a_torn_line_of_the_journal_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of "0 12" a kill may leave "0 1": that part is not there."""
    monkeypatch.setattr(copying, "READERS", 1)
    sizes = {"large": 13 * PART}
    killed = Watched(filled(sizes))
    killed.at_read = lambda number, item: _raise(Killed()) if number >= 2 else None
    with pytest.raises(Killed):
        run(killed, tmp_path / "set")
    journal = tmp_path / ".copying-set" / "journal"
    assert journal.read_text() == "0 0\n"
    journal.write_text("0 0\n0 1")
    run(Watched(filled(sizes)), tmp_path / "set")
    assert tree(tmp_path / "set") == {"large": content("large", 13 * PART)}


def test_it_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "SAY_SECONDS", 0.0)
    said: list[str] = []
    copy(Watched(filled()), tmp_path / "set", say=said.append, part_bytes=PART)
    assert "listed: 6 objects, 6.5 kB" in said
    form = re.compile(r"copied (\d+) %: (\d.* of 6\.5 kB), (\d) of 6 files, \S+ \S+/s, \S+ \S+ left")
    shares = [int(found[1]) for line in said if (found := form.fullmatch(line))]
    assert len(shares) >= 6
    assert max(shares) == 99, "it is whole when the program says so, and not before"


def test_an_object_that_changes_meanwhile_is_copied_as_it_is_now(tmp_path: Path) -> None:
    store = filled({"small": 5, "large": 2500})
    bucket = Watched(store)

    def change(number: int, item: Item) -> None:
        if item.key in ("set/small", "set/large") and item.size in (5, 2500):
            store.put(item.key, b"n" * (6 if item.size == 5 else 3100))

    bucket.at_read = change
    assert run(bucket, tmp_path / "set").size == 3106
    assert tree(tmp_path / "set") == {"small": b"n" * 6, "large": b"n" * 3100}


def test_an_object_that_is_removed_meanwhile_is_left_out(tmp_path: Path) -> None:
    store = filled({"a": 5, "gone": 5, "large": 2500})
    bucket = Watched(store)
    bucket.at_read = lambda number, item: store.delete([item.key]) if item.key != "set/a" and number < 4 else None
    result = run(bucket, tmp_path / "set")
    assert (result.files, result.gone) == (1, 2)
    assert set(tree(tmp_path / "set")) == {"a"}


def test_what_fails_for_a_moment_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebb.buckets.copy.TRY_SECONDS", 0.0)
    bucket = Watched(filled())
    bucket.at_read = lambda number, item: _raise(Interrupted("reset")) if number % 3 else None
    run(bucket, tmp_path / "set")
    assert tree(tmp_path / "set") == WHOLE


def _raise(error: BaseException) -> None:
    raise error


MD5_OF_HELLO = "5d41402abc4b2a76b9719d911017c592"


class Summed(Watched):
    """Its objects have MD5s of "hello" for ETags, as a single upload to S3 has; reads answer what they are told."""

    def __init__(self, answers: list[bytes], size: int = 5) -> None:
        super().__init__(filled())
        self.answers, self.size = answers, size

    def list(self):  # type: ignore[no-untyped-def]
        yield "hello", Item(key="set/hello", size=self.size, etag=f'"{MD5_OF_HELLO}"')

    def read(self, item: Item, start: int, length: int) -> memoryview:
        return memoryview(self.answers.pop(0))


def test_bytes_that_are_damaged_on_their_way_are_fetched_again(tmp_path: Path) -> None:
    run(Summed([b"hellO", b"hello", b"hello"]), tmp_path / "set")
    assert tree(tmp_path / "set") == {"hello": b"hello"}


def test_an_etag_that_only_looks_like_a_checksum_is_found_out(tmp_path: Path) -> None:
    """As of objects that S3 encrypts with a key of KMS."""
    run(Summed([b"HELLO", b"HELLO"]), tmp_path / "set")
    assert tree(tmp_path / "set") == {"hello": b"HELLO"}


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine").write_text("mine")
    with pytest.raises(BucketError, match=r"was not made by a copy .* remove the folder"):
        run(Watched(filled()), tmp_path / "set")
    assert (tmp_path / "set" / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"a": 1, "a/b": 1}, "a file cannot be a folder too"),
        ({NOTE: 1}, "has a name that cannot be a file"),
        ({"x" * 256: 1}, "more than 255 bytes"),
    ],
    ids=["file and folder", "our note", "too long"],
)
def test_names_that_cannot_be_files_are_named(tmp_path: Path, sizes: dict[str, int], says: str) -> None:
    with pytest.raises(BucketError, match=says):
        run(Watched(filled(sizes)), tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_a_volume_without_room_is_seen_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=6509))
    bucket = Watched(filled())
    with pytest.raises(BucketError, match=r"the volume is full: .* \(6.5 kB are free\)\. Remove data with `ebb data rm`"):
        run(bucket, tmp_path / "set")
    assert bucket.reads == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_volume_that_fills_up_says_so_and_keeps_what_is_there(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    real = os.fsync

    def fsync(handle: int) -> None:
        if full and os.fstat(handle).st_size == 999:
            raise OSError(code, os.strerror(code))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    first = Watched(filled())
    with pytest.raises(BucketError, match="the volume is full"):
        run(first, tmp_path / "set")
    full = False
    run(Watched(filled()), tmp_path / "set")
    assert tree(tmp_path / "set") == WHOLE


def test_one_object_is_a_folder_with_one_file(tmp_path: Path) -> None:
    run(Watched(filled(), "s3://bucket/set/shard-0.tar"), tmp_path / "set")
    assert tree(tmp_path / "set") == {"shard-0.tar": WHOLE["shard-0.tar"]}


@pytest.mark.parametrize(
    ("url", "says"), [("s3://bucket/sett", "no object of the bucket begins with sett/"), ("s3://bucket", "is empty")]
)
def test_nothing_there_is_no_copy(tmp_path: Path, url: str, says: str) -> None:
    with pytest.raises(BucketError, match=says):
        run(Watched(filled() if "sett" in url else MemoryStore(), url), tmp_path / "set")


def test_two_at_once_copy_once(tmp_path: Path) -> None:
    buckets = [Watched(filled()), Watched(filled())]
    threads = [threading.Thread(target=run, args=(bucket, tmp_path / "set")) for bucket in buckets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tree(tmp_path / "set") == WHOLE
    assert sorted(bucket.bytes for bucket in buckets) == [0, 6510]
