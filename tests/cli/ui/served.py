"""The live page over a fake cluster, as a browser that has the address meets it.

async with served(kube) as page:
    answer = await page.get("jobs/digits")          # below the base, with the cookie
    async with page.stream("stream") as events:     # (kind, data) as they come
        kind, data = await anext(events)
"""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.test_utils import TestClient, TestServer

from ebb.api.platform import parse
from ebb.cli.ui.feed import OpenFiles
from ebb.cli.ui.guard import Guard
from ebb.cli.ui.live import Live
from ebb.cli.ui.server import make_app
from ebb.client.errors import Missing
from ebb.client.platform.connection import Ebb
from ebb.kube import Kube
from tests.cli.world import NS, platform_json

EVERY = 0.02  # seconds from read to read


def ebb_of(kube: Kube) -> Ebb:
    """The connection that the verb is called with."""
    return Ebb(kube=kube, platform=parse({"schema": "1", "platform.json": json.dumps(platform_json())}), namespace=NS)


class Files:
    """The gateway's: one text that grows. `starts`: the bytes from which it was read."""

    def __init__(self, text: bytes | None = None) -> None:
        self.text, self.starts = text, list[int]()

    async def read(self, path: str, start: int = 0) -> AsyncIterator[bytes]:
        self.starts.append(start)
        if self.text is None:
            raise Missing(f"{path} is not there")
        if start < len(self.text):
            yield self.text[start:]

    @asynccontextmanager
    async def open(self, _: Ebb) -> AsyncIterator["Files"]:
        yield self


@dataclass
class Page:
    """A browser with the cookie."""

    client: "TestClient[Any, Any]"
    guard: Guard
    live: Live

    async def get(self, path: str = "", **more: Any) -> aiohttp.ClientResponse:
        return await self.client.get(f"{self.guard.base}{path}", **more)

    def stream(self, path: str = "stream") -> AbstractAsyncContextManager[AsyncIterator[tuple[str, Any]]]:
        return _stream(self, path)


@asynccontextmanager
async def served(
    kube: Kube, *, open_files: OpenFiles | None = None, cookie: bool = True, ebb: Ebb | None = None
) -> AsyncIterator[Page]:
    """Serve it as `serving` does, reading more often."""
    live, guard = Live(ebb or ebb_of(kube), every=EVERY, retry=EVERY, open_files=open_files or Files().open), Guard()
    server = TestServer(make_app(live, guard), host="127.0.0.1")
    await server.start_server(shutdown_timeout=30.0)
    async with TestClient(server) as client:
        if cookie:
            assert (await client.get(guard.opening)).status == 200
        yield Page(client, guard, live)


@asynccontextmanager
async def _stream(page: Page, path: str) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    async with await page.get(path) as answer:
        assert answer.status == 200, await answer.text()

        async def events() -> AsyncIterator[tuple[str, Any]]:
            while block := (await answer.content.readuntil(b"\n\n")).decode():
                fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
                if "event" in fields:
                    yield fields["event"], json.loads(fields["data"])

        yield events()
