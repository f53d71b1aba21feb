"""The copy of a bucket into a folder: whole or not there, and taken up where it stood after any kill.

    result = copy(open_bucket("s3://imagenet/train"), Path("/mnt/data/imagenet"), say=print)

The folder appears under its name when every object is in it, with a note of the address; a run that sees the note does nothing.
Until then everything is in `.copying-<name>` beside it:

    listing       the objects as they were when the copy began: one JSON line each. It appears when it is whole
    journal       the numbers of those lines whose file is whole, and of parts of large ones: "17" and "17 3"
    tree/         whole files under their names
    parts/        large files in the making

A file is written and flushed before the journal says so, and the journal is flushed before anybody relies on it. An object that
changed since the listing is copied as it is now; one that is gone is left out.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ebb.buckets.stores import Bucket, BucketError, Changed, Gone, Interrupted, Item

NOTE = ".ebb-copy.json"
READERS = 32  # one request answers in some 30 ms, so small files come as fast as many are asked for at once
PART_BYTES = 8 * 2**20  # 32 of them at once are 256 MiB; smaller objects are one request
TRIES = 4  # of one file or part, beside those of its requests
TRY_SECONDS = 1.0  # until the second try; then twice as long each
_FIELDS = 4  # of a line of the listing
SAY_SECONDS = 2.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MD5 = 32  # hexadecimal digits


@dataclass(frozen=True, kw_only=True)
class Result:
    """`fetched`: what this run did; the rest was there."""

    files: int
    size: int
    fetched: int
    gone: int = 0


@dataclass(frozen=True, kw_only=True)
class _Entry:
    number: int
    name: str
    item: Item


def copy(bucket: Bucket, target: Path, say: Callable[[str], None], part_bytes: int = PART_BYTES) -> Result:
    """Have the folder. Raises BucketError, Interrupted, OSError of anything but a full volume."""
    work = target.with_name(f".copying-{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(work, say):
            done = _complete(bucket, target)
            if done is None:
                done = _Copy(bucket, work, say, part_bytes).run()
                _finish(bucket, work, target, done)
            shutil.rmtree(work, ignore_errors=True)
            return done
    except OSError as error:
        if error.errno in _FULL:
            free = shutil.disk_usage(target.parent).free
            raise BucketError(
                f"the volume is full: {target} cannot take all of {bucket.url} ({size_words(free)} are free). Remove data with "
                "`ebb data rm`, or have the volume made larger; what was copied is kept, and the copy goes on from there."
            ) from error
        raise


@contextmanager
def _alone(work: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One run at a time: a second one waits, and then finds the work done."""
    lock = work.with_name(f"{work.name}.lock")
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another job copies the same; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield  # the lock stays: a file that is removed could be locked twice


def _complete(bucket: Bucket, target: Path) -> Result | None:
    """The copy that is there; None if there is none. Raises BucketError for a folder that is no copy of this bucket."""
    if not target.exists():
        return None
    try:
        note = json.loads((target / NOTE).read_text())
        found = note["url"]
    except (OSError, ValueError, KeyError, TypeError):
        note, found = {}, None
    if found != str(bucket.url):
        what = f"is a copy of {found}" if found else f"was not made by a copy (it has no {NOTE})"
        raise BucketError(f"{target} exists and {what}, but {bucket.url} is wanted: remove the folder with `ebb data rm -r`.")
    return Result(files=note["files"], size=note["bytes"], fetched=0, gone=note["gone"])


def _finish(bucket: Bucket, work: Path, target: Path, done: Result) -> None:
    tree = work / "tree"
    note = {
        "schema": "1",
        "url": str(bucket.url),
        "files": done.files,
        "bytes": done.size,
        "gone": done.gone,
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    _write_whole(tree / NOTE, json.dumps(note).encode())
    _flush_folder(tree)
    tree.rename(target)
    _flush_folder(target.parent)


class _Copy:
    """One run. Threads fetch; the thread that made it reads the listing, keeps the journal and says how far it is."""

    def __init__(self, bucket: Bucket, work: Path, say: Callable[[str], None], part_bytes: int) -> None:
        self._bucket, self._work, self._say, self._part_bytes = bucket, work, say, part_bytes
        self._tree, self._parts = work / "tree", work / "parts"
        self._journal_lock = threading.Lock()
        self._whole: set[int] = set()
        self._have: dict[int, set[int]] = {}  # number -> parts of it
        self._journal: Any = None
        self._stop = threading.Event()

    def run(self) -> Result:
        for folder in (self._work, self._tree, self._parts):
            folder.mkdir(exist_ok=True)
        listing = self._work / "listing"
        if not listing.exists():
            self._list(listing)
        totals = self._read_totals(listing)
        self._read_journal()
        with (self._work / "journal").open("ab", buffering=0) as self._journal:
            return self._fetch(listing, *totals)

    # ---------------------------------------------------------------------------------------------------- listing, journal

    def _list(self, listing: Path) -> None:
        """Write down what there is. A name that cannot be a file beside the others ends it before anything is fetched."""
        (self._work / "journal").unlink(missing_ok=True)
        partial, count, size = listing.with_name("listing.partial"), 0, 0
        last = time.monotonic()
        with partial.open("w") as sink:
            for name, item in self._bucket.list():
                _check_name(self._bucket, name, item)
                sink.write(json.dumps([name, item.key, item.size, item.etag]) + "\n")
                count, size = count + 1, size + item.size
                if time.monotonic() - last > SAY_SECONDS:
                    self._say(f"listing: {count} objects so far")
                    last = time.monotonic()
            sink.write(json.dumps([count, size]) + "\n")
            sink.flush()
            os.fsync(sink.fileno())
        if not count:
            raise BucketError(f"{self._bucket.url} holds folders and no objects: there is nothing to copy.")
        partial.rename(listing)
        self._say(f"listed: {count} objects, {size_words(size)}")

    def _read_totals(self, listing: Path) -> tuple[int, int]:
        with listing.open("rb") as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - 200))
            count, size = json.loads(source.read().splitlines()[-1])
        return count, size

    def _read_journal(self) -> None:
        """A line that was cut off by a kill has no end, and does not count."""
        path = self._work / "journal"
        text = path.read_bytes() if path.exists() else b""
        kept = text[: text.rfind(b"\n") + 1]
        if kept != text:
            os.truncate(path, len(kept))
        for line in kept.splitlines():
            number, _, part = line.partition(b" ")
            if part:
                self._have.setdefault(int(number), set()).add(int(part))
            else:
                self._whole.add(int(number))

    def _note(self, line: str) -> None:
        with self._journal_lock:
            self._journal.write(f"{line}\n".encode())

    # ----------------------------------------------------------------------------------------------------------- fetching

    def _fetch(self, listing: Path, count: int, size: int) -> Result:
        self._check_room(listing, size)
        self._progress = _Progress(count, size, self._say)
        waiting: deque[Future[Fetched]] = deque()
        done: list[Fetched] = [Fetched(0, 0, 0)]
        with ThreadPoolExecutor(READERS) as threads:
            try:
                for entry in self._entries(listing):
                    if entry.item.size > self._part_bytes:  # its parts keep all threads busy, so it is not one's work
                        done.append(self._fetch_large(threads, entry))
                    else:
                        waiting.append(threads.submit(self._fetch_small, entry))
                    while len(waiting) >= 4 * READERS or (waiting and waiting[0].done()):
                        done.append(waiting.popleft().result())
                    done = [_sum(done)]
                done += [one.result() for one in waiting]
            except BaseException:
                self._stop.set()
                threads.shutdown(wait=True, cancel_futures=True)
                raise
        total = _sum(done)
        return Result(files=total.files, size=total.size, fetched=total.fetched, gone=count - total.files)

    def _entries(self, listing: Path) -> Iterator[_Entry]:
        with listing.open() as source:
            for number, line in enumerate(source):
                words = json.loads(line)
                if len(words) == _FIELDS:  # the last line is the totals
                    yield _Entry(number=number, name=words[0], item=Item(*words[1:]))

    def _check_room(self, listing: Path, size: int) -> None:
        """Refuse a copy that cannot fit before hours are spent on it. Some file systems say that they are endless."""
        missing = sum(one.item.size for one in self._entries(listing) if one.number not in self._whole) if self._whole else size
        free = shutil.disk_usage(self._work).free
        if missing > free + sum(one.stat().st_blocks * 512 for one in self._parts.iterdir()):
            raise OSError(errno.ENOSPC, "less is free than is missing")

    def _is_whole(self, entry: _Entry) -> bool:
        """The journal says so, and the file is there: somebody may have tidied up between two runs."""
        return entry.number in self._whole and (self._tree / entry.name).is_file()

    def _fetch_small(self, entry: _Entry) -> "Fetched":
        if self._is_whole(entry):
            self._progress.there(entry.item.size)
            return Fetched(1, entry.item.size, 0)
        read = self._read_small(entry.item)
        if read is None:
            return Fetched(0, 0, 0)
        item, data = read
        partial = self._parts / f"{entry.number}.small"
        _write_whole(partial, data)
        self._move(partial, entry)
        self._progress.came(item.size)
        return Fetched(1, item.size, item.size)

    def _read_small(self, item: Item) -> tuple[Item, memoryview] | None:
        """The object as listed, or as it is now; None if it is gone."""
        for _ in range(TRIES):
            try:
                data = self._read(item, 0, item.size)
                # An ETag of MD5's form is not always one (encrypted objects): the same bytes twice are right, others are not.
                right = _matches(item, hashlib.md5(data, usedforsecurity=False).hexdigest())
                if right or self._read(item, 0, item.size) == data:
                    return item, data
            except (Changed, Gone):
                try:
                    item = self._bucket.head(item.key)
                except Gone:
                    return None
        raise Interrupted(f"{self._bucket.url.of(item.key)} was damaged on its way, or changes again and again")

    def _fetch_large(self, threads: ThreadPoolExecutor, entry: _Entry) -> "Fetched":
        """By parts, each of which is kept when the run is killed."""
        if self._is_whole(entry):
            self._progress.there(entry.item.size)
            return Fetched(1, entry.item.size, 0)
        item, have = entry.item, self._have.get(entry.number, set())
        for _ in range(TRIES):
            path = self._parts / f"{entry.number}.{hashlib.sha256(f'{item.etag} {item.size}'.encode()).hexdigest()[:16]}"
            have = have if path.exists() else set()
            try:
                fetched = self._fetch_parts(threads, entry.number, item, path, have)
                if not self._is_right(threads, item, path):
                    path.unlink()
                    continue
            except (Changed, Gone):  # none of the parts count any more
                path.unlink(missing_ok=True)
                try:
                    item, have = self._bucket.head(item.key), set()
                except Gone:
                    return Fetched(0, 0, 0)
                continue
            self._move(path, entry)
            self._progress.came(0)
            return Fetched(1, item.size, fetched)
        raise Interrupted(f"{self._bucket.url.of(item.key)} was damaged on its way, or changes again and again")

    def _fetch_parts(self, threads: ThreadPoolExecutor, number: int, item: Item, path: Path, have: set[int]) -> int:
        """The bytes that came."""
        size = self._part_bytes
        with path.open("r+b" if path.exists() else "w+b") as sink:
            sink.truncate(item.size)

            def fetch(index: int) -> int:
                data = self._read(item, index * size, min(size, item.size - index * size))
                os.pwrite(sink.fileno(), data, index * size)
                os.fsync(sink.fileno())
                self._note(f"{number} {index}")
                self._progress.came(len(data), files=0)
                return len(data)

            self._progress.there(sum(min(size, item.size - index * size) for index in have), files=0)
            return sum(threads.map(fetch, (index for index in range(-(-item.size // size)) if index not in have)))

    def _is_right(self, threads: ThreadPoolExecutor, item: Item, path: Path) -> bool:
        """By the ETag; where that is no MD5 of the content though it looks like one, by reading the object once more."""
        if not _is_md5(item.etag) or _matches(item, _md5_of(path)):
            return True
        with path.open("rb") as source:

            def same(start: int) -> bool:
                length = min(self._part_bytes, item.size - start)
                return self._read(item, start, length) == os.pread(source.fileno(), length, start)

            return all(threads.map(same, range(0, item.size, self._part_bytes)))

    def _read(self, item: Item, start: int, length: int) -> memoryview:
        for attempt in range(TRIES):
            try:
                return self._bucket.read(item, start, length)
            except Interrupted:
                if attempt == TRIES - 1 or self._stop.wait(TRY_SECONDS * 2**attempt):
                    raise
        raise AssertionError("a try returns or raises")

    def _move(self, path: Path, entry: _Entry) -> None:
        """Give the whole file its name."""
        final = self._tree / entry.name
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            path.rename(final)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise BucketError(
                f"{self._bucket.url.of(entry.item.key)}: the bucket has objects of this name and below it, and a file "
                "cannot be a folder too: rename one of them."
            ) from error
        self._note(str(entry.number))


class Fetched(NamedTuple):
    """Files that are there, their bytes, and those of them that this run fetched."""

    files: int
    size: int
    fetched: int


def _sum(some: list[Fetched]) -> Fetched:
    return Fetched(sum(one.files for one in some), sum(one.size for one in some), sum(one.fetched for one in some))


class _Progress:
    """Says how far it is, now and then."""

    def __init__(self, files: int, size: int, say: Callable[[str], None]) -> None:
        self._files, self._size, self._say = files, size, say
        self._lock = threading.Lock()
        self._there = self._came = self._done = 0
        self._began = self._last = time.monotonic()

    def there(self, size: int, files: int = 1) -> None:
        """Count what an earlier run fetched."""
        with self._lock:
            self._there, self._done = self._there + size, self._done + files

    def came(self, size: int, files: int = 1) -> None:
        """Count what was fetched now."""
        with self._lock:
            self._came, self._done, now = self._came + size, self._done + files, time.monotonic()
            if now - self._last < SAY_SECONDS:
                return
            self._last = now
            text = self._text(now)
        self._say(text)

    def _text(self, now: float) -> str:
        have = self._there + self._came
        rate = self._came / max(now - self._began, 0.001)
        left = (self._size - have) / rate if rate else 0.0
        share = 100 * have // max(self._size, 1)
        return (
            f"copied {min(share, 99)} %: {size_words(have)} of {size_words(self._size)}, {self._done} of {self._files} files, "
            f"{size_words(int(rate))}/s, {_minutes(left)} left"
        )


def _check_name(bucket: Bucket, name: str, item: Item) -> None:
    parts = PurePosixPath(name).parts
    if name.startswith("/") or "//" in name or ".." in parts or "." in parts or "\0" in name or name == NOTE:
        raise BucketError(f"{bucket.url.of(item.key)} has a name that cannot be a file below the folder: rename or remove it.")
    if any(len(part.encode()) > 255 for part in parts):
        raise BucketError(f"{bucket.url.of(item.key)} has a name of more than 255 bytes, which no file may have: rename it.")


def _is_md5(etag: str) -> bool:
    text = etag.strip('"')
    return len(text) == _MD5 and all(one in "0123456789abcdef" for one in text)


def _matches(item: Item, md5: str) -> bool:
    """True too where the ETag is no checksum."""
    return not _is_md5(item.etag) or item.etag.strip('"') == md5


def _md5_of(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _write_whole(path: Path, data: bytes | memoryview) -> None:
    with path.open("wb") as sink:
        sink.write(data)
        sink.flush()
        os.fsync(sink.fileno())


def _flush_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def size_words(count: int) -> str:
    """1.5 GB; of 1000, as disks and networks are sold."""
    for limit, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} B"


def _minutes(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
