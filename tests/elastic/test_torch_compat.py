"""Names of newer torches: torch's own where it has them, and what stands in for them on an older one."""

from typing import Any

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store

from ebb.elastic.torch_compat import CONNECTION_ERRORS, STORE_ERRORS, DistError, has_keys
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
