"""The gateway's program: its command line, that it listens on the loopback alone, and the kubelet's question to it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ebb.gateway import probe
from ebb.gateway.__main__ import listening, read_settings

# --- Its command line -----------------------------------------------------------------------------------------------------------


def test_its_arguments() -> None:
    settings = read_settings(["--port=9", "--volume=data=/mnt/data", "--read-only=environment=/opt/ebb/site-packages"])
    assert settings.port == 9
    assert [(one.name, str(one.path), one.read_only) for one in settings.volumes] == [
        ("data", "/mnt/data", False),
        ("environment", "/opt/ebb/site-packages", True),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no volume: give --volume NAME=PATH"),
        (["--volume", "data"], "volume 'data' is not NAME=PATH"),
        (["--volume", "data=mnt"], "volume 'data=mnt' is not NAME=PATH"),
        (["--port", "0.0.0.0:80", "--volume", "data=/mnt"], "--port '0.0.0.0:80' is not a port: use 0 to 65535"),
        (["--port", "65536", "--volume", "data=/mnt"], "--port '65536' is not a port: use 0 to 65535"),
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(arguments)
    assert words in capsys.readouterr().err


# --- Where it listens -----------------------------------------------------------------------------------------------------------


async def test_it_answers_on_the_loopback_and_on_no_other_address(tmp_path: Path) -> None:
    """Linux answers on all of 127.0.0.0/8 for a server that listens on every address."""
    async with listening(read_settings(["--port=0", f"--volume=data={tmp_path}"])) as port:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", port)
        assert await asyncio.to_thread(probe.complaint, port) == ""


# --- The kubelet's question -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def answering(line: bytes) -> AsyncIterator[int]:
    """A program on the loopback that answers with one line, or with nothing while it holds the connection; its port."""
    done = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(line)
        if not line:
            await done.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        done.set()


async def test_a_program_that_fails_is_told_with_its_answer() -> None:
    async with answering(b"HTTP/1.0 500 Internal Server Error\r\n\r\n") as port:
        found = await asyncio.to_thread(probe.complaint, port)
    assert found == f"the gateway answers 'HTTP/1.0 500 Internal Server Error' on 127.0.0.1:{port}"


async def test_a_program_that_hangs_is_told() -> None:
    async with answering(b"") as port:
        found = await asyncio.to_thread(probe.complaint, port, 0.05)
    assert found == f"the gateway does not answer on 127.0.0.1:{port}: timed out"


@pytest.mark.parametrize("listens", [True, False])
def test_the_answer_is_its_exit_code(listens: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, and nothing listens
        monkeypatch.setattr(probe, "GATEWAY_PORT", closed.getsockname()[1])
        if listens:
            monkeypatch.setattr(probe, "complaint", lambda _: "")
        assert probe.main() == (0 if listens else 1)
    assert ("Connection refused" in capsys.readouterr().err) != listens
