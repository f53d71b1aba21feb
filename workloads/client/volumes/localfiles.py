"""Files of this machine, for files.py and data.py: read and written in threads, so that nothing else waits for a disk."""

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from workloads.client.errors import BadRequest

PIECE = 2**20
T = TypeVar("T")


def nobody(_: int) -> None:
    """For callers that show no progress."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a file is."""

    size: int
    sha256: str
    modified_ns: int

    def query(self) -> dict[str, str | int]:
        """As the gateway wants to know it."""
        return {"size": self.size, "sha256": self.sha256, "modified_ns": self.modified_ns}


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file below a folder; `name` is its path there, with slashes."""

    name: str
    path: Path
    size: int
    modified_ns: int


async def facts(file: Path) -> Facts:
    """Reads the whole file. Raises BadRequest."""

    def read() -> Facts:
        digest = hashlib.sha256()
        with file.open("rb") as opened:
            about = os.fstat(opened.fileno())
            while piece := opened.read(PIECE):
                digest.update(piece)
        return Facts(size=about.st_size, sha256=digest.hexdigest(), modified_ns=about.st_mtime_ns)

    return await asyncio.to_thread(_told, file, read)


async def pieces(file: Path, offset: int, size: int) -> AsyncIterator[bytes]:
    """From an offset to the end; opened for each piece, as nobody closes this when a connection breaks. Raises BadRequest."""

    def read() -> bytes:
        with file.open("rb") as opened:
            opened.seek(offset)
            return opened.read(size)

    while piece := await asyncio.to_thread(_told, file, read):
        yield piece
        offset += len(piece)


def below(folder: Path) -> Iterator[Found | Path]:
    """All files below a folder, sorted, links to files as files; as a Path what is left out: links to folders, and what is
    neither. Raises BadRequest."""

    def refuse(error: OSError) -> None:
        raise BadRequest(f"{error.filename}: cannot be read ({error.strerror}).") from error

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        yield from (Path(root) / name for name in folders if (Path(root) / name).is_symlink())
        for name in sorted(names):
            path = Path(root) / name
            with suppress(FileNotFoundError):  # a link to nowhere, or removed just now
                about = path.stat()
                if not stat.S_ISREG(about.st_mode):
                    yield path
                    continue
                short = path.relative_to(folder).as_posix()
                yield Found(name=short, path=path, size=about.st_size, modified_ns=about.st_mtime_ns)


class Part:
    """A file that comes, beside its place until it is whole: of one version of what it is a copy of."""

    def __init__(self, file: Path, source: str, version: str) -> None:
        self._file = file
        self._stem = f".ebb-part-{_short(f'{file.name}/{source}')}-"
        self._path = file.parent / (self._stem + _short(version))

    async def size(self) -> int:
        """How many bytes are there. Parts of other versions are removed."""

        def look() -> int:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._file.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder", str(self._file))
            for other in set(self._path.parent.glob(f"{self._stem}*")) - {self._path}:
                other.unlink()
            return self._path.stat().st_size if self._path.exists() else 0

        return await asyncio.to_thread(_told, self._file, look)

    async def write(self, piece: bytes) -> None:
        """Add bytes. Raises BadRequest."""

        def append() -> None:
            with self._path.open("ab") as opened:
                opened.write(piece)

        await asyncio.to_thread(_told, self._file, append)

    async def finish(self, sha256: str, modified_ns: int) -> bool:
        """Put it in place if it is right; if not, it is removed. Raises BadRequest."""

        def place() -> bool:
            self._path.touch()  # an empty file has no bytes that would make it
            with self._path.open("rb") as opened:
                right = hashlib.file_digest(opened, "sha256").hexdigest() == sha256
            if not right:
                self._path.unlink()
                return False
            os.utime(self._path, ns=(modified_ns, modified_ns))
            self._path.replace(self._file)
            return True

        return await asyncio.to_thread(_told, self._file, place)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _told(file: Path, work: Callable[[], T]) -> T:
    """What the system refuses, as a sentence."""
    try:
        return work()
    except OSError as error:
        raise BadRequest(f"{file}: {error.strerror or error}.") from error
