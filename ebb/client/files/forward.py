"""Carries connections from this machine to a port of a pod, each on a stream of its own over the API server.

    async with forward(ebb.kube, ebb.namespace, "digits-worker-0", 6006) as (host, port):         # 127.0.0.1
        ...
    async with forward_path(kube, namespace, choose, 8080) as path:                                # a socket in a private folder

In place of a name `choose` may stand, which says for each connection what pod it goes to: so that a pod that is lost ends the
connections that it had, with a sentence, and the next ones find another. A program that must know when its connection is lost
sees it end, as with any other.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ebb.client.errors import BadRequest, ClientError
from ebb.client.jobs.watch import ignore
from ebb.kube import Kube, KubeError
from ebb.kube.streams import NotListening, Pipe, connection

LOOPBACK = "127.0.0.1"
TRIES = 3  # pods for one connection: what looks alive may be on a machine that is gone
CHUNK = 2**17
SOCKET_BYTES = 100
QUIET_SECONDS = 5.0  # a browser opens six connections at once: nobody wants to read the same sentence six times

Choose = Callable[[frozenset[str]], Awaitable[str]]
"""(pods that did not answer) -> the pod for the next connection; raises ClientError or KubeError if there is none."""
Note = Callable[[str], None]


@asynccontextmanager
async def forward(
    kube: Kube, namespace: str, pod: str | Choose, port: int, *, local: int = 0, note: Note = ignore
) -> AsyncIterator[tuple[str, int]]:
    """Listen on a port of this machine's loopback (0: any free one). Raises BadRequest if it is taken."""
    carrier = _Carrier(kube, namespace, _chooser(pod), port, note)
    try:
        server = await asyncio.start_server(carrier.serve, LOOPBACK, local)
    except OSError as error:
        raise BadRequest(
            f"local {local}: the port cannot be opened on this machine ({error.strerror}): choose another, or 0 for any free one."
        ) from error
    try:
        yield LOOPBACK, int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await carrier.close()


@asynccontextmanager
async def forward_path(kube: Kube, namespace: str, pod: str | Choose, port: int, *, note: Note = ignore) -> AsyncIterator[Path]:
    """Listen on a socket that only this user can reach: a port of the loopback is open to everybody on the machine."""
    carrier = _Carrier(kube, namespace, _chooser(pod), port, note)
    with tempfile.TemporaryDirectory(prefix="ebb-", dir=_short_enough(tempfile.gettempdir())) as folder:  # mode 0700
        path = Path(folder) / "socket"
        server = await asyncio.start_unix_server(carrier.serve, path)
        try:
            yield path
        finally:
            server.close()
            await carrier.close()


def _short_enough(folder: str) -> str:
    """The system takes no path of a socket that is longer than about a hundred bytes."""
    return folder if len(os.fsencode(folder)) + len("/ebb-12345678/socket") <= SOCKET_BYTES else "/tmp"  # noqa: S108 - mode 0700


def _chooser(pod: str | Choose) -> Choose:
    if not isinstance(pod, str):
        return pod

    async def always(_: frozenset[str]) -> str:
        return pod

    return always


class _Carrier:
    """The connections that are open."""

    def __init__(self, kube: Kube, namespace: str, choose: Choose, port: int, note: Note) -> None:
        self._kube, self._namespace, self._choose, self._port = kube, namespace, choose, port
        self._note, self._said, self._said_at = note, "", -QUIET_SECONDS
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its beginning to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._carry(reader, writer)
        except (KubeError, ClientError) as error:
            self._say(str(error))
        except asyncio.CancelledError:
            pass  # by close(): asyncio would log it
        finally:
            self._open.discard(task)
            writer.close()

    async def close(self) -> None:
        """End all of them."""
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        failed: frozenset[str] = frozenset()
        while True:
            pod = await self._choose(failed)
            try:
                async with connection(self._kube, self._namespace, pod, self._port) as pipe:
                    return await _both_ways(pipe, reader, writer)
            except NotListening:
                raise
            except _LostAtWork as lost:
                raise lost.error from lost
            except KubeError as error:
                failed |= {pod}
                if len(failed) == TRIES or await self._choose(failed) in failed:
                    raise
                self._say(f"{error}. Trying another.")

    def _say(self, text: str) -> None:
        now = asyncio.get_running_loop().time()
        if text != self._said or now - self._said_at >= QUIET_SECONDS:
            self._note(text)
            self._said, self._said_at = text, now


class _LostAtWork(Exception):
    """The stream broke when bytes had passed already: another pod cannot go on with it."""

    def __init__(self, error: KubeError) -> None:
        super().__init__(str(error))
        self.error = error


async def _both_ways(pipe: Pipe, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side closes: streams of Kubernetes end as a whole."""
    tasks = [asyncio.create_task(_out(pipe, reader)), asyncio.create_task(_in(pipe, writer))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except NotListening:
        raise
    except KubeError as error:
        raise _LostAtWork(error) from error
    except OSError:
        pass  # the program on this machine has gone away
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _out(pipe: Pipe, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(CHUNK):
        await pipe.send(data)


async def _in(pipe: Pipe, writer: asyncio.StreamWriter) -> None:
    while data := await pipe.receive():
        writer.write(data)
        await writer.drain()
