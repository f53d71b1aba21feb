"""NCCL between the GPUs of one generation, for groups that are made again under a living model (members.py).

    gpus = Nccl(store, rank=0, size=4, longest=timedelta(minutes=30))
    work = gpus.allreduce([gradients]); gpus.wait(work, lost=lambda: ...)      # the host waits, too
    gpus.abort()                                                               # from any thread; nothing of it is used again

A lost peer leaves the kernels of a collective running on the GPU for ever. Aborting the communicator ends them, without an error
and with a part of the numbers in the tensors (ncclCommAbort; https://docs.nvidia.com/nemo/rl/nightly/apidocs/nemo_rl/
nemo_rl.distributed.refit_watchdog.html and https://github.com/meta-pytorch/torchft/pull/147 have seen it). So the host waits for
each sum before an optimizer may use it, and asks afterwards whether it was aborted. gloo's connections between the same processes
say that a peer is gone: NCCL itself says so late, or never.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from ebb.elastic.runtime.process_group import MEETING_SECONDS

_SHORTEST, _LONGEST = 0.0001, 0.001  # seconds between two looks whether the GPU is through
_LOOK_SECONDS = 0.25  # between two looks whether a peer is gone


class Nccl:
    """One rank's end. A communicator is made with the first collective, as all ranks make it."""

    def __init__(self, store: Store, *, rank: int, size: int, longest: timedelta) -> None:
        """`longest`: of a collective."""
        # torch's own way with a broken collective is to end the process. Read when the group is made.
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        # Of making the communicator: without it half an hour, whatever happens.
        os.environ["TORCH_NCCL_NONBLOCKING_TIMEOUT"] = str(MEETING_SECONDS)
        self._group = make_group(store, rank, size, longest)
        self._lock = threading.Lock()
        self.aborted = False

    def allreduce(self, tensors: list[torch.Tensor]) -> dist.Work:
        """Their sums over all ranks, in place."""
        work: dist.Work = self._group.allreduce(tensors)
        return work

    def broadcast(self, tensor: torch.Tensor, source: int) -> dist.Work:
        work: dist.Work = self._group.broadcast(tensor, source)
        return work

    def wait(self, work: dist.Work, *, lost: Callable[[], bool]) -> bool:
        """True when the GPU is through with it, and the numbers are right; False where it was aborted, or `lost` says that it
        will not end. Raises what failed."""
        seconds, look = _SHORTEST, time.monotonic() + _LOOK_SECONDS
        while not work.is_completed() and not self.aborted:
            if time.monotonic() > look:
                if lost():
                    return False
                look = time.monotonic() + _LOOK_SECONDS
            time.sleep(seconds)  # torch has no wait for a GPU that another thread could end
            seconds = min(2 * seconds, _LONGEST)
        if not self.aborted:
            work.wait()  # what is computed next comes after it
        return not self.aborted

    def abort(self) -> None:
        """Its kernels end. Before that, so that nobody takes what they leave for a sum, it counts as aborted."""
        with self._lock:
            if self.aborted:
                return
            self.aborted = True
        with contextlib.suppress(RuntimeError):  # of a communicator that was never made, or that failed by itself
            getattr(self._group, find_abort(type(self._group)))()


def find_abort(kind: type) -> str:
    """Name the method of this torch that aborts the communicators: not all have `abort`. Raises AttributeError."""
    names = ("abort", "_abort", "_shutdown")
    for name in names:
        if hasattr(kind, name):
            return name
    raise AttributeError(f"{kind.__name__} has none of {', '.join(names)}")


def make_group(store: Store, rank: int, size: int, longest: timedelta) -> Any:
    """torch's own. Its communicator is made without blocking: otherwise abort() waits for a peer that never comes."""
    from torch.distributed import ProcessGroupNCCL  # noqa: PLC0415 - only builds of torch with NCCL have it

    options = ProcessGroupNCCL.Options()
    options.config.blocking = False
    options._timeout = longest
    return ProcessGroupNCCL(store, rank, size, options)
