"""The disk: the few operations that checkpoints are made of, and what is built from them alone.

    write_whole(disk, path, pieces)     the file is there with all its content, after a loss of power too, or it is not there
    create_whole(disk, path, content)   the same, and only one caller ever succeeds
    look(disk, folder)                  the names in a folder, as the server has them now

`Disk` is the seam: tests put a disk there that is killed between any two operations, forgets what was not flushed, or shows
files late and in another order. Nothing here knows what a checkpoint is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

_PIECE = 16 * 2**20  # bytes per write: a full disk is found before the whole file is handed over
TEMPORARY = ".tmp-"
_LOOK = ".look-"


class Disk:
    """The operating system's files. Every method may raise OSError, and does one thing that happens or does not."""

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def create(self, path: Path) -> int:
        """A new file's descriptor; FileExistsError when it is there."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, descriptor: int, content: memoryview) -> None:
        while content:
            content = content[os.write(descriptor, content) :]

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Replaces `new` if it is there."""
        old.rename(new)

    def link(self, old: Path, new: Path) -> None:
        """A second name; FileExistsError when it is taken."""
        os.link(old, new)  # Path.hardlink_to is there since Python 3.10

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """One that is gone already is no error."""
        path.unlink(missing_ok=True)

    def names(self, folder: Path) -> list[str]:
        """Of the files in it; none when there is no such folder."""
        try:
            return [path.name for path in folder.iterdir()]
        except FileNotFoundError:
            return []

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def digest(self, path: Path) -> tuple[str, int]:
        """The sha256 of a file, and its size; it is never in memory as a whole."""
        digest, size = hashlib.sha256(), 0
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
        return digest.hexdigest(), size

    def copy(self, source: Path, descriptor: int) -> None:
        """All of a file, by the kernel alone."""
        with source.open("rb") as file:
            while os.sendfile(descriptor, file.fileno(), None, _PIECE):
                pass


class HashingFile:
    """A file whose content goes to the disk in pieces, and into a sha256; torch.save takes it for a file."""

    def __init__(self, disk: Disk, descriptor: int) -> None:
        self._disk = disk
        self.descriptor = descriptor
        self._digest = hashlib.sha256()
        self.size = 0
        self.failure: OSError | None = None  # torch's writer hides the error of the disk behind its own

    def write(self, content: bytes | memoryview) -> int:
        if self.failure is not None:
            raise self.failure
        view = memoryview(content).cast("B")
        try:
            for start in range(0, len(view), _PIECE):
                piece = view[start : start + _PIECE]
                self._digest.update(piece)
                self._disk.write(self.descriptor, piece)
        except OSError as error:
            self.failure = error
            raise
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Every write is handed over at once."""

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class NewFile:
    """A temporary file beside `path`: `with NewFile(disk, path) as file: file.write(...)`; then the file is there, whole.

    Any exception removes the temporary file; a process that is killed leaves it, under a name that nothing reads.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}-{path.name}")

    def __enter__(self) -> HashingFile:
        self._descriptor = self._disk.create(self._temporary)
        self._file = HashingFile(self._disk, self._descriptor)
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            try:
                if self._file.failure is not None:
                    raise self._file.failure
                if kind is None:
                    self._disk.sync(self._descriptor)
            finally:
                self._disk.close(self._descriptor)
            if kind is None:
                self._place()
        except OSError:
            self._forget()
            raise
        if kind is not None:
            self._forget()

    def _place(self) -> None:
        self._disk.rename(self._temporary, self._path)
        self._disk.sync_folder(self._path.parent)

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            self._disk.remove(self._temporary)


class _NewOwnFile(NewFile):
    """It fails with FileExistsError when the name is taken, and is whole from the moment it can be seen."""

    def _place(self) -> None:
        try:
            self._disk.link(self._temporary, self._path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links: an exclusive create, and its short content a moment later
            self._write_in_place()
        self._disk.sync_folder(self._path.parent)
        self._forget()

    def _write_in_place(self) -> None:
        content = self._disk.read(self._temporary)
        descriptor = self._disk.create(self._path)
        try:
            self._disk.write(descriptor, memoryview(content))
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)


def write_whole(disk: Disk, path: Path, content: bytes) -> None:
    with NewFile(disk, path) as file:
        file.write(content)


def copy_whole(disk: Disk, source: Path, target: Path) -> None:
    with NewFile(disk, target) as file:
        disk.copy(source, file.descriptor)


def create_whole(disk: Disk, path: Path, content: bytes) -> None:
    """Raises FileExistsError when another caller was first."""
    with _NewOwnFile(disk, path) as file:
        file.write(content)


def look(disk: Disk, folder: Path) -> list[str]:
    """The names in a folder as the server of a network file system has them now, not as this machine remembers them.

    An NFS client answers a listing from its memory for up to a minute, and remembers also which names were *not* there. But the
    answer to a change that it makes itself says what the folder was like just before: if that is not what it remembers,
    another machine has changed the folder and all it remembers is dropped. So: create a file, remove it, list. (RFC 7530,
    change_info4; RFC 1813, wcc_data.) Where nothing can be created, the plain listing has to do.
    """
    probe = folder / f"{_LOOK}{secrets.token_hex(8)}"
    with contextlib.suppress(OSError):
        disk.close(disk.create(probe))
        disk.remove(probe)
    return disk.names(folder)


def is_probe(name: str) -> bool:
    return name.startswith(_LOOK)
