"""The stand-in for an API server, over HTTP: for programs that are processes of their own."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from ebb.kube import KubeError
from tests.cli.world import KINDS, NS, FakeKube


@asynccontextmanager
async def serving(kube: FakeKube, folder: Path) -> AsyncIterator[Path]:
    """The path of a kubeconfig that leads to it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        if query.get("watch"):
            return await _watch(kube, request, query)
        try:
            return web.json_response(await kube.request(request.method, request.path, body=await _json(request), query=query))
        except KubeError as error:
            return web.json_response({"kind": "Status", "message": str(error), "code": error.status}, status=error.status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    named, path = {"name": "x"}, folder / "kubeconfig"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [named | {"cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [named | {"user": {"token": "t"}}],
        "contexts": [named | {"context": {"cluster": "x", "user": "x"}}],
    }  # fmt: skip
    path.write_text(json.dumps(config))
    try:
        yield path
    finally:
        await runner.cleanup()


async def _json(request: web.Request) -> Any:
    return json.loads(await request.text() or "null")


async def _watch(kube: FakeKube, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
    resource = next(item for item in KINDS.values() if item.plural == request.path.rsplit("/", 1)[-1])
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    async for kind, item in kube.watch(resource, NS, version=query["resourceVersion"], labels=query.get("labelSelector")):
        await stream.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
    return stream
