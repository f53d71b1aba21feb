"""Connections of torch's stores without DNS.

    look_up_none()           # before the first TCPStore of a process

For its logs torch looks up the name of the peer of every new connection, on both ends, until that fails once
(c10d/socket.cpp, formatSockAddr, in torch 2.13; earlier ones do not stop). Peers are known by their addresses, and pods have no
names: all that comes of it is that a lost packet holds up a new generation for a second, and a resolver that is away for three
and more. So the first look-up fails here, at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading

from torch._C._distributed_c10d import TCPStore

_NAMELESS = "127.0.0.2"  # an address of this machine that is in no /etc/hosts


@functools.cache
def look_up_none() -> None:
    """Once in a process. What else it looks up it looks up as before."""
    if sys.platform == "linux":
        thread = threading.Thread(target=_fail_once, name="peer-names")
        thread.start()
        thread.join()


def _fail_once() -> None:
    """In a thread of its own: glibc keeps the settings of its resolver by thread. Without glibc nothing happens."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError, RuntimeError):  # of another C library; of a torch that opens no store like this
        initialise, find = getattr(libc, "__res_init"), getattr(libc, "__res_state")
        find.restype = ctypes.POINTER(ctypes.c_int)
        if initialise() == 0:
            find()[1] = 0  # struct __res_state of resolv.h begins with int retrans, retry: no query is sent
            TCPStore(_NAMELESS, 0, is_master=True, wait_for_workers=False)
