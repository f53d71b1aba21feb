"""Paths of the volumes: every one is walked folder by folder, and no link is ever followed.

    place = volumes.find("/mnt/data/imagenet/train")           # Refused: outside, or no such volume
    with place.folder() as fd:                                 # of the folder that it is in
        os.stat(place.name, dir_fd=fd, follow_symlinks=False)

Jobs write to the same volumes at the same time: a check of a path before it is opened would prove nothing, so all is opened
relative to the folder before it.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

OWN = (".ebb", "uploads")  # of each volume: where uploads are until they are whole. Nobody else's business
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a named pipe must not hold us up
FOLDER_MODE, FILE_MODE = 0o775, 0o664  # as the folders of the volumes: teams share them


class Refused(Exception):
    """A sentence for the user, and the HTTP status that goes with it."""

    def __init__(self, status: int, sentence: str, **facts: object) -> None:
        super().__init__(sentence)
        self.status, self.facts = status, facts


@dataclass(frozen=True, kw_only=True)
class MountedVolume:
    """One volume and where it is mounted."""

    name: str
    path: Path
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Place:
    """A path within a volume; without parts the volume itself."""

    volume: MountedVolume
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.volume.path.joinpath(*self.parts))

    @property
    def name(self) -> str:
        """Its name in the folder that it is in."""
        return self.parts[-1] if self.parts else "."

    def check_writable(self) -> None:
        """Raises Refused."""
        if self.volume.read_only:
            raise Refused(403, f"{self.volume.path} is read-only: nothing on it can be written or removed. Use another volume.")
        if not self.parts:
            raise Refused(403, f"{self} is a whole volume: name something on it.")

    @contextmanager
    def folder(self, *, create: bool = False) -> Iterator[int]:
        """A descriptor of the folder that it is in. Raises Refused, OSError."""
        fd = walk(self.volume, self.parts[:-1], create=create)
        try:
            yield fd
        finally:
            os.close(fd)

    def stat(self) -> os.stat_result:
        """Of itself, also where it is a link. Raises Refused, FileNotFoundError."""
        with self.folder() as fd:
            return os.stat(self.name, dir_fd=fd, follow_symlinks=False)

    def open_file(self) -> int:
        """A descriptor to read from. Raises Refused for all but files, FileNotFoundError."""
        with self.folder() as folder:
            try:
                fd = os.open(self.name, FILE, dir_fd=folder)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise _link(str(self)) from error
                raise
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise Refused(409, f"{self} is no file: a folder is read by listing it.")


class Volumes:
    """The volumes of the platform."""

    def __init__(self, volumes: Sequence[MountedVolume]) -> None:
        self.all = tuple(volumes)

    def find(self, path: str) -> Place:
        """Resolve a path inside its volume. Raises Refused."""
        pure = PurePosixPath(path)
        if ".." in pure.parts or any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
            raise Refused(400, f"path {path!r} is refused: it may hold neither `..` nor control characters.")
        for volume in sorted(self.all, key=lambda one: -len(one.path.parts)):
            if pure.is_relative_to(volume.path):
                return self._checked(Place(volume=volume, parts=pure.relative_to(volume.path).parts))
        known = ", ".join(str(volume.path) for volume in self.all)
        raise Refused(400, f"path {path!r} is on no volume of the platform: use a path below {known}.")

    def _checked(self, place: Place) -> Place:
        if place.parts[: len(OWN)] == OWN:
            raise Refused(403, f"{place} is refused: uploads are there until they are whole.")
        return place


def walk(volume: MountedVolume, parts: Sequence[str], *, create: bool = False) -> int:
    """A descriptor of a folder, reached without following a link. Raises Refused, OSError."""
    fd = os.open(volume.path, FOLDER)
    for depth, part in enumerate(parts, 1):
        try:
            inner = _enter(fd, part, create=create)
        except NotADirectoryError as error:
            seen = str(volume.path.joinpath(*parts[:depth]))
            raise _link(seen) if _is_link(fd, part) else Refused(409, f"{seen} is a file, not a folder.") from error
        finally:
            os.close(fd)
        fd = inner
    return fd


def kind(mode: int) -> str:
    """file, folder, link or other."""
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"


def etag(found: os.stat_result) -> str:
    """Another one for each change of a file."""
    return f'"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"'


def _enter(fd: int, part: str, *, create: bool) -> int:
    try:
        return os.open(part, FOLDER, dir_fd=fd)
    except FileNotFoundError:
        if not create:
            raise
        with suppress(FileExistsError):  # somebody else was faster
            os.mkdir(part, FOLDER_MODE, dir_fd=fd)
        return os.open(part, FOLDER, dir_fd=fd)


def _is_link(fd: int, part: str) -> bool:
    return stat.S_ISLNK(os.stat(part, dir_fd=fd, follow_symlinks=False).st_mode)


def _link(path: str) -> Refused:
    return Refused(403, f"{path} is a link: links are refused, as they may lead out of the volume. Name what it leads to.")
