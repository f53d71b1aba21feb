"""The checkpoints of one job: written, committed, found again, kept and removed.

    folder = CheckpointFolder(output, keep=3, identity={"arch": "resnet18", ...}, owner=id)
    manifest = folder.write(dump, generation=3, step=120)    # on the disk, but only a candidate. Raises NotWritten
    folder.commit(manifest, fence)                           # raises Stale, Unreachable (then call it again)
    found = folder.newest(fence.newest())                    # verified bytes and where they stand, or None

A checkpoint of the name g00003-s00000120-r0 comes to be in five steps, each of which happens or does not:
1. its data is written to a temporary file, flushed and renamed to NAME.pt;
2. so is its manifest, to NAME.candidate; 3. the fence commits the name; 4. NAME.candidate is renamed to NAME.json;
5. what is neither among the newest `keep` nor the best is removed.
A checkpoint of a sharded model has more files, NAME.part0, NAME.part1 and so on, which are on the disk before step 2, and whose
sha256 the manifest has: they count with it or not at all.

A candidate counts only when the fence names it; then the reader does step 4. So whenever a writer is killed, the newest
checkpoint is the last that was committed. It knows nothing of models: what is in NAME.pt is the caller's.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ebb.compat import dataclass, zip
from ebb.elastic.checkpoint import manifest as manifests
from ebb.elastic.checkpoint import retention
from ebb.elastic.checkpoint.errors import (
    CheckpointError,
    DamagedCheckpointsError,
    ForeignCheckpointError,
    NotWritten,
    Stale,
)
from ebb.elastic.checkpoint.fence import Fence
from ebb.elastic.checkpoint.files import TEMPORARY, Disk, HashingFile, NewFile, look, write_whole
from ebb.elastic.checkpoint.manifest import Manifest, Order, order_of
from ebb.elastic.room import with_room

DATA, COMMITTED, CANDIDATE, PART = ".pt", ".json", ".candidate", ".part"
Dump = Callable[[HashingFile], None]


@dataclass(frozen=True, kw_only=True)
class Patience:
    """The wait for a file that must be there: other machines' files may show late on a network file system."""

    # 15 s: with look() an NFS client sees them at once; this is for file systems in front of object stores
    seconds: float = 15.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep  # nothing to wait on: such file systems tell of no changes of other machines


@dataclass(frozen=True, kw_only=True)
class Found:
    """A checkpoint that was read and verified; ebb.elastic.checkpoint.state.load(content) makes tensors of it."""

    manifest: Manifest
    content: bytes
    parts: tuple[str, ...] = ()  # paths of the files that belong to it


class _NotThereYetError(ValueError):
    """A file is shorter than its manifest says."""


class CheckpointFolder:
    """`owner` is the id in the folder's owner.json. With owner=None it is another job's, which is only read."""

    def __init__(
        self,
        output: Path,
        *,
        keep: int,
        identity: dict[str, Any],
        owner: str | None = "",
        disk: Disk | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.place = output / manifests.FOLDER
        self.disk = disk or Disk()
        self._keep = keep
        self._identity = manifests.plain(identity)
        self._owner = owner
        self._patience = patience or Patience()
        self._useless: set[str] = set()  # seen to be damaged or foreign: they do not count among those that are kept

    def prepare(self, generation: int) -> None:
        """Once per generation, by one rank: make the folder, clear what killed writers of older ones left half-written."""
        with_room(lambda: self.disk.make_folder(self.place), f"{self.place.parent} is full: the start")
        retention.clear_temporary(self.disk, self.place, generation)

    def write(
        self,
        dump: Dump,
        *,
        generation: int,
        step: int,
        writer: int = 0,
        metrics: dict[str, float] | None = None,
        score: float | None = None,
        parts: Callable[[], list[dict[str, Any]]] = list,
    ) -> Manifest:
        """Write a candidate. `parts` waits until all of them are written, by write_part, and gives the answers. Raises NotWritten
        (full or read-only disk); then nothing of it stays."""
        name = manifests.name_of(generation, step, writer)
        if self._is_there(name, COMMITTED, CANDIDATE):
            raise NotWritten(f"checkpoint {name} is there already; it is not written again")
        try:
            with NewFile(self.disk, self.place / (name + DATA)) as file:
                dump(file)
            manifest = Manifest(
                generation=generation,
                step=step,
                writer=writer,
                sha256=file.sha256,
                size_bytes=file.size,
                identity=self._identity,
                folder=self._owner or "",
                written_at=round(time.time(), 3),
                metrics=metrics or {},
                score=retention.usable(score),
                parts=parts(),
            )
            write_whole(self.disk, self.place / (name + CANDIDATE), manifest.to_json())
        except OSError as error:
            retention.remove(self.disk, self.place, name)
            raise self._not_written(name, error) from error
        except NotWritten:
            retention.remove(self.disk, self.place, name)
            raise
        return manifest

    def write_part(self, dump: Dump, *, name: str, number: int) -> dict[str, Any]:
        """A part of a checkpoint: the facts for its manifest. Raises NotWritten."""
        try:
            with NewFile(self.disk, self.place / f"{name}{PART}{number}") as file:
                dump(file)
        except OSError as error:
            raise self._not_written(f"{name}{PART}{number}", error) from error
        return {"sha256": file.sha256, "size_bytes": file.size}

    def _not_written(self, name: str, error: OSError) -> NotWritten:
        return NotWritten(
            f"checkpoint {name} could not be written to {self.place}: {error.strerror or error}. "
            "The older checkpoint stays and training goes on; free some space, or lower --keep-checkpoints"
        )

    def commit(self, manifest: Manifest, fence: Fence) -> None:
        """Make a candidate the newest checkpoint, and remove what need not be kept.

        Raises Stale, then the candidate is gone; Unreachable, then it stays and the call may be made again; NotWritten.
        """
        try:
            fence.commit(manifest)
        except Stale:
            # it is there where an earlier try went through, and only its answer was lost: a newer generation has used it
            if not self._is_there(manifest.name, COMMITTED):
                retention.remove(self.disk, self.place, manifest.name)
            raise
        try:
            self._promote(manifest.name)
        except OSError as error:
            raise NotWritten(f"checkpoint {manifest.name} was written, but not renamed: {error.strerror or error}") from error
        retention.prune(self.disk, self.place, keep=self._keep, newest=manifest, useless=self._useless)

    def claim_saving(self, generation: int, step: int) -> bool:
        """True for the first that asks, of several that hold the same state and cannot ask each other: it saves it for all."""
        name = f"{TEMPORARY}saving-g{generation:05}-s{step:08}-r0"
        try:
            self.disk.close(self.disk.create(self.place / name))
        except FileExistsError:
            return False
        except OSError:
            return True  # write() says what is wrong with the disk
        return True

    def judge(self, manifest: Manifest, metrics: dict[str, float], score: float) -> Manifest:
        """Add a validation's result to a checkpoint that is committed already. Raises NotWritten; it stays as it was then."""
        judged = replace(manifest, metrics=metrics, score=retention.usable(score))
        try:
            write_whole(self.disk, self.place / (judged.name + COMMITTED), judged.to_json())
        except OSError as error:
            raise NotWritten(f"the score of checkpoint {judged.name} could not be written: {error.strerror or error}") from error
        return judged

    def save(self, dump: Dump, fence: Fence, *, step: int, writer: int = 0, **facts: Any) -> Manifest:
        """Both at once."""
        manifest = self.write(dump, generation=fence.generation, step=step, writer=writer, **facts)
        self.commit(manifest, fence)
        return manifest

    def newest(self, named: str | None = None) -> Found | None:
        """The highest (generation, step) that is committed, whole and ours; `named` is the one that the fence knows of.

        What is damaged or foreign is passed over with a warning as long as there is an older one that is neither. Raises
        ForeignCheckpointError or DamagedCheckpointsError when there is not: going on, or starting anew, would be wrong.
        """
        deadline = self._patience.now() + self._patience.seconds
        foreign: list[str] = []
        damaged: list[str] = []
        for name in self._committed(named, deadline):
            try:
                found = self._read(name, deadline)
            except (OSError, ValueError) as error:
                damaged.append(f"checkpoint {name} is damaged and passed over: {error}")
                continue
            if differences := self._differences(found.manifest):
                foreign.append(f"{self.place} holds a checkpoint of another run ({name}): {'; '.join(differences)}")
                continue
            self._tell(damaged + foreign)
            self._promote_named(name)
            return found
        self._tell(damaged)
        if foreign:
            fix = "Give this job its own --output folder, or start it with the settings of that run"
            raise ForeignCheckpointError(f"{foreign[0]}. {fix}")
        if damaged:
            raise DamagedCheckpointsError(
                f"{self.place} holds {len(damaged)} checkpoints and every one is damaged; `python -m "
                f"ebb.elastic.checkpoint verify "
                f"{self.place.parent}` says how. Repair the disk, or remove {self.place} to start from the beginning"
            )
        return None

    def _committed(self, named: str | None, deadline: float) -> list[str]:
        """The names that count, newest first."""
        files = self._look()
        while named and not _has_manifest(files, named) and self._wait(deadline):
            files = self._look()
        if named and not _has_manifest(files, named):
            self._tell([f"checkpoint {named} is known as the newest, but it is not in {self.place}: trying an older one"])
        names = {name for name in map(_stem(COMMITTED), files) if name}
        if named and named + CANDIDATE in files:
            names.add(named)

        def place(name: str) -> tuple[tuple[int, ...], bool, Order]:
            order = order_of(name) or Order(0, 0, 0)
            return order[:2], name == named, order

        return sorted(names, key=place, reverse=True)

    def _is_there(self, name: str, *suffixes: str) -> bool:
        """Raises NotWritten when the folder cannot be listed: nothing is removed on a guess."""
        try:
            return not {name + suffix for suffix in suffixes}.isdisjoint(self._look())
        except OSError as error:
            raise NotWritten(f"{self.place} cannot be listed: {error.strerror or error}") from error

    def _look(self) -> list[str]:
        return self.disk.names(self.place) if self._owner is None else look(self.disk, self.place)

    def _wait(self, deadline: float) -> bool:
        """A second, unless the patience is at its end."""
        if self._patience.now() >= deadline:
            return False
        self._patience.sleep(1.0)
        return True

    def _read(self, name: str, deadline: float) -> Found:
        """Raises OSError or ValueError with the damage; a file that is not there yet is waited for."""
        while True:
            try:
                return read_whole(self.disk, self.place, name)
            except (FileNotFoundError, _NotThereYetError) as error:
                if not self._wait(deadline):
                    self._useless.add(name)
                    raise ValueError(error.strerror if isinstance(error, OSError) else str(error)) from error
                self._look()
            except (OSError, ValueError):
                self._useless.add(name)
                raise

    def _differences(self, manifest: Manifest) -> list[str]:
        found, wanted = manifest.identity, self._identity
        keys = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        words = [f"{key} is {wanted.get(key)!r} here and must be {found.get(key)!r} as in the checkpoint" for key in keys]
        if self._owner is not None and manifest.folder != self._owner:
            words.append(f"it was written to the folder with the id {manifest.folder!r}, and this one's is {self._owner!r}")
        if words:
            self._useless.add(manifest.name)
        return words

    def _promote_named(self, name: str) -> None:
        """The writer was killed between the commit and the rename; on a read-only disk the fence's word is enough."""
        if self._owner is None or self._is_there(name, COMMITTED):
            return
        try:
            self._promote(name)
        except (OSError, CheckpointError) as error:
            self._tell([f"checkpoint {name} is resumed from, but could not be renamed: {error}"])

    def _promote(self, name: str) -> None:
        try:
            self.disk.rename(self.place / (name + CANDIDATE), self.place / (name + COMMITTED))
        except FileNotFoundError:
            if self._is_there(name, COMMITTED):
                return  # a reader was quicker
            raise Stale(f"checkpoint {name} is not committed: a newer generation has removed it") from None
        self.disk.sync_folder(self.place)

    def _tell(self, sentences: list[str]) -> None:
        for sentence in sentences:
            print(sentence, file=sys.stderr, flush=True)


def read_whole(disk: Disk, place: Path, name: str) -> Found:
    """Read and verify. Raises OSError, or ValueError with the damage."""
    try:
        text = disk.read(place / (name + COMMITTED))
    except FileNotFoundError:
        text = disk.read(place / (name + CANDIDATE))
    manifest = manifests.read(text)
    if manifest.name != name:
        raise ValueError(f"its manifest is that of {manifest.name}: it was renamed")
    content = disk.read(place / (name + DATA))
    if len(content) != manifest.size_bytes:
        kind = _NotThereYetError if len(content) < manifest.size_bytes else ValueError
        raise kind(f"{len(content)} bytes instead of {manifest.size_bytes}")
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise ValueError("its content does not have the sha256 of its manifest")
    paths = [place / f"{name}{PART}{number}" for number in range(len(manifest.parts))]
    for path, facts in zip(paths, manifest.parts, strict=True):
        sha256, size = disk.digest(path)
        if size < facts["size_bytes"]:
            raise _NotThereYetError(f"{path.name} has {size} bytes instead of {facts['size_bytes']}")
        if sha256 != facts["sha256"]:
            raise ValueError(f"{path.name} does not have the sha256 of the manifest")
    return Found(manifest=manifest, content=content, parts=tuple(map(str, paths)))


def _stem(suffix: str) -> Callable[[str], str | None]:
    def stem(file: str) -> str | None:
        name = file.removesuffix(suffix)
        return name if name != file and order_of(name) else None

    return stem


def _has_manifest(files: list[str], name: str) -> bool:
    return name + COMMITTED in files or name + CANDIDATE in files
