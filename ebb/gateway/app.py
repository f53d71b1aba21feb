"""HTTP of the gateway: see the package's docstring. Each handler reads its question, works in a thread and answers once."""

import asyncio
import errno
import hashlib
import itertools
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

from aiohttp import web

from ebb.gateway.listing import Entry, entries, entry, remove, volume_facts
from ebb.gateway.uploads import Uploads, Wanted, digest, in_thread
from ebb.gateway.volumes import MountedVolume, Place, Refused, Volumes, etag

PIECE = 2**20
LINES = 500  # of a listing that are read in one go
SWEEP_SECONDS = 3600.0
RANGE = re.compile(r"bytes=(\d+)-")
SHA256_HEADER = "Ebb-Sha256"
SHA256 = re.compile(r"[0-9a-f]{64}")
VOLUME_SIZE: Final = "ebb_volume_size_bytes"
VOLUME_FREE: Final = "ebb_volume_free_bytes"
HELP = {VOLUME_SIZE: ("total", "Size of the volume."), VOLUME_FREE: ("free", "Room on the volume.")}
ROOM_SECONDS = 5.0  # less than the ten that a scrape may take
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(volumes: Volumes) -> web.Application:
    """The gateway of these volumes."""
    gateway = _Gateway(volumes)
    app = web.Application(middlewares=[_sentences])
    app.add_routes(
        [
            web.get("/healthz", gateway.healthz),
            web.get("/v1/volumes", gateway.volumes),
            web.get("/v1/list", gateway.list),
            web.get("/v1/stat", gateway.stat),
            web.get("/v1/files", gateway.get, allow_head=False),
            web.put("/v1/files", gateway.put),
            web.delete("/v1/files", gateway.delete),
            web.get("/v1/uploads", gateway.offset),
        ]
    )
    app.cleanup_ctx.append(gateway.sweeping)
    return app


def metrics_app(volumes: Volumes) -> web.Application:
    """The room on the volumes, for Prometheus, on a port of its own: it is all of the gateway that a pod's network may reach. A
    file system that does not answer costs its own lines alone, and one thread however often it is asked."""

    looks: dict[str, asyncio.Future[Entry]] = {}

    async def facts(volume: MountedVolume) -> list[Entry]:
        if volume.name not in looks:
            looks[volume.name] = asyncio.ensure_future(asyncio.to_thread(volume_facts, volume))
        look = looks[volume.name]
        await asyncio.wait({look}, timeout=ROOM_SECONDS)
        if not look.done():
            return []
        looks.pop(volume.name, None)
        return [] if look.exception() else [look.result()]

    async def metrics(_: web.Request) -> web.Response:
        found = await asyncio.gather(*map(facts, volumes.all))
        return web.Response(text=exposition([one for several in found for one in several]), content_type="text/plain")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    return app


def exposition(facts: list[Entry]) -> str:
    """Prometheus' text of some volumes."""
    lines = []
    for name, (key, meaning) in HELP.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        lines += [f'{name}{{volume="{one["name"]}"}} {one[key]}' for one in facts if one["total"]]  # some file systems say 0
    return "\n".join(lines) + "\n"


class _Gateway:
    def __init__(self, volumes: Volumes) -> None:
        self._volumes, self._uploads = volumes, Uploads()

    async def healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def volumes(self, _: web.Request) -> web.Response:
        return web.json_response([await in_thread(volume_facts, volume) for volume in self._volumes.all])

    async def list(self, request: web.Request) -> web.StreamResponse:
        found = entries(self._place(request), recursive=_flag(request, "recursive"))
        lines = await in_thread(_lines, found)  # what is refused is refused before the answer begins
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        while lines:
            await answer.write(lines)
            lines = await in_thread(_lines, found)
        return answer

    async def stat(self, request: web.Request) -> web.Response:
        place = self._place(request)
        found: Entry = {"path": str(place), **entry(place.name, await in_thread(place.stat))}
        found["read_only"] = place.volume.read_only
        if _flag(request, "sha256"):
            found["sha256"] = await in_thread(_digest, place, _number(request, "first", found["size"]))
        return web.json_response(found)

    async def get(self, request: web.Request) -> web.StreamResponse:
        place = self._place(request)
        fd = await in_thread(place.open_file)
        try:
            return await _send(request, place, fd)
        finally:
            os.close(fd)

    async def offset(self, request: web.Request) -> web.Response:
        offset, done = await self._uploads.offset(self._place(request), _wanted(request))
        return web.json_response({"offset": offset, "done": done})

    async def put(self, request: web.Request) -> web.Response:
        place, offset = self._place(request), _number(request, "offset", 0)
        await self._uploads.receive(place, _wanted(request), offset, _chunks(request))
        return web.json_response({"path": str(place)}, status=201)

    async def delete(self, request: web.Request) -> web.Response:
        place = self._place(request)
        await in_thread(lambda: remove(place, recursive=_flag(request, "recursive")))
        return web.json_response({"path": str(place)})

    async def sweeping(self, _: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._sweep())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _sweep(self) -> None:
        while True:
            await self._uploads.remove_old(self._volumes.all)
            await asyncio.sleep(SWEEP_SECONDS)

    def _place(self, request: web.Request) -> Place:
        return self._volumes.find(request.query.get("path", ""))


@web.middleware
async def _sentences(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Each refusal is a JSON object with a sentence. An answer that has begun has no room for one: it is cut off."""
    try:
        return await handler(request)
    except (ConnectionError, asyncio.IncompleteReadError):
        raise  # the other side is gone: nobody reads an answer
    except (Refused, OSError) as error:
        if request.writer.output_size > 0:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(f"the answer broke off: {error}") from error
        if isinstance(error, Refused):
            return web.json_response({"error": str(error), **error.facts}, status=error.status)
        status, sentence = _of_system(error, request.query.get("path", ""))
        return web.json_response({"error": sentence}, status=status)


def _of_system(error: OSError, path: str) -> tuple[int, str]:
    known = {
        errno.ENOENT: (404, f"{path} is not there: `ebb data ls` shows what is."),
        errno.ENOTDIR: (409, f"{path} leads through a file that is no folder."),
        errno.EISDIR: (409, f"{path} is a folder."),
        errno.ENOTEMPTY: (409, f"{path} was written to while it was removed: try again."),
        errno.ENAMETOOLONG: (400, f"{path} has a name that is too long: 255 bytes are the most."),
        errno.EACCES: (403, f"{path} belongs to another user, as what a job writes as root: let a job remove or open it."),
        errno.EPERM: (403, f"{path} belongs to another user, as what a job writes as root: let a job remove or open it."),
        errno.EROFS: (403, f"{path} is read-only: use another volume."),
        errno.ENOSPC: (507, f"{path}: the volume is full; remove something (`ebb data rm`)."),
        errno.EDQUOT: (507, f"{path}: the volume's quota is used up; remove something (`ebb data rm`)."),
    }
    return known.get(error.errno or 0, (503, f"{path}: the volume does not answer as it should ({error.strerror}): try again."))


async def _send(request: web.Request, place: Place, fd: int) -> web.StreamResponse:
    """The rest of a file from where the request says. Its size is what it is now, also if it grows meanwhile."""
    found = os.fstat(fd)
    if request.headers.get("If-Match", etag(found)) != etag(found):
        raise Refused(412, f"{place} has changed since the first part of it was read: read it from the start.")
    start = _start(request, found)
    answer = web.StreamResponse(status=206 if start else 200)
    answer.content_length = found.st_size - start
    answer.headers.update({"ETag": etag(found), "Content-Type": "application/octet-stream"})
    if found.st_size <= PIECE and not start:
        return await _send_at_once(request, answer, fd, found.st_size)
    if start:
        answer.headers["Content-Range"] = f"bytes {start}-{found.st_size - 1}/{found.st_size}"
    await answer.prepare(request)
    while start < found.st_size and (piece := await in_thread(os.pread, fd, min(PIECE, found.st_size - start), start)):
        await answer.write(piece)
        start += len(piece)
    if start < found.st_size and request.transport is not None:
        request.transport.abort()  # it became shorter: better no end than a wrong one
    return answer


async def _send_at_once(request: web.Request, answer: web.StreamResponse, fd: int, size: int) -> web.StreamResponse:
    """A small file, with its checksum: of large ones the reader asks for that when it has them."""
    content = await in_thread(os.pread, fd, size, 0)
    answer.content_length = len(content)
    answer.headers[SHA256_HEADER] = hashlib.sha256(content).hexdigest()
    await answer.prepare(request)
    await answer.write(content)
    return answer


def _start(request: web.Request, found: os.stat_result) -> int:
    asked = request.headers.get("Range")
    if asked is None:
        return 0
    match = RANGE.fullmatch(asked)
    if not match or int(match[1]) > found.st_size:
        raise Refused(416, f"range {asked!r} is refused: use `bytes=N-` with N up to {found.st_size}.")
    return int(match[1])


def _lines(found: Iterator[Entry]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in itertools.islice(found, LINES))


def _digest(place: Place, size: int) -> str:
    """Of a file's first bytes: what was read of one that grows can be checked, too."""
    fd = place.open_file()
    try:
        return digest(fd, size)
    finally:
        os.close(fd)


async def _chunks(request: web.Request) -> AsyncIterator[bytes]:
    async for chunk in request.content.iter_any():
        yield chunk


def _wanted(request: web.Request) -> Wanted:
    sha256 = request.query.get("sha256", "")
    if not SHA256.fullmatch(sha256):
        raise Refused(400, f"sha256 {sha256!r} is not a checksum: 64 digits of 0 to 9 and a to f.")
    modified = _number(request, "modified_ns", -1)
    return Wanted(size=_number(request, "size"), sha256=sha256, modified_ns=None if modified < 0 else modified)


def _number(request: web.Request, name: str, default: int | None = None) -> int:
    text = request.query.get(name, "" if default is None else str(default))
    try:
        found = int(text)
    except ValueError:
        found = -1
    if found < 0 and text != str(default):
        raise Refused(400, f"{name} {text!r} is not a whole number of at least 0.")
    return found


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "0") not in ("", "0", "false")
