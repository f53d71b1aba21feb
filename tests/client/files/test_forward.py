"""Ports of this machine that lead into pods: many connections, lost pods, programs that do not listen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ebb.client.errors import BadRequest, Missing
from ebb.client.files.forward import Choose, forward, forward_path
from ebb.kube import Kube
from tests.kube.pods import Pods, serving

NS = "elastic-job"


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says hello to each line."""
    while line := await reader.readline():
        writer.write(b"hello " + line)
    writer.close()


@asynccontextmanager
async def cluster(folder: Path, *names: str) -> AsyncIterator[tuple[Pods, Kube]]:
    """Pods of these names that greet on port 80."""
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server, serving(Pods()) as pods, Kube.connect(str(pods.kubeconfig(folder))) as kube:
        pods.ports = {(name, 80): server.sockets[0].getsockname()[1] for name in names}
        yield pods, kube


async def ask(where: tuple[str, int], name: str) -> bytes:
    reader, writer = await asyncio.open_connection(*where)
    writer.write(name.encode() + b"\n")
    answer = await reader.readline()
    writer.close()
    return answer


def among(*names: str) -> Choose:
    """Chooses the first that has not failed."""

    async def choose(failed: frozenset[str]) -> str:
        for name in names:
            if name not in failed:
                return name
        raise Missing("there is no other pod")

    return choose


async def test_each_connection_has_a_stream_of_its_own(tmp_path: Path) -> None:
    async with cluster(tmp_path, "a") as (pods, kube), forward(kube, NS, "a", 80) as where:
        assert where[0] == "127.0.0.1"
        answers = await asyncio.gather(*(ask(where, f"n{index}") for index in range(20)))
        assert answers == [f"hello n{index}\n".encode() for index in range(20)]
        assert len(pods.asked) == 20


async def test_a_lot_of_bytes_come_as_they_went(tmp_path: Path) -> None:
    async with cluster(tmp_path, "a") as (_, kube), forward(kube, NS, "a", 80) as where:
        reader, writer = await asyncio.open_connection(*where, limit=2**24)
        line = bytes(65 + index % 26 for index in range(40_000)) + b"\n"
        for _ in range(3):
            writer.write(line)
            assert await reader.readline() == b"hello " + line
        writer.close()


async def test_a_socket_for_this_user_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path, "a") as (_, kube):
        async with forward_path(kube, NS, "a", 80) as path:
            assert path.parent.stat().st_mode & 0o077 == 0
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"you\n")
            assert await reader.readline() == b"hello you\n"
            writer.close()
        assert not path.parent.exists()


async def test_a_folder_whose_name_is_too_long_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    async with cluster(tmp_path, "a") as (_, kube), forward_path(kube, NS, "a", 80) as path:
        assert path.parent.stat().st_mode & 0o077 == 0
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"you\n")
        assert await reader.readline() == b"hello you\n"
        writer.close()


async def test_a_lost_pod_ends_its_connections_and_the_next_ones_find_another(tmp_path: Path) -> None:
    notes: list[str] = []
    async with cluster(tmp_path, "a", "b") as (pods, kube), forward(kube, NS, among("a", "b"), 80, note=notes.append) as where:
        reader, writer = await asyncio.open_connection(*where)
        writer.write(b"one\n")
        assert await reader.readline() == b"hello one\n"
        pods.lose("a")
        assert await reader.read() == b""
        writer.close()
        assert await ask(where, "two") == b"hello two\n"
    assert notes[0] == "the connection to port 80 of a is lost: its machine may be gone"
    assert notes[1].startswith("the API server cannot reach the pod (500)")
    assert notes[1].endswith("Trying another.")
    assert pods.asked[-1][1].endswith("/b/portforward")


async def test_without_another_pod_the_sentence_says_why_and_waits_for_the_next(tmp_path: Path) -> None:
    notes: list[str] = []
    async with cluster(tmp_path, "a") as (pods, kube), forward(kube, NS, "a", 80, note=notes.append) as where:
        pods.lose("a")
        assert await ask(where, "one") == b""
        pods.lost.clear()
        assert await ask(where, "two") == b"hello two\n"
    assert len(notes) == 1
    assert "cannot reach the pod (500)" in notes[0]


async def test_a_program_that_does_not_listen_yet_is_not_a_lost_pod(tmp_path: Path) -> None:
    notes: list[str] = []
    async with cluster(tmp_path) as (pods, kube), forward(kube, NS, among("a", "b"), 80, note=notes.append) as where:
        for _ in range(6):  # as a browser does
            assert await ask(where, "one") == b""
        assert {path for _, path in pods.asked} == {f"/api/v1/namespaces/{NS}/pods/a/portforward"}
    assert notes == ["nothing listens on port 80 of a: the program there has not opened it (yet)"]


async def test_a_port_of_this_machine_that_is_taken(tmp_path: Path) -> None:
    async with cluster(tmp_path, "a") as (_, kube), forward(kube, NS, "a", 80) as (_, taken):
        with pytest.raises(BadRequest, match=f"local {taken}: the port cannot be opened on this machine"):
            async with forward(kube, NS, "a", 80, local=taken):
                pass


async def test_the_end_closes_all_connections(tmp_path: Path) -> None:
    async with cluster(tmp_path, "a") as (_, kube):
        async with forward(kube, NS, "a", 80) as where:
            reader, writer = await asyncio.open_connection(*where)
            writer.write(b"one\n")
            assert await reader.readline() == b"hello one\n"
        assert await reader.read() == b""
        writer.close()
