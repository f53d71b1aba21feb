"""The addresses at which clouds answer an instance alone, in a devcluster's network: its router has them.

with served(box, "169.254.169.254") as listening: ...      # a socket on port 80
"""

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devcluster.settings import Box

CLONE_NEWNET = 0x40000000  # <linux/sched.h>


@contextmanager
def served(box: Box, address: str) -> Iterator[socket.socket]:
    own = [f"{address}/32", "dev", "bridge"]
    subprocess.run(["ip", "-n", box.netns, "addr", "replace", *own], check=True)
    try:
        yield _listen(box.netns, address)
    finally:
        subprocess.run(["ip", "-n", box.netns, "addr", "del", *own], check=True)


def _listen(netns: str, address: str) -> socket.socket:
    """A socket in another network namespace: it stays there when the thread that made it is gone."""
    made: list[socket.socket] = []

    def make() -> None:
        with Path("/run/netns", netns).open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        made.append(socket.create_server((address, 80)))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]
