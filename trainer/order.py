"""Which sample belongs to which step: a pure function of (seed, epoch, position), whatever the number of machines.

All epochs form one stream of positions 0 .. epochs x dataset_size - 1. Step t owns the positions [tG, (t+1)G) for a global
batch of G samples, so a step may hold the end of one epoch and the start of the next, and only the last step of a run may be
shorter. A rank's share of a step is a contiguous piece of it. The world size is in no state: a run that stopped after step t
goes on with step t+1 on any number of machines, and every sample is still used exactly once per epoch.

It opens no file and keeps no state but a cache of two permutations.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch


class Sample(NamedTuple):
    """One use of one sample: `number` is its place in the index of the data folder."""

    epoch: int
    number: int


class Piece(NamedTuple):
    """Positions [start, stop) of the stream."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def mix(*parts: int) -> int:
    """A seed in [0, 2^63) that depends on every part: equal parts give equal seeds on any machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@lru_cache(maxsize=2)  # a step touches at most two epochs
def permutation(seed: int, epoch: int, size: int) -> list[int]:
    """The order of the samples in an epoch."""
    generator = torch.Generator().manual_seed(mix(seed, epoch))
    order: list[int] = torch.randperm(size, generator=generator).tolist()
    return order


def share(piece: Piece, rank: int, world_size: int) -> Piece:
    """The contiguous part of `piece` that `rank` trains on; sizes differ by one at most, the first ranks have the larger."""
    base, extra = divmod(piece.size, world_size)
    start = piece.start + rank * base + min(rank, extra)
    return Piece(start, start + base + (rank < extra))


def split(piece: Piece, largest: int) -> list[Piece]:
    """Pieces of `piece` of at most `largest` positions, as equal as can be: what one forward pass takes (accumulation)."""
    count = -(-piece.size // largest)
    return [share(piece, number, count) for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """All the steps of a run."""

    dataset_size: int
    epochs: int
    global_batch: int
    seed: int

    @property
    def total_samples(self) -> int:
        return self.dataset_size * self.epochs

    @property
    def total_steps(self) -> int:
        return -(-self.total_samples // self.global_batch)

    def step(self, step: int) -> Piece:
        """The positions of a step."""
        assert 0 <= step < self.total_steps, (step, self.total_steps)
        return Piece(step * self.global_batch, min((step + 1) * self.global_batch, self.total_samples))

    def samples(self, piece: Piece) -> list[Sample]:
        """The samples at the positions of `piece`, in their order."""
        return list(self._walk(piece))

    def _walk(self, piece: Piece) -> Iterator[Sample]:
        for position in range(*piece):
            epoch, offset = divmod(position, self.dataset_size)
            yield Sample(epoch, permutation(self.seed, epoch, self.dataset_size)[offset])


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one rank of one generation does: the micro-batches of each step from `first_step` to the end.

    Iterating gives the samples of one micro-batch after the other: it is the batch_sampler of the rank's DataLoader. A rank
    whose share of a step is empty (a short last step, or more ranks than samples) gives nothing for it.
    """

    stream: Stream
    first_step: int
    rank: int
    world_size: int
    max_micro_batch: int

    def micro_batches(self, step: int) -> list[Piece]:
        return split(share(self.stream.step(step), self.rank, self.world_size), self.max_micro_batch)

    def __iter__(self) -> Iterator[list[Sample]]:
        for step in range(self.first_step, self.stream.total_steps):
            for piece in self.micro_batches(step):
                yield self.stream.samples(piece)
