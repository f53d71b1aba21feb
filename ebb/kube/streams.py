"""Streams into a pod, over websockets of the API server: a program's input and output, and connections to one of its ports.

    async with running(kube, "elastic-job", "digits-worker-0", ["ls", "-l"]) as program:
        async for channel, data in program:                  # STDOUT or STDERR, bytes
            ...
        program.exit_code

    async with connection(kube, "elastic-job", "digits-worker-0", 6006) as pipe:
        await pipe.send(b"GET / HTTP/1.0\r\n\r\n");  await pipe.receive()

Kubernetes' own protocol: the first byte of each message is its channel. v5 can close a program's input, v4 cannot; API
servers have v5 since 1.30. A port's stream is v4 on all of them, passed through to the kubelet, and ends as a whole: there is
no half-closed connection. Source: k8s.io/kubelet/pkg/cri/streaming/{remotecommand,portforward}/websocket.go.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import orjson
from multidict import MultiDict

from ebb.kube.client import Kube
from ebb.kube.errors import KubeError, Unreachable
from ebb.kube.kinds import PODS

STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
CHUNK = 2**15  # of input in one message: what kubectl sends
ENDED = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)


class NotListening(KubeError):
    """The pod runs, and nothing in it listens on the port."""


class Program:
    """A program that runs in a container. Iterate it to its end; then `exit_code` is known."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, pod: str) -> None:
        self._socket, self._pod = socket, pod
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int:
        """Of the program that has ended."""
        assert self._exit_code is not None, "it still runs"
        return self._exit_code

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        """(STDOUT | STDERR, data) until the program ends. Raises Unreachable when the connection ends before it does, KubeError
        when it could not be started."""
        while self._exit_code is None:
            channel, data = await self._next()
            if channel == STATUS:
                self._exit_code = _exit_code(data, self._pod)
            elif data and channel in (STDOUT, STDERR):
                yield channel, data

    async def send(self, data: bytes) -> None:
        """Write to the program's input. Raises Unreachable."""
        for start in range(0, len(data), CHUNK):
            await _send(self._socket, bytes([STDIN]) + data[start : start + CHUNK], self._pod)

    async def end_input(self) -> None:
        """Tell the program that its input is over. Raises KubeError on an API server that cannot pass that on."""
        if self._socket.protocol != V5:
            raise KubeError("this API server cannot tell a program that its input is over: it is older than Kubernetes 1.30")
        await _send(self._socket, bytes([CLOSE, STDIN]), self._pod)

    async def resize(self, columns: int, rows: int) -> None:
        """Tell a program with a terminal how large that is."""
        await _send(self._socket, bytes([RESIZE]) + orjson.dumps({"Width": columns, "Height": rows}), self._pod)

    async def _next(self) -> tuple[int, bytes]:
        message = await self._socket.receive()
        if message.type in ENDED:
            raise Unreachable(f"the connection to {self._pod} ended before its program: its machine may be gone")
        data = message.data.encode() if isinstance(message.data, str) else message.data
        return (data[0], data[1:]) if data else (STDOUT, b"")


class Pipe:
    """One connection to a port of a pod."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, pod: str, port: int) -> None:
        self._socket, self._pod, self._port = socket, pod, port
        self._greetings = {0: 2, 1: 2}  # each channel begins with two bytes: the port

    async def receive(self) -> bytes:
        """The next bytes, b"" when the other side has closed. Raises NotListening, KubeError, and Unreachable when the pod or the
        way to it is lost."""
        while True:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.CLOSE:
                return b""
            if message.type in ENDED:
                raise Unreachable(f"the connection to port {self._port} of {self._pod} is lost: its machine may be gone")
            channel, data = self._parts(message.data)
            if data and channel == 1:
                raise self._complaint(data.decode(errors="replace"))
            if data:
                return data

    async def send(self, data: bytes) -> None:
        """Raises Unreachable."""
        await _send(self._socket, b"\0" + data, self._pod)

    def _parts(self, message: bytes) -> tuple[int, bytes]:
        if not message or message[0] not in self._greetings:
            return 0, b""
        channel, greeting = message[0], self._greetings[message[0]]
        self._greetings[channel] = max(0, greeting - len(message) + 1)
        return channel, message[1 + greeting :]

    def _complaint(self, text: str) -> KubeError:
        if "refused" in text:
            return NotListening(f"nothing listens on port {self._port} of {self._pod}: the program there has not opened it (yet)")
        return KubeError(f"port {self._port} of {self._pod} cannot be reached: {text.strip()[-300:]}")


@asynccontextmanager
async def running(
    kube: Kube,
    namespace: str,
    pod: str,
    command: Sequence[str],
    *,
    container: str | None = None,
    stdin: bool = False,
    tty: bool = False,
) -> AsyncIterator[Program]:
    """Start a program in a pod's container. With `tty` it gets a terminal, and STDERR comes in STDOUT. Raises NotFound, Denied,
    Unreachable, KubeError."""
    query = MultiDict([("command", word) for word in command])
    wanted = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    query.extend([(name, "true") for name, is_wanted in wanted.items() if is_wanted])
    if container:
        query.add("container", container)
    async with kube.socket(PODS.path(namespace, pod, "exec"), query, (V5, V4)) as socket:
        yield Program(socket, pod)


@asynccontextmanager
async def connection(kube: Kube, namespace: str, pod: str, port: int) -> AsyncIterator[Pipe]:
    """Connect to a port of a pod; whether anything listens there, the first `receive` shows. Raises NotFound, Denied,
    Unreachable."""
    query = MultiDict([("ports", str(port))])
    async with kube.socket(PODS.path(namespace, pod, "portforward"), query, (V4,)) as socket:
        yield Pipe(socket, pod, port)


async def _send(socket: aiohttp.ClientWebSocketResponse, message: bytes, pod: str) -> None:
    try:
        await socket.send_bytes(message)
    except (aiohttp.ClientError, OSError) as error:  # of both kinds: what is closed already, and what breaks now
        raise Unreachable(f"the connection to {pod} is lost: {error}") from error


def _exit_code(status: bytes, pod: str) -> int:
    """Out of the Status object that ends a program. Raises KubeError for one that never ran, Unreachable where none could."""
    try:
        found = orjson.loads(status)
    except ValueError as error:
        raise KubeError(f"the program could not be run in {pod}: {status.decode(errors='replace')[:300]}") from error
    if found.get("status") == "Success":
        return 0
    for cause in (found.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    words = str(found.get("message") or "no reason given")
    if "dial " in words:
        raise Unreachable(f"{pod} cannot be reached: its machine may be gone ({words.rpartition('dial ')[2]})")
    # Each layer between here and the program puts words of its own before the last one's.
    raise KubeError(f"the program could not be run in {pod}: {words[max(0, words.find('exec: ')) :]}")
