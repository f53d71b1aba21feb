"""Files on the platform's volumes, through its gateway; paths are those that workers see, such as /mnt/data/imagenet.

    async with gateway(ebb) as files:
        await files.put("/mnt/data/weights.pt", Path("weights.pt"))
        await files.get("/mnt/output/elastic-job/digits-1a2b/metrics.jsonl", Path("metrics.jsonl"))

Each transfer resumes where it was when the connection to the gateway broke, also in another run of the program, and is checked by
sha256 at its end. A file is there as a whole, or not at all. Local files are read and written in threads, so that nothing else
waits for a disk. Folders are data.py's.
"""

import asyncio
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import orjson

from ebb.api.contract import GATEWAY, GATEWAY_PORT, LABEL_GROUP
from ebb.client.errors import BadRequest, ClientError, Missing, NoPlatform
from ebb.client.files.forward import forward_path
from ebb.client.platform.connection import Ebb
from ebb.kube import PODS, Object, Unreachable

CHUNK = 2**18
T = TypeVar("T")
Moved = Callable[[int], None]
"""Told of each bytes that went or came; negative when they were for nothing."""


@dataclass(kw_only=True)
class Moving:
    """Bytes that go or come. `total`: those of this run; it falls when some were for nothing."""

    path: str
    file: Path
    moved: Moved
    total: int = 0
    _at: int | None = None

    def starts_at(self, offset: int) -> None:
        """The next try goes on from there. What was there before the first is told, but was no work of ours."""
        change = offset - (self._at or 0)
        self.total += 0 if self._at is None else change
        self._at = offset
        self.moved(change)

    def count(self, size: int) -> None:
        """So much went or came."""
        self._at = (self._at or 0) + size
        self.total += size
        self.moved(size)

    async def pieces(self, offset: int, end: int) -> AsyncIterator[bytes]:
        """Return what is to go, at most up to `end`: a log may have grown since it was announced."""
        async for piece in pieces(self.file, offset, end, CHUNK):
            yield piece
            self.count(len(piece))


PIECE = 2**20
HOP = 2**26  # hashed in one go: whoever presses Ctrl-C waits for the end of one
PART = ".ebb-part-"  # folders of this name hold what has not come as a whole


def ignore_bytes(_: int) -> None:
    """For callers that show no progress."""


def check_text(path: str) -> str:
    """The path, if it can be sent. Raises BadRequest: what is left of it in a request would name another file."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"path {path!r} is no UTF-8 text: rename the file.") from error
    return path


def is_sendable(name: str) -> bool:
    """Return whether the gateway takes a name: text without control characters."""
    return not any(_control(letter) or "\ud800" <= letter <= "\udfff" for letter in name)


def printable(path: Path | str) -> str:
    """A path for people's eyes, whatever bytes it is of."""
    text = os.fsencode(path).decode(errors="replace")
    return "".join("\ufffd" if _control(letter) else letter for letter in text)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Size, checksum and age of a file."""

    size: int
    sha256: str
    modified_ns: int

    def query(self) -> dict[str, str | int]:
        """As the gateway wants to know it."""
        return {"size": self.size, "sha256": self.sha256, "modified_ns": self.modified_ns}


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """A file below a folder; `name` is its path there, with slashes."""

    name: str
    path: Path
    size: int
    modified_ns: int


async def facts(file: Path) -> Facts:
    """Reads the file, of one that grows what it is now. Raises BadRequest."""
    about = await asyncio.to_thread(_or_refuse, file, file.stat)
    sha256, size = await _hashed(file, about.st_size)
    return Facts(size=size, sha256=sha256, modified_ns=about.st_mtime_ns)


async def read_again(file: Path, before: Facts) -> Facts:
    """For another try: the same, unless the file has changed since. Raises BadRequest."""

    def look() -> os.stat_result:
        try:
            return file.stat()
        except FileNotFoundError as error:
            raise BadRequest(f"{printable(file)} is gone: it was removed while it was sent.") from error

    about = await asyncio.to_thread(_or_refuse, file, look)
    same = (about.st_size, about.st_mtime_ns) == (before.size, before.modified_ns)
    return before if same else await facts(file)


async def pieces(file: Path, offset: int, end: int, size: int) -> AsyncIterator[bytes]:
    """From an offset to an end; opened for each piece, as nobody closes this when a connection breaks. Raises BadRequest."""

    def read() -> bytes:
        with file.open("rb") as opened:
            opened.seek(offset)
            return opened.read(min(size, max(0, end - offset)))

    while piece := await asyncio.to_thread(_or_refuse, file, read):
        yield piece
        offset += len(piece)


def walk(folder: Path) -> Iterator[LocalFile | Path]:
    """All files below a folder, sorted, links to files as files; as a Path what is left out: links to folders, what is neither,
    and names that cannot be sent. Raises BadRequest."""

    def refuse(error: OSError) -> None:
        raise BadRequest(f"{printable(error.filename)}: cannot be read ({error.strerror}).") from error

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(PART))
        yield from (Path(root) / name for name in folders if (Path(root) / name).is_symlink() or not is_sendable(name))
        folders[:] = [name for name in folders if is_sendable(name)]
        for name in sorted(name for name in names if not name.startswith(PART)):
            path = Path(root) / name
            with suppress(FileNotFoundError):  # a link to nowhere, or removed just now
                about = path.stat()
                if not stat.S_ISREG(about.st_mode) or not is_sendable(name):
                    yield path
                    continue
                short = path.relative_to(folder).as_posix()
                yield LocalFile(name=short, path=path, size=about.st_size, modified_ns=about.st_mtime_ns)


class PartialFile:
    """A file that comes, in a folder of its own beside its place until it is whole: of one version of what it is a copy of."""

    def __init__(self, file: Path, source: str, version: str) -> None:
        self._file, self._folder = file, _part_folder(file, source)
        self._path = self._folder / _short(version)

    async def size(self) -> int:
        """Return how many bytes are there. Parts of other versions are removed."""

        def look() -> int:
            if self._file.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder", str(self._file))
            self._folder.mkdir(parents=True, exist_ok=True)
            for other in set(self._folder.iterdir()) - {self._path}:
                other.unlink(missing_ok=True)
            return self._path.stat().st_size if self._path.exists() else 0

        return await asyncio.to_thread(_or_refuse, self._file, look)

    async def write(self, piece: bytes) -> None:
        """Add bytes. Raises BadRequest."""

        def append() -> None:
            with self._path.open("ab") as opened:
                opened.write(piece)

        await asyncio.to_thread(_or_refuse, self._file, append)

    async def finish(self, sha256: str, modified_ns: int) -> bool:
        """Put it in place if it is right; if not, it is removed. Raises BadRequest."""

        def place() -> None:
            os.utime(self._path, ns=(modified_ns, modified_ns))
            self._path.replace(self._file)

        await asyncio.to_thread(_or_refuse, self._file, self._path.touch)  # an empty file has no bytes that would make it
        right = (await _hashed(self._path, self._path.stat().st_size))[0] == sha256
        await asyncio.to_thread(_or_refuse, self._file, place if right else self._path.unlink)
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

    while took := await asyncio.to_thread(_or_refuse, file, hop):
        at += took
    return digest.hexdigest(), at


def _control(letter: str) -> bool:
    return letter < " " or letter == "\x7f"


def _part_folder(file: Path, source: str) -> Path:
    return file.parent / f"{PART}{_short(f'{file.name}/{source}')}"


def _short(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def _or_refuse(file: Path, work: Callable[[], T]) -> T:
    """Return what the system refuses, as a sentence."""
    try:
        return work()
    except OSError as error:
        raise BadRequest(f"{printable(file)}: {error.strerror or error}.") from error


AT_ONCE = 8  # transfers: enough to hide the way to the gateway, few enough for its small machine
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 8.0)  # a gateway whose machine is lost is back in about 20 s; each byte moved begins anew
SHA256_HEADER = "Ebb-Sha256"
CHANGES = 3  # times that a file may change while it goes or comes
BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file, folder or link. `name` is the path below what was listed."""

    name: str
    kind: str  # file, folder, link or other
    size: int
    modified_ns: int


@dataclass(frozen=True, kw_only=True)
class VolumeRoom:
    """A volume of the platform, and how full it is (bytes)."""

    name: str
    path: str
    read_only: bool
    total: int
    free: int


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A file that is where it shall be. `moved`: the bytes that it took now; 0: it was there already."""

    path: str
    size: int
    sha256: str
    moved: int


@asynccontextmanager
async def gateway(ebb: Ebb, *, pauses: Sequence[float] = PAUSES) -> AsyncIterator["Files"]:
    """The way to the files. Raises NoPlatform, KubeError if there is none."""
    await _gateway_pod(ebb, frozenset())
    heard: list[str] = []

    async def choose(failed: frozenset[str]) -> str:
        return await _gateway_pod(ebb, failed)

    async with forward_path(ebb.kube, ebb.platform.jobs_namespace, choose, GATEWAY_PORT, note=heard.append) as path:
        connector = aiohttp.UnixConnector(str(path), limit=AT_ONCE)
        # No limit to an answer's time: a checksum of 100 GB takes minutes. The stream below notices what is dead.
        limits = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession("http://gateway", connector=connector, timeout=limits) as session:
            yield Files(session, pauses, lambda: heard[-1] if heard else "")


class Files:
    """See the module's docstring. All methods raise Missing, BadRequest or ClientError with the gateway's words, Unreachable."""

    def __init__(self, session: aiohttp.ClientSession, pauses: Sequence[float], why: Callable[[], str]) -> None:
        self._session, self._pauses, self._why = session, pauses, why

    async def volumes(self) -> tuple[VolumeRoom, ...]:
        """Return what there is."""
        return tuple(VolumeRoom(**one) for one in await self._ask("GET", "/v1/volumes"))

    async def list(self, path: str, *, recursive: bool = False) -> tuple[FileEntry, ...]:
        """Return what is in a folder, sorted; a file is a list of itself."""
        return await self._again(lambda _: self._list(path, recursive))

    async def paths(self, folder: str) -> Sequence[str]:
        """The files in and below a folder, as paths; none if it is not there."""
        try:
            found = await self.list(folder, recursive=True)
        except Missing:
            return ()
        return tuple(f"{folder.rstrip('/')}/{one.name}" for one in found if one.kind == "file")

    async def stat(self, path: str) -> FileEntry:
        """One file or folder."""
        found = await self._ask("GET", "/v1/stat", path=path)
        return FileEntry(name=path, kind=found["kind"], size=found["size"], modified_ns=found["modified_ns"])

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or link, or with `recursive` a folder."""
        await self.stat(path)
        with suppress(Missing):  # it was there: a try whose answer was lost has removed it. aiohttp tries again by itself, too
            await self._ask("DELETE", "/v1/files", path=path, recursive=int(recursive))

    async def read(self, path: str, start: int = 0) -> AsyncIterator[bytes]:
        """From a byte to what is now the end. Raises ClientError when another file takes its place meanwhile."""
        at, failures, first = start, 0, ""
        while True:
            try:
                async with self._open("GET", "/v1/files", {"path": path}, headers=_from(at)) as answer:
                    inode = answer.headers.get("ETag", "").partition("-")[0]  # its size and age may change: logs grow
                    if at > start and inode != first:
                        raise ClientError(f"{path} was replaced by another file while it was read: try again.")
                    first = inode
                    async for piece in answer.content.iter_any():
                        at, failures = at + len(piece), 0
                        yield piece
                return
            except BROKEN as error:
                failures = await self._pause(failures, error)

    async def put(self, path: str, file: Path, *, moved: Moved = ignore_bytes, ask: bool = True) -> Stored:
        """Write a file, whole or not at all; one with the same content is not sent again. Without `ask` it is sent as a whole
        at the first try, which saves a question where it cannot be there. Raises BadRequest for a file that cannot be read."""
        wanted = await facts(file)
        sending = Moving(path=path, file=file, moved=moved)

        async def once(tries: int) -> None:
            nonlocal wanted
            wanted = await read_again(file, wanted) if tries else wanted
            await self._put(sending, wanted, ask=ask or tries > 0)

        await self._again(once, lambda: sending.total)
        return Stored(path=path, size=wanted.size, sha256=wanted.sha256, moved=sending.total)

    async def get(self, path: str, file: Path, *, moved: Moved = ignore_bytes) -> Stored:
        """Fetch a file into one of this machine's. Raises BadRequest where that cannot be written."""
        fetching = Moving(path=path, file=file, moved=moved)
        try:
            return await self._again(lambda _: self._get(fetching), lambda: fetching.total)
        except Missing:
            await drop_part(file, path)
            raise

    async def _list(self, path: str, recursive: bool) -> tuple[FileEntry, ...]:
        async with self._open("GET", "/v1/list", {"path": path, "recursive": str(int(recursive))}) as answer:
            raw = await answer.read()
        fields = ("name", "kind", "size", "modified_ns")
        return tuple(FileEntry(**{key: one[key] for key in fields}) for one in map(orjson.loads, raw.splitlines()))

    async def _put(self, sending: Moving, wanted: Facts, *, ask: bool) -> None:
        query = {"path": sending.path, **{key: str(value) for key, value in wanted.query().items()}}
        offset, done = 0, False
        if ask:
            async with self._open("GET", "/v1/uploads", query) as answer:
                found = await answer.json()
                offset, done = found["offset"], found["done"]
        sending.starts_at(offset)
        if not done:
            async with self._open("PUT", "/v1/files", {**query, "offset": str(offset)}, data=sending.pieces(offset, wanted.size)):
                pass

    async def _get(self, fetching: Moving) -> Stored:
        async with self._open("GET", "/v1/stat", {"path": fetching.path}) as answer:
            found = await answer.json()
        part = PartialFile(fetching.file, fetching.path, found["etag"])
        at = await part.size()
        fetching.starts_at(at)
        rest = {**_from(at), "If-Match": found["etag"]} if at else {}  # a log grows between two questions, too
        async with self._open("GET", "/v1/files", {"path": fetching.path}, rest) as answer:
            sha256 = answer.headers.get(SHA256_HEADER, "")
            async for piece in answer.content.iter_any():
                await part.write(piece)
                fetching.count(len(piece))
        size = await part.size()
        if not sha256:
            async with self._open("GET", "/v1/stat", {"path": fetching.path, "sha256": "1", "first": str(size)}) as answer:
                sha256 = (await answer.json())["sha256"]
        if not await part.finish(sha256, found["modified_ns"]):
            raise _Changed(f"{fetching.path}: what came is not what is there (sha256); does a job write to it?")
        return Stored(path=fetching.path, size=size, sha256=sha256, moved=fetching.total)

    async def _ask(self, method: str, route: str, **query: Any) -> Any:
        async def once(_: int) -> Any:
            async with self._open(method, route, {key: str(value) for key, value in query.items()}) as answer:
                return await answer.json()

        return await self._again(once)

    async def _again(self, work: Callable[[int], Awaitable[T]], progress: Callable[[], int] = lambda: 0) -> T:
        """Do it until it is done; what breaks off too often without having moved a byte is given up, and what is never right."""
        failures, before, tries, changes = 0, progress(), 0, 0
        while True:
            try:
                return await work(tries)
            except _Changed as error:
                changes, tries = changes + 1, tries + 1
                if changes == CHANGES:
                    raise ClientError(f"{error} It was tried {CHANGES} times.") from error
            except BROKEN as error:
                failures = failures if progress() <= before else 0
                before, tries = max(before, progress()), tries + 1
                failures = await self._pause(failures, error)

    async def _pause(self, failures: int, error: Exception) -> int:
        if failures >= len(self._pauses):
            why = self._why() or str(error) or type(error).__name__
            raise Unreachable(f"the gateway does not answer: {why}. What has been moved is kept: try again.") from error
        await asyncio.sleep(self._pauses[failures])
        return failures + 1

    @asynccontextmanager
    async def _open(
        self, method: str, route: str, query: Mapping[str, str], headers: Mapping[str, str] | None = None, data: Any = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        for value in query.values():
            check_text(value)
        async with self._session.request(method, route, params=query, headers=headers, data=data) as answer:
            if answer.status >= 400:
                raise _refusal(answer.status, await answer.text())
            yield answer


class _Changed(Exception):
    """Another file than before: it is moved from the start."""


def _from(start: int) -> dict[str, str]:
    return {"Range": f"bytes={start}-"} if start else {}


def _refusal(status: int, text: str) -> Exception:
    try:
        words = str(orjson.loads(text)["error"])
    except (ValueError, LookupError, TypeError):
        words = text.strip()[:300]
    if status in (412, 422):
        return _Changed(words)
    if "has taken over" in words or "Go on from there" in words:
        return aiohttp.ClientPayloadError(words)
    if status == 404:
        return Missing(words)
    return BadRequest(words) if status in (400, 403, 409) else ClientError(words)


async def _gateway_pod(ebb: Ebb, failed: frozenset[str]) -> str:
    """The pod that runs. Workers cannot be taken for it, whatever labels their authors gave them."""
    namespace = ebb.platform.jobs_namespace
    found = await ebb.kube.list(PODS, namespace, labels=f"app.kubernetes.io/name={GATEWAY}")
    pods = [pod for pod in found if LABEL_GROUP not in (pod["metadata"].get("labels") or {}) and _runs(pod)]
    names = [pod["metadata"]["name"] for pod in pods]
    if not names:
        raise NoPlatform(
            f"the platform's gateway does not run in {namespace}, so its files cannot be reached: wait a minute if it was just "
            "started or its machine was lost; if the stack is older than this `ebb`, run `pulumi up`."
        )
    return str(next((name for name in names if name not in failed), names[0]))


def _runs(pod: Object) -> bool:
    ready = {one["type"]: one["status"] for one in (pod.get("status") or {}).get("conditions") or []}
    return ready.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
