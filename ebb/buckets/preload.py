"""Have a folder's files on the file system that shows them: `python -m ebb.buckets.preload /mnt/fsx/imagenet`.

A file system that is linked to a bucket (FSx for Lustre) shows all objects as files, and fetches one from the bucket when it is
first read: the whole of it, while the reader waits, though that has asked for one byte. So this reads the first byte of each
file, from many threads at once. The bytes go from the bucket to the file system and not through this machine.

Nothing is kept of how far it is: the file system knows. After a kill the next run looks at all files again, and those that are
there answer at once.

Exit codes are those of `python -m ebb.buckets`.
"""

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ebb.buckets.copy import size_words
from ebb.buckets.outcome import conclude, say
from ebb.buckets.stores import BucketError, Interrupted

READERS = 64  # they wait for the bucket, some 50 ms for each small file
TRIES = 4
TRY_SECONDS = 1.0  # until the second try; then twice as long each
SAY_SECONDS = 10.0
_SHOWN = 5


@dataclass(kw_only=True)
class Loaded:
    """Files that are there, and their bytes. `failed`: a sentence for each file that could not be read."""

    files: int = 0
    size: int = 0
    failed: list[str] = field(default_factory=list)

    def add(self, reading: Future[int | None]) -> None:
        """Count a file when it is there, or it cannot be had."""
        try:
            size = reading.result()
        except OSError as error:
            self.failed.append(str(error))
        else:
            self.files, self.size = self.files + (size is not None), self.size + (size or 0)


def preload(folder: Path, say: Callable[[str], None]) -> Loaded:
    """Raises BucketError, and Interrupted when files could not be had: another run may have them."""
    if not folder.is_dir():
        raise BucketError(f"{folder} is not a folder there: name one that the bucket has, below the folder that is linked")
    done, began = Loaded(), time.monotonic()
    said = began
    with ThreadPoolExecutor(READERS) as threads:
        for reading in _in_turn(threads.submit(_touch, path) for path in _files(folder)):
            done.add(reading)
            if time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                say(f"{folder}: {done.files} files are there, {size_words(done.size)}, {done.files / (said - began):.0f} files/s")
    if done.failed:
        raise Interrupted(f"{len(done.failed)} files of {folder} cannot be read: {'; '.join(done.failed[:_SHOWN])}")
    if not done.files:
        raise BucketError(f"{folder} holds no files: is its name in the bucket another one?")
    return done


def _in_turn(readings: Iterable[Future[int | None]]) -> Iterator[Future[int | None]]:
    """All of them, while a few more are under way than there are readers: millions of names are not held at once."""
    waiting: deque[Future[int | None]] = deque()
    for reading in readings:
        waiting.append(reading)
        if len(waiting) > 4 * READERS:
            yield waiting.popleft()
    yield from waiting


def _files(folder: Path) -> Iterator[str]:
    folders = [str(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path


def _touch(path: str) -> int | None:
    """Have one file, and return its size; None if it was removed meanwhile. Raises OSError when it cannot be read."""
    for failures in range(TRIES):
        try:
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path for each of millions costs more than the read
                file.read(1)
                return os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            return None
        except OSError:
            if failures == TRIES - 1:
                raise
            time.sleep(TRY_SECONDS * 2**failures)
    raise AssertionError("unreachable")


def main(arguments: Sequence[str]) -> int:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m ebb.buckets.preload", description="Have a folder's files before jobs read them."
    )
    parser.add_argument("folder", type=Path, help="a folder of a file system that is linked to a bucket")
    given = parser.parse_args(arguments)
    return conclude(partial(_preload, given.folder), kept="what is there stays, and another try passes over it")


def _preload(folder: Path) -> str:
    began = time.monotonic()
    done = preload(folder, say)
    return f"{folder} is loaded: {done.files} files, {size_words(done.size)} in {time.monotonic() - began:.0f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
