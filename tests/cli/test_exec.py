"""`ebb exec` and `ebb port`: in-process, and as programs of their own with pipes and a real terminal."""

import asyncio
import json
import os
import pty
import signal
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ebb.cli import terminal
from ebb.cli.app import app
from tests.cli.program import EBB, MAIN
from tests.cli.world import elastic_job, worker_pod
from tests.kube.pods import Terminal
from tests.reached import Reached, reached, session


async def talk(seen: Terminal) -> None:
    """Says its command, and ends with the worker's number."""
    await seen.write(f"{' '.join(seen.command)} in {seen.pod}\n".encode())
    await seen.write(b"oops\n", 2)
    await seen.ends(int(seen.pod[-1]))


def speak(kube: Reached) -> None:
    kube.pods.run = talk


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--worker", "1"), 1)])
def test_a_command_and_its_exit_code(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    given = session(tmp_path, elastic_job(), worker_pod(0), worker_pod(1), then=speak)
    done = CliRunner().invoke(app, ["exec", "digits", *words, "-o", "json", "--", "ls", "-l"], obj=given)
    assert (done.exit_code, json.loads(done.stdout)) == (
        code,
        {"worker": code, "exit_code": code, "stdout": f"ls -l in digits-worker-{code}\n", "stderr": "oops\n"},
    )


REFUSED = {
    "no command": (("exec", "digits"), 2, "no command is given: use for example `ebb exec JOB -- nvidia-smi`"),
    "no job": (("exec", "other", "--", "ls"), 4, "no job named 'other' in elastic-job"),
    "no worker": (("exec", "digits", "--worker", "7", "--", "ls"), 4, "worker 7 of digits does not run: choose one of 0"),
    "no port": (("port", "digits", "99999"), 2, "port 99999 is not a port: use 1 to 65535"),
    "no local port": (("port", "digits", "80", "--local", "-1"), 2, "local -1 is not a port: use 0 to 65535"),
    "no job for a port": (("port", "other", "80"), 4, "no job named 'other' in elastic-job"),
}


@pytest.mark.parametrize(("words", "code", "sentence"), REFUSED.values(), ids=REFUSED)
def test_misuse(tmp_path: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    done = CliRunner().invoke(app, list(words), obj=session(tmp_path, elastic_job(), worker_pod(0)), env={"COLUMNS": "80"})
    assert (done.exit_code, done.stdout) == (code, ""), done.stderr
    assert sentence in " ".join(done.stderr.split())


# --- As a program ---------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def platform(folder: Path) -> AsyncIterator[tuple[Reached, dict[str, str]]]:
    async with reached(folder, elastic_job(), worker_pod(0), worker_pod(1)) as kube:
        yield kube, {**os.environ, "EBB_KUBECONFIG": str(kube.kubeconfig), "TERM": "xterm"}


async def test_a_pipe_goes_through_a_worker(tmp_path: Path) -> None:
    content = os.urandom(300_000)
    async with platform(tmp_path) as (_, environment):
        code, out, err = await EBB.run(*MAIN, "exec", "digits", "--", "cat", env=environment, stdin=content)
    assert (code, out == content, err) == (0, True, b"")


async def test_a_redirected_file_and_two_streams(tmp_path: Path) -> None:
    async with platform(tmp_path) as (kube, environment):
        kube.pods.run = talk
        with Path("/dev/null").open("rb") as nothing:  # noqa: ASYNC230
            words = ("exec", "digits", "--worker", "1", "--", "ls")
            found = await EBB.run(*MAIN, *words, env=environment, stdin=nothing.fileno())
    assert found == (1, b"ls in digits-worker-1\n", b"oops\n")


async def test_a_terminal_is_raw_and_has_its_size(tmp_path: Path) -> None:
    """Ctrl-C is a key for the program in the worker, and the terminal is as before at the end."""

    async def shell(seen: Terminal) -> None:
        await seen.resized.wait()
        await seen.write(f"{seen.query['tty']} {seen.sizes[0]}>".encode())
        keys = b""
        while b"q" not in keys:
            keys += await seen.read()
        await seen.write(repr(keys).encode())
        await seen.ends(7)

    main, other = pty.openpty()
    termios.tcsetwinsize(other, (40, 120))
    before = termios.tcgetattr(other)
    async with platform(tmp_path) as (kube, environment):
        kube.pods.run = shell
        errors, its = os.pipe()
        program = EBB.start(*MAIN, "exec", "digits", "--", "bash", env=environment, stdin=other, stdout=other, stderr=its)
        os.close(its)
        assert await asyncio.to_thread(until, main, b">") == b"true (120, 40)>"
        os.write(main, b"ls\x03q")
        assert await asyncio.to_thread(until, main, b"'") + await asyncio.to_thread(until, main, b"'") == b"b'ls\\x03q'"
        assert await asyncio.to_thread(program.wait) == 7
    with os.fdopen(errors, "rb") as file:
        assert file.read() == b""
    assert termios.tcgetattr(other)[:4] == before[:4]
    os.close(main)
    os.close(other)


def until(descriptor: int, end: bytes) -> bytes:
    said = b""
    while not said.endswith(end):
        said += os.read(descriptor, 1)
    return said


async def test_a_port_stays_open_until_ctrl_c(tmp_path: Path) -> None:
    async def name(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(name, "127.0.0.1", 0)
    async with server, platform(tmp_path) as (kube, environment):
        kube.pods.ports = {(f"digits-worker-{index}", 6006): server.sockets[0].getsockname()[1] for index in (0, 1)}
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        words = ("port", "digits", "6006", "--local", "0", "-o", "json")
        program = EBB.start(*MAIN, *words, env=environment, stdout=its_out, stderr=its_err)
        os.close(its_out)
        os.close(its_err)
        where = json.loads(await asyncio.to_thread(until, out, b"\n"))
        for lost in (None, "digits-worker-0"):
            if lost:
                kube.pods.lose(lost)
            reader, writer = await asyncio.open_connection(where["host"], where["port"])
            assert await reader.read(4) == b"here"
            writer.close()
        program.send_signal(signal.SIGINT)
        code = await asyncio.to_thread(program.wait)
    os.close(out)
    with os.fdopen(err) as file:
        told = file.read().split("\n")
    assert code == 130, told
    assert any(line.startswith("the API server cannot reach the pod (500)") and line.endswith("another.") for line in told)
    assert told[-2] == "ebb: the port is closed; the job continues."


# --- The terminal ---------------------------------------------------------------------------------------------------------------


async def test_keys_of_a_file_and_a_pipe_come_to_their_end(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 100_000)
    with (tmp_path / "x").open("rb") as opened:
        assert b"".join([data async for data in terminal.keys(opened.fileno())]) == b"x" * 100_000
    source, sink = os.pipe()
    os.write(sink, b"one")
    found = terminal.keys(source)
    assert await anext(found) == b"one"
    os.close(sink)
    assert [data async for data in found] == []
    os.close(source)
