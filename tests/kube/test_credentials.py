"""Tokens that are replaced while a program runs. What kubeconfigs say: test_kubeconfig.py."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ebb.kube import PODS, Denied, Kube, KubeconfigError
from ebb.kube.credentials import READ_SECONDS, ServiceAccount, TokenFile
from tests.kube.test_kubeconfig import write


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


# --- A token in a file ----------------------------------------------------------------------------------------------------------


def test_a_token_is_read_again_every_minute(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()
    file.write_text("one")
    token = TokenFile(file, clock)
    file.write_text("two\n")
    clock.now += READ_SECONDS - 1
    assert token.value() == "one"
    clock.now += 1
    assert token.value() == "two"


@pytest.mark.parametrize("broken", ["", None], ids=["empty", "gone"])
def test_a_token_that_cannot_be_read_for_once_stays_in_use(tmp_path: Path, broken: str | None) -> None:
    file, clock = tmp_path / "token", Clock()
    file.write_text("one")
    token = TokenFile(file, clock)
    file.unlink() if broken is None else file.write_text(broken)
    clock.now += READ_SECONDS
    assert token.value() == "one"
    file.write_text("two")
    clock.now += READ_SECONDS
    assert token.value() == "two"


async def test_a_pods_own_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("mine")
    account = ServiceAccount(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"})
    assert (account.host, await account.token()) == ("https://10.96.0.1:443", "Bearer mine")
    (tmp_path / "token").write_text("newer")
    assert (await account.renew("Bearer mine"), await account.token()) == (True, "Bearer newer")
    assert await account.renew("Bearer mine") is True  # another request was refused together with the first
    assert await account.renew("Bearer newer") is False
    six = ServiceAccount(tmp_path, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"})
    assert six.host == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("environment", "words"),
    [({}, "KUBERNETES_SERVICE_HOST is not set"), ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, "token")],
    ids=["no address", "no token"],
)
def test_a_pod_without_an_account_is_told(tmp_path: Path, environment: Mapping[str, str], words: str) -> None:
    with pytest.raises(KubeconfigError, match=words):
        ServiceAccount(tmp_path, environment)


# --- What the API server sees ---------------------------------------------------------------------------------------------------


class Server:
    """Lets in who has the token of the day, and never ends a watch."""

    def __init__(self) -> None:
        self.known = "one"
        self.seen: list[tuple[str, str]] = []
        self.created: list[Any] = []
        self.news: asyncio.Queue[str] = asyncio.Queue()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "")
        self.seen.append((request.method, token))
        if token != f"Bearer {self.known}":
            return web.json_response({"kind": "Status", "code": 401, "message": "Unauthorized"}, status=401)
        if request.method == "POST":
            self.created.append(await request.json())
            return web.json_response(self.created[-1], status=201)
        if "watch" in request.query:
            stream = web.StreamResponse()
            await stream.prepare(request)
            while name := await self.news.get():
                event = {"type": "ADDED", "object": {"metadata": {"name": name, "resourceVersion": "2"}}}
                await stream.write(json.dumps(event).encode() + b"\n")
            return stream
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Server, Kube, Path]]:
    """A server, a client of it, and the file with the client's token."""
    server, app, token = Server(), web.Application(), folder / "token"
    app.router.add_route("*", "/api/v1/pods", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    token.write_text("one")
    path = write(folder, {"tokenFile": "token"}, server=f"http://127.0.0.1:{port}")
    try:
        async with Kube.connect(str(path)) as kube:
            yield server, kube, token
    finally:
        await runner.cleanup()


async def test_a_token_that_the_server_does_not_know_any_more_is_replaced_within_the_request(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, kube, token):
        await kube.list(PODS)
        server.known = "two"
        token.write_text("two")
        await kube.create(PODS, None, {"metadata": {"name": "a"}})
        assert server.created == [{"metadata": {"name": "a"}}]
        await kube.list(PODS)
        assert server.seen == [
            ("GET", "Bearer one"),
            ("POST", "Bearer one"),
            ("POST", "Bearer two"),
            ("GET", "Bearer two"),
        ]


async def test_requests_that_are_refused_together_all_get_the_next_token(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, kube, token):
        server.known = "two"
        token.write_text("two")
        await asyncio.gather(*(kube.list(PODS) for _ in range(5)))
        assert server.seen.count(("GET", "Bearer two")) == 5


async def test_who_has_no_other_token_is_denied_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, kube, _):
        server.known = "two"
        with pytest.raises(Denied, match="Unauthorized"):
            await kube.list(PODS)
        assert server.seen == [("GET", "Bearer one")]


async def test_a_watch_outlives_its_token_and_the_next_one_has_the_new_one(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, kube, token):
        watch = kube.watch(PODS, version="1")
        server.news.put_nowait("a")
        assert (await anext(watch))[1]["metadata"]["name"] == "a"
        server.known = "two"
        token.write_text("two")
        await kube.list(PODS)
        server.news.put_nowait("b")
        assert (await anext(watch))[1]["metadata"]["name"] == "b"
        server.news.put_nowait("")
        assert [item async for item in watch] == []
        again = kube.watch(PODS, version="2")
        server.news.put_nowait("c")
        await anext(again)
        assert server.seen[-1] == ("GET", "Bearer two")
        server.news.put_nowait("")
        assert [item async for item in again] == []
