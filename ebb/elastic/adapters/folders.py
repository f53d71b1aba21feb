"""Checkpoint folders that a library writes, each of which counts whole and once: written aside, committed, renamed into place.

    folders = CheckpointFolders(output, owner=start.folder, identity={"global_batch": 64})
    folders.prepare(generation, named=fence.newest())
    working = folders.working(generation, step)           # all ranks write into it
    path = folders.commit(working, fence, step=120)       # one rank; now it is output/checkpoint-120
    folders.newest()                                      # the highest (generation, step) that is whole, or None

The library's files stay as they are, so that from_pretrained() and the like read them. Beside them lies ebb.json, a manifest as
that of Ebb's own checkpoints (checkpoint/manifest.py), with the sha256 of every file. Whoever is killed when: a folder without a
manifest, under its working name, or with a file that does not fit is none, and an older one is found. The fence keeps a process
of an older generation from putting its folder into the place of a newer one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ebb.compat import dataclass
from ebb.elastic.checkpoint import manifest as manifests
from ebb.elastic.checkpoint.errors import DamagedCheckpointsError, FenceUnreachable, ForeignCheckpointError, NotWritten
from ebb.elastic.checkpoint.fence import Fence
from ebb.elastic.checkpoint.files import TEMPORARY, Disk, look, write_whole
from ebb.elastic.checkpoint.manifest import Manifest, name_of, order_of

MANIFEST = "ebb.json"
PREFIX = "checkpoint-"
ASKED = "asked"  # in the manifest: the program's own settings asked for it, so they decide how long it stays
_COMMIT_SECONDS = 10.0
_CLAIMED = "-claimed"
_NUM_HASHING = 4  # hashlib lets go of the interpreter


@dataclass(frozen=True, kw_only=True)
class FoundFolder:
    path: Path
    manifest: Manifest


class CheckpointFolders:
    def __init__(self, place: Path, *, owner: str, identity: dict[str, Any], keep: int = 2, disk: Disk | None = None) -> None:
        """`keep`: so many of those that nobody asked for, but the time since the last one."""
        self.place = place
        self._owner, self._identity, self._keep = owner, manifests.plain(identity), keep
        self._disk = disk or Disk()

    def working(self, generation: int, step: int, writer: int = 0) -> Path:
        """The folder in which a checkpoint is written until it counts."""
        return self.place / f"{TEMPORARY}{name_of(generation, step, writer)}" / f"{PREFIX}{step}"

    def prepare(self, generation: int, named: str | None = None) -> None:
        """Once per generation, by one rank: finish what the fence knows as committed, and clear what killed writers left."""
        self._disk.make_folder(self.place)
        for path in self.place.glob(f"{TEMPORARY}*"):
            order = order_of(path.name[len(TEMPORARY) :].removesuffix(_CLAIMED))
            if order is None or order.generation >= generation:
                continue
            if path.name == f"{TEMPORARY}{named}":
                with contextlib.suppress(OSError):
                    self._promote(path / f"{PREFIX}{order.step}")
            shutil.rmtree(path, ignore_errors=True)

    def claim(self, generation: int, step: int) -> bool:
        """True for the first that asks, of several that hold the same state and cannot ask each other."""
        try:
            (self.place / f"{TEMPORARY}{name_of(generation, step, 0)}{_CLAIMED}").mkdir()
        except FileExistsError:
            return False
        return True

    def commit(
        self,
        working: Path,
        fence: Fence,
        *,
        step: int,
        writer: int = 0,
        asked: bool = False,
        most_asked: int | None = None,
        protected: Path | None = None,
    ) -> Path:
        """Make it count; returns its place. Of those that were `asked` for as many stay as `most_asked` says, None for all;
        `protected` stays in any case.

        Raises Stale, then it is gone; NotWritten.
        """
        try:
            manifest = Manifest(
                generation=fence.generation,
                step=step,
                writer=writer,
                sha256="",
                size_bytes=0,
                identity=self._identity,
                folder=self._owner,
                written_at=round(time.time(), 3),
                metrics={ASKED: float(asked)},
                parts=self._sealed(working),
            )
            write_whole(self._disk, working / MANIFEST, manifest.to_json())
            self._disk.sync_folder(working.parent)
            self._decide(manifest, fence)
            path = self._promote(working)
        except OSError as error:
            raise NotWritten(
                f"checkpoint {working.name} could not be written to {self.place}: {error.strerror or error}. The older one stays "
                "and training goes on; free some space"
            ) from error
        finally:
            shutil.rmtree(working.parent, ignore_errors=True)
        self._prune(most_asked, kept=(path, protected))
        return path

    def newest(self) -> FoundFolder | None:
        """The newest whole one. Others are passed over with a sentence, as long as there is an older one that will do.

        Raises ForeignCheckpointError or DamagedCheckpointsError when there is not.
        """
        foreign: list[str] = []
        damaged: list[str] = []
        for found in self._committed():
            if differences := self._differences(found.manifest):
                foreign.append(f"{found.path} is a checkpoint of another run: {'; '.join(differences)}")
            elif damage := self._damage(found):
                damaged.append(f"checkpoint {found.path} is damaged and passed over: {damage}")
            else:
                for sentence in damaged + foreign:
                    print(sentence, file=sys.stderr, flush=True)
                return found
        if foreign:
            raise ForeignCheckpointError(f"{foreign[0]}. Give this job its own output folder, or the settings of that run")
        if damaged:
            raise DamagedCheckpointsError(
                f"every checkpoint in {self.place} is damaged; the newest: {damaged[0]}. Repair the disk, or remove them to "
                "start from the beginning"
            )
        return None

    def _sealed(self, folder: Path) -> list[dict[str, Any]]:
        """The facts about every file, which is on the disk then."""

        def seal(path: Path) -> dict[str, Any]:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
            sha256, size = self._disk.digest(path)
            return {"name": str(path.relative_to(folder)), "sha256": sha256, "size_bytes": size}

        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        if not paths:
            raise FileNotFoundError(f"{folder} holds no files")
        with ThreadPoolExecutor(_NUM_HASHING) as pool:
            return list(pool.map(seal, paths))

    def _decide(self, manifest: Manifest, fence: Fence) -> None:
        deadline = time.monotonic() + _COMMIT_SECONDS
        while True:
            try:
                return fence.commit(manifest)
            except FenceUnreachable as error:
                if time.monotonic() >= deadline:
                    raise NotWritten(f"checkpoint {manifest.name} is not committed: {error}") from error
                time.sleep(0.5)  # nobody says when etcd is back

    def _promote(self, working: Path) -> Path:
        path = self.place / working.name
        manifests.read(self._disk.read(working / MANIFEST))  # ValueError: it was never whole
        if path.exists():  # of a generation that this one did not see, or damaged: nothing goes on from it
            _remove(path)
        working.rename(path)
        self._disk.sync_folder(self.place)
        return path

    def _committed(self) -> list[FoundFolder]:
        """Newest first; what has no readable manifest is the library's own affair."""
        found = []
        for name in look(self._disk, self.place):
            if re.fullmatch(rf"{PREFIX}\d+", name):
                with contextlib.suppress(OSError, ValueError):
                    path = self.place / name
                    found.append(FoundFolder(path=path, manifest=manifests.read(self._disk.read(path / MANIFEST))))
        return sorted(found, key=lambda each: each.manifest.order, reverse=True)

    def _differences(self, manifest: Manifest) -> list[str]:
        saved, wanted = manifest.identity, self._identity
        keys = sorted(key for key in saved.keys() | wanted.keys() if saved.get(key) != wanted.get(key))
        words = [f"{key} is {wanted.get(key)!r} here and must be {saved.get(key)!r} as in the checkpoint" for key in keys]
        if manifest.folder != self._owner:
            words.append(f"it was written for the folder with the id {manifest.folder!r}, and this one's is {self._owner!r}")
        return words

    def _damage(self, found: FoundFolder) -> str:
        """In words; "" if there is none."""

        def compare(facts: dict[str, Any]) -> str:
            try:
                sha256, size = self._disk.digest(found.path / facts["name"])
            except OSError as error:
                return f"{facts['name']}: {error.strerror}"
            if size != facts["size_bytes"]:
                return f"{facts['name']} has {size} bytes instead of {facts['size_bytes']}"
            return "" if sha256 == facts["sha256"] else f"{facts['name']} does not have the sha256 of its manifest"

        with ThreadPoolExecutor(_NUM_HASHING) as pool:
            return next(filter(None, pool.map(compare, found.manifest.parts)), "")

    def _prune(self, most_asked: int | None, *, kept: tuple[Path | None, ...]) -> None:
        committed = self._committed()
        for asked, most in ((False, self._keep), (True, most_asked)):
            group = [each.path for each in committed if bool(each.manifest.metrics.get(ASKED)) is asked]
            for path in group[len(group) if most is None else most :]:
                if path not in kept:
                    _remove(path)


def _remove(path: Path) -> None:
    """The manifest first: what a kill leaves of the rest is no damaged checkpoint."""
    with contextlib.suppress(OSError):
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path)
