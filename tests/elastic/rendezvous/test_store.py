"""The store of a generation, where the machine that has it is lost before the others have come to it."""

import socket
from typing import Any

import pytest
from torch._C._distributed_c10d import TCPStore  # what torch.distributed has, with its types

from ebb.elastic.rendezvous import store
from ebb.elastic.rendezvous.generation import Generation
from ebb.elastic.rendezvous.state import MemberRecord, Record
from ebb.elastic.torch_compat import open_store


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store whose process has ended; torch, which would try it for its whole time-out, is not to be asked."""

    def open_server(host: str, port: int, **options: Any) -> TCPStore:
        assert options["is_master"], "torch was asked for a store that is gone"
        return open_store(host, port, **options)

    monkeypatch.setattr(store, "open_store", open_server)
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_member_does_not_try_a_store_that_is_gone(gone: str) -> None:
    members = tuple(MemberRecord(id=name, address="127.0.0.1", processes=1) for name in "ab")
    record = Record(number=2, members=members, store=gone)
    server = store.serve("127.0.0.1")
    with pytest.raises(store.AssemblyFailed):
        store.assemble(record, 1, server, Generation(number=2, prefix="/ebb/job", etcd=None), broken=lambda: False)


def test_a_newcomer_does_not_look_for_facts_in_a_store_that_is_gone(gone: str) -> None:
    assert store.look_up_facts(gone, wait_seconds=60.0) is None
