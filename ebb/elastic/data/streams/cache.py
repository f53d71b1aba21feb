"""A folder of this machine with files that take time to get: made by one of its processes, used by all, removed when unused.

    cache = Cache(folder, max_bytes=32 * 2**30)
    with cache.open("s3://bucket/000.tar", lambda path: fetch(url, path)) as file: ...

Ranks and their loader processes share it, by locks on files: one that dies lets go of them, and leaves a temporary file that the
next one overwrites. Those that were opened longest ago go first when there is more than `max_bytes`. A file that is open stays
readable when it is removed, so nothing has to know who reads what.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from ebb.elastic.data.sealed import DataError

_LOCKS = 64  # files that are made at the same time, at most
_MOST_BYTES = 64 * 2**30
_SHARE = 0.5  # of what is free
_LEFT_SECONDS = 3600.0  # after which a temporary file is nobody's


class Cache:
    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        """Nothing is written before the first file."""
        self.folder, self.max_bytes = folder, max_bytes

    @classmethod
    def of(cls, folder: str | os.PathLike[str] | None, gib: float | None) -> Cache:
        """By default a folder for temporary files, and half of what is free there, 64 GiB at most.

        Raises DataError for a wrong size.
        """
        if gib is not None and gib <= 0:
            raise DataError(f"cache_gib is {gib!r}; it must be more than 0: room for the shards that are read side by side")
        if folder is None:
            folder = Path(tempfile.gettempdir()) / f"ebb-shards-{os.getuid()}"
        max_bytes = min(_MOST_BYTES, int(_SHARE * _room(Path(folder)))) if gib is None else int(gib * 2**30)
        return cls(Path(folder), max_bytes=max_bytes)

    def open(self, key: str, make: Callable[[Path], object]) -> IO[bytes]:
        """The file of this name; where there is none, `make` writes it to the path that it is given. Raises what that does."""
        digest = hashlib.sha256(key.encode()).hexdigest()
        path = self.folder / digest[:40]
        while True:
            with contextlib.suppress(FileNotFoundError):
                file = path.open("rb")
                with contextlib.suppress(PermissionError):  # another user's
                    os.utime(file.fileno())  # the time of its last use
                return file
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._lock(f"{int(digest[:8], 16) % _LOCKS:02}"):
                if path.exists():
                    continue  # another process has made it meanwhile
                self._make(path, make)
                try:
                    file = path.open("rb")
                except FileNotFoundError:
                    continue  # another one made room in between
            self._remove_unused(path)
            return file

    def _make(self, path: Path, make: Callable[[Path], object]) -> None:
        temporary = path.with_name(f".tmp-{path.name}")
        try:
            make(temporary)
            temporary.rename(path)
        except OSError as error:
            raise DataError(
                f"cannot write to the cache of shards {self.folder}: {error}. Make room there, or name another folder with cache="
            ) from error
        finally:
            temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        with (self.folder / f".lock-{name}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _remove_unused(self, newest: Path) -> None:
        with self._lock("remove"):
            found = []
            for entry in os.scandir(self.folder):
                with contextlib.suppress(FileNotFoundError):
                    facts = entry.stat()
                    if not entry.name.startswith("."):
                        found.append((facts.st_mtime_ns, facts.st_size, entry.path))
                    elif entry.name.startswith(".tmp-") and time.time() - facts.st_mtime > _LEFT_SECONDS:
                        Path(entry.path).unlink()
            total = sum(size for _, size, _ in found)
            for _, size, path in sorted(found):
                if total <= self.max_bytes:
                    return
                if path != str(newest):
                    Path(path).unlink(missing_ok=True)
                    total -= size


def _room(folder: Path) -> int:
    """Bytes that are free, or that the cache has already."""
    used = 0
    for path in folder.glob("[!.]*"):
        with contextlib.suppress(FileNotFoundError):
            used += path.stat().st_size
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free + used
