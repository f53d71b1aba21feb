"""The reflector against an HTTP server that misbehaves: the real client, the real protocol, no cluster."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from workloads.kube import PODS, Kube, Unreachable
from workloads.kube.reflector import Reflector

Object = dict[str, Any]


def pod(name: str, version: int, *, uid: str = "") -> Object:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version), "managedFields": [1]}
    }


class Server:
    """Lists what `pods` holds; each watch plays the next script: (type, object) pairs, then "end", "hang" or "cut"."""

    def __init__(self) -> None:
        self.pods: list[Object] = []
        self.version = 10
        self.scripts: list[list[Any]] = []
        self.lists = 0
        self.watched_from: list[str] = []
        self.errors: list[int] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.errors:
            code = self.errors.pop(0)
            return web.json_response({"kind": "Status", "code": code, "message": "no"}, status=code)
        if "watch" in request.query:
            return await self._watch(request)
        self.lists += 1
        return web.json_response({"items": self.pods, "metadata": {"resourceVersion": str(self.version)}})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watched_from.append(request.query["resourceVersion"])
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for step in self.scripts.pop(0) if self.scripts else ["hang"]:
            if step == "hang":
                await asyncio.sleep(60)
            elif step == "cut":
                assert request.transport is not None
                request.transport.abort()
                return answer
            elif step != "end":
                await answer.write(json.dumps({"type": step[0], "object": step[1]}).encode() + b"\n")
        return answer


class Seen:
    """What the reflector told, in order."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.news = asyncio.Event()

    def __call__(self, old: Object | None, new: Object | None) -> None:
        value = new or old
        assert value is not None
        mark = "+" if old is None else "-" if new is None else "~"
        self.changes.append(f"{mark}{value['metadata']['name']}@{value['metadata']['resourceVersion']}")
        self.news.set()

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not done():
                self.news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.news.wait(), 0.05)


@asynccontextmanager
async def watching(server: Server, folder: Path) -> AsyncIterator[tuple[Reflector, Seen]]:
    """A reflector of the server's pods, by the real client."""
    app = web.Application()
    app.router.add_route("GET", "/api/v1/pods", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    config = folder / "kubeconfig"
    named = {"name": "x"}
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "clusters": [named | {"cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [named | {"user": {"token": "t"}}],
                "contexts": [named | {"context": {"cluster": "x", "user": "x"}}],
            }
        )
    )
    seen = Seen()
    try:
        async with Kube.connect(str(config)) as api:
            reflector = Reflector(api, PODS, on_change=seen)
            task = asyncio.create_task(reflector.run())
            try:
                yield reflector, seen
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    finally:
        await runner.cleanup()


def names(reflector: Reflector) -> list[str]:
    return sorted(name for _, name in reflector.objects)


async def test_what_is_listed_and_what_happens_next_is_told(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("a", 5)]
    server.scripts = [[("ADDED", pod("b", 11)), ("MODIFIED", pod("a", 12)), ("DELETED", pod("b", 13)), "hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: len(seen.changes) == 4)
        assert seen.changes == ["+a@5", "+b@11", "~a@12", "-b@11"]
        assert names(reflector) == ["a"]
        assert "managedFields" not in reflector.objects["ns", "a"]["metadata"]
        assert reflector.objects["ns", "a"]["kind"] == "Pod"
        assert server.watched_from == ["10"]


@pytest.mark.parametrize("ending", ["end", "cut"], ids=["closed-in-order", "connection-dropped"])
async def test_a_watch_is_taken_up_where_it_stopped(ending: str, tmp_path: Path) -> None:
    server = Server()
    bookmark = ("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
    server.scripts = [[("ADDED", pod("a", 11)), bookmark, ending], [("ADDED", pod("b", 21)), "hang"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: len(seen.changes) == 2)
        assert seen.changes == ["+a@11", "+b@21"]
        assert (server.watched_from, server.lists) == (["10", "20"], 1)


async def test_after_410_everything_is_listed_and_only_differences_are_told(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("same", 5), pod("goes", 6), pod("changes", 7)]
    gone = ("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
    server.scripts = [[gone, "end"], ["hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: len(seen.changes) == 3)
        server.pods = [pod("same", 5), pod("changes", 30), pod("new", 31)]
        server.version = 40
        await seen.until(lambda: len(seen.changes) == 6)
        assert seen.changes[3:] == ["-goes@6", "~changes@30", "+new@31"]
        assert (names(reflector), server.lists) == (["changes", "new", "same"], 2)
        await seen.until(lambda: server.watched_from == ["10", "40"])


async def test_a_410_status_does_the_same(tmp_path: Path) -> None:
    server = Server()
    server.pods, server.scripts = [pod("a", 5)], [["end"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: server.watched_from == ["10"])
        server.errors = [410]
        await seen.until(lambda: server.lists == 2)
        assert seen.changes == ["+a@5"]


async def test_a_silent_watch_is_no_answer_rather_than_a_quiet_cluster(tmp_path: Path) -> None:
    server = Server()
    server.scripts = [["hang"], [("ADDED", pod("a", 11)), "hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(reflector.synced.is_set)
        with pytest.raises(Unreachable):
            async for _ in reflector._api.watch(PODS, version="10", read_seconds=0.2):
                pass


@pytest.mark.parametrize("code", [403, 429, 500, 503])
async def test_errors_are_waited_out(code: int, tmp_path: Path) -> None:
    server = Server()
    server.pods, server.errors = [pod("a", 5)], [code]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(reflector.synced.is_set)
        assert seen.changes == ["+a@5"]


async def test_an_object_created_again_under_its_name_is_two_changes(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("a", 5, uid="first")]
    server.scripts = [[("ADDED", pod("a", 12, uid="second")), "hang"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: len(seen.changes) == 3)
        assert seen.changes == ["+a@5", "-a@5", "+a@12"]


async def test_ones_own_writes_are_known_before_the_watch_tells(tmp_path: Path) -> None:
    server = Server()
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: bool(server.watched_from))
        reflector.observe(pod("mine", 15))
        reflector.observe(pod("mine", 14))
        reflector.observe(pod("older-than-the-list", 9))
        assert seen.changes == ["+mine@15"]


async def test_a_line_longer_than_any_buffer_is_read(tmp_path: Path) -> None:
    server = Server()
    large = pod("large", 11)
    large["data"] = "x" * 3_000_000
    server.scripts = [[("ADDED", large), "hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: len(seen.changes) == 1)
        assert len(reflector.objects["ns", "large"]["data"]) == 3_000_000
