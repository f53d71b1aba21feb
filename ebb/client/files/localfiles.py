"""Files of this machine, for files.py and data.py: read and written in threads, so that nothing else waits for a disk."""

import asyncio
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ebb.client.errors import BadRequest

PIECE = 2**20
HOP = 2**26  # hashed in one go: whoever presses Ctrl-C waits for the end of one
PART = ".ebb-part-"  # folders of this name hold what has not come as a whole
T = TypeVar("T")


def nobody(_: int) -> None:
    """For callers that show no progress."""


def check_text(path: str) -> str:
    """The path, if it can be sent. Raises BadRequest: what is left of it in a request would name another file."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"path {path!r} is no UTF-8 text: rename the file.") from error
    return path


def sendable(name: str) -> bool:
    """Whether the gateway takes a name: text without control characters."""
    return not any(_control(letter) or "\ud800" <= letter <= "\udfff" for letter in name)


def shown(path: Path | str) -> str:
    """A path for people's eyes, whatever bytes it is of."""
    text = os.fsencode(path).decode(errors="replace")
    return "".join("\ufffd" if _control(letter) else letter for letter in text)


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
    """Reads the file, of one that grows what it is now. Raises BadRequest."""
    about = await asyncio.to_thread(_told, file, file.stat)
    sha256, size = await _hashed(file, about.st_size)
    return Facts(size=size, sha256=sha256, modified_ns=about.st_mtime_ns)


async def renewed(file: Path, before: Facts) -> Facts:
    """For another try: the same, unless the file has changed since. Raises BadRequest."""

    def look() -> os.stat_result:
        try:
            return file.stat()
        except FileNotFoundError as error:
            raise BadRequest(f"{shown(file)} is gone: it was removed while it was sent.") from error

    about = await asyncio.to_thread(_told, file, look)
    same = (about.st_size, about.st_mtime_ns) == (before.size, before.modified_ns)
    return before if same else await facts(file)


async def pieces(file: Path, offset: int, end: int, size: int) -> AsyncIterator[bytes]:
    """From an offset to an end; opened for each piece, as nobody closes this when a connection breaks. Raises BadRequest."""

    def read() -> bytes:
        with file.open("rb") as opened:
            opened.seek(offset)
            return opened.read(min(size, max(0, end - offset)))

    while piece := await asyncio.to_thread(_told, file, read):
        yield piece
        offset += len(piece)


def below(folder: Path) -> Iterator[Found | Path]:
    """All files below a folder, sorted, links to files as files; as a Path what is left out: links to folders, what is neither,
    and names that cannot be sent. Raises BadRequest."""

    def refuse(error: OSError) -> None:
        raise BadRequest(f"{shown(error.filename)}: cannot be read ({error.strerror}).") from error

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(PART))
        yield from (Path(root) / name for name in folders if (Path(root) / name).is_symlink() or not sendable(name))
        folders[:] = [name for name in folders if sendable(name)]
        for name in sorted(name for name in names if not name.startswith(PART)):
            path = Path(root) / name
            with suppress(FileNotFoundError):  # a link to nowhere, or removed just now
                about = path.stat()
                if not stat.S_ISREG(about.st_mode) or not sendable(name):
                    yield path
                    continue
                short = path.relative_to(folder).as_posix()
                yield Found(name=short, path=path, size=about.st_size, modified_ns=about.st_mtime_ns)


class Part:
    """A file that comes, in a folder of its own beside its place until it is whole: of one version of what it is a copy of."""

    def __init__(self, file: Path, source: str, version: str) -> None:
        self._file, self._folder = file, _part_folder(file, source)
        self._path = self._folder / _short(version)

    async def size(self) -> int:
        """How many bytes are there. Parts of other versions are removed."""

        def look() -> int:
            if self._file.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder", str(self._file))
            self._folder.mkdir(parents=True, exist_ok=True)
            for other in set(self._folder.iterdir()) - {self._path}:
                other.unlink(missing_ok=True)
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

        def place() -> None:
            os.utime(self._path, ns=(modified_ns, modified_ns))
            self._path.replace(self._file)

        await asyncio.to_thread(_told, self._file, self._path.touch)  # an empty file has no bytes that would make it
        right = (await _hashed(self._path, self._path.stat().st_size))[0] == sha256
        await asyncio.to_thread(_told, self._file, place if right else self._path.unlink)
        with suppress(OSError):  # another run writes to it, too
            self._folder.rmdir()
        return right


async def drop_part(file: Path, source: str) -> None:
    """Nothing more of it will come."""
    await asyncio.to_thread(shutil.rmtree, _part_folder(file, source), ignore_errors=True)


async def _hashed(file: Path, size: int) -> tuple[str, int]:
    """sha256 of a file's first bytes, and how many there were. Raises BadRequest."""
    digest, at = hashlib.sha256(), 0

    def hop() -> int:
        took, most = 0, min(HOP, size - at)
        with file.open("rb") as opened:
            opened.seek(at)
            while piece := opened.read(min(PIECE, most - took)):
                digest.update(piece)
                took += len(piece)
        return took

    while took := await asyncio.to_thread(_told, file, hop):
        at += took
    return digest.hexdigest(), at


def _control(letter: str) -> bool:
    return letter < " " or letter == "\x7f"


def _part_folder(file: Path, source: str) -> Path:
    return file.parent / f"{PART}{_short(f'{file.name}/{source}')}"


def _short(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def _told(file: Path, work: Callable[[], T]) -> T:
    """What the system refuses, as a sentence."""
    try:
        return work()
    except OSError as error:
        raise BadRequest(f"{shown(file)}: {error.strerror or error}.") from error
