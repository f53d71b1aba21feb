"""Disks that misbehave as real ones do: a share seen by several machines, each remembering what it saw; the loss of power.

    share = Share()
    writer, reader = Client(share), Client(share)      # two machines
    after = share.after_power_loss(random)             # what was not flushed is gone, torn or there, at random

A Client lists and opens from what it remembers of a folder, until a change of its own shows it that the folder has changed: the
rule of an NFS client. With `notices_changes=False` not even then: only forget() helps, as in front of an object store.
"""

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ebb.elastic.checkpoint.files import Disk


@dataclass
class File:
    content: bytearray = field(default_factory=bytearray)
    flushed: bytes = b""


@dataclass
class Folder:
    files: dict[str, File] = field(default_factory=dict)
    flushed: dict[str, File] = field(default_factory=dict)
    pending: list[Callable[[dict[str, File]], object]] = field(default_factory=list)  # changes since the last flush, in order
    changes: int = 0


class Share:
    """The truth."""

    def __init__(self) -> None:
        self.folders: dict[Path, Folder] = {}

    def folder(self, path: Path) -> Folder:
        if path not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
        return self.folders[path]

    def change(self, path: Path, change: Callable[[dict[str, File]], object]) -> None:
        folder = self.folder(path)
        change(folder.files)
        folder.pending.append(change)
        folder.changes += 1

    def after_power_loss(self, chance: random.Random) -> "Share":
        """Each change of a folder that was not flushed is kept or lost for itself, each such file has any part of its content."""
        after = Share()
        for path, folder in self.folders.items():
            names = dict(folder.flushed)
            for change in folder.pending:
                if chance.random() < 0.5:
                    change(names)
            after.folders[path] = kept = Folder()
            for name, file in names.items():
                content = file.flushed
                if bytes(file.content) != file.flushed:
                    torn = bytes(file.content[: chance.randrange(len(file.content) + 1)])
                    content = chance.choice([file.flushed, torn, bytes(len(file.content))])
                kept.files[name] = kept.flushed[name] = File(bytearray(content), content)
        return after


class PowerLoss(BaseException):
    """Nothing of the program runs any more, so no `except` of it may see this."""


class Client(Disk):
    """One machine. `fail_at`: the number of the operation before which its power goes; `error`: what every write gets."""

    def __init__(self, share: Share, *, notices_changes: bool = True, fail_at: int = -1) -> None:
        self._share = share
        self._notices_changes = notices_changes
        self._remembered: dict[Path, tuple[dict[str, File], int]] = {}
        self._open: dict[int, File] = {}
        self._fail_at = fail_at
        self.operations = 0
        self.error: int | None = None

    def forget(self) -> None:
        self._remembered.clear()

    def see(self, path: Path) -> None:
        """This one file's present state shows early, before those of its neighbours."""
        remembered, _ = self._remembered[path.parent]
        truth = self._share.folder(path.parent).files
        remembered.pop(path.name, None)
        if path.name in truth:
            remembered[path.name] = truth[path.name]

    def make_folder(self, folder: Path) -> None:
        self._step()
        for path in (folder, *folder.parents):
            self._share.folders.setdefault(path, Folder())

    def create(self, path: Path) -> int:
        self._step(writes=True)
        if path.name in self._share.folder(path.parent).files:
            raise FileExistsError(errno.EEXIST, "there already", str(path))
        file = File()
        self._change(path.parent, lambda files: files.__setitem__(path.name, file))
        descriptor = len(self._open) + 100
        self._open[descriptor] = file
        return descriptor

    def write(self, descriptor: int, content: memoryview) -> None:
        self._step(writes=True)
        self._open[descriptor].content += content

    def sync(self, descriptor: int) -> None:
        self._step()
        self._open[descriptor].flushed = bytes(self._open[descriptor].content)

    def close(self, descriptor: int) -> None:
        self._step()

    def rename(self, old: Path, new: Path) -> None:
        self._step(writes=True)
        if old.name not in self._share.folder(old.parent).files:
            raise FileNotFoundError(errno.ENOENT, "not there", str(old))
        file = self._share.folder(old.parent).files[old.name]

        def move(files: dict[str, File]) -> None:
            files.pop(old.name, None)
            files[new.name] = file

        self._change(old.parent, move)

    def link(self, old: Path, new: Path) -> None:
        self._step(writes=True)
        raise OSError(errno.EOPNOTSUPP, "this file system has no links")

    def sync_folder(self, folder: Path) -> None:
        self._step()
        found = self._share.folder(folder)
        found.flushed, found.pending = dict(found.files), []

    def remove(self, path: Path) -> None:
        self._step(writes=True)
        if path.name in self._share.folder(path.parent).files:
            self._change(path.parent, lambda files: files.pop(path.name, None))

    def names(self, folder: Path) -> list[str]:
        self._step()
        return list(self._view(folder)) if folder in self._share.folders else []

    def read(self, path: Path) -> bytes:
        self._step()
        files = self._view(path.parent)
        if path.name not in files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return bytes(files[path.name].content)

    def _view(self, folder: Path) -> dict[str, File]:
        if folder not in self._remembered:
            truth = self._share.folder(folder)
            self._remembered[folder] = (dict(truth.files), truth.changes)
        return self._remembered[folder][0]

    def _change(self, folder: Path, change: Callable[[dict[str, File]], object]) -> None:
        truth = self._share.folder(folder)
        remembered, at = self._remembered.get(folder, ({}, -1))
        fresh = at == truth.changes
        self._share.change(folder, change)
        if fresh or not self._notices_changes:
            change(remembered)
            if folder in self._remembered:
                self._remembered[folder] = (remembered, truth.changes if fresh else at)
        else:
            self._remembered.pop(folder, None)

    def _step(self, *, writes: bool = False) -> None:
        if self.operations == self._fail_at:
            raise PowerLoss
        self.operations += 1
        if writes and self.error is not None:
            raise OSError(self.error, {errno.EROFS: "Read-only file system"}.get(self.error, "error"))
