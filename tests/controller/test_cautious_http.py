"""Answers of a worker's program to the controller, over real HTTP: metrics, and tricks that must not work."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from ebb.controller import scraper
from ebb.controller.etcd.legacy import RunError, Runs, http_send
from ebb.controller.scraper import LONGEST_BYTES, http_fetch

PAGE = "ebb_step 7\n"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def a_worker(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BaseTestServer]:
    """One whose program serves this on its metrics port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app, host="127.0.0.1") as server:
        monkeypatch.setattr(scraper, "METRICS_PORT", server.port)
        yield server


async def fetched(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> str | None:
    async with a_worker(handler, monkeypatch), http_fetch() as fetch:
        return await fetch("127.0.0.1")


async def test_a_page_that_comes_in_pieces_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_pieces(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for piece in ("ebb_gen", "eration 3\n", PAGE):
            await answer.write(piece.encode())
            await asyncio.sleep(0.01)
        return answer

    assert await fetched(in_pieces, monkeypatch) == f"ebb_generation 3\n{PAGE}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if request.path != "/metrics":
            return web.Response(text=PAGE)
        return web.Response(status=status, headers={"Location": "/latest/meta-data/iam"}, text=PAGE)

    assert await fetched(elsewhere, monkeypatch) is None
    assert asked == ["/metrics"]


async def test_a_redirect_of_an_etcd_that_a_job_names_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        asked.append((request.method, request.path))
        return web.Response(status=307, headers={"Location": "/secret"}, text="moved")

    async with a_worker(elsewhere, monkeypatch) as server, http_send() as send:
        with pytest.raises(RunError, match="307: is this an etcd"):
            await Runs(send, jobs=list).create(f"127.0.0.1:{server.port}", "/run_a")
    assert asked == [("PUT", "/v2/keys/run_a")]


async def test_a_page_without_end_is_none_and_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        while sent < 64 * LONGEST_BYTES:
            await answer.write(b"x" * 65536)
            sent += 65536
        return answer

    assert await fetched(endless, monkeypatch) is None
    assert sent < 32 * LONGEST_BYTES, "what the sockets hold on top of it"


async def test_a_page_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    async def packed(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Accept-Encoding"])
        return web.Response(body=gzip.compress(b"ebb_step 7\n" * 10), headers={"Content-Encoding": "gzip"})

    page = await fetched(packed, monkeypatch)
    assert page is not None
    assert "ebb_step" not in page
    assert seen == ["identity"]


async def test_a_page_that_trickles_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraper, "TIMEOUT_SECONDS", 0.2)
    ended = asyncio.Event()

    async def trickles(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b"#")
                await asyncio.sleep(0.02)
        except (ConnectionError, asyncio.CancelledError):
            ended.set()
            raise

    async with asyncio.timeout(10), a_worker(trickles, monkeypatch), http_fetch() as fetch:
        assert await fetch("127.0.0.1") is None
        await ended.wait()


async def test_a_cookie_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    async def sets(request: web.Request) -> web.StreamResponse:
        seen.append(dict(request.cookies))
        return web.Response(text=PAGE, headers={"Set-Cookie": "a=" + "b" * 3000})

    async with a_worker(sets, monkeypatch), http_fetch() as fetch:
        assert [await fetch("127.0.0.1"), await fetch("127.0.0.1")] == [PAGE, PAGE]
    assert seen == [{}, {}]
