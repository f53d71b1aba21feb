"""The way of one SSH connection to the server in a worker, and what is said where there is none."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ebb.client.errors import ClientError, Missing
from ebb.client.ssh import carrier
from ebb.client.ssh.authority import HostKey
from tests.cli.world import elastic_job, worker_pod
from tests.kube.pods import Talk, Terminal
from tests.reached import ebb_of, reached

SERVER = (Path(carrier.__file__).parent / "server.py").read_text()


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sign(host: str) -> HostKey:
        return HostKey(private=f"key of {host}", certificate="certificate")

    monkeypatch.setattr(carrier, "sign", sign)


async def carried(folder: Path, run: Talk, *, job: str = "digits", worker: int | None = None) -> list[tuple[int, bytes]]:
    """The answer to an OpenSSH that has sent `hello`."""
    said: list[tuple[int, bytes]] = []

    async def source() -> AsyncIterator[bytes]:
        yield b"hello"

    async def write(channel: int, data: bytes) -> None:
        if data:
            said.append((channel, data))

    async with reached(folder, elastic_job(), worker_pod(0), worker_pod(1)) as kube, asyncio.timeout(20):
        kube.pods.run = run
        await carrier.carry(ebb_of(kube), job, worker, source(), write)
    return said


async def test_the_server_comes_first_and_then_the_bytes(tmp_path: Path) -> None:
    async def run(terminal: Terminal) -> None:
        assert (terminal.pod, terminal.command[0], terminal.query["stdin"]) == ("digits-worker-1", "python3", "true")
        line = b""
        while not line.endswith(b"\n"):
            line += await terminal.read()
        assert json.loads(line) == {"server": SERVER, "key": "key of ebb-digits-worker-1", "certificate": "certificate"}
        await terminal.write(b"warning\n", 2)
        await terminal.write(carrier.READY[:5])
        await terminal.write(carrier.READY[5:] + b"SSH-2.0")
        assert (await terminal.read(), await terminal.read()) == (b"hello", b"")
        await terminal.write(b" bye")
        await terminal.ends(0)

    assert await carried(tmp_path, run, worker=1) == [(2, b"warning\n"), (1, b"SSH-2.0"), (1, b" bye")]


def test_both_ends_have_the_same_words() -> None:
    assert re.findall(r"^READY, NO_ASYNCSSH = .*", SERVER, re.MULTILINE) == [
        f'READY, NO_ASYNCSSH = b"{carrier.READY.decode().strip()}\\n", b"{carrier.NO_ASYNCSSH.decode().strip()}\\n"'
    ]


async def lacking(terminal: Terminal) -> None:
    await terminal.write(carrier.NO_ASYNCSSH)
    await terminal.ends(1)


async def broken(terminal: Terminal) -> None:
    await terminal.write(b"Traceback\nSyntaxError: what\n", 2)
    await terminal.ends(1)


async def no_python(terminal: Terminal) -> None:
    words = 'error executing command: exec: "python3": executable file not found in $PATH: unknown'
    await terminal.write(json.dumps({"status": "Failure", "reason": "InternalError", "message": words}).encode(), 3)


NO_SERVER = {
    "asyncssh": (
        lacking,
        r"worker: its image lacks the Python package asyncssh\. The trainer image has .* `pip install asyncssh`",
    ),
    "anything": (broken, r"worker: Traceback SyntaxError: what\. The trainer"),
    "python": (
        no_python,
        r'worker: .*exec: "python3": executable file not found .*\. The .* `ebb exec digits -- python3 -m pip install ',
    ),
}


@pytest.mark.parametrize(("run", "sentence"), NO_SERVER.values(), ids=NO_SERVER)
async def test_a_worker_without_a_server(tmp_path: Path, run: Talk, sentence: str) -> None:
    with pytest.raises(ClientError, match=rf"^no SSH server can be started in digits's {sentence}"):
        await carried(tmp_path, run)


async def test_a_worker_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="worker 7 of digits does not run: choose one of 0, 1"):
        await carried(tmp_path, lacking, worker=7)
