"""Ports for servers that a test or a benchmark starts.

A port that the kernel gives out itself (`bind` to port 0) is free for a moment only: until the server has started, the kernel may
give the same one to any other program that asks. So free_port takes one that the kernel gives to nobody.
"""

import secrets
import socket
from contextlib import suppress

# Below 30000 lie neither the ports of NodePort Services nor, by default, those that the kernel gives out (ip_local_port_range).
_PORTS = range(11_000, 30_000)


def free_port() -> int:
    """A TCP port that nobody has on any address of this machine, chosen anew each time."""
    while True:
        port = secrets.choice(_PORTS)  # not random.choice: two processes with one seed would choose the same
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
