"""The TCP connections between the ranks of a generation, as the kernel has them: gloo and the store do not hand out theirs.

    others = sockets()                                        # before gloo and the store open any
    connections = Connections.between(others, rank=0, store_port=29500, tell_all=group.all_facts)
    connections.closed                                        # the other end of one of them is gone
    connections.cut()                                         # the other ranks notice

A machine that loses its power closes no socket: its peers would wait for the collective's timeout. So the kernel is told to
probe every connection between ranks, and no other of this process, and to fail it after PEER_SECONDS without an answer. A peer
that is merely slow, or stopped, still answers (its kernel does), so this does not split a job under load. A rank that fails or is
killed closes its sockets and is noticed at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebb.compat import Self

# Retransmissions and probes go unanswered for this long before a peer counts as gone. 3 s: the retransmissions after 0.2, 0.6 and
# 1.4 s are all lost, which is more than a pause of a busy network, and 2 s are left for the rest of a recovery from silence in 5.
# Sooner nobody would be taken off the list of the rendezvous (rendezvous/participant.py: _SILENCE_SHARE of a lease of 10 s).
PEER_SECONDS = 3


def sockets() -> frozenset[str]:
    """All of this process, by names that are not used again as descriptors are: socket:[INODE]."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(entry.readlink().as_posix())
    return frozenset(name for name in found if name.startswith("socket:"))


@dataclass(frozen=True)
class Connections:
    """Those to other ranks, and the one to the store, by the names of their sockets."""

    names: frozenset[str] = frozenset()
    store_port: int = 0
    certain: bool = True  # none of them is anything else

    @classmethod
    def between(cls, others: frozenset[str], *, rank: int, store_port: int, tell_all: Callable[[list[Any]], list[Any]]) -> Self:
        """All but the `others` that both ends have. The program's own threads, a tracker's or a data set's, may have opened some
        while the ranks met. On all ranks at once."""
        found = sockets() - others
        ends = _ends(found)
        heard = tell_all(list(ends.values()))
        theirs = {(here, there) for other, each in enumerate(heard) if other != rank for here, there in each}
        shared = {name for name, (here, there) in ends.items() if (there, here) in theirs}
        if shared:
            found = frozenset(shared | {name for name, (_, there) in ends.items() if there.endswith(f":{store_port}")})
        connections = cls(found, store_port, certain=bool(shared))  # otherwise a proxy sits between the ranks
        for connection, _ in duplicates(found):
            with connection:
                _probe(connection)
        return connections

    @property
    def closed(self) -> bool:
        """True if the other end of one is gone, or this one. Never behind a proxy: what closes there may be a tracker's."""
        if not self.certain:
            return False
        there = duplicates(self.names)
        poll = select.poll()
        for connection, _ in there:
            poll.register(connection, select.POLLRDHUP)  # and errors, in any case
        gone = len(there) < len(self.names) or bool(poll.poll(0))
        for connection, _ in there:
            connection.close()
        return gone

    def cut(self) -> None:
        """Those between ranks. The store stays."""
        _shut_down(self.names, lambda port: port != self.store_port)


def hang_up(others: frozenset[str], store_port: int) -> None:
    """Those to the store that are not `others`: who waits for its answer is told at once that there is none."""
    _shut_down(sockets() - others, lambda port: port == store_port)


def _shut_down(names: frozenset[str], is_meant: Callable[[int], bool]) -> None:
    """Those of which the other end's port is meant, in both directions; whoever holds them still closes them."""
    for connection, port in duplicates(names):
        with connection, contextlib.suppress(OSError):
            if is_meant(port):
                connection.shutdown(socket.SHUT_RDWR)


def duplicates(names: frozenset[str]) -> list[tuple[socket.socket, int]]:
    """Of those that are TCP connections, each with the other end's port. The port is asked once: a peer that ends at any moment
    takes the answer with it."""
    found = []
    for entry in Path("/proc/self/fd").iterdir() if names else ():
        with contextlib.suppress(OSError):
            if entry.readlink().as_posix() in names:
                connection = socket.socket(fileno=os.dup(int(entry.name)))
                port = _peer_port(connection)
                if port is None:
                    connection.close()
                else:
                    found.append((connection, port))
    return found


def _ends(names: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Of those that are TCP connections: address and port here, and there."""
    found = {}
    for connection, _ in duplicates(names):
        with connection, contextlib.suppress(OSError):
            name = Path(f"/proc/self/fd/{connection.fileno()}").readlink().as_posix()
            found[name] = _words(connection.getsockname()), _words(connection.getpeername())
    return found


def _words(address: tuple[Any, ...]) -> str:
    return f"{address[0].removeprefix('::ffff:')}:{address[1]}"


def _peer_port(connection: socket.socket) -> int | None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return None
    try:
        return int(connection.getpeername()[1])
    except OSError:  # it listens, or has no other end any more
        return None


def _probe(connection: socket.socket) -> None:
    """Fail the connection when the other kernel is silent for PEER_SECONDS: idle, or with data on its way (tcp(7))."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PEER_SECONDS - 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_SECONDS * 1000)
