"""Names of newer torches: torch's own where it has them, and what stands in for them on an older one."""

import os
from typing import Any

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store

from ebb.elastic import torch_compat
from ebb.elastic.torch_compat import CONNECTION_ERRORS, STORE_ERRORS, DistError, has_keys, open_store
from tests.elastic.torch_names import RECORD, is_there, names_used

# Asked for where torch 2.1 never comes: compilation (speed/compilation.py) and models that are sharded look at its version first.
NEWER = {
    "torch.compiler.load_cache_artifacts",
    "torch.compiler.save_cache_artifacts",
    "torch.compiler.set_stance",
    "torch.distributed.device_mesh.DeviceMesh",
}


@pytest.fixture
def store() -> Store:
    return HashStore()


class OlderStore:
    """A store of torch 2.1 and 2.2, which has no check()."""

    def __init__(self, store: Store) -> None:
        self.compare_set = store.compare_set


def test_this_torch_has_them_all() -> None:
    assert (DistError, STORE_ERRORS) == (dist.DistError, (dist.DistError,))
    assert (dist.DistNetworkError, dist.DistStoreError) == CONNECTION_ERRORS


@pytest.mark.parametrize("older", [False, True], ids=["newer", "older"])
def test_a_look_for_keys_waits_for_none_and_leaves_none_behind(store: Store, older: bool) -> None:
    looked_at: Any = OlderStore(store) if older else store
    store.set("here/1", "")
    store.set("here/2", "somebody")
    assert has_keys(looked_at, [])
    assert has_keys(looked_at, ["here/1", "here/2"])
    assert not has_keys(looked_at, ["here/2", "here/3"])
    assert not store.check(["here/3"])
    assert store.get("here/2") == b"somebody"


def test_the_runtime_uses_no_name_that_torch_2_1_has_not() -> None:
    """One `from torch.distributed.fsdp import FSDPModule` ended every job beside torch 2.4 and 2.5."""
    unknown = names_used() - set(RECORD.read_text().split()) - NEWER
    assert not unknown, f"torch 2.1 may not have {sorted(unknown)}: see tests/elastic/torch_names.py, and torch_compat.py"


def test_the_record_of_names_is_of_things_that_are_there() -> None:
    assert is_there("torch.distributed.rendezvous.rendezvous")
    assert not is_there("torch.distributed.fsdp.NoSuchModule")
    assert len(RECORD.read_text().split()) > 100


def test_a_torch_without_libuv_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's own: each launcher in such an image ended at its first store."""

    def without(host: str, port: int, *, use_libuv: bool = True, **options: Any) -> Any:
        if use_libuv:
            raise RuntimeError("use_libuv was requested but PyTorch was build without libuv support")
        return host, port, options

    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(torch_compat, "TCPStore", without)
    found: Any = open_store("127.0.0.1", 80, is_master=True)
    assert found == ("127.0.0.1", 80, {"is_master": True})
    assert os.environ == {"USE_LIBUV": "0"}, "for torch's own stores, of this process and of workers"


def test_another_error_of_a_store_stays_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise DistError("the port is taken")

    monkeypatch.setattr(torch_compat, "TCPStore", broken)
    with pytest.raises(DistError, match="the port is taken"):
        open_store("127.0.0.1", 80)
