"""A group that is made again and again: a rank that dies at the wrong moment."""

import os
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore

from ebb.elastic.runtime import members
from ebb.elastic.runtime.config import Place
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.process_group import PeerLostError
from ebb.elastic.torch_compat import open_store
from tests.elastic.runtime.ranks import together


def serve() -> TCPStore:
    """The store, which the launcher of rank 0 serves otherwise."""
    port = int(os.environ["MASTER_PORT"])
    return TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))


def die_while_they_connect() -> float:
    """Rank 1 says that it is there for the state, and is gone. Seconds until rank 0 notices."""
    rank = int(os.environ["RANK"])
    _server = serve() if rank == 0 else None
    group = Members.enter(Place(rank=rank, world_size=2), torch.device("cpu"), longest_seconds=60)
    if rank == 1:
        assert group._store is not None
        PrefixStore("state", group._store).set("here/1", "")
        os._exit(9)
    began = time.monotonic()
    with pytest.raises(PeerLostError):
        group.pass_on([0, 1], give=lambda: {"weights": torch.ones(3)})
    return time.monotonic() - began


def test_nobody_waits_for_a_rank_that_dies_while_they_connect() -> None:
    """gloo tries to reach it for 60 s."""
    seconds, _ = together(die_while_they_connect, 2, waited_for=[0])
    assert seconds < 20


def die_while_they_meet() -> list[str]:
    """Rank 1 says that it has come, and is gone. What still tries to reach it once the launcher has said so."""
    rank = int(os.environ["RANK"])
    _server = serve() if rank == 0 else None
    if rank == 1:
        port, longest = int(os.environ["MASTER_PORT"]), timedelta(seconds=60)
        server = open_store("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=longest)
        PrefixStore("members", server).set("here/1", "")
        os._exit(9)
    told = time.monotonic() + 5
    Members.is_left = property(lambda self: time.monotonic() > told)  # type: ignore[assignment]
    with pytest.raises(PeerLostError):
        Members.enter(Place(rank=rank, world_size=2), torch.device("cpu"), longest_seconds=60)
    return still_trying()


def still_trying() -> list[str]:
    threads = [each for each in threading.enumerate() if each.name == "connecting"]
    for each in threads:
        each.join(20)
    return [each.name for each in threads if each.is_alive()]


def test_nothing_goes_on_trying_to_reach_a_rank_that_died_while_they_met() -> None:
    """gloo tries for 60 s, with a thread and seven descriptors: losses one soon after the other would add them up."""
    threads, _ = together(die_while_they_meet, 2, waited_for=[0])
    assert threads == []


def stand_still_once_connected() -> float:
    """Rank 1 is connected and sends nothing. Seconds until rank 0 gives up."""
    rank = int(os.environ["RANK"])
    _server = serve() if rank == 0 else None
    members.MEETING_SECONDS = 3  # type: ignore[attr-defined]
    if rank == 1:
        Members._settle = lambda self, others: signal.pause()  # type: ignore[method-assign]
    began = time.monotonic()
    with pytest.raises(PeerLostError):
        Members.enter(Place(rank=rank, world_size=2), torch.device("cpu"), longest_seconds=600)
    return time.monotonic() - began


def test_a_generation_whose_connections_carry_nothing_is_given_up() -> None:
    """Otherwise the first step would have its 30 minutes."""
    seconds, _ = together(stand_still_once_connected, 2, waited_for=[0])
    assert seconds < 40
