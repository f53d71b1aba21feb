"""Times of one operation between all ranks, its results checked.

ranks = Ranks.meet(device)                                       # torchrun's environment says with whom
figure = measure(ranks, "all-reduce", 2**20, buffers)            # the same on all ranks
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ebb.compat import Self
from ebb.elastic.memory import free_memory
from ebb.elastic.netcheck.bandwidth import ALL_GATHER, ALL_REDUCE, times_of

_LONGEST = datetime.timedelta(seconds=90)  # of an operation: a lost peer is one that says nothing for so long
_ITEM = 4  # bytes of a float32


class Figure(NamedTuple):
    """`seconds`: of one operation, on the slowest rank. `wrong`: ranks whose result was not the expected one."""

    seconds: float
    times: int
    wrong: int


class Ranks(NamedTuple):
    """All ranks, seen from one. Numbers and words go by gloo, what is measured by gloo or NCCL."""

    rank: int
    size: int
    device: torch.device

    @classmethod
    def meet(cls, device: torch.device) -> Self:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=_LONGEST)
        return cls(dist.get_rank(), dist.get_world_size(), device)

    def agree(self, value: float, *, least: bool = False) -> float:
        """The largest or the least of all ranks' numbers."""
        told = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(told, dist.ReduceOp.MIN if least else dist.ReduceOp.MAX)
        return float(told)

    def gather(self, facts: Any) -> list[Any]:
        """All ranks' facts, in the order of ranks."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, facts)
        return found

    def tell(self, word: str, kind: str, **facts: Any) -> None:
        """Print a line for the client, on rank 0 alone: the word, then JSON."""
        if self.rank == 0:
            print(f"{word} {json.dumps({'kind': kind, **facts})}", flush=True)

    def wait_for_gpu(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Buffers:
    """Memory for the largest size, taken once."""

    def __init__(self, largest: int, device: torch.device) -> None:
        self.first = torch.zeros(largest // _ITEM, device=device)
        self.second = torch.zeros(largest // _ITEM, device=device)


def measure(ranks: Ranks, operation: str, size: int, buffers: Buffers) -> Figure:
    """Try it once with numbers that are known, and time it. Raises torch's errors where a peer is gone."""
    run, is_right = _prepared(ranks, operation, max(1, size // _ITEM), buffers)
    run()
    ranks.wait_for_gpu()
    wrong = sum(ranks.gather(not is_right()))
    buffers.first.zero_()  # sums of sums would end in infinity
    once = _timed(ranks, run, 1)
    times = times_of(size, seconds=once)
    return Figure(_timed(ranks, run, times) if times > 1 else once, times, wrong)


def _timed(ranks: Ranks, run: Callable[[], None], times: int) -> float:
    dist.barrier() if ranks.device.type == "cpu" else ranks.agree(0.0)
    ranks.wait_for_gpu()
    begun = time.perf_counter()
    for _ in range(times):
        run()
    ranks.wait_for_gpu()
    return ranks.agree((time.perf_counter() - begun) / times)


def _prepared(ranks: Ranks, operation: str, count: int, buffers: Buffers) -> tuple[Callable[[], None], Callable[[], bool]]:
    """The operation on `count` numbers, and a look at its result after the first time."""
    own = float(ranks.rank + 1)
    if operation == ALL_REDUCE:
        summed = buffers.first[:count].fill_(own)
        return lambda: _finish(dist.all_reduce(summed, async_op=True)), lambda: _holds(summed, ranks.size * (ranks.size + 1) / 2)
    if operation == ALL_GATHER:
        share = max(1, count // ranks.size)
        told, found = buffers.second[:share].fill_(own), buffers.first[: share * ranks.size].zero_()
        parts = found.chunk(ranks.size)
        # In torch 2.13 it has a new name. A list of tensors would cost NCCL a copy.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return (
            lambda: _finish(gather(found, told, async_op=True)),
            lambda: all(_holds(part, number + 1) for number, part in enumerate(parts)),
        )
    sent, received = buffers.first[:count].fill_(own), buffers.second[:count].zero_()
    after, before = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size

    def exchange() -> None:
        # In this order: gloo says on the same connection that it is ready to receive, behind what it is sending.
        both = [dist.P2POp(dist.irecv, received, before), dist.P2POp(dist.isend, sent, after)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    return exchange, lambda: _holds(received, before + 1)


def _finish(work: dist.Work | None) -> None:
    if work is not None:
        work.wait()


def _holds(numbers: torch.Tensor, expected: float) -> bool:
    return bool(numbers.min() == expected) and bool(numbers.max() == expected)


def free_bytes(device: torch.device, *, ranks_here: int) -> int:
    """Memory that this rank may use: its GPU's, or its share of what the machine or the container has left."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return free_memory() // max(1, ranks_here)
