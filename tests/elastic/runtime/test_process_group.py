"""What a rank does to its own connections."""

import socket

import pytest
import torch

from ebb.elastic.runtime import process_group as groups
from ebb.elastic.runtime.process_group import Group


def test_a_peer_that_ends_while_the_others_are_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking for connections and cutting them, one of two ends: the other is cut all the same."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = [socket.create_connection(server.getsockname()) for _ in range(2)]
        theirs = [server.accept()[0] for _ in range(2)]
    every = groups._connections()
    found = [(each, port) for each, port in every if each.getsockname() in [one.getsockname() for one in ours]]
    assert [port for _, port in found] == [ours[0].getpeername()[1]] * 2
    for each in (theirs[0], ours[0]):
        each.shutdown(socket.SHUT_RDWR)
    with pytest.raises(OSError, match="not connected"):
        ours[0].getpeername()
    monkeypatch.setattr(groups, "_connections", lambda: found)
    Group(0, 2, torch.device("cpu")).abandon()
    assert theirs[1].recv(1) == b""
    for each in (*ours, *theirs, *(connection for connection, _ in every)):
        each.close()
