"""Which list of images a job uses: made once for all jobs on the same data, kept by each job for as long as it runs.

    index = load_or_scan(data / "train", output, say=print)

Listing millions of files takes minutes on network storage, so the list lies beside the folder, in <data>/.ebb-index, for all
jobs; where the data cannot be written to, in the job's folder. Its file is named by its fingerprint and never changes. The job
writes down in <output>/index-train.json which one it began with: sample numbers are places in it, so it must stay the same over
all generations. A new job looks whether the folders have changed since the list was made (one look per folder, not per file),
and lists those again that have; a running job goes on with its own list and says that they have.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ebb.compat import zip
from ebb.elastic.data.index import EmptyError, Folder, ImageIndex, Listed, write
from ebb.elastic.data.sealed import DamagedError, DataError

Say = Callable[[str], None]

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif")
_SHARED = ".ebb-index"
_THREADS = 32  # listing waits for the storage: one network round trip per some hundred names
_PROGRESS_SECONDS = 10.0
_UNUSED_SECONDS = 30 * 86400.0  # a list that no job has opened for so long is removed
# A folder that changed so shortly before it was listed may change again within the same tick of its file system's clock
_TICK_SECONDS = 2.0


def load_or_scan(root: Path, output: Path, *, say: Say | None = None) -> ImageIndex:
    """The job's list of the images of `root`. One process of a job calls it first, with `say`; the others, without, load
    what that one has made.

    Raises DataError when there is nothing to train on, or the images are others than those that the job began with.
    """
    began_with = _read_note(_note(root, output))
    index = _load_first(root, output, began_with) if began_with else None
    if index is None:
        index = current(root, output, say=say)
    elif say:
        _compare(index, say)
    if began_with and index.fingerprint != began_with["fingerprint"]:
        raise DataError(
            f"{root} holds other images than those that this job began with ({began_with['samples']} then, {len(index)} now), "
            "and the list of then is gone: give the new job another --output folder, or put the old images back"
        )
    if not began_with:
        _write_note(_note(root, output), index)
    return index


def current(root: Path, own: Path, *, say: Say | None = None) -> ImageIndex:
    """The list of the images that are there now: one that was made before and is still true, or a fresh one."""
    return _usable(root, own) or _scan(root, own, say or _silent)


def changed_folders(index: ImageIndex) -> list[str]:
    """The folders of the list whose names have changed since; '' is the root itself."""
    with ThreadPoolExecutor(_THREADS) as threads:
        now = threads.map(lambda folder: _mtime(index.root / folder[0]), index.folders)
        return [name for (name, then), mtime in zip(index.folders, now, strict=True) if then != mtime and then is not None]


def scan(root: Path, target: Path, *, known: ImageIndex | None = None, say: Say | None = None) -> ImageIndex:
    """List `root`, but for the classes that have not changed since `known`, into a file in the folder `target`."""
    target.mkdir(parents=True, exist_ok=True)
    temporary = target / f".tmp-{root.name}-{_writer()}"
    mtime = _settled(_mtime(root), time.time())
    try:
        with os.scandir(root) as entries:
            kinds = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        listing = _progress(root, len(kinds), _list_all(root, kinds, known), say or _silent)
        fingerprint = write(temporary, listing, root_mtime_ns=mtime, made_at=time.time())
        path = target / f"{root.name}-{fingerprint[:16]}.index"
        temporary.rename(path)
    except EmptyError:
        raise DataError(f"{root} has no image: it must hold <class>/<image>, with images named *{', *'.join(SUFFIXES)}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return ImageIndex.load(root, path)


def _compare(index: ImageIndex, say: Say) -> None:
    changed = changed_folders(index)
    if changed:
        named = ", ".join(str(index.root / name) for name in changed[:3]) + (", ..." if len(changed) > 3 else "")
        say(
            f"{len(changed)} of {len(index.folders)} folders of {index.root} have changed since this job began ({named}): "
            f"it goes on with the {len(index)} images of then; a new job will use those of now"
        )


def _places(root: Path, output: Path) -> list[Path]:
    return [root.parent / _SHARED, output]


def _load_first(root: Path, output: Path, began_with: dict[str, str]) -> ImageIndex | None:
    """The list that the job began with."""
    for place in _places(root, output):
        index = _load(root, place / f"{root.name}-{began_with['fingerprint'][:16]}.index")
        if index is not None:
            return index
    return None


def _usable(root: Path, output: Path) -> ImageIndex | None:
    """A list that was made for another job and is still true."""
    index = _newest(root, output)
    if index is None or any(then is None for _, then in index.folders) or changed_folders(index):
        return None
    return index


def _newest(root: Path, output: Path) -> ImageIndex | None:
    paths = [path for place in _places(root, output) for path in place.glob(f"{root.name}-*.index")]
    found = [index for path in paths if (index := _load(root, path)) is not None]
    return max(found, key=lambda index: index.made_at, default=None)


def _load(root: Path, path: Path) -> ImageIndex | None:
    try:
        index = ImageIndex.load(root, path)
    except (FileNotFoundError, DamagedError):
        return None
    with contextlib.suppress(OSError):  # somebody else's, or a medium that cannot be written to
        os.utime(path)  # the time of its last use
    return index


def _scan(root: Path, own: Path, say: Say) -> ImageIndex:
    shared = root.parent / _SHARED
    if not _writable(shared):
        say(f"{root.parent} cannot be written to: the list of its images is kept in {own}, for this job alone")
        return scan(root, own, known=_newest(root, own), say=say)
    index = scan(root, shared, known=_newest(root, own), say=say)
    _remove_unused(index)
    return index


def _remove_unused(index: ImageIndex) -> None:
    for path in index.path.parent.glob(f"{index.root.name}-*.index"):
        if path != index.path and time.time() - path.stat().st_mtime > _UNUSED_SECONDS:
            path.unlink(missing_ok=True)


def _writable(folder: Path) -> bool:
    probe = folder / f".tmp-probe-{_writer()}"
    try:
        folder.mkdir(exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def _list_all(root: Path, kinds: list[str], known: ImageIndex | None) -> Iterator[Listed]:
    """All classes, in their order, listed ahead by threads; never more than a few at a time, to bound the memory."""
    labels = {name: label for label, name in enumerate(known.classes)} if known else {}
    folders: dict[str, list[Folder]] = {}
    for folder in known.folders[1:] if known else ():
        folders.setdefault(folder[0].partition("/")[0], []).append(folder)

    def one(kind: str) -> Listed:
        try:
            return unchanged(kind) or _list(root, kind)
        except OSError as error:
            raise DataError(f"cannot list {error.filename}: {error.strerror}") from error

    def unchanged(kind: str) -> Listed | None:
        if known is not None and kind in labels and all(_mtime(root / name) == then for name, then in folders[kind]):
            return known.listed(labels[kind], folders[kind])
        return None

    with ThreadPoolExecutor(_THREADS) as threads:
        ahead: deque[Future[Listed]] = deque()
        for kind in kinds:
            ahead.append(threads.submit(one, kind))
            if len(ahead) >= 2 * _THREADS:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _list(root: Path, kind: str) -> Listed:
    files: list[bytes] = []
    folders: list[Folder] = []
    below = [""]
    while below:
        inside = below.pop()
        place = f"{kind}/{inside}".rstrip("/")
        folders.append((place, _settled(_mtime(root / place), time.time())))  # before it is listed
        with os.scandir(root / place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(f"{inside}{entry.name}/")
                elif entry.name.lower().endswith(SUFFIXES):
                    files.append(os.fsencode(inside + entry.name))
    files.sort()
    return Listed(kind, files, folders)


def _settled(mtime_ns: int, now: float) -> int | None:
    return mtime_ns if now - mtime_ns / 1e9 > _TICK_SECONDS else None


def _mtime(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return -1


def _progress(root: Path, kinds: int, listing: Iterator[Listed], say: Say) -> Iterator[Listed]:
    began = said = time.monotonic()
    images = 0
    for count, listed in enumerate(listing, start=1):
        images += len(listed.files)
        yield listed
        if time.monotonic() - said > _PROGRESS_SECONDS:
            said = time.monotonic()
            say(f"listing {root}: {images} images in {count} of {kinds} classes after {said - began:.0f} s")


def _note(root: Path, output: Path) -> Path:
    return output / f"index-{root.name}.json"


def _read_note(path: Path) -> dict[str, str] | None:
    try:
        note: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        return note if {"fingerprint", "samples"} <= set(note) else None
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _write_note(path: Path, index: ImageIndex) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{path.name}-{_writer()}")
    facts = {"root": str(index.root), "samples": len(index), "fingerprint": index.fingerprint, "file": str(index.path)}
    temporary.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    temporary.rename(path)


def _writer() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{threading.get_ident()}"


def _silent(_: str) -> None:
    pass
