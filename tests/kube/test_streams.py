"""Programs in pods and connections to their ports, over websockets of a server that speaks the kubelet's protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ebb.kube import Denied, Kube, KubeError, NotFound, Unreachable
from ebb.kube.streams import STDERR, STDOUT, NotListening, Program, connection, running
from tests.kube.pods import Pods, Terminal, serving

NS, POD = "elastic-job", "digits-worker-0"


@asynccontextmanager
async def cluster(folder: Path, token: str = "t") -> AsyncIterator[tuple[Pods, Kube]]:
    async with serving(Pods()) as pods, Kube.connect(str(pods.kubeconfig(folder, token))) as kube:
        yield pods, kube


async def everything(program: Program) -> dict[int, bytes]:
    said = {STDOUT: b"", STDERR: b""}
    async for channel, data in program:
        said[channel] += data
    return said


# --- Programs -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 138])
async def test_a_programs_output_and_exit_code(tmp_path: Path, code: int) -> None:
    async with cluster(tmp_path) as (pods, kube):

        async def run(terminal: Terminal) -> None:
            assert (terminal.command, terminal.query["container"]) == (["ls", "-l", "a b"], "elasticjob-worker")
            assert {"stdin", "tty"} & set(terminal.query) == set()
            await terminal.write(b"one\n")
            await terminal.write(b"oops\n", STDERR)
            await terminal.write(b"")
            await terminal.write(b"two\n")
            await terminal.ends(code)

        pods.run = run
        async with running(kube, NS, POD, ["ls", "-l", "a b"], container="elasticjob-worker") as program:
            assert await everything(program) == {STDOUT: b"one\ntwo\n", STDERR: b"oops\n"}
            assert program.exit_code == code


async def test_input_of_any_length_arrives_with_its_end(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    async with cluster(tmp_path) as (_, kube), running(kube, NS, POD, ["cat"], stdin=True) as program:
        await program.send(content)
        await program.end_input()
        assert (await everything(program))[STDOUT] == content


async def test_an_older_server_cannot_end_the_input_and_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, kube):
        pods.versions = ("v4.channel.k8s.io",)
        async with running(kube, NS, POD, ["cat"], stdin=True) as program:
            with pytest.raises(KubeError, match=r"older than Kubernetes 1\.30"):
                await program.end_input()


async def test_a_terminal_is_told_its_size(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, kube):

        async def run(terminal: Terminal) -> None:
            await terminal.resized.wait()
            assert (terminal.query["tty"], "stderr" in terminal.query) == ("true", False)
            await terminal.write(repr(terminal.sizes).encode())
            await terminal.ends(0)

        pods.run = run
        async with running(kube, NS, POD, ["bash"], stdin=True, tty=True) as program:
            await program.resize(120, 40)
            assert (await everything(program))[STDOUT] == b"[(120, 40)]"


async def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, kube):

        async def run(terminal: Terminal) -> None:
            said = (
                'error executing command in container: OCI runtime exec failed: exec: "nope": executable file not found in $PATH'
            )
            await terminal.write(json.dumps({"status": "Failure", "code": 500, "message": said}).encode(), 3)

        pods.run = run
        async with running(kube, NS, POD, ["nope"]) as program:
            with pytest.raises(KubeError, match=r"could not be run in digits-worker-0: exec: \"nope\": executable file"):
                await everything(program)


async def test_a_pod_that_is_lost_under_a_program(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, kube):

        async def run(terminal: Terminal) -> None:
            await terminal.write(b"here")
            pods.lose(POD)

        pods.run = run
        async with running(kube, NS, POD, ["sleep"]) as program:
            with pytest.raises(Unreachable, match="the connection to digits-worker-0 ended before its program"):
                await everything(program)


# --- Refused --------------------------------------------------------------------------------------------------------------------


async def test_a_refusal_has_the_servers_words(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, kube):
        pods.unknown = {POD}
        with pytest.raises(NotFound, match='pods "digits-worker-0" not found'):
            async with running(kube, NS, POD, ["ls"]):
                pass
    assert [how for how, _ in pods.asked] == ["socket", "GET"]


async def test_a_machine_that_does_not_answer(tmp_path: Path) -> None:
    """What the server says to a request without a handshake is about that, and not about the machine."""
    async with cluster(tmp_path) as (pods, kube):
        pods.lost = {POD}
        with pytest.raises(Unreachable, match=r"cannot reach the pod \(500\): its machine may be gone"):
            async with connection(kube, NS, POD, 80):
                pass


async def test_a_token_that_was_replaced_is_taken_anew(tmp_path: Path) -> None:
    async with cluster(tmp_path, token="old") as (pods, kube):
        (tmp_path / "token").write_text("t")
        async with running(kube, NS, POD, ["cat"], stdin=True) as program:
            await program.end_input()
            await everything(program)
        assert len(pods.asked) == 2


async def test_a_token_that_is_no_good_is_denied(tmp_path: Path) -> None:
    async with cluster(tmp_path, token="bad") as (_, kube):
        with pytest.raises(Denied, match="Unauthorized"):
            async with running(kube, NS, POD, ["ls"]):
                pass


async def test_no_server_at_all(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, kube):
        pass
    async with Kube.connect(str(tmp_path / "kubeconfig")) as kube:
        with pytest.raises(Unreachable, match="no stream from the Kubernetes API server"):
            async with connection(kube, NS, POD, 80):
                pass


# --- Ports ----------------------------------------------------------------------------------------------------------------------


async def test_bytes_go_both_ways_and_the_end_arrives(tmp_path: Path) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data.upper())
            if data.endswith(b"."):
                break
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    async with server, cluster(tmp_path) as (pods, kube):
        pods.ports[POD, 6006] = server.sockets[0].getsockname()[1]
        async with connection(kube, NS, POD, 6006) as pipe:
            await pipe.send(b"hello")
            assert await pipe.receive() == b"HELLO"
            await pipe.send(b"bye.")
            assert [await pipe.receive(), await pipe.receive()] == [b"BYE.", b""]


async def test_a_port_that_nobody_has_opened(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, kube), connection(kube, NS, POD, 6006) as pipe:
        with pytest.raises(NotListening, match="nothing listens on port 6006 of digits-worker-0"):
            await pipe.receive()


async def test_a_pod_that_is_lost_under_a_connection(tmp_path: Path) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server, cluster(tmp_path) as (pods, kube):
        pods.ports[POD, 80] = server.sockets[0].getsockname()[1]
        async with connection(kube, NS, POD, 80) as pipe:
            assert await pipe.receive() == b"here"
            pods.lose(POD)
            with pytest.raises(Unreachable, match="the connection to port 80 of digits-worker-0 is lost"):
                await pipe.receive()
            with pytest.raises(Unreachable, match="is lost"):
                await pipe.send(b"x")
