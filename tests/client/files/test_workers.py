"""Programs in a job's workers and their ports: which worker it is, and what becomes of it when that is lost."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from ebb.api.contract import HOLD_SCRIPT
from ebb.client.errors import BadRequest, Missing
from ebb.client.files.workers import execute, port
from ebb.elastic.launch.crash_hold import leave_script
from tests.cli.world import elastic_job, worker_pod
from tests.kube.pods import Terminal
from tests.reached import ebb_of, reached


async def test_a_program_runs_in_the_first_worker_that_runs(tmp_path: Path) -> None:
    async with reached(tmp_path, elastic_job(), worker_pod(0, state="waiting"), worker_pod(2), worker_pod(1)) as kube:

        async def run(terminal: Terminal) -> None:
            assert (terminal.pod, terminal.query["container"]) == ("digits-worker-1", "elasticjob-worker")
            await terminal.write(b"out")
            await terminal.write(b"err", 2)
            await terminal.ends(3)

        kube.pods.run = run
        done = await execute(ebb_of(kube), "digits", ["nvidia-smi"])
    assert (done.worker, done.exit_code, done.stdout, done.stderr) == (1, 3, "out", "err")


async def test_on_a_machine_that_is_held_a_program_runs_as_the_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container's shell does it, by the launcher's script."""
    seen: list[list[str]] = []

    async def run(terminal: Terminal) -> None:
        seen.append(terminal.command)
        await terminal.ends(0)

    held = elastic_job(state="Suspended", hold={"machine": {"worker": 0, "uid": "uid-digits-worker-0", "until": ""}})
    async with reached(tmp_path, held, worker_pod(0), worker_pod(1)) as kube:
        kube.pods.run = run
        for worker in (0, 1):
            await execute(ebb_of(kube), "digits", ["sh", "-c", 'echo "$WAS $PWD $1"', "sh", "a b"], worker=worker)
    entered, plain = seen
    assert plain == ["sh", "-c", 'echo "$WAS $PWD $1"', "sh", "a b"]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert _said(entered) == f" {Path.cwd()} a b"  # an older launcher leaves none
    leave_script(tmp_path / HOLD_SCRIPT, tmp_path, {"WAS": "it's", "BASH_FUNC_x%%": "() { :; }"})
    assert _said(entered) == f"it's {tmp_path} a b"


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.rstrip("\n")


async def test_input_is_given_as_a_whole(tmp_path: Path) -> None:
    async with reached(tmp_path, elastic_job(), worker_pod(0)) as kube:
        assert (await execute(ebb_of(kube), "digits", ["cat"], stdin=b"hello")).stdout == "hello"


async def test_a_program_that_writes_much_before_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends all before it reads waits for ever: the way is full in both directions."""

    async def nothing(_: Terminal) -> None:
        await asyncio.Event().wait()

    async def run(terminal: Terminal) -> None:
        for _ in range(256):
            await terminal.write(b"x" * 2**16)
        while (await terminal.socket.receive_bytes())[0] != 255:  # the end of its input
            pass
        await terminal.ends(0)

    monkeypatch.setattr(Terminal, "take_in", nothing)
    async with reached(tmp_path, elastic_job(), worker_pod(0)) as kube:
        kube.pods.run = run
        async with asyncio.timeout(10):
            done = await execute(ebb_of(kube), "digits", ["cat"], stdin=bytes(2**24))
    assert len(done.stdout) == 2**24


async def test_a_program_that_ends_before_it_has_read_all(tmp_path: Path) -> None:
    async with reached(tmp_path, elastic_job(), worker_pod(0)) as kube:

        async def run(terminal: Terminal) -> None:
            await terminal.write((await terminal.read())[:1])
            await terminal.ends(0)

        kube.pods.run = run
        async with asyncio.timeout(20):
            assert (await execute(ebb_of(kube), "digits", ["head", "-c1"], stdin=b"y" * 2**24)).stdout == "y"


@pytest.mark.parametrize(
    ("pods", "worker", "words"),
    [
        ([], None, "no worker of digits runs: the job is running"),
        ([worker_pod(0, state="waiting")], None, "no worker of digits runs"),
        ([worker_pod(0), worker_pod(3)], 2, r"worker 2 of digits does not run: choose one of 0, 3"),
    ],
    ids=["none", "waiting", "another"],
)
async def test_a_worker_that_does_not_run(tmp_path: Path, pods: list[dict[str, object]], worker: int | None, words: str) -> None:
    async with reached(tmp_path, elastic_job(), *pods) as kube:
        with pytest.raises(Missing, match=words):
            await execute(ebb_of(kube), "digits", ["ls"], worker=worker)


async def test_a_job_that_is_not_there_and_a_command_that_is_none(tmp_path: Path) -> None:
    async with reached(tmp_path, elastic_job(), worker_pod(0)) as kube:
        with pytest.raises(Missing, match="no job named 'other'"):
            await execute(ebb_of(kube), "other", ["ls"])
        with pytest.raises(BadRequest, match="no command is given"):
            await execute(ebb_of(kube), "digits", [])


async def test_a_port_goes_on_to_another_worker_when_one_is_lost(tmp_path: Path) -> None:
    async def name(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        await reader.read()
        writer.close()

    notes: list[str] = []
    server = await asyncio.start_server(name, "127.0.0.1", 0)
    async with server, reached(tmp_path, elastic_job(), worker_pod(0), worker_pod(1)) as kube:
        here = server.sockets[0].getsockname()[1]
        kube.pods.ports |= {(f"digits-worker-{index}", 6006): here for index in (0, 1)}
        async with port(ebb_of(kube), "digits", 6006, note=notes.append) as where:
            reader, writer = await asyncio.open_connection(*where)
            assert await reader.read(4) == b"here"
            kube.pods.lose("digits-worker-0")
            assert await reader.read() == b""
            writer.close()
            for _ in range(2):
                reader, writer = await asyncio.open_connection(*where)
                assert await reader.read(4) == b"here"
                writer.close()
            kube.remove(worker_pod(0))
            reader, writer = await asyncio.open_connection(*where)
            assert await reader.read(4) == b"here"
            writer.close()
    assert notes[0] == "the connection to port 6006 of digits-worker-0 is lost: its machine may be gone"
    assert notes[-1] == "digits-worker-0 is lost; from now on connections go to digits-worker-1"


@pytest.mark.parametrize(("number", "local", "words"), [(0, 0, "port 0 is not a port"), (80, 70000, "local 70000 is not a port")])
async def test_numbers_that_are_no_ports(tmp_path: Path, number: int, local: int, words: str) -> None:
    async with reached(tmp_path, elastic_job(), worker_pod(0)) as kube:
        with pytest.raises(BadRequest, match=words):
            async with port(ebb_of(kube), "digits", number, local=local):
                pass
