"""What a rank does to its own connections."""

import gc
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ebb.elastic.runtime import connections
from ebb.elastic.runtime import process_group as groups
from ebb.elastic.runtime.config import Place
from ebb.elastic.runtime.connections import PEER_SECONDS, Connections
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.transfer import pass_on
from tests.elastic.machines import until
from tests.elastic.runtime.ranks import together


def test_a_peer_that_ends_while_the_others_are_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking for connections and cutting them, one of two ends: the other is cut all the same."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = [socket.create_connection(server.getsockname()) for _ in range(2)]
        theirs = [server.accept()[0] for _ in range(2)]
    every = connections.duplicates(connections.sockets())
    found = [(each, port) for each, port in every if each.getsockname() in [one.getsockname() for one in ours]]
    assert [port for _, port in found] == [ours[0].getpeername()[1]] * 2
    for each in (theirs[0], ours[0]):
        each.shutdown(socket.SHUT_RDWR)
    with pytest.raises(OSError, match="not connected"):
        ours[0].getpeername()
    monkeypatch.setattr(connections, "duplicates", lambda _: found)
    Connections().cut()
    assert theirs[1].recv(1) == b""
    for each in (*ours, *theirs, *(connection for connection, _ in every)):
        each.close()


def test_behind_a_proxy_nothing_that_closes_is_a_loss() -> None:
    """There no connection has both its ends among the ranks, and those of the program's own threads cannot be told apart."""
    others = connections.sockets()
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs = server.accept()[0]

    def between(ends: list[list[tuple[str, str]]]) -> Connections:
        return Connections.between(others, rank=0, store_port=0, tell_all=lambda mine: [mine, *ends])

    here, there = (f"127.0.0.1:{each.getsockname()[1]}" for each in (ours, theirs))
    direct, proxied = between([[(there, here)]]), between([[("10.0.0.2:1", "10.0.0.9:2")]])
    assert not direct.closed
    theirs.close()
    assert direct.closed
    assert not proxied.closed
    ours.close()


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

    rank, meets, looked_up = int(os.environ["RANK"]), threading.Event(), connections.sockets
    connect()
    if rank == 0:
        vars(groups)["sockets"] = look_up
        threading.Thread(target=connect_meanwhile).start()
    else:
        until("a connection of rank 0", opened.exists)
    group = Group.join(Place(rank=rank, world_size=2), torch.device("cpu"), longest_seconds=60)
    limits = [limit(each) for each, _ in connections.duplicates(group._connections.names)]
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


def kill_the_source(what: str, ids: Path) -> float:
    """Seconds until rank 1 notices that rank 0 was killed in the middle of a message, of which it has some already."""
    rank = int(os.environ["RANK"])
    group = Group.join(Place(rank=rank, world_size=2), torch.device("cpu"), longest_seconds=60)
    if rank == 0:
        ids.write_text(str(os.getpid()))
    group.barrier()
    content = torch.full((200_000_000,), float(rank == 0))  # 0.8 GB: it takes a while
    killed: list[float] = []

    def kill() -> None:
        os.kill(int(ids.read_text()), signal.SIGKILL)
        killed.append(time.monotonic())

    def kill_in_message() -> None:
        while not content[:1000].any():
            pass  # until something has come
        kill()

    def wait(work: dist.Work) -> None:
        waits.append(work)
        if rank == 1 and len(waits) == 6:  # the outline's two are through
            kill()
        group.wait(work)

    waits: list[dist.Work] = []
    if rank == 1 and what == "broadcast":
        threading.Thread(target=kill_in_message).start()
    moves: dict[str, Callable[[], object]] = {
        "broadcast": lambda: group.hand_out_tensors([content], 0),
        "transfer": lambda: pass_on(group._world, {"it": content} if rank == 0 else None, first=rank == 0, wait=wait),
    }
    with pytest.raises(groups.PeerLostError):
        moves[what]()
    return time.monotonic() - killed[0]


@pytest.mark.parametrize("what", ["broadcast", "transfer"])
def test_a_rank_that_is_killed_in_the_middle_of_a_message_is_noticed(what: str, tmp_path: Path) -> None:
    """gloo waits for the rest of it until its timeout, 60 s here and half an hour otherwise."""
    _, seconds = together(kill_the_source, 2, what, tmp_path / "ids", waited_for=[1])
    assert seconds < 20


def abandon_in_a_wait(given_up: Path) -> bool:
    """While rank 1 takes no part, without leaving."""
    group = Group.join(Place(rank=int(os.environ["RANK"]), world_size=2), torch.device("cpu"), longest_seconds=60)
    if group.rank == 1:
        until("rank 0 has given up", given_up.exists)
        return True
    group._connections = Connections()  # as where gloo forgets whom to tell: nothing is cut
    timer = threading.Timer(0.1, group.abandon)
    timer.start()
    with pytest.raises(groups.PeerLostError, match="a peer is gone, or has left"):
        group.barrier()
    given_up.touch()
    return group.broken


def test_who_waits_for_a_rank_wakes_when_the_group_is_abandoned(tmp_path: Path) -> None:
    assert together(abandon_in_a_wait, 2, tmp_path / "given-up") == [True, True]


class Garbage:
    """Reaches itself; collecting it is written down."""

    def __init__(self, collected: Path) -> None:
        self.collected, self.itself = collected, self

    def __del__(self) -> None:
        self.collected.write_text(str(os.getpid()))


def collect_in_a_loader(collected: Path) -> tuple[bool, bool]:
    """True where a forked process has collected this one's garbage, and where this one has."""
    group = Group.join(Place(rank=int(os.environ["RANK"]), world_size=2), torch.device("cpu"), longest_seconds=60)
    collected = collected.with_name(os.environ["RANK"])
    gc.disable()
    Garbage(collected)
    loader = multiprocessing.get_context("fork").Process(target=gc.collect)
    loader.start()
    loader.join()
    there = collected.exists()
    gc.collect()
    group.barrier()
    return there, collected.exists()


def test_a_loader_process_leaves_the_garbage_of_its_rank_alone(tmp_path: Path) -> None:
    """gloo's destructors would wait there for threads that it has not."""
    assert together(collect_in_a_loader, 2, tmp_path / "collected") == [(False, True)] * 2
