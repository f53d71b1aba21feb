"""Pods behind an API server, as its websockets show them: programs that run, and ports that lead to servers of the test.

    async with serving(Pods()) as pods:
        async with Kube.connect(str(pods.kubeconfig(tmp_path))) as kube: ...

The protocol is the kubelet's, byte for byte; what programs do, `run` says, and `ports` where a pod's port really leads.
"""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
Talk = Callable[["Terminal"], Awaitable[Any]]


@dataclass(kw_only=True)
class Terminal:
    """What a program sees."""

    socket: web.WebSocketResponse
    pod: str
    command: list[str]
    query: dict[str, str]
    sizes: list[tuple[int, int]] = field(default_factory=list)
    resized: asyncio.Event = field(default_factory=asyncio.Event)
    _input: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    async def write(self, data: bytes, channel: int = 1) -> None:
        await self.socket.send_bytes(bytes([channel]) + data)

    async def read(self) -> bytes:
        """The next input, b"" at its end."""
        return await self._input.get()

    async def ends(self, code: int) -> None:
        """As the kubelet tells it."""
        status: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            words = f"command terminated with non-zero exit code: {code}"
            status |= {"status": "Failure", "reason": "NonZeroExitCode", "message": words, "details": {"causes": causes}}
        await self.write(json.dumps(status).encode(), 3)

    async def take_in(self) -> None:
        async for message in self.socket:
            if message.type is not WSMsgType.BINARY:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == 0:
                self._input.put_nowait(data)
            elif channel == 4:
                size = json.loads(data)
                self.sizes.append((size["Width"], size["Height"]))
                self.resized.set()
            elif (channel, data) == (255, b"\0"):
                self._input.put_nowait(b"")
        self._input.put_nowait(b"")  # the kubelet closes a program's input with the connection


async def echo(terminal: Terminal) -> None:
    """Writes back what it reads, and ends with it."""
    while data := await terminal.read():
        await terminal.write(data)
    await terminal.ends(0)


class Pods:
    """An API server that knows these pods alone."""

    def __init__(self) -> None:
        self.run: Talk = echo
        self.ports: dict[tuple[str, int], int] = {}  # (pod, its port) -> a port of this machine
        self.lost: set[str] = set()  # pods that the API server knows and cannot reach
        self.unknown: set[str] = set()
        self.tokens: set[str | None] = {"Bearer t"}
        self.versions: tuple[str, ...] = PROTOCOLS
        self.asked: list[tuple[str, str]] = []  # (method or "socket", path) of all requests
        self.sockets: dict[str, set[web.WebSocketResponse]] = {}
        self.address = ""
        self.read: Callable[[web.Request], Awaitable[web.Response]] | None = None  # what else is asked for

    def app(self) -> web.Application:
        app = web.Application()
        root = "/api/v1/namespaces/{namespace}/pods/{pod}"
        app.add_routes([web.get(f"{root}/exec", self._exec), web.get(f"{root}/portforward", self._forward)])
        app.add_routes([web.get("/{path:.*}", self._rest)])
        return app

    def kubelet(self) -> web.Application:
        """The same as an API server finds it on a machine; there is nobody to tell from another."""
        self.tokens.add(None)
        app = web.Application()
        app.add_routes([web.get("/portForward/{namespace}/{pod}", self._forward)])
        return app

    async def _rest(self, request: web.Request) -> web.Response:
        return await self.read(request) if self.read else _status(404, "NotFound", f"{request.path} not found")

    def kubeconfig(self, folder: Path, token: str = "t") -> Path:
        """A kubeconfig whose token is in a file beside it: it may be replaced."""
        (folder / "token").write_text(token)
        named = {"name": "x"}
        content = {
            "current-context": "x",
            "clusters": [named | {"cluster": {"server": self.address}}],
            "users": [named | {"user": {"tokenFile": "token"}}],
            "contexts": [named | {"context": {"cluster": "x", "user": "x"}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(content))
        return folder / "kubeconfig"

    def lose(self, pod: str) -> None:
        """Its machine dies: connections break without a word, new ones are refused by the API server."""
        self.lost.add(pod)
        for socket in self.sockets.pop(pod, set()):
            transport = socket._req.transport if socket._req is not None else None
            if transport is not None:
                transport.abort()

    async def _open(self, request: web.Request) -> web.WebSocketResponse | web.Response:
        pod, is_socket = request.match_info["pod"], request.headers.get("Upgrade", "").lower() == "websocket"
        self.asked.append(("socket" if is_socket else request.method, request.path))
        if request.headers.get("Authorization") not in self.tokens:
            return _status(401, "Unauthorized", "Unauthorized")
        if pod in self.unknown:
            return _status(404, "NotFound", f'pods "{pod}" not found')
        if not is_socket:
            return _status(400, "BadRequest", "Upgrade request required")
        if pod in self.lost:
            return _status(500, "InternalError", "error dialing backend: dial tcp 10.0.0.9:10250: i/o timeout")
        socket = web.WebSocketResponse(protocols=self.versions, max_msg_size=0)
        await socket.prepare(request)
        self.sockets.setdefault(pod, set()).add(socket)
        return socket

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        socket = await self._open(request)
        if isinstance(socket, web.Response):
            return socket
        command, query = request.query.getall("command"), dict(request.query)
        terminal = Terminal(socket=socket, pod=request.match_info["pod"], command=command, query=query)
        reading = asyncio.create_task(terminal.take_in())
        with suppress(ConnectionError):
            await self.run(terminal)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await socket.close()
        return socket

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        socket = await self._open(request)
        if isinstance(socket, web.Response):
            return socket
        pod, port = request.match_info["pod"], int(request.query.get("ports") or request.query["port"])
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + struct.pack("<H", port))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[pod, port])
        except (OSError, KeyError):
            words = f"error forwarding port {port} to pod x, uid y: dial tcp4 127.0.0.1:{port}: connect: connection refused"
            await socket.send_bytes(b"\x01" + words.encode())
            await socket.close()
            return socket
        with suppress(ConnectionError):
            await self._both_ways(socket, reader, writer)
        writer.close()
        await socket.close()
        return socket

    async def _both_ways(self, socket: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def out() -> None:
            while data := await reader.read(32768):
                await socket.send_bytes(b"\0" + data)

        async def into() -> None:
            async for message in socket:
                if message.type is WSMsgType.BINARY and message.data[0] == 0:
                    writer.write(message.data[1:])
                    await writer.drain()

        tasks = [asyncio.create_task(out()), asyncio.create_task(into())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)


@asynccontextmanager
async def serving(pods: Pods) -> AsyncIterator[Pods]:
    """Serve it on the loopback."""
    runner = web.AppRunner(pods.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        pods.address = f"http://127.0.0.1:{port}"
        yield pods
    finally:
        await runner.cleanup()
