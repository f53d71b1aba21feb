"""Listing and removal of files and folders. All of it blocks: app.py calls it in threads.

for entry in entries(place, recursive=True): ...            # folders before what is in them, by name
"""

import os
import shutil
import stat
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from ebb.gateway.volumes import FOLDER, OWN, MountedVolume, Place, Refused, etag, kind

Entry = dict[str, Any]


def entries(place: Place, *, recursive: bool) -> Iterator[Entry]:
    """Entries of a folder, or the file itself. Raises Refused, FileNotFoundError."""
    found = place.stat()
    if kind(found.st_mode) != "folder":
        yield entry(place.name, found)
        return
    with place.folder() as parent:
        fd = os.open(place.name, FOLDER, dir_fd=parent)
    try:
        yield from _within(fd, "", recursive=recursive, hidden=_hidden(place))
    finally:
        os.close(fd)


def entry(name: str, found: os.stat_result) -> Entry:
    """Description of a file or folder. A name that is no text cannot be asked for; it is shown as well as can be."""
    shown = os.fsencode(name).decode(errors="replace")
    return {
        "name": shown,
        "kind": kind(found.st_mode),
        "size": found.st_size,
        "modified_ns": found.st_mtime_ns,
        "etag": etag(found),
    }


def volume_facts(volume: MountedVolume) -> Entry:
    """A volume and its room."""
    room = os.statvfs(volume.path)
    return {
        "name": volume.name,
        "path": str(volume.path),
        "read_only": volume.read_only,
        "total": room.f_blocks * room.f_frsize,
        "free": room.f_bavail * room.f_frsize,
    }


def remove(place: Place, *, recursive: bool) -> None:
    """Remove a file, a link (not what it leads to), or with `recursive` a folder. Raises Refused, FileNotFoundError."""
    place.check_writable()
    if place.parts == OWN[:1]:
        raise Refused(403, f"{place} is refused: Ebb keeps there what is on its way. Remove what is in it.")
    with place.folder() as folder:
        if not stat.S_ISDIR(os.stat(place.name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(place.name, dir_fd=folder)
        elif recursive:
            shutil.rmtree(place.name, dir_fd=folder, onerror=_unless_gone)
        else:
            raise Refused(409, f"{place} is a folder: say --recursive to remove it with all that is in it.")


def _unless_gone(_: object, __: object, failed: tuple[type[BaseException], BaseException, TracebackType]) -> None:
    """A job that removes the same at the same time is no error."""
    if not isinstance(failed[1], FileNotFoundError):
        raise failed[1]


def _within(fd: int, prefix: str, *, recursive: bool, hidden: str) -> Iterator[Entry]:
    for name in sorted(os.listdir(fd)):  # no scandir: its entries keep all their facts, and a folder may hold millions
        path = prefix + name
        try:
            facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except (FileNotFoundError, PermissionError):
            continue  # a job removed it just now, or nobody else's business
        if path != hidden:
            yield entry(path, facts)
        if recursive and path != hidden and stat.S_ISDIR(facts.st_mode):
            yield from _below(fd, name, path, hidden)


def _below(fd: int, name: str, path: str, hidden: str) -> Iterator[Entry]:
    try:
        inner = os.open(name, FOLDER, dir_fd=fd)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # gone, replaced by a link, or nobody else's business
    try:
        yield from _within(inner, f"{path}/", recursive=True, hidden=hidden)
    finally:
        os.close(inner)


def _hidden(place: Place) -> str:
    """The folder of uploads, as seen from the folder that is listed."""
    return "/".join(OWN[len(place.parts) :]) if OWN[: len(place.parts)] == place.parts else ""
