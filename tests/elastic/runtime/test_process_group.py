"""What a rank does to its own connections."""

import os
import socket
import threading
from pathlib import Path

import pytest
import torch

from ebb.elastic.runtime import process_group as groups
from ebb.elastic.runtime.config import Place
from ebb.elastic.runtime.process_group import PEER_SECONDS, Group
from tests.elastic.machines import until
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


def limit(connection: socket.socket) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


def beside_a_tracker(opened: Path) -> tuple[list[int], list[int], list[bytes]]:
    """Limits of a tracker's connections and of the group's, and what the tracker's still carry when the group is cut. One is open
    before the ranks meet, one is opened by a thread of rank 0 while it waits for rank 1."""
    pairs = []
    server = socket.create_server(("127.0.0.1", 0))

    def connect() -> None:
        ours = socket.create_connection(server.getsockname())
        pairs.append((ours, server.accept()[0]))

    def connect_meanwhile() -> None:
        meets.wait()
        connect()
        opened.touch()

    def look_up() -> frozenset[str]:
        found = looked_up()
        meets.set()
        return found

    rank, meets, looked_up = int(os.environ["RANK"]), threading.Event(), groups.sockets
    connect()
    if rank == 0:
        vars(groups)["sockets"] = look_up
        threading.Thread(target=connect_meanwhile).start()
    else:
        until("a connection of rank 0", opened.exists)
    group = Group.join(Place(rank=rank, world_size=2), torch.device("cpu"), longest_seconds=60)
    limits = [limit(each) for each, _ in groups._connections(group._sockets)]
    group.barrier()
    if rank == 1:
        group.abandon()
    with pytest.raises(groups.PeerLostError):
        group.barrier()
    for ours, _ in pairs:
        ours.sendall(b"loss 0.5")
    return [limit(ours) for ours, _ in pairs], limits, [theirs.recv(8) for _, theirs in pairs]


def test_only_connections_between_ranks_are_limited_and_cut(tmp_path: Path) -> None:
    first, second = together(beside_a_tracker, 2, tmp_path / "opened")
    assert first[0::2] == ([0, 0], [b"loss 0.5"] * 2)
    assert second[0::2] == ([0], [b"loss 0.5"])
    assert set(first[1]) == set(second[1]) == {PEER_SECONDS * 1000}
    assert len(second[1]) >= 2, "to the other rank, and to the store"
