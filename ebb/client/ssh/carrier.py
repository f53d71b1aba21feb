"""One SSH connection through the API server: starts server.py in a worker, and carries the bytes.

await carry(ebb, "digits", None, source, write)         # OpenSSH's side: what it sends, and what it is to read
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files

from ebb.client.errors import ClientError
from ebb.client.files.workers import program, running_worker
from ebb.client.platform.connection import Ebb
from ebb.client.ssh.authority import sign
from ebb.client.ssh.hosts import host_name
from ebb.kube import Denied, KubeError, NotFound, Unreachable
from ebb.kube.streams import STDERR, STDOUT, Program

# One line of JSON comes first; the server reads on from there. Unbuffered, so that nothing behind the line is taken with it; and
# no file of the worker's current folder takes the place of one of Python's modules.
_START = (
    "import sys;sys.path=[each for each in sys.path if each];import json;"
    "hello=json.loads(open(0,'rb',0,closefd=False).readline());server={'__name__':'ebb_ssh'};"
    "exec(compile(hello['server'],'ebb-ssh','exec'),server);"
    "server['main'](hello['key'],hello['certificate'])"
)
COMMAND = ("python3", "-c", _START)
READY, NO_ASYNCSSH = b"ebb-ssh ready\n", b"ebb-ssh needs asyncssh\n"

Write = Callable[[int, bytes], Awaitable[None]]
"""(STDOUT | STDERR, data)."""


async def carry(ebb: Ebb, job: str, worker: int | None, source: AsyncIterator[bytes], write: Write) -> None:
    """Until one of the two ends. Raises Missing, ClientError, KubeError."""
    pod, key = await asyncio.gather(running_worker(ebb, job, worker), sign(host_name(job, worker)))
    server = files("ebb.client.ssh").joinpath("server.py").read_text(encoding="utf-8")
    hello = json.dumps({"server": server, "key": key.private, "certificate": key.certificate})
    try:
        async with program(ebb, pod, COMMAND, stdin=True) as started:
            await started.send(hello.encode() + b"\n")
            output = aiter(started)
            await write(STDOUT, await _until_ready(job, output, write))
            feeding = asyncio.create_task(_feed(started, source))
            try:
                async for channel, data in output:
                    await write(channel, data)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
    except (Denied, NotFound, Unreachable):
        raise
    except KubeError as error:
        raise ClientError(f"no SSH server can be started in {job}'s worker: {error}. {_fix(job)}") from error


async def _feed(started: Program, source: AsyncIterator[bytes]) -> None:
    async for data in source:
        await started.send(data)
    await started.end_input()


async def _until_ready(job: str, output: AsyncIterator[tuple[int, bytes]], write: Write) -> bytes:
    """Read the server's first line, and return what comes behind it. Raises ClientError where there is no server."""
    said, complaints = b"", b""
    async for channel, data in output:
        if channel == STDERR:
            complaints += data
            continue
        said += data
        if b"\n" in said:
            break
    if said.startswith(READY):
        if complaints:
            await write(STDERR, complaints)
        return said.removeprefix(READY)
    if said.startswith(NO_ASYNCSSH):
        raise ClientError(
            f"no SSH server can be started in {job}'s worker: its image lacks the Python package asyncssh. {_fix(job)}"
        )
    words = " ".join((complaints or said).decode(errors="replace").split())[-300:]
    raise ClientError(f"no SSH server can be started in {job}'s worker: {words or 'it ended without a word'}. {_fix(job)}")


def _fix(job: str) -> str:
    return (
        "The trainer image has what it takes; an image of your own needs python3 (3.9 or newer) and `pip install asyncssh`. "
        f"For a worker that runs: `ebb exec {job} -- python3 -m pip install --target /tmp/ebb-ssh asyncssh`."
    )
