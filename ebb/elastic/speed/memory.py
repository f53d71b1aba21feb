"""Memory that is freed stays with the process: for training on the CPU, where every step asks for the same again.

glibc gives large pieces back to the kernel when they are freed. A step of ResNet-18 with 16 images then touches 180 to 430 MB of
fresh pages, which the kernel clears first: 5 to 14 % of the step's CPU time, more or less by accident of where pieces lie (torch
2.13, glibc 2.36). Kept, it is less than 1 %. The price: what the process needed at most it has until its end.

A sharded model's ranks gather and free a layer after the other. Kept, the gaps between what stays of one add up: a rank had 5
times its part, and 2.4 times where memory is given back (make prove-models). Memory is what it is sharded for: it pays in time.
"""

import ctypes
from collections.abc import Iterable, Mapping
from typing import Protocol

# malloc.h; -1 and 0 stand for "never"
_TRIM_THRESHOLD, _NO_TRIM, _TRIM_ABOVE = -1, -1, 2**20
_MMAP_MAX, _NO_MMAP, _MANY = -4, 0, 65536
_MMAP_THRESHOLD = -3
_SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory(environment: Mapping[str, str]) -> bool:
    """True if it is so now: not where the user has set malloc in the environment, or the C library is another one."""
    return _set(environment, {_TRIM_THRESHOLD: _NO_TRIM, _MMAP_MAX: _NO_MMAP})


def return_freed_memory(environment: Mapping[str, str]) -> None:
    """The reverse, from now on: every piece above 1 MiB goes back to the kernel when it is freed."""
    if _set(environment, {_TRIM_THRESHOLD: _TRIM_ABOVE, _MMAP_THRESHOLD: _TRIM_ABOVE, _MMAP_MAX: _MANY}):
        give_back_freed_memory()


def _set(environment: Mapping[str, str], numbers: Mapping[int, int]) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in environment for name in _SET_BY_USER):
        return False
    return all([bool(mallopt(name, number)) for name, number in numbers.items()])


def give_back_freed_memory() -> None:
    """Once, whatever is kept otherwise: after work that needed much more than a step does, such as the load of a checkpoint."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


def take_ahead(like: Iterable[Sized]) -> None:
    """Take, write and free as much memory as these have: kept, it need not be cleared when it is asked for next."""
    for each in [bytearray(one.nbytes) for one in like]:  # all of it at once; Python writes zeros
        each.clear()
