"""An HTTP server that misbehaves as it is told, and a reflector that watches it by the real client: no cluster."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from ebb.kube import PODS, Kube
from ebb.kube.reflector import Habits, Reflector

Object = dict[str, Any]


def pod(name: str, version: int, *, uid: str = "") -> Object:
    """Versions differ in their spec, too."""
    metadata = {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version), "managedFields": [1]}
    return {"metadata": metadata, "spec": {"version": version}}


PLAIN = Habits()


class Server:
    """Lists what `pods` holds; each watch plays the next script: (type, object) pairs, or bytes as they are, then "end", "hang"
    or "cut"; or a status with which it is refused, and the seconds after which to try again."""

    def __init__(self) -> None:
        self.pods: list[Object] = []
        self.version = 10
        self.scripts: list[list[Any]] = []
        self.lists = 0
        self.watched_from: list[str] = []
        self.watched_at: list[float] = []
        self.errors: list[int] = []
        self.nonsense: list[web.Response] = []  # in place of a list
        self.pages: list[int] = []  # how many objects were on each
        self.forgetful = False  # answers 410 to whoever asks for a second page

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.errors:
            code = self.errors.pop(0)
            return web.json_response({"kind": "Status", "code": code, "message": "no"}, status=code)
        if "watch" in request.query:
            return await self._watch(request)
        if self.nonsense:
            return self.nonsense.pop(0)
        self.lists += 1
        return self._page(int(request.query.get("limit", 0)), int(request.query.get("continue", 0)))

    def _page(self, limit: int, start: int) -> web.Response:
        if start and self.forgetful:
            return web.json_response({"kind": "Status", "code": 410, "message": "the continue token expired"}, status=410)
        stop = start + limit if limit else len(self.pods)
        self.pages.append(len(self.pods[start:stop]))
        more = {"continue": str(stop)} if stop < len(self.pods) else {}
        return web.json_response({"items": self.pods[start:stop], "metadata": {"resourceVersion": str(self.version), **more}})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watched_from.append(request.query["resourceVersion"])
        self.watched_at.append(asyncio.get_running_loop().time())
        if self.scripts and isinstance(self.scripts[0][0], int):
            code, after = self.scripts.pop(0)
            status = {"kind": "Status", "code": code, "message": "later"}
            return web.json_response(status, status=code, headers={"Retry-After": str(after)} if after else {})
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for step in self.scripts.pop(0) if self.scripts else ["hang"]:
            if step == "hang":
                await asyncio.sleep(60)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif step == "cut":
                assert request.transport is not None
                request.transport.abort()
                return answer
            elif isinstance(step, bytes):
                await answer.write(step)
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
async def watching(
    server: Server, folder: Path, habits: Habits = PLAIN, on_gap: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[Reflector, Seen]]:
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
            reflector = Reflector(api, PODS, on_change=seen, on_gap=on_gap, habits=habits)
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
