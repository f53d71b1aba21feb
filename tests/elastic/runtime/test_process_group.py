"""What a rank does to its own connections."""

import os
import socket

import pytest
import torch

from ebb.elastic.runtime import process_group as groups
from ebb.elastic.runtime.config import Place
from ebb.elastic.runtime.process_group import PEER_SECONDS, Group
from tests.elastic.runtime.ranks import together


def test_a_peer_that_ends_while_the_others_are_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking for connections and cutting them, one of two ends: the other is cut all the same."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = [socket.create_connection(server.getsockname()) for _ in range(2)]
        theirs = [server.accept()[0] for _ in range(2)]
    every = groups._connections(groups.sockets())
    found = [(each, port) for each, port in every if each.getsockname() in [one.getsockname() for one in ours]]
    assert [port for _, port in found] == [ours[0].getpeername()[1]] * 2
    for each in (theirs[0], ours[0]):
        each.shutdown(socket.SHUT_RDWR)
    with pytest.raises(OSError, match="not connected"):
        ours[0].getpeername()
    monkeypatch.setattr(groups, "_connections", lambda _: found)
    Group(0, 2, torch.device("cpu")).abandon()
    assert theirs[1].recv(1) == b""
    for each in (*ours, *theirs, *(connection for connection, _ in every)):
        each.close()


def beside_a_tracker() -> tuple[int, int, bytes]:
    """Limits of a tracker's connection and of the group's, and what the tracker's still carries when the group is cut."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs = server.accept()[0]
    rank = int(os.environ["RANK"])
    group = Group.join(Place(rank=rank, world_size=2), torch.device("cpu"), longest_seconds=60)
    limits = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for each, _ in groups._connections(group._sockets)]
    group.barrier()
    if rank == 1:
        group.abandon()
    with pytest.raises(groups.PeerLostError):
        group.barrier()
    ours.sendall(b"loss 0.5")
    return ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT), min(limits, default=0), theirs.recv(8)


def test_only_connections_between_ranks_are_limited_and_cut() -> None:
    assert together(beside_a_tracker, 2) == [(0, PEER_SECONDS * 1000, b"loss 0.5")] * 2
