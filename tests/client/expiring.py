"""An API server whose credentials end while they are in use, over real HTTP: jobs, pods, watches and logs.

    async with serving(tmp_path, "exec") as server:
        async with Kube.connect(str(server.kubeconfig)) as kube: ...
        server.expire(cut=True)     # the token of now is worth nothing any more; with `cut` all connections end, too

The client gets its next token as users do: from a file that somebody keeps fresh (10-minute tokens), or from a command that the
kubeconfig names (60-second credentials). What the server refuses it counts; it answers nothing to who has no valid token.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.kube.test_kubeconfig import write

Object = dict[str, Any]
LIFE = {"file": timedelta(minutes=10), "exec": timedelta(seconds=60)}
PLURALS = {"ElasticJob": "elasticjobs", "Pod": "pods", "ConfigMap": "configmaps", "Event": "events", "Node": "nodes"}


class Server:
    """Objects, of whatever namespace. See the module's docstring."""

    def __init__(self, folder: Path, way: str) -> None:
        self._folder, self._way = folder, way
        self._number = 0
        self.refused = 0
        self.cut = 0
        self.connections: list[web.Request] = []
        self.objects: dict[tuple[str, str], Object] = {}
        self.events: list[tuple[str, Object]] = []
        self.logs: dict[str, list[str]] = {}  # by uid
        self.ended: set[str] = set()
        self._moved = asyncio.Event()
        self.kubeconfig = Path()
        self._issue()

    # --- What a test does ---

    def expire(self, *, cut: bool) -> None:
        """The present token ends. Its successor is there for who asks."""
        self._issue()
        for request in list(self.connections) if cut else []:
            if request.transport is not None:  # else it is cut, and its handler has not noticed yet
                self.cut += 1
                request.transport.abort()

    def put(self, item: Object) -> None:
        key = (PLURALS[item["kind"]], item["metadata"]["name"])
        self._tell("MODIFIED" if key in self.objects else "ADDED", item)
        self.objects[key] = item

    def remove(self, item: Object) -> None:
        del self.objects[PLURALS[item["kind"]], item["metadata"]["name"]]
        self._tell("DELETED", item)

    def print(self, pod: Object, *lines: str) -> None:
        self.logs.setdefault(pod["metadata"]["uid"], []).extend(lines)
        self._ring()

    def end_log(self, pod: Object) -> None:
        self.ended.add(pod["metadata"]["uid"])
        self._ring()

    # --- What the client gets ---

    async def answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "")
        if token != f"Bearer {self._token}":
            self.refused += 1
            return web.json_response({"kind": "Status", "code": 401, "message": "Unauthorized"}, status=401)
        self.connections.append(request)
        try:
            return await self._answer(request)
        except ConnectionError:
            return web.Response()  # nobody is there to read it
        finally:
            self.connections.remove(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        plural, name, what = request.match_info["plural"], request.match_info.get("name"), request.match_info.get("what")
        if name is None:
            return (
                await self._watch(request, plural)
                if "watch" in request.query
                else self._list(plural, request.query.get("labelSelector", ""))
            )
        found = self.objects.get((plural, name))
        if found is None:
            return web.json_response({"kind": "Status", "code": 404, "message": "not found"}, status=404)
        return await self._log(request, found) if what == "log" else web.json_response(found)

    def _list(self, plural: str, label: str) -> web.Response:
        """Of selectors those that ask for a label, whatever its value."""
        items = [item for (kind, _), item in self.objects.items() if kind == plural]
        if label and "=" not in label:
            items = [item for item in items if label in item["metadata"].get("labels", {})]
        return web.json_response({"items": items, "metadata": {"resourceVersion": str(len(self.events))}})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        position = int(request.query["resourceVersion"])
        while True:
            while position < len(self.events):
                kind, item = self.events[position]
                position += 1
                if PLURALS[item["kind"]] == plural:
                    await stream.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
            await self._moved.wait()

    async def _log(self, request: web.Request, pod: Object) -> web.StreamResponse:
        stream, uid, position = web.StreamResponse(), pod["metadata"]["uid"], 0
        await stream.prepare(request)
        since = request.query.get("sinceTime", "")
        while True:
            lines = self.logs.get(uid, [])
            while position < len(lines):
                position += 1
                if lines[position - 1][:19] >= since[:19]:
                    await stream.write(lines[position - 1].encode() + b"\n")
            if "follow" not in request.query or uid in self.ended:
                return stream
            await self._moved.wait()

    def _issue(self) -> None:
        self._number += 1
        self._token = f"token-{self._number}"
        ends = (datetime.now(UTC) + LIFE[self._way]).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"token": self._token, "expirationTimestamp": ends}
        credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        (self._folder / "token").write_text(self._token)
        (self._folder / "credential.json").write_text(json.dumps(credential))

    def _tell(self, kind: str, item: Object) -> None:
        self.events.append((kind, item))
        self._ring()

    def _ring(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


@asynccontextmanager
async def serving(folder: Path, way: str) -> AsyncIterator[Server]:
    """`way`: "file" or "exec"."""
    server, app = Server(folder, way), web.Application()
    for root in ("/api/v1", "/api/v1/namespaces/{namespace}", "/apis/elastic.pytorch.org/v1alpha1/namespaces/{namespace}"):
        for path in ("/{plural}", "/{plural}/{name}", "/{plural}/{name}/{what}"):
            app.router.add_get(root + path, server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": [str(folder / "credential.json")]}
    user: Object = {"tokenFile": "token"} if way == "file" else {"exec": command}
    server.kubeconfig = write(folder, user, server=f"http://127.0.0.1:{port}")
    try:
        yield server
    finally:
        await runner.cleanup()
