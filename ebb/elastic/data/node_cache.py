"""Images of shards on this machine's own disk: read from the shared volume once, then from here, by all ranks of the pod.

    cache = NodeCache.of(gib=200)
    shard = cache.open(checksum, size, count)           # None: no room for it, so it is read where it lies
    pixels = shard.get(7, start, length) or shard.put(7, start, content)

A copy has the shard's own size, with holes where no image has been read yet, and behind it a byte for each image: 1 when the
image is there. An image is written before its mark, so a process that is killed leaves nothing half done, and two ranks that read
the same one write the same bytes. A copy is named after its content: a data set that has changed has other copies.

Epochs read all shards in a random order, so a data set that does not fit would push itself out, image by image: shards that find
no room are not kept, and the others stay. Copies that no process has open, of other data sets, go when room is needed; those that
were opened longest ago first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ebb.elastic.data.sealed import DataError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class NodeCache:
    """A folder for copies, of `max_bytes` together, holes included. Nothing is written before the first one."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes

    @classmethod
    def of(cls, gib: float, folder: str | os.PathLike[str] | None = None) -> NodeCache:
        """By default in the folder for temporary files. Raises DataError for a size that cannot be."""
        chosen = Path(folder) if folder else Path(tempfile.gettempdir()) / f"ebb-images-{os.getuid()}"
        if gib <= 0:
            raise DataError(f"the cache of images is {gib!r} GiB; it must be more than 0: room for the shards, or leave it out")
        try:
            chosen.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"the cache of images cannot be in {chosen}: {error.strerror}. Name another folder") from None
        free = shutil.disk_usage(chosen).free + sum(path.stat().st_blocks * 512 for path in chosen.glob("*.images"))
        if gib * 2**30 > free:
            raise DataError(
                f"the cache of images is {gib:g} GiB, and {chosen} has room for {free / 2**30:.1f}: choose less, or machines "
                "with a larger disk"
            )
        return cls(chosen, max_bytes=int(gib * 2**30))

    def open(self, checksum: str, size: int, count: int) -> CachedShard | None:
        """The copy of a shard of `size` bytes and `count` images; None where there is no room for it. Raises OSError."""
        # After a reboot a mark may be on the disk without its image.
        boot = _BOOT.read_text() if _BOOT.exists() else ""
        name = hashlib.sha256(f"{checksum} {size} {count} {boot}".encode()).hexdigest()[:40]
        path = self.folder / f"{name}.images"
        with self._lock():
            if not path.exists():
                if not self._has_room(size + count):
                    return None
                with path.open("wb") as made:
                    made.truncate(size + count)
            descriptor = os.open(path, os.O_RDWR)
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # it stays while this process, or one forked from it, has the copy open
            os.utime(descriptor)
        return CachedShard(descriptor, size)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _has_room(self, wanted: int) -> bool:
        """Make room where unused copies are in the way."""
        there = sorted((path.stat().st_mtime_ns, path) for path in self.folder.glob("*.images"))
        total = wanted + sum(path.stat().st_size for _, path in there)
        for _, path in there:
            if total <= self.max_bytes:
                break
            size = path.stat().st_size
            if _removed(path):
                total -= size
        return total <= self.max_bytes


def _removed(path: Path) -> bool:
    """True if no process had it open, and it is gone."""
    with path.open("rb") as unused:
        try:
            fcntl.flock(unused, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        path.unlink()
    return True


class CachedShard:
    """One copy, as a process has it open."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self._size = descriptor, size

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def get(self, place: int, start: int, length: int) -> bytearray | None:
        """The image at this place of the shard; None if it is not there yet."""
        if os.pread(self._descriptor, 1, self._size + place) != b"\1":
            return None
        found = bytearray(length)
        done = 0
        while done < length:
            came = os.preadv(self._descriptor, [memoryview(found)[done:]], start + done)
            if not came:
                return None  # somebody has cut it off
            done += came
        return found

    def put(self, place: int, start: int, content: bytes) -> bytearray:
        """Keep an image, and return it. On a full disk it is not kept."""
        try:
            done = 0
            while done < len(content):
                done += os.pwrite(self._descriptor, memoryview(content)[done:], start + done)
            os.pwrite(self._descriptor, b"\1", self._size + place)
        except OSError as error:
            if error.errno not in _FULL:
                raise
        return bytearray(content)
