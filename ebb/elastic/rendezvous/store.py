"""The TCPStore of a generation: a new one each time, on the machine that is rank 0, used by agents and workers alike.

Every machine opens a server before it says that it is ready, so that one transaction in etcd shows all where to go. Nothing is
ever read from an older store.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import TCPStore  # what torch.distributed has, with its types

from ebb.elastic.rendezvous.generation import STORE_KEY, Generation
from ebb.elastic.rendezvous.peer_liveness import answers, refuses
from ebb.elastic.rendezvous.state import Record
from ebb.elastic.torch_compat import STORE_ERRORS, has_keys, open_store

# All machines of a generation reach its store within this time, or meet again. They have only just said that they are ready.
_ASSEMBLY_SECONDS = 60.0
_CONNECT_TIMEOUT = timedelta(seconds=2)
# What torch's agents wait for each other later, in ways that a lost machine would leave hanging; torch's default is 5 minutes.
_STORE_TIMEOUT = timedelta(seconds=60)
_FACTS_KEY = "ebb/facts"
_BROKEN: tuple[type[Exception], ...] = (*STORE_ERRORS, OSError)


class AssemblyFailed(Exception):  # not an error: meet again
    """The generation fell apart before all its machines had come to its store."""


def serve(address: str) -> TCPStore:
    """A server on a free port, reached at this address."""
    return open_store(address, 0, is_master=True, wait_for_workers=False, timeout=_STORE_TIMEOUT)


def address_of(store: TCPStore) -> str:
    return f"{store.host}:{store.port}"


def assemble(record: Record, rank: int, server: TCPStore, generation: Generation, broken: Callable[[], bool]) -> TCPStore:
    """The store of this generation, once all its machines are connected and the workers can read in it which one they are in.

    `broken` is asked again and again: whether somebody is lost already. Raises AssemblyFailed.
    """
    deadline = time.monotonic() + _ASSEMBLY_SECONDS

    def check() -> None:
        if broken() or time.monotonic() > deadline:
            raise AssemblyFailed

    here = [f"ebb/here/{number}" for number in range(len(record.members))]
    try:
        if rank == 0:
            _wait(server, here[1:], check)
            server.set(STORE_KEY, generation.to_json())
            return server
        client = _connect(record.store, check)
        client.set(here[rank], "")
        _wait(client, [STORE_KEY], check)
    except _BROKEN as error:
        raise AssemblyFailed from error
    return client


def tell_facts(store: TCPStore, facts: object) -> None:
    """For machines that get ready beside this generation; from rank 0's agent."""
    with contextlib.suppress(*_BROKEN):  # they can do without
        store.set(_FACTS_KEY, json.dumps(facts))


def look_up_facts(address: str, *, wait_seconds: float) -> tuple[TCPStore, Any] | None:
    """The store of a generation that this machine is not in, and its facts; None when there are none within that time."""
    began = time.monotonic()

    def check(limit_seconds: float) -> None:
        if time.monotonic() - began > limit_seconds:
            raise AssemblyFailed

    try:
        store = _connect(address, lambda: check(_CONNECT_TIMEOUT.total_seconds()))
        _wait(store, [_FACTS_KEY], lambda: check(wait_seconds))
        return store, json.loads(store.get(_FACTS_KEY))
    except AssemblyFailed:
        return None
    except _BROKEN:
        return None


def _connect(store: str, check: Callable[[], None]) -> TCPStore:
    host, _, port = store.rpartition(":")
    while True:
        check()
        if refuses(store):  # its process is gone; torch would try for the whole time-out, and write a trace of C++ frames
            raise AssemblyFailed
        try:
            client = open_store(host, int(port), is_master=False, wait_for_workers=False, timeout=_CONNECT_TIMEOUT)
        except STORE_ERRORS as error:
            check()
            if not answers(store):  # its process is gone, or the network to it: the machines find out which when they meet again
                raise AssemblyFailed from error
            continue
        client.set_timeout(_STORE_TIMEOUT)
        return client


def _wait(store: TCPStore, keys: list[str], check: Callable[[], None]) -> None:
    """torch's own wait hears no signal, and writes two warnings each time that its limit is over."""
    seconds = 0.005
    while keys and not has_keys(store, keys):
        check()
        time.sleep(seconds)
        seconds = min(2 * seconds, 0.1)
