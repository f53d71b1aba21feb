"""This machine's terminal as a program in a worker sees it: raw, with its size, and its input byte by byte."""

import asyncio
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

CHUNK = 2**15


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Every key goes to the program, Ctrl-C too, and nothing is echoed here."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def resizes(tell: Callable[[], None]) -> Iterator[None]:
    """`tell` when the terminal gets another size."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def keys(descriptor: int) -> AsyncIterator[bytes]:
    """What is typed or piped, until its end. A thread reads, as a redirected file cannot be waited for; it does not keep the
    program from ending."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes](8)

    def read() -> None:
        try:
            while True:
                data = os.read(descriptor, CHUNK)
                asyncio.run_coroutine_threadsafe(queue.put(data), loop).result()
                if not data:
                    return
        except (OSError, RuntimeError, asyncio.CancelledError):
            return  # the terminal or the loop is gone

    threading.Thread(target=read, daemon=True).start()
    while data := await queue.get():
        yield data


def write(channel: int, data: bytes) -> None:
    """Bytes as they come, to stdout (1) or stderr (2)."""
    stream = sys.stdout.buffer if channel == 1 else sys.stderr.buffer
    stream.write(data)
    stream.flush()
