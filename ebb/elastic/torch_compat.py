"""Names of newer torches that the training runtime uses, for images whose torch is 2.1 to 2.3.

    from ebb.elastic.torch_compat import STORE_ERRORS, DistError, GradScaler, OutOfMemoryError
    store = open_store("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    while not has_keys(store, ["here/1"]): ...

What the launcher needs of an older elastic agent is in launch/older_agent.py. Each name is torch's own where torch has it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore  # what torch.distributed has, with its types
from torch.distributed.distributed_c10d import Store

__all__ = ["CONNECTION_ERRORS", "STORE_ERRORS", "DistError", "GradScaler", "OutOfMemoryError", "has_keys", "open_store"]

# Of a TCPStore: torch 2.1 raises Python's own for what 2.2 and newer call a DistError.
STORE_ERRORS: tuple[type[Exception], ...] = (dist.DistError,) if hasattr(dist, "DistError") else (RuntimeError, TimeoutError)
# Such as only a peer's end can cause.
CONNECTION_ERRORS: tuple[type[Exception], ...] = tuple(
    getattr(dist, name) for name in ("DistNetworkError", "DistStoreError") if hasattr(dist, name)
)
_NOTHING = "no value of ours"
_NAMELESS = "127.0.0.2"  # an address of this machine that is in no /etc/hosts

if TYPE_CHECKING or hasattr(dist, "DistError"):
    from torch.distributed import DistError
else:
    from torch.distributed import DistBackendError as DistError  # before torch 2.2

if TYPE_CHECKING or hasattr(torch, "OutOfMemoryError"):
    from torch import OutOfMemoryError
else:
    from torch.cuda import OutOfMemoryError  # before torch 2.5

if TYPE_CHECKING or hasattr(torch.amp, "GradScaler"):
    from torch.amp import GradScaler
else:

    class GradScaler(torch.cuda.amp.GradScaler):
        """Before torch 2.3 CUDA had the only one, and took no name of a device."""

        def __init__(self, device: str = "cuda", **options: Any) -> None:
            super().__init__(**options)


def open_store(host: str, port: int, **options: Any) -> TCPStore:
    """A TCPStore, also of a build without libuv, as Debian's: there torch's own, here and in children, do without it as well.
    It looks up no names."""
    _look_up_no_peers()
    try:
        return TCPStore(host, port, **options)
    except RuntimeError as error:
        if "libuv" not in str(error):
            raise
    os.environ["USE_LIBUV"] = "0"
    return TCPStore(host, port, use_libuv=False, **options)


@functools.cache
def _look_up_no_peers() -> None:
    """Keep this process's stores from DNS; what else it looks up it looks up as before.

    For its logs torch looks up the name of the peer of every new connection, on both ends, until that fails once
    (c10d/socket.cpp, formatSockAddr, in torch 2.13). Peers are known by their addresses, and pods have no names: all that comes
    of it is that a lost packet holds up a new generation for a second, and a resolver that is away for three and more. So the
    first look-up fails here, at once: in a thread of its own, since glibc keeps the settings of its resolver by thread.
    """

    def fail_once() -> None:
        libc = ctypes.CDLL(None)
        with contextlib.suppress(AttributeError, RuntimeError):  # of another C library; of a torch that opens no store like this
            initialise, find = getattr(libc, "__res_init"), getattr(libc, "__res_state")
            find.restype = ctypes.POINTER(ctypes.c_int)
            if initialise() == 0:
                find()[1] = 0  # struct __res_state of resolv.h begins with int retrans, retry: no query is sent
                TCPStore(_NAMELESS, 0, is_master=True, wait_for_workers=False)

    if sys.platform == "linux":
        thread = threading.Thread(target=fail_once, name="peer-names")
        thread.start()
        thread.join()


def has_keys(store: Store, keys: Iterable[str]) -> bool:
    """Return whether all of them are in the store, without waiting for one."""
    if hasattr(store, "check"):
        return bool(store.check(list(keys)))
    # Before torch 2.3: an exchange that no value allows. Of a key that is not there the answer is what was asked for.
    absent = _NOTHING.encode()
    return all(store.compare_set(key, _NOTHING, _NOTHING) != absent for key in keys)
