"""The SSH server of one connection, inside a worker: it speaks over its standard input and output, and no port is open.

carrier.py sends this file to the worker's Python and runs it there, so that both ends are of one version and the image needs
nothing of Ebb: it imports the standard library and asyncssh alone, and runs on Python 3.9. Nobody is asked for a password or a
key: who speaks to it has started it, by the right to execute programs in the pod. The host key lives in this process' memory.

Sessions are as sshd's: a program that is left alone when the connection ends goes on, and a terminal that closes hangs up.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import pwd
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from pathlib import Path

READY, NO_ASYNCSSH = b"ebb-ssh ready\n", b"ebb-ssh needs asyncssh\n"
sys.path.append(os.path.join(tempfile.gettempdir(), "ebb-ssh"))  # noqa: PTH118 - see carrier.py: put there by the user
try:
    import asyncssh
except ImportError:
    os.write(1, NO_ASYNCSSH)
    sys.exit(1)

CHUNK = 2**16
KEEPALIVE_SECONDS = 30
END_OF_INPUT = b"\x04"  # as one types it: Ctrl-D
DRAIN_SECONDS = 1.0  # for what a shell has written before its end


def main(host_key: str, certificate: str) -> None:
    """Serve, and end at once with what is left: threads that wait for programs that go on."""
    logging.basicConfig(level=logging.CRITICAL)
    with contextlib.suppress(OSError):
        os.chdir(start_folder())
    with contextlib.suppress(OSError, asyncssh.Error):  # OpenSSH says it: it has not liked the host, or is gone
        asyncio.run(serve(host_key, certificate))
    os._exit(0)


def start_folder() -> str:
    """The job's code, as ebb/elastic/launch/code.py has unpacked it; else the folder that the image starts in."""
    version = os.environ.get("EBB_CODE_SHA256", "")[:8]
    found = Path(tempfile.gettempdir()).glob(f"code-{version}-*") if version else ()
    return str(max(found, key=lambda each: each.stat().st_mtime, default="."))


class Server(asyncssh.SSHServer):
    """Lets everybody in who has come this far, and forwards ports and sockets in both directions."""

    def begin_auth(self, username: str) -> bool:
        return False

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True

    def unix_connection_requested(self, dest_path: str) -> bool:
        return True

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        return True

    def unix_server_requested(self, listen_path: str) -> bool:
        return True


class SftpFiles(asyncssh.SFTPServer):
    """Says how it ended: OpenSSH's scp takes a transfer without an exit code for a failed one."""

    def exit(self) -> None:
        if self.channel.get_subsystem() == "sftp":
            with contextlib.suppress(OSError):
                self.channel.exit(0)


async def serve(host_key: str, certificate: str) -> None:
    """One connection, to its end."""
    key = asyncssh.import_private_key(host_key)
    ours, theirs = socket.socketpair()
    os.write(1, READY)
    carrying = asyncio.ensure_future(carry(ours))
    connection = await asyncssh.run_server(
        theirs,
        server_factory=Server,
        server_host_keys=[(key, asyncssh.import_certificate(certificate))],
        process_factory=run_session,
        sftp_factory=SftpFiles,
        allow_scp=True,
        encoding=None,
        line_editor=False,
        compression_algs=None,
        keepalive_interval=KEEPALIVE_SECONDS,
    )
    await connection.wait_closed()
    await carrying


async def carry(ours: socket.socket) -> None:
    """Between this process' own input and output and the socket that the server speaks to."""
    reader, writer = await asyncio.open_connection(sock=ours)
    source, sink = await read_end(0), await write_end(1)
    entering = asyncio.ensure_future(pump(source, writer))
    await pump(reader, sink)
    await entering if source.at_eof() else entering.cancel()


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Until the source ends or the sink is gone; then the sink is closed."""
    with contextlib.suppress(OSError):
        while True:
            data = await source.read(CHUNK)
            if not data:
                break
            sink.write(data)
            await sink.drain()
    sink.close()


async def read_end(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return reader


async def write_end(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    file = os.fdopen(descriptor, "wb", 0)
    transport, protocol = await loop.connect_write_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def run_session(process: "asyncssh.SSHServerProcess[bytes]") -> None:
    """A command, a script over its input, or a shell with a terminal."""
    if process.subsystem:
        process.stderr.write(f"ebb: there is no SSH subsystem {process.subsystem} here\n".encode())
        process.exit(1)
        return
    shell = find_shell()
    command = [shell, "-c", process.command] if process.command else [shell]
    environment = {**os.environ, **{str(name): str(value) for name, value in process.env.items()}, "SHELL": shell}
    try:
        code = await (run_terminal if process.term_type else run_pipes)(process, command, environment)
    except OSError as error:
        process.stderr.write(f"ebb: {command[0]} cannot be run: {error.strerror}\n".encode())
        code = 126
    with contextlib.suppress(OSError):
        if code < 0:
            process.exit_with_signal(signal.Signals(-code).name[3:])
        else:
            process.exit(code)


def find_shell() -> str:
    """The user's own, where the image knows one, else bash, else sh."""
    own = os.environ.get("SHELL") or ""
    with contextlib.suppress(KeyError):
        own = own or pwd.getpwuid(os.getuid()).pw_shell
    usable = [each for each in (own, "/bin/bash", "/usr/bin/bash") if os.access(each, os.X_OK)]
    return next((each for each in usable if not each.endswith(("/nologin", "/false"))), "/bin/sh")


async def run_pipes(process: "asyncssh.SSHServerProcess[bytes]", command: list[str], environment: dict[str, str]) -> int:
    """Without a terminal; the exit code, negative for a signal."""
    child = subprocess.Popen(  # noqa: ASYNC220 - see `watch`
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    ended = watch(child)
    feeding = asyncio.ensure_future(feed(process, child, await write_end(os.dup(child.stdin.fileno()))))
    child.stdin.close()
    outputs = [(child.stdout, process.stdout), (child.stderr, process.stderr)]
    ends = [(await read_end(os.dup(pipe.fileno())), sink) for pipe, sink in outputs]
    for pipe, _ in outputs:
        pipe.close()
    await asyncio.gather(*(show(source, sink) for source, sink in ends))
    code = await ended
    feeding.cancel()
    return code


async def run_terminal(process: "asyncssh.SSHServerProcess[bytes]", command: list[str], environment: dict[str, str]) -> int:
    """With a terminal of its own, which hangs up when the connection ends."""
    main, other = os.openpty()
    resize(main, process.term_size)
    child = subprocess.Popen(  # noqa: ASYNC220 - see `watch`
        command,
        env={**environment, "TERM": process.term_type or "dumb", "SSH_TTY": os.ttyname(other)},
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
        preexec_fn=take_terminal,  # noqa: PLW1509 - a single system call
    )
    os.close(other)
    ended = watch(child)
    feeding = asyncio.ensure_future(feed(process, child, await write_end(os.dup(main)), main))
    showing = asyncio.ensure_future(show(await read_end(os.dup(main)), process.stdout))
    # A program in the background may keep the terminal open; the shell's own end ends the session, as sshd has it.
    code = await ended
    await asyncio.wait({showing}, timeout=DRAIN_SECONDS)
    showing.cancel()
    feeding.cancel()
    os.close(main)
    return code


def take_terminal() -> None:
    """In the new process: keys such as Ctrl-C are for its session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    columns, rows, width, height = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))


async def feed(
    process: "asyncssh.SSHServerProcess[bytes]", child: "subprocess.Popen[bytes]", sink: asyncio.StreamWriter, terminal: int = -1
) -> None:
    """Pass on what the user types or pipes, and signals and sizes in between. The end of a terminal's connection hangs up."""
    try:
        while True:
            try:
                data = await process.stdin.read(CHUNK)
            except asyncssh.TerminalSizeChanged as change:
                if terminal >= 0:
                    resize(terminal, change.term_size)
                continue
            except asyncssh.SignalReceived as received:
                tell(child, received.signal)
                continue
            except asyncssh.BreakReceived:
                tell(child, "INT")
                continue
            if not data:
                break
            sink.write(data)
            await sink.drain()
        if terminal >= 0 and not process.is_closing():
            sink.write(END_OF_INPUT)
    except (OSError, asyncssh.Error):
        pass  # the program has ended, or the connection
    finally:
        sink.close()
        if terminal >= 0 and process.is_closing():
            tell(child, "HUP")


def tell(child: "subprocess.Popen[bytes]", name: str) -> None:
    number = getattr(signal, f"SIG{name}", None)
    if number is not None and child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)


async def show(source: asyncio.StreamReader, sink: "asyncssh.SSHWriter[bytes]") -> None:
    """A program's output. Where nobody reads it any more, its pipe breaks, as sshd's does."""
    try:
        while True:
            data = await source.read(CHUNK)
            if not data:
                return
            sink.write(data)
            await sink.drain()
    except (OSError, asyncssh.Error):
        transport = getattr(source, "_transport", None)
        if transport is not None:
            transport.close()


def watch(child: "subprocess.Popen[bytes]") -> "asyncio.Future[int]":
    """Its exit code. A thread, as asyncio's own processes are killed with the loop that started them."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def wait() -> None:
        code = child.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set_result, code)

    threading.Thread(target=wait, daemon=True).start()
    return ended
