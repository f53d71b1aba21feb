"""OpenSSH's own programs in a worker: ssh, scp and sftp, as people and VS Code use them.

All of the way is real but for the cluster: their ProxyCommand is `ebb ssh --stdio`, which executes through the API server's
protocol, and what it starts there runs on this machine.
"""

import asyncio
import contextlib
import fcntl
import os
import pty
import shutil
import signal
import struct
import sys
import termios
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ebb.client.ssh.authority import known_hosts, prepare
from ebb.client.ssh.hosts import Host
from testing.ports import free_port
from tests.cli.program import EBB, MAIN
from tests.cli.world import elastic_job, worker_pod
from tests.kube.pods import Terminal
from tests.reached import reached

pytestmark = pytest.mark.e2e
LIMIT_SECONDS = 100.0


@asynccontextmanager
async def worker(folder: Path) -> AsyncIterator["Worker"]:
    """A worker that programs run in, and OpenSSH's configuration that leads there."""
    if shutil.which("ssh") is None:
        pytest.fail("OpenSSH's client is not on this machine: apt-get install openssh-client")
    home = folder / "home"
    home.mkdir()
    async with reached(folder, elastic_job(), worker_pod(0)) as kube, asyncio.timeout(LIMIT_SECONDS):
        found = Worker(folder, home, str(kube.kubeconfig))
        kube.pods.run = found.execute
        try:
            yield found
        finally:
            for process in (*found.started, *found.servers):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


class Worker:
    """See `worker`. `environment` is that of the user's machine."""

    def __init__(self, folder: Path, home: Path, kubeconfig: str) -> None:
        self.home, self.kubeconfig, self.config = home, kubeconfig, folder / "ssh_config"
        self.environment = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
        self.started: list[Process] = []
        self.servers: list[Process] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
            program = (sys.executable, "-P", "-m", "ebb.cli", "--kubeconfig", kubeconfig, "ssh", "--stdio", "digits")
            self.config.write_text(Host(job="digits", command=program).entry)

    async def execute(self, terminal: Terminal) -> None:
        """As the kubelet does, with this machine's Python for the worker's."""
        assert terminal.command[0] == "python3"
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "SHELL": "/bin/sh"}
        words = [sys.executable, *terminal.command[1:]]
        process = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=self.home, env=environment
        )
        self.servers.append(process)
        assert process.stdin
        assert process.stdout
        assert process.stderr

        async def enter() -> None:
            assert process.stdin
            with contextlib.suppress(ConnectionError):
                while data := await terminal.read():
                    process.stdin.write(data)
                    await process.stdin.drain()
            process.stdin.close()

        async def leave(source: asyncio.StreamReader, channel: int) -> None:
            while data := await source.read(2**15):
                await terminal.write(data, channel)

        entering = asyncio.create_task(enter())
        await asyncio.gather(leave(process.stdout, 1), leave(process.stderr, 2))
        entering.cancel()
        await terminal.ends(await process.wait())

    async def start(self, program: str, *words: str, stdin: int = DEVNULL, stdout: int = PIPE, stderr: int = PIPE) -> Process:
        process = await asyncio.create_subprocess_exec(
            program, "-F", str(self.config), *words, stdin=stdin, stdout=stdout, stderr=stderr, env=self.environment
        )
        self.started.append(process)
        return process

    async def run(self, program: str, *words: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        process = await self.start(program, *words, stdin=PIPE)
        out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return process.returncode, out, err


async def test_commands_scripts_and_exit_codes(tmp_path: Path) -> None:
    async with worker(tmp_path) as there:
        commands = (
            there.run("ssh", "ebb-digits", "echo out; echo err >&2; pwd; exit 7"),
            # As VS Code sends its own: a shell that reads a script, longer than any pipe holds.
            there.run("ssh", "-T", "ebb-digits", "sh", stdin=b"# " + b"x" * 300_000 + b"\necho $((6 * 7))\nexit 3\n"),
            there.run("ssh", "ebb-digits", "kill -KILL $$"),
            there.run("ssh", "ebb-digits", "head -c 3", stdin=b"x" * 3_000_000),
        )
        found = await asyncio.gather(*commands)
    assert found[0] == (7, f"out\n{there.home}\n".encode(), b"err\n")
    assert found[1] == (3, b"42\n", b"")
    assert found[2][:2] == (255, b"")
    assert found[3] == (0, b"xxx", b"")


async def test_a_terminal(tmp_path: Path) -> None:
    """It has the size of the user's, Ctrl-C interrupts a program and not the connection, and the shell's code is that of ssh."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    async with worker(tmp_path) as there:
        process = await there.start("ssh", "-tt", "ebb-digits", stdin=other, stdout=other, stderr=other)
        os.close(other)
        os.write(main, b"stty size; tty | tr a-z A-Z\n")
        assert b"33 111" in await asyncio.to_thread(until, main, b"/DEV/PTS/")
        os.write(main, b"sleep 1000 || echo stopp''ed\n")
        await asyncio.to_thread(until, main, b"stopp''ed")
        os.write(main, b"\x03")
        os.write(main, b"echo aft''er; exit 5\n")
        await asyncio.to_thread(until, main, b"after")
        assert await process.wait() == 5
    os.close(main)


async def test_what_is_left_when_the_connection_breaks(tmp_path: Path) -> None:
    """As with sshd: what hangs on a terminal ends, anything else goes on. The server itself ends."""
    async with worker(tmp_path) as there:
        for flag, lives in (("-tt", False), ("-T", True)):
            fifo = there.home / flag
            os.mkfifo(fifo)
            process = await there.start("ssh", flag, "ebb-digits", f"exec 9> ./{flag}; echo $$ >&9; exec sleep 1000", stdin=PIPE)
            with await asyncio.to_thread(fifo.open, "rb", 0) as held:
                number = int(await asyncio.to_thread(held.readline))
                process.kill()
                await process.communicate()  # its ProxyCommand has ended too
                await there.servers[-1].wait()
                if lives:
                    os.set_blocking(held.fileno(), False)
                    assert held.read(1) is None  # not the end: the program has it open
                    os.kill(number, signal.SIGKILL)
                    os.set_blocking(held.fileno(), True)
                assert await asyncio.to_thread(held.read) == b""


def until(descriptor: int, end: bytes) -> bytes:
    said = b""
    while end not in said:
        said += os.read(descriptor, 1024)
    return said


async def test_ports_and_sockets_of_the_worker(tmp_path: Path) -> None:
    """-L to a port and to a socket's path, and -D, which VS Code takes: all over one connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.readline())
        writer.close()

    path = tmp_path / "socket"
    servers = [await asyncio.start_server(answer, "127.0.0.1", 0), await asyncio.start_unix_server(answer, path)]
    port = servers[0].sockets[0].getsockname()[1]
    local, dynamic, unix = (free_port() for _ in range(3))
    async with worker(tmp_path) as there:
        forwards = ["-L", f"{local}:127.0.0.1:{port}", "-L", f"127.0.0.1:{unix}:{path}", "-D", f"127.0.0.1:{dynamic}"]
        process = await there.start("ssh", "-T", *forwards, "ebb-digits", "echo ready; exec cat", stdin=PIPE)
        assert process.stdin
        assert process.stdout
        assert await process.stdout.readline() == b"ready\n"
        for number in (local, unix):
            assert await ask(number, b"hello\n") == b"got hello\n"
        assert (
            await ask(dynamic, b"\x05\x01\x00", b"\x05\x01\x00\x01\x7f\x00\x00\x01" + struct.pack(">H", port), b"x\n")
        ).endswith(b"got x\n")
        process.stdin.close()
        assert await process.wait() == 0
    for server in servers:
        server.close()


async def ask(port: int, *messages: bytes) -> bytes:
    """Send them, with an answer read after each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    for number, message in enumerate(messages, 1):
        writer.write(message)
        answer += await (reader.read(1024) if number < len(messages) else reader.read())
    writer.close()
    return answer


async def test_files_by_scp_and_sftp(tmp_path: Path) -> None:
    content = os.urandom(2**20) * 16
    (tmp_path / "big").write_bytes(content)
    async with worker(tmp_path) as there:
        assert await there.run("scp", "-q", str(tmp_path / "big"), "ebb-digits:there") == (0, b"", b"")
        assert (there.home / "there").read_bytes() == content
        (there.home / "small").write_bytes(content[: 2**20])
        back = there.run("scp", "-q", "-O", "ebb-digits:small", str(tmp_path / "back"))  # the protocol of older ones
        batch = there.run("sftp", "-q", "-b", "-", "ebb-digits", stdin=f"mkdir d\nput {there.config} d/x\n".encode())
        assert [code for code, *_ in await asyncio.gather(back, batch)] == [0, 0]
    assert (tmp_path / "back").read_bytes() == content[: 2**20]
    assert (there.home / "d" / "x").read_bytes() == there.config.read_bytes()


async def test_the_verb_becomes_openssh(tmp_path: Path) -> None:
    """`ebb ssh digits -- COMMAND`, with nothing in ~/.ssh."""
    async with worker(tmp_path) as there:
        environment = {**there.environment, "EBB_KUBECONFIG": there.kubeconfig}
        found = await EBB.run(*MAIN, "ssh", "digits", "--", "echo $HOME; exit 3", env=environment)
    assert found == (3, f"{there.home}\n".encode(), b"")
    keys = tmp_path / "config" / "ebb" / "ssh"
    assert sorted(each.name for each in keys.iterdir()) == ["authority", "known_hosts"]
    assert [each.stat().st_mode & 0o777 for each in (keys, keys / "authority")] == [0o700, 0o600]


async def test_a_server_without_our_certificate_is_refused(tmp_path: Path) -> None:
    """A host key that another authority has signed."""
    async with worker(tmp_path) as there:
        there.config.write_text(
            there.config.read_text().replace("ProxyCommand ", f"ProxyCommand env XDG_CONFIG_HOME={tmp_path / 'other'} ")
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", there.environment["XDG_CONFIG_HOME"])
            await prepare()
            known = known_hosts()
        assert known.read_text().startswith("@cert-authority ebb-* ssh-ed25519 ")
        code, out, err = await there.run("ssh", "ebb-digits", "echo in")
    assert (code, out) == (255, b"")
    assert b"Host key verification failed" in err
    assert b"Traceback" not in err
