"""Which sample belongs to which step: a pure function of (seed, epoch, position), whatever the number of machines.

All epochs form one stream of positions 0 .. epochs x dataset_size - 1. Step t owns the positions [tG, (t+1)G) for a global
batch of G samples, so a step may hold the end of one epoch and the start of the next, and only the last step of a run may be
shorter. A rank's share of a step is a contiguous piece of it. The world size is in no state: a run that stopped after step t
goes on with step t+1 on any number of machines, and every sample is still used exactly once per epoch.

It opens no file and keeps no state but a cache of two permutations (4 bytes a sample each). Samples that lie in shards have an
order that reads shard after shard (sections.py), with the same promises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol

import torch

from ebb.compat import dataclass


class Sample(int):
    """One use of one sample: its number, as any map-style dataset takes it, which also knows its epoch.

    It is equal to its number, whatever the epoch.
    """

    epoch: int

    def __new__(cls, epoch: int, number: int) -> Sample:
        sample = super().__new__(cls, number)
        sample.epoch = epoch
        return sample

    @property
    def number(self) -> int:
        """Its place in the dataset, as a plain int."""
        return int(self)

    def __reduce__(self) -> tuple[type[Sample], tuple[int, int]]:
        return Sample, (self.epoch, self.number)

    def __repr__(self) -> str:
        return f"Sample(epoch={self.epoch}, number={self.number})"


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


@lru_cache(maxsize=2)  # a step touches at most two epochs, unless the dataset is smaller than the global batch
def permutation(seed: int, epoch: int, size: int) -> torch.Tensor:
    """The order of the samples in an epoch: int32 where that is enough, 48 MB for 12 million samples."""
    generator = torch.Generator().manual_seed(mix(seed, epoch))
    dtype = torch.int32 if size < 2**31 else torch.int64  # the same numbers: both draw the same
    return torch.randperm(size, generator=generator, dtype=dtype)


def share(piece: Piece, rank: int, world_size: int, together: int = 1) -> Piece:
    """The contiguous part of `piece` that `rank` trains on; sizes differ by one at most, the first ranks have the larger. So many
    positions as `together` says, counted from the start of `piece`, are never parted; then sizes differ by as many."""
    base, extra = divmod(-(-piece.size // together), world_size)
    start = rank * base + min(rank, extra)
    stop = start + base + (rank < extra)
    return Piece(min(piece.start + start * together, piece.stop), min(piece.start + stop * together, piece.stop))


def split(piece: Piece, largest: int, together: int = 1) -> list[Piece]:
    """Pieces of `piece` of at most `largest` positions (or `together`, if that is more), as equal as can be: what one forward
    pass takes (accumulation)."""
    count = -(-piece.size // together)
    count = -(-count // max(1, largest // together))
    return [share(piece, number, count, together) for number in range(count)]


def in_order(dataset_size: int, rank: int, world_size: int, largest: int) -> list[list[Sample]]:
    """The batches of one rank for a pass over everything, unshuffled: validation. Each sample is in exactly one batch of one
    rank; nothing is padded, so ranks may have different numbers of batches, or none."""
    pieces = split(share(Piece(0, dataset_size), rank, world_size), largest)
    return [[Sample(0, number) for number in range(*piece)] for piece in pieces]


class ShardOrder(Protocol):
    """The order of samples that lie in shards: sections.Sections."""

    def numbers(self, seed: int, start: int, stop: int, *, global_batch: int) -> list[tuple[int, int]]: ...


@dataclass(frozen=True, kw_only=True)
class Stream:
    """All the steps of a run."""

    dataset_size: int
    epochs: int
    global_batch: int
    seed: int
    sections: ShardOrder | None = None

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
        if self.sections is None:
            return samples(self.seed, self.dataset_size, piece)
        found = self.sections.numbers(self.seed, piece.start, piece.stop, global_batch=self.global_batch)
        return [Sample(epoch, number) for epoch, number in found]


def samples(seed: int, dataset_size: int, piece: Piece) -> list[Sample]:
    """The samples at the positions of `piece`, in their order."""
    found: list[Sample] = []
    for epoch, inside in by_epoch(piece, dataset_size):
        numbers = permutation(seed, epoch, dataset_size)[inside.start : inside.stop].tolist()
        found += [Sample(epoch, number) for number in numbers]
    return found


def by_epoch(piece: Piece, dataset_size: int) -> Iterator[tuple[int, Piece]]:
    """`piece` cut where epochs end: each epoch with the positions inside it, counted from its start."""
    at = piece.start
    while at < piece.stop:
        epoch, start = divmod(at, dataset_size)
        stop = min(dataset_size, start + piece.stop - at)
        yield epoch, Piece(start, stop)
        at += stop - start
