"""Operations and sizes that are measured, and what a time means as a bandwidth. Pure.

    bandwidths("all-reduce", 2**30, seconds=0.0479, ranks=16)        # (22.4, 42.0): GB/s of 10**9 bytes

Algorithm and bus bandwidth are those of nccl-tests (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): the
first is size through time, where the size of an all-gather is what each rank has afterwards; the second is what a link between
two ranks carries, whatever their number. In a ring exchange each rank sends to the next one and receives from the one before.
"""

from __future__ import annotations

from typing import NamedTuple

ALL_REDUCE, ALL_GATHER, SEND_RECEIVE = "all-reduce", "all-gather", "send-receive"
OPERATIONS = (ALL_REDUCE, ALL_GATHER, SEND_RECEIVE)
LEAST, FIRST, LARGEST = 8, 2**20, 2**30  # bytes: of a latency; the first and the last size of the table
LONGEST_SECONDS = 20.0  # of one operation: a size that would take longer is left out
_SMALL_SECONDS, _SECONDS = 0.1, 1.0  # of timing one size
_MOST_TIMES = 50
_COPIES = 3  # of a size that a rank holds: what it sends, what it receives, and gloo's own


class Bandwidths(NamedTuple):
    """GB/s, of 10**9 bytes."""

    algorithm: float
    bus: float


def bandwidths(operation: str, size: int, *, seconds: float, ranks: int) -> Bandwidths:
    found = size / seconds / 1e9
    factor = {ALL_REDUCE: 2 * (ranks - 1) / ranks, ALL_GATHER: (ranks - 1) / ranks, SEND_RECEIVE: 1.0}[operation]
    return Bandwidths(found, found * factor)


def sizes_of(operation: str, largest: int = LARGEST) -> list[int]:
    """Bytes, each twice the last. An all-reduce has all from 8 bytes on, as the average of nccl-tests has; the others the least
    one, for their latency, and those from 1 MB on."""
    every = [LEAST << number for number in range((largest // LEAST).bit_length())]
    return [size for size in every if operation == ALL_REDUCE or size == LEAST or size >= FIRST]


def times_of(size: int, *, seconds: float) -> int:
    """Number of times that an operation which took so long is repeated."""
    budget = _SECONDS if size >= FIRST else _SMALL_SECONDS
    return max(1, min(_MOST_TIMES, int(budget / max(seconds, 1e-9))))


def reason_to_skip(size: int, *, before: tuple[int, float] | None, free_bytes: int) -> str:
    """Why a size is left out, "" to measure it. `before`: the last size and its seconds; of a small one they are its latency."""
    if _COPIES * size > free_bytes:
        return f"it needs {_COPIES * size / 2**30:.1f} GiB of memory, and a rank has {free_bytes / 2**30:.1f} GiB free"
    if before and before[0] >= FIRST and (expected := before[1] * size / before[0]) > LONGEST_SECONDS:
        return f"it would take {expected:.0f} s"
    return ""
