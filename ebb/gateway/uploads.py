"""Files on their way to a volume: written aside, and in place only when they are whole and right.

    offset, done = await uploads.offset(place, wanted)             # done: the file is there already
    await uploads.receive(place, wanted, offset, chunks)

A part is named for its target and its content: an upload that broke off goes on where it was, from whatever machine, and one of
another content begins anew. One that was continued is read again as a whole at its end, so that bytes which a crash tore are
noticed: then the part goes, and nothing was written. Parts that nobody continues for a week are removed.
"""

import asyncio
import errno
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from ebb.gateway.volumes import FILE_MODE, OWN, MountedVolume, Place, Refused, kind, walk

KEEP_SECONDS = 7 * 86400.0
PIECE = 2**20
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The file that an upload will become."""

    size: int
    sha256: str
    modified_ns: int | None = None  # its age on the machine that it comes from


class Uploads:
    """The uploads of one gateway. There is only one, so that no two write the same part."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    async def offset(self, place: Place, wanted: Wanted) -> tuple[int, bool]:
        """Number of bytes that are there, and whether it is in place already. Raises Refused, OSError."""
        place.check_writable()
        return await in_thread(_look, place, wanted)

    async def receive(self, place: Place, wanted: Wanted, offset: int, chunks: AsyncIterator[bytes]) -> None:
        """Take the bytes from `offset` on, and put the file in place. A later upload of the same takes over from an earlier one:
        that is one whose connection broke, and which does not know yet. Raises Refused, OSError."""
        place.check_writable()
        key = str(place.volume.path) + _key(place, wanted)
        while (before := self._running.get(key)) is not None:
            before.cancel()
            await asyncio.wait({before})
        work = self._running[key] = asyncio.create_task(_receive(place, wanted, offset, chunks))
        work.add_done_callback(lambda done: self._forget(key, done))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if not work.cancelled():  # it is the request that is cancelled
                work.cancel()
                await _ended(work)
                raise
            raise Refused(409, f"{place}: another upload of the same file has taken over.") from None

    async def remove_old(self, volumes: tuple[MountedVolume, ...], now: Callable[[], float] = time.time) -> int:
        """Remove the parts that nobody continues; how many. Those who use a volume that does not answer are told without us."""
        removed = 0
        for volume in volumes:
            if not volume.read_only:
                with suppress(OSError, Refused):
                    removed += await in_thread(_sweep, volume, now() - KEEP_SECONDS)
        return removed

    def _forget(self, key: str, done: asyncio.Task[None]) -> None:
        if self._running.get(key) is done:
            del self._running[key]


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Call what blocks. Cancelled, it waits for the end of the call first: nobody else may work on the file before."""
    call = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await _ended(call)
        raise


async def _ended(work: asyncio.Future[Any]) -> None:
    """Wait for its end, however often we are cancelled meanwhile: its descriptors are in use until then."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({work})


def digest(fd: int, size: int) -> str:
    """sha256 of a file's first bytes."""
    found, at = hashlib.sha256(), 0
    while at < size and (piece := os.pread(fd, min(PIECE, size - at), at)):
        found.update(piece)
        at += len(piece)
    return found.hexdigest()


async def _receive(place: Place, wanted: Wanted, offset: int, chunks: AsyncIterator[bytes]) -> None:
    await in_thread(_check_early, place)
    part = await in_thread(_Part, place, wanted, offset)
    try:
        async for chunk in chunks:
            if part.size + len(chunk) > wanted.size:
                raise Refused(400, f"{place}: more than the {wanted.size} bytes came that it was to have. Send it again.")
            await in_thread(part.write, chunk)
        if part.size < wanted.size:
            raise Refused(400, f"{place}: {part.size} of {wanted.size} bytes came. Go on from there.", offset=part.size)
        await in_thread(part.finish)
    finally:
        await in_thread(part.close)


class _Part:
    """A file that is not whole yet. All its methods block."""

    def __init__(self, place: Place, wanted: Wanted, offset: int) -> None:
        self._place, self._wanted, self._name = place, wanted, _key(place, wanted)
        self._folder = walk(place.volume, OWN, create=True)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._name, flags, FILE_MODE, dir_fd=self._folder)
            try:
                self._begin(offset)
            except BaseException:
                os.close(self._fd)
                raise
        except BaseException:
            os.close(self._folder)
            raise

    def _begin(self, offset: int) -> None:
        there = os.fstat(self._fd).st_size
        if not 0 <= offset <= min(there, self._wanted.size):
            raise Refused(409, f"{self._place}: {there} bytes of it are here, not {offset}. Go on from there.", offset=there)
        free = os.fstatvfs(self._fd)
        if free.f_bavail * free.f_frsize < self._wanted.size - there:
            self._remove()
            raise self._full()
        os.ftruncate(self._fd, offset)
        # Not read now: as long as we take no bytes, the machine's agent answers no signs of life, and the connection would break.
        self._sha256 = hashlib.sha256() if offset == 0 else None
        os.lseek(self._fd, offset, os.SEEK_SET)
        self.size = offset

    def write(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._remove()  # what is full must not stay so
            raise self._full() from error
        if self._sha256 is not None:
            self._sha256.update(chunk)
        self.size += len(chunk)

    def finish(self) -> None:
        """Put it in place. Raises Refused when it is not what it was to be."""
        if (self._sha256.hexdigest() if self._sha256 else digest(self._fd, self.size)) != self._wanted.sha256:
            self._remove()
            raise Refused(
                422,
                f"{self._place}: what came is not what was announced (sha256), and nothing was written. Send it from the start.",
            )
        os.fsync(self._fd)
        if self._wanted.modified_ns is not None:
            os.utime(self._fd, ns=(self._wanted.modified_ns,) * 2)
        with self._place.folder(create=True) as target:
            _check_target(self._place, target)
            os.rename(self._name, self._place.name, src_dir_fd=self._folder, dst_dir_fd=target)
            os.fsync(target)

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._folder)

    def _remove(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._folder)

    def _full(self) -> Refused:
        volume = self._place.volume.path
        return Refused(
            507, f"{volume} has no room for {self._place} ({self._wanted.size} bytes): remove something (`ebb data rm`)."
        )


def _look(place: Place, wanted: Wanted) -> tuple[int, bool]:
    _check_early(place)
    with suppress(FileNotFoundError):
        found = place.stat()
        if kind(found.st_mode) == "file" and found.st_size == wanted.size:
            fd = place.open_file()
            try:
                if digest(fd, wanted.size) == wanted.sha256:
                    return wanted.size, True
            finally:
                os.close(fd)
    with suppress(FileNotFoundError):
        folder = walk(place.volume, OWN)
        try:
            size = os.stat(_key(place, wanted), dir_fd=folder, follow_symlinks=False).st_size
            return min(size, wanted.size), False
        finally:
            os.close(folder)
    return 0, False


def _check_early(place: Place) -> None:
    """Before gigabytes are sent for nothing."""
    with suppress(FileNotFoundError), place.folder() as folder:
        _check_target(place, folder)


def _check_target(place: Place, folder: int) -> None:
    with suppress(FileNotFoundError):
        found = kind(os.stat(place.name, dir_fd=folder, follow_symlinks=False).st_mode)
        if found != "file":
            raise Refused(409, f"{place} is a {found}: it is not replaced by a file. Remove it first, or choose another name.")


def _key(place: Place, wanted: Wanted) -> str:
    return hashlib.sha256(f"{place}\n{wanted.size}\n{wanted.sha256}".encode()).hexdigest()[:32]


def _sweep(volume: MountedVolume, before: float) -> int:
    """By when they were changed here (ctime): one that is put in place has the age of what it is a copy of already."""
    removed = 0
    with suppress(FileNotFoundError):
        folder = walk(volume, OWN)
        try:
            for name in [one.name for one in os.scandir(folder)]:
                with suppress(OSError):  # one that cannot be removed keeps no other
                    if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ctime < before:
                        os.unlink(name, dir_fd=folder)
                        removed += 1
        finally:
            os.close(folder)
    return removed
