"""Writes and reads of one machine on a volume, by many threads, for some seconds.

    mine, theirs = MachineFiles(folder / "0", sample_bytes=110_000), MachineFiles(folder / "1", sample_bytes=110_000)
    run("write", mine, theirs, seconds=8.0)              # the machines write files of their own,
    run("read", mine, theirs, seconds=8.0)               # and read those of the next one, which no cache of theirs has seen

write           files of blocks of 8 MiB, one for each thread, each block flushed to the volume
read            the same blocks, in order
small-write     files of a sample's size, each flushed
small-read      the same, in a random order: as a loader reads a folder of images
random-read     4 KiB at random places of the large files
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

WRITE, READ, SMALL_WRITE, SMALL_READ, RANDOM_READ = "write", "read", "small-write", "small-read", "random-read"
OPERATIONS = (WRITE, SMALL_WRITE, READ, SMALL_READ, RANDOM_READ)  # in this order: what is read was written
THREADS = 16  # as many requests of a machine are on their way at once; loaders have some workers for each GPU
BLOCK, PAGE = 8 * 2**20, 4096
MOST_BLOCKS, MOST_FILES, MOST_READS = 256, 4000, 100_000  # of a machine: 2 GiB
SECONDS = 8.0  # of each operation


class Done(NamedTuple):
    """The work of one machine."""

    bytes: int
    operations: int
    seconds: float


class MachineFiles:
    """A machine's files on the volume."""

    def __init__(self, folder: Path, *, sample_bytes: int) -> None:
        self.folder, self.sample_bytes = folder, sample_bytes

    def block(self, number: int) -> tuple[Path, int]:
        """The file of a block, and where in it the block begins."""
        return self.folder / f"large-{number % THREADS}", number // THREADS * BLOCK

    def sample(self, number: int) -> Path:
        return self.folder / f"small-{number}"

    def sizes(self) -> tuple[int, int]:
        """Blocks and samples that are there."""
        large = sum(path.stat().st_size // BLOCK for path in self.folder.glob("large-*"))
        return large, sum(1 for _ in self.folder.glob("small-*"))


def run(operation: str, mine: MachineFiles, theirs: MachineFiles, *, seconds: float = SECONDS) -> Done:
    """Do it until the time is over or there is nothing left to do. Raises OSError."""
    return _race(_tasks(operation, mine, theirs), seconds)


def _tasks(operation: str, mine: MachineFiles, theirs: MachineFiles) -> Iterator[Callable[[], int]]:
    if operation == WRITE:
        content = os.urandom(BLOCK)  # which no volume can compress
        return (_task(_write_block, *mine.block(number), content) for number in range(MOST_BLOCKS))
    if operation == SMALL_WRITE:
        content = os.urandom(mine.sample_bytes)
        return (_task(_write_block, mine.sample(number), 0, content) for number in range(MOST_FILES))
    blocks, samples = theirs.sizes()
    for path in theirs.folder.iterdir():
        _forget(path)
    if operation == READ:
        return (_task(_read, *theirs.block(number), BLOCK) for number in range(blocks))
    rng = random.Random(str(mine.folder))  # noqa: S311 - places to read at
    if operation == SMALL_READ:
        order = rng.sample(range(samples), samples)
        return (_task(_read, theirs.sample(number), 0, theirs.sample_bytes) for number in order)
    places = ((rng.randrange(blocks), rng.randrange(BLOCK // PAGE)) for _ in range(MOST_READS if blocks else 0))
    return (_task(_read_page, theirs, block, page) for block, page in places)


def _task(act: Callable[..., int], *given: object) -> Callable[[], int]:
    return lambda: act(*given)


def _race(tasks: Iterator[Callable[[], int]], seconds: float) -> Done:
    """By THREADS threads, each of which takes the next task when it is through with one."""
    begun, lock = time.perf_counter(), threading.Lock()
    counts = [[0, 0] for _ in range(THREADS)]

    def work(count: list[int]) -> None:
        while time.perf_counter() - begun < seconds:
            with lock:
                task = next(tasks, None)
            if task is None:
                return
            count[0] += task()
            count[1] += 1

    with ThreadPoolExecutor(THREADS) as threads:
        for one in [threads.submit(work, count) for count in counts]:
            one.result()
    return Done(sum(one[0] for one in counts), sum(one[1] for one in counts), time.perf_counter() - begun)


def _write_block(path: Path, start: int, content: bytes) -> int:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o664)
    try:
        os.pwrite(handle, content, start)
        os.fsync(handle)
    finally:
        os.close(handle)
    return len(content)


def _read(path: Path, start: int, size: int) -> int:
    handle = os.open(path, os.O_RDONLY)
    try:
        return len(os.pread(handle, size, start))
    finally:
        os.close(handle)


def _read_page(files: MachineFiles, block: int, page: int) -> int:
    path, start = files.block(block)
    return _read(path, start + page * PAGE, PAGE)


def _forget(path: Path) -> None:
    """Have the machine forget what it keeps of a file: a machine that is alone reads its own."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
