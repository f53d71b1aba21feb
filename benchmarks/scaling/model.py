"""The time of a step of data-parallel training on n ranks, from the time of an all-reduce. Pure.

    network = fit([(2, 2**20, 0.004), (2, 2**26, 0.2), ...])          # of what was measured
    step_seconds(work, network, 4)                                    # 1 rank: work.seconds

A ring: each rank sends 2 (n - 1) pieces of 1 / n of the bytes, one after the other. So an all-reduce takes

    2 (n - 1) hop + 2 (n - 1) / n * bytes / bandwidth

with the bandwidth that nccl-tests calls that of the bus. Gradients are sent in buckets of 25 MiB, as DistributedDataParallel
sends them: a bucket when the backward pass has come past it, one after the other, beside the rest of the pass; or all of them
after the pass, where nothing is beside it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BUCKET_BYTES = 25 * 2**20
BACKWARD = 2 / 3  # of a step: two matrix products for each one of the forward pass
BYTES_OF_GRADIENT = 4

Point = tuple[int, int, float]
"""Ranks, bytes, seconds."""


@dataclass(frozen=True, kw_only=True)
class Ring:
    """`hop_seconds`: from one rank of the ring to the next, however little it sends."""

    hop_seconds: float
    bytes_per_second: float

    def all_reduce(self, size: float, ranks: int) -> float:
        if ranks < 2:
            return 0.0
        return 2 * (ranks - 1) * (self.hop_seconds + size / ranks / self.bytes_per_second)


@dataclass(frozen=True, kw_only=True)
class Work:
    """A model in training. `seconds`: of a step of one rank alone."""

    name: str
    parameters: float
    seconds: float

    @property
    def gradient_bytes(self) -> float:
        return self.parameters * BYTES_OF_GRADIENT


AllReduce = Callable[[float, int], float]
"""Bytes, ranks -> seconds."""


def step_seconds(work: Work, all_reduce: AllReduce, ranks: int, *, overlap: bool = True, slowdown: float = 1.0) -> float:
    """`slowdown`: of the computing, where ranks share cores."""
    compute = work.seconds * slowdown
    if ranks < 2:
        return compute
    buckets = max(1, math.ceil(work.gradient_bytes / BUCKET_BYTES))
    each = all_reduce(work.gradient_bytes / buckets, ranks)
    if not overlap:
        return compute + buckets * each
    backward, sent = compute * BACKWARD, 0.0
    for number in range(1, buckets + 1):
        ready = compute - backward + backward * number / buckets
        sent = max(sent, ready) + each
    return sent


def efficiency(step: Callable[[int], float], ranks: int, *, of: int = 1) -> float:
    """Samples per second and rank, through those with `of` ranks. Each rank has the same batch at any number of them."""
    return step(of) / step(ranks)


def fit(points: Sequence[Point]) -> Ring:
    """The network whose times are nearest to the measured ones: the least squares of relative errors."""
    rows = [(2 * (ranks - 1) / seconds, 2 * (ranks - 1) * size / ranks / seconds) for ranks, size, seconds in points if ranks > 1]
    if len(rows) < 2:
        raise ValueError(f"{len(rows)} all-reduces between 2 ranks or more are too few to fit a network to: measure 2 sizes")
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(row[i] for row in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    hop = (a * bb - b * ab) / determinant if determinant else 0.0
    per_byte = (b * aa - a * ab) / determinant if determinant else 0.0
    if hop <= 0.0 or per_byte <= 0.0:  # one of both explains it all
        hop, per_byte = 0.0, b / bb
    return Ring(hop_seconds=hop, bytes_per_second=1 / per_byte)


def network_of(most: float, average: float, *, ranks: int, sizes: Sequence[int]) -> Ring:
    """The network of nccl-tests' two last figures: the best bus bandwidth and the mean of all sizes, in bytes per second.

    The hop is sought between nothing and what the mean leaves.
    """

    def means(hop: float) -> tuple[float, float]:
        largest = max(sizes)
        moved = 2 * (ranks - 1) / ranks * largest
        network = Ring(hop_seconds=hop, bytes_per_second=moved / (moved / most - 2 * (ranks - 1) * hop))
        rates = [2 * (ranks - 1) / ranks * size / network.all_reduce(size, ranks) for size in sizes]
        return sum(rates) / len(rates), network.bytes_per_second

    low, high = 0.0, max(sizes) / ranks / most * 0.999  # beyond, the largest size would be sent in no time
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if means(middle)[0] > average else (low, middle)
    return Ring(hop_seconds=low, bytes_per_second=means(low)[1])
