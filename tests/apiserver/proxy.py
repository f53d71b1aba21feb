"""Stands between a controller and the API server, writes down what is asked, and breaks what a test wants broken.

    async with proxy(upstream, context) as line:
        controller's server = line.url
        line.cut(); line.mend()                    # connections are reset, new ones too; and no longer
        line.deafen("pods")                        # watches stay open and never say anything again
        line.refuse(Refusals(rate=0.2, statuses=(409, 429, 500), rng=Random(7)))
        line.tripwire = Tripwire(writes=3, when=AFTER, act=controller.kill)
        [one for one in line.asked if one.writes]

One controller, one proxy: what it wrote down is what that controller did. The way in is plain HTTP on the loopback, the way on is
TLS; who asks is said by the token in the request.
"""

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

READS = ("GET", "HEAD")
BEFORE, AFTER = "before", "after"  # the API server did it
LOST = -1  # in Refusals: the API server does it, and the answer gets lost
REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 403: "Forbidden"}


@dataclass
class Asked:
    """One request and what became of it."""

    at: float  # monotonic
    method: str
    path: str
    watch: bool
    status: int = 0  # 0: no answer yet, or none at all
    refused: bool = False  # by the proxy: the API server never saw it
    agent: str = ""
    token: str = ""

    @property
    def writes(self) -> bool:
        return self.method not in READS

    @property
    def lease(self) -> bool:
        return "/leases" in self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.status}"


@dataclass
class Refusals:
    """Answers in place of the API server's: each status where it may come, at this rate."""

    rate: float
    statuses: tuple[int, ...]
    rng: random.Random
    spare_leases: bool = True  # the lead is another test's subject
    count: int = 0

    def draw(self, asked: Asked) -> int:
        """0: let it through. LOST: and lose the answer."""
        if (asked.lease and self.spare_leases) or self.rng.random() >= self.rate:
            return 0
        fitting = [status for status in self.statuses if _fits(status, asked)]
        self.count += bool(fitting)
        return self.rng.choice(fitting) if fitting else 0


@dataclass
class Tripwire:
    """Act at the n-th write from now on, before the API server gets it, or when it did it and nobody knows."""

    writes: int
    when: str
    act: Callable[[], None]


class Line:
    """See the module's docstring."""

    def __init__(self, upstream: str, context: ssl.SSLContext) -> None:
        self.asked: list[Asked] = []
        self.refusals: Refusals | None = None
        self.tripwire: Tripwire | None = None
        self.revoked: set[str] = set()  # tokens that are over
        self.delay_seconds = 0.0
        self.url = ""
        self._upstream, self._context = upstream, context
        self._up = asyncio.Event()
        self._up.set()
        self._away = self._leases_away = False
        self._open: dict[int, web.BaseRequest] = {}
        self._deaf: dict[asyncio.Event, str] = {}  # of an open watch -> its path
        self._session: aiohttp.ClientSession

    # --- What a test does ---

    def cut(self) -> None:
        """Reset all connections and every new one, until `mend`."""
        self._away = True
        for request in list(self._open.values()):
            _reset(request)

    def cut_leases(self) -> None:
        """Only what is asked about Leases is lost, until `mend`."""
        self._leases_away = True

    def mend(self) -> None:
        self._away = self._leases_away = False

    def deafen(self, plural: str = "") -> int:
        """Open watches (of that kind) stay open and say nothing any more, not even that they end. How many there were."""
        found = [deaf for deaf, path in self._deaf.items() if path.endswith(plural)]
        for deaf in found:
            deaf.set()
        return len(found)

    def refuse(self, refusals: Refusals | None) -> None:
        self.refusals = refusals

    def writes(self, since: float = 0.0, *, leases: bool = False) -> list[Asked]:
        """What was written since a moment of the monotonic clock and reached the API server."""
        return [one for one in self.asked if one.writes and not one.refused and one.at >= since and (leases or not one.lease)]

    # --- The work ---

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context, limit=0),
            read_bufsize=2**21,
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},  # the API server compresses what is larger than 128 KiB
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self.cut()
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self._away or (self._leases_away and "/leases/" in request.path):
            _reset(request)
            return web.Response(status=503)
        self._open[id(request)] = request
        try:
            return await self._through(request)
        finally:
            del self._open[id(request)]

    async def _through(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        asked = Asked(time.monotonic(), request.method, request.path, "watch" in request.query, token=token[-12:])
        self.asked.append(asked)
        if token in self.revoked:
            return _refusal(asked, 401, "Unauthorized")
        status = self.refusals.draw(asked) if self.refusals else 0
        if status > 0:
            return _refusal(asked, status, REASONS[status])
        wire = self._count_down(asked)
        if wire and wire.when == BEFORE:
            asked.refused = True
            wire.act()
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        if asked.refused:
            _reset(request)
            return web.Response(status=503)
        return await self._forward(request, asked, wire, lost=status == LOST)

    def _count_down(self, asked: Asked) -> Tripwire | None:
        wire = self.tripwire
        if wire is None or not asked.writes or asked.lease:
            return None
        wire.writes -= 1
        if wire.writes > 0:
            return None
        self.tripwire = None
        return wire

    async def _forward(self, request: web.Request, asked: Asked, wire: Tripwire | None, *, lost: bool) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type", "Accept") if name in request.headers}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        try:
            async with self._session.request(
                request.method, self._upstream + request.raw_path, headers=headers, data=await request.read(), timeout=timeout
            ) as answer:
                asked.status = answer.status
                if asked.watch and answer.status == 200:
                    return await self._stream(request, answer)
                body = await answer.read()
        except (aiohttp.ClientError, OSError):
            _reset(request)
            return web.Response(status=503)
        if wire:
            wire.act()
        if wire or lost:
            _reset(request)
        return web.Response(status=asked.status, body=body, headers={"Content-Type": answer.headers.get("Content-Type", "")})

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        out = web.StreamResponse(headers={"Content-Type": answer.headers["Content-Type"]})
        await out.prepare(request)
        deaf = asyncio.Event()
        self._deaf[deaf] = request.path
        silence = asyncio.create_task(deaf.wait())
        copying = asyncio.create_task(_copy(answer, out, deaf))
        try:
            await asyncio.wait({silence, copying}, return_when=asyncio.FIRST_COMPLETED)
            if deaf.is_set():
                await _hang_up(request)
        finally:
            del self._deaf[deaf]
            for task in (silence, copying):
                task.cancel()
            await asyncio.gather(silence, copying, return_exceptions=True)
        return out


async def _copy(answer: aiohttp.ClientResponse, out: web.StreamResponse, deaf: asyncio.Event) -> None:
    async for chunk in answer.content.iter_any():
        if deaf.is_set():
            return
        await out.write(chunk)


async def _hang_up(request: web.Request) -> None:
    """Wait until the other side does: the server never says a word again, not even that it ends."""
    while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110 - aiohttp has no event for it
        await asyncio.sleep(0.1)


@asynccontextmanager
async def proxy(upstream: str, context: ssl.SSLContext) -> AsyncIterator[Line]:
    """A proxy until the block ends."""
    line = Line(upstream, context)
    await line.start()
    try:
        yield line
    finally:
        await line.stop()


def _fits(status: int, asked: Asked) -> bool:
    if status == 409:
        return asked.method == "PUT"  # a creation's 409 says AlreadyExists: that would be a lie
    if status == 410:
        return asked.watch
    if status == LOST:
        return asked.writes
    return True


def _refusal(asked: Asked, status: int, reason: str) -> web.Response:
    asked.status, asked.refused = status, True
    message = f"injected: {status} {reason}"
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    }
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.Response(status=status, body=json.dumps(body), content_type="application/json", headers=headers)


def _reset(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
