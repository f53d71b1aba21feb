"""Files and folders to and from the shared volumes, as `ebb data` and `ebb outputs` move them.

    await put(ebb, Path("imagenet"), "data/imagenet", show)      # the folder's content goes there; again: only what is missing
    await get(ebb, "/mnt/output/x", "results/")                  # a / at the end: into it, under its own name
    await fetch_outputs(ebb, "digits", "checkpoints", "results/")   # of a job's own folder, also after it was deleted

A place on a volume is named by the path that workers see (/mnt/data/x), or by the volume's name (data/x). A folder is moved file
by file, several at once; a file of the same size and age that is there already is left alone, or with `checksum` one of the same
content. So an interrupted transfer resumes, and a second `put` moves only what is new.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

from ebb.api.contract import OUTPUT_ROOT
from ebb.api.platform import Platform
from ebb.client.errors import BadRequest, Missing
from ebb.client.files.transfer import (
    AT_ONCE,
    FileEntry,
    Files,
    LocalFile,
    VolumeRoom,
    check_text,
    gateway,
    is_sendable,
    printable,
    walk,
)
from ebb.client.logs.sources import job_folder
from ebb.client.platform.connection import Ebb, read_job

NS_PER_MS = 1_000_000  # ages are compared to the millisecond: some file systems keep no more than 100 ns
SMALL_BYTES = 2**20  # below this it is quicker to send a file than to ask whether it is there

T = TypeVar("T")


class Show(Protocol):
    """Told how a transfer goes on."""

    def announce(self, files: int, size: int) -> None:
        """Announce more to move, beside what was announced before."""

    def moved(self, size: int) -> None:
        """Bytes, negative when they were for nothing."""


class Silent:
    """Shows nothing."""

    def announce(self, files: int, size: int) -> None:
        """See Show."""

    def moved(self, size: int) -> None:
        """See Show."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A finished transfer. `left_out`: links, other things that are no files, names that are no text, files gone meanwhile."""

    source: str
    target: str
    files: int
    size: int
    there_already: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Content of a place; with no place, the volumes."""

    path: str
    entries: tuple[FileEntry, ...] = ()
    volumes: tuple[VolumeRoom, ...] = ()


def place(platform: Platform, text: str) -> str:
    """The path that workers see. Raises BadRequest for one that is on no volume, or no text."""
    pure = PurePosixPath(check_text(text))
    if ".." in pure.parts:
        raise BadRequest(f"path {text!r} is refused: it may not hold `..`.")
    known = {volume.name: PurePosixPath(volume.mount_path) for volume in platform.volumes if not volume.sidecar}
    for volume in platform.volumes:
        if volume.sidecar and (pure.is_relative_to(volume.mount_path) or pure.parts[:1] == (volume.name,)):
            raise BadRequest(
                f"path {text!r} is in bucket {volume.name}, which this platform mounts in workers alone: read it in a job, or by "
                f"the cloud's own tools. Here are {' and '.join(known)}."
            )
    for mount in known.values():
        if pure.is_relative_to(mount):
            return str(pure)
    name, *rest = pure.parts or ("",)
    if name in known:
        return str(known[name].joinpath(*rest))
    shown = " or ".join(f"{name}/... ({mount}/...)" for name, mount in known.items())
    raise BadRequest(f"path {text!r} is on no volume of the platform: use {shown}. `ebb data ls` shows them.")


async def put(ebb: Ebb, source: Path, target: str, show: Show | None = None, *, checksum: bool = False) -> Transfer:
    """Write a file or folder. Raises BadRequest, Missing, ClientError, KubeError."""
    path, show = place(ebb.platform, target), show or Silent()
    if not source.exists():
        raise Missing(f"{printable(source)} is not there on this machine: check the path.")
    _check_writable(ebb.platform, path)
    if target.endswith("/") or path in (volume.mount_path for volume in ebb.platform.volumes):
        path = f"{path}/{source.resolve().name}"
    async with gateway(ebb) as files:
        if source.is_dir():
            return await _put_folder(files, source, path, show, checksum=checksum)
        if await _is_folder(files, path):
            path = f"{path}/{source.resolve().name}"
        show.announce(1, source.stat().st_size)
        stored = await files.put(path, source, moved=show.moved)
        there = int(stored.moved == 0 and stored.size > 0)
        return Transfer(source=printable(source), target=path, files=1 - there, size=stored.moved, there_already=there)


async def get(ebb: Ebb, source: str, target: str = ".", show: Show | None = None, *, checksum: bool = False) -> Transfer:
    """Fetch a file or folder; into `target` if that ends with a / or is `.`, else under that name. Raises as `put`."""
    async with gateway(ebb) as files:
        return await get_by(files, place(ebb.platform, source), target, show or Silent(), checksum=checksum)


async def get_by(files: Files, path: str, target: str, show: Show, *, checksum: bool = False) -> Transfer:
    """As `get`, for who has the way to the files already."""
    found, local = await files.stat(path), Path(target)
    if found.kind not in ("file", "folder"):
        raise BadRequest(f"{path} is a {found.kind}: only files and folders are fetched.")
    if target.endswith("/") or local == Path() or (found.kind == "file" and local.is_dir()):
        local = local / PurePosixPath(path).name
    if found.kind == "folder":
        return await _get_folder(files, path, local, show, checksum=checksum)
    show.announce(1, found.size)
    if not checksum and _same(local, found):
        show.moved(found.size)
        return Transfer(source=path, target=printable(local), files=0, size=0, there_already=1)
    stored = await files.get(path, local, moved=show.moved)
    return Transfer(source=path, target=printable(local), files=1, size=stored.moved, there_already=0)


async def ls(ebb: Ebb, path: str | None = None, *, recursive: bool = False) -> Listing:
    """Return what is in a folder, or what volumes there are. Raises BadRequest, Missing, ClientError, KubeError."""
    async with gateway(ebb) as files:
        if path is None:
            return Listing(path="", volumes=await files.volumes())
        full = place(ebb.platform, path)
        return Listing(path=full, entries=await files.list(full, recursive=recursive))


async def rm(ebb: Ebb, path: str, *, recursive: bool = False) -> str:
    """Remove a file, or with `recursive` a folder; its path. Raises BadRequest, Missing, ClientError, KubeError."""
    full = place(ebb.platform, path)
    _check_writable(ebb.platform, full)
    async with gateway(ebb) as files:
        await files.remove(full, recursive=recursive)
    return full


async def _put_folder(files: Files, source: Path, path: str, show: Show, *, checksum: bool) -> Transfer:
    scanned = await asyncio.to_thread(lambda: list(walk(source)))
    local = [one for one in scanned if isinstance(one, LocalFile)]
    there = await _ages(files, path)
    todo = [one for one in local if checksum or there.get(one.name) != (one.size, one.modified_ns // NS_PER_MS)]
    show.announce(len(todo), sum(one.size for one in todo))

    async def send(one: LocalFile) -> int:
        ask = checksum or one.size > SMALL_BYTES
        return (await files.put(f"{path}/{one.name}", one.path, moved=show.moved, ask=ask)).moved

    done = _counted(len(local), [one.size for one in todo], await _at_once(send, todo))
    left_out = tuple(printable(one) for one in scanned if isinstance(one, Path))
    return Transfer(source=printable(source), target=path, left_out=left_out, **done)


async def _get_folder(files: Files, path: str, target: Path, show: Show, *, checksum: bool) -> Transfer:
    entries = await files.list(path, recursive=True)
    remote = [one for one in entries if one.kind == "file" and is_fetchable(one.name)]
    todo = [one for one in remote if checksum or not await asyncio.to_thread(_same, target / one.name, one)]
    show.announce(len(todo), sum(one.size for one in todo))

    gone: list[str] = []

    async def fetch(one: FileEntry) -> int:
        try:
            return (await files.get(f"{path}/{one.name}", target / one.name, moved=show.moved)).moved
        except Missing:
            gone.append(one.name)  # its job has removed it since: an older checkpoint, a log
            return 0

    await asyncio.to_thread(lambda: target.mkdir(parents=True, exist_ok=True))
    moved = await _at_once(fetch, todo)
    stay = [(one.size, size) for one, size in zip(todo, moved, strict=True) if one.name not in gone]
    done = _counted(len(remote) - len(gone), [size for size, _ in stay], [size for _, size in stay])
    others = (one.name for one in entries if one.kind != "folder" and not (one.kind == "file" and is_fetchable(one.name)))
    left_out = tuple(printable(f"{path}/{name}") for name in sorted([*gone, *others]))
    return Transfer(source=path, target=printable(target), left_out=left_out, **done)


def is_fetchable(name: str) -> bool:
    """Return whether a name of a listing stays below its folder here."""
    return is_sendable(name) and ".." not in name.split("/")


def _counted(found: int, sizes: Sequence[int], moved: Sequence[int]) -> dict[str, int]:
    """Return what was moved of the files that might have been: nothing of one that was there with the same content."""
    files = sum(took > 0 or size == 0 for size, took in zip(sizes, moved, strict=True))
    return {"files": files, "size": sum(moved), "there_already": found - files}


async def _at_once(work: Callable[[T], Awaitable[int]], items: Iterable[T]) -> list[int]:
    """Results in order; the first error ends all."""
    queue = list(enumerate(items))[::-1]
    sizes: dict[int, int] = {}

    async def worker() -> None:
        while queue:
            index, item = queue.pop()
            sizes[index] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(worker())
    except* Exception as errors:
        raise errors.exceptions[0] from None
    return [sizes[index] for index in sorted(sizes)]


def _same(file: Path, entry: FileEntry) -> bool:
    try:
        about = file.stat()
    except OSError:
        return False
    return (about.st_size, about.st_mtime_ns // NS_PER_MS) == (entry.size, entry.modified_ns // NS_PER_MS)


async def _ages(files: Files, path: str) -> dict[str, tuple[int, int]]:
    try:
        found = await files.list(path, recursive=True)
    except Missing:
        return {}
    if len(found) == 1 and found[0].name == PurePosixPath(path).name and not await _is_folder(files, path):
        raise BadRequest(f"path {path!r} is a file: a folder cannot go there. Choose another name, or `ebb data rm` it first.")
    return {one.name: (one.size, one.modified_ns // NS_PER_MS) for one in found if one.kind == "file"}


async def _is_folder(files: Files, path: str) -> bool:
    try:
        return (await files.stat(path)).kind == "folder"
    except Missing:
        return False


def _check_writable(platform: Platform, path: str) -> None:
    """Before anything is sent."""
    for volume in platform.volumes:
        if volume.read_only and PurePosixPath(path).is_relative_to(volume.mount_path):
            others = " or ".join(f"{one.name}/..." for one in platform.volumes if not one.read_only)
            raise BadRequest(f"path {path!r} is on the read-only volume {volume.name}: use {others}.")


async def list_outputs(ebb: Ebb, job: str, path: str = "", *, recursive: bool = False) -> Listing:
    """Return what is in a job's folder, or in a part of it. Raises Missing, BadRequest, ClientError, KubeError."""
    async with gateway(ebb) as files:
        folder = await output_folder(ebb, files, job, path)
        try:
            return Listing(path=folder, entries=await files.list(folder, recursive=recursive))
        except Missing as error:
            raise Missing(f"{job} has written nothing{f' at {path}' if path else ''} so far: {folder} is not there.") from error


async def fetch_outputs(
    ebb: Ebb, job: str, path: str = "", target: str = "", show: Show | None = None, *, checksum: bool = False
) -> Transfer:
    """Fetch a job's folder or a part of it; without a target into a folder of the job's name here. Raises as `list_outputs`."""
    async with gateway(ebb) as files:
        folder = await output_folder(ebb, files, job, path)
        return await get_by(files, folder, target or (f"{job}/" if path else job), show or Silent(), checksum=checksum)


async def output_folder(ebb: Ebb, files: Files, job: str, path: str = "") -> str:
    """A job's own folder, also of one that was deleted, or a part of it. Raises Missing, BadRequest."""
    if path.startswith("/") or ".." in path.split("/"):
        raise BadRequest(f"path {path!r} is refused: name what is in the job's folder, as `ebb outputs {job}` shows it.")
    try:
        folder = job_folder(await read_job(ebb.kube, ebb.namespace, job))
    except Missing as missing:
        folder = await _of_deleted(files, f"{OUTPUT_ROOT}/{ebb.namespace}", job, missing)
    return f"{folder}/{path}".rstrip("/")


async def _of_deleted(files: Files, root: str, job: str, missing: Missing) -> str:
    """The newest folder of a job of that name."""
    try:
        found = await files.list(root)
    except (Missing, BadRequest):  # nobody has written anything, or the platform has no such volume
        found = ()
    name = re.compile(rf"{re.escape(job)}-[0-9a-f]{{8}}")
    folders = [one for one in found if one.kind == "folder" and name.fullmatch(one.name)]
    if not folders:
        raise missing
    return f"{root}/{max(folders, key=lambda one: one.modified_ns).name}"
