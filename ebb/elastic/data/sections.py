"""The order of samples that lie in shards: shards in a random order, and the samples of each in one, so that each is read once.

    sections = Sections([1000, 1000, 417], at_once=16)
    sections.numbers(seed, 96, 128, global_batch=32)         # [(epoch, number), ...] of the fourth step

A random order over a whole data set wants a random place of a random file for every sample, which is right for a disk at hand and
wrong for an object store. Here an epoch is a sequence of whole shards, cut into as many sections as are to be read side by side.
A step of G samples takes the next G / sections samples of each section. So
- a step mixes the samples of as many random shards as there are sections;
- ranks, which have contiguous shares of a step, read other shards than each other, whatever their number;
- a position says its sample: seed, epoch, step and the sizes of the shards decide, and no iterator has a state that would have
  to be saved, given to newcomers or moved with virtual workers. What is exact about a random order (order.py) is so here;
- each section has one shard under way. Where a change of machines gives it to another machine, that one has this shard to read
  again, and no other.

An epoch's permutation is never made as a whole: memory is that of the shards under way, at any number of samples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch

from ebb.elastic.data.order import mix

_KEPT = 256  # permutations of shards: those under way, of one rank


class Sections:
    """Of one data set. `sizes`: the samples of each shard; the numbers of samples count through the shards in their order."""

    def __init__(self, sizes: Sequence[int], *, at_once: int = 16) -> None:
        if at_once < 1:
            raise ValueError(f"sections is {at_once!r}; it must be at least 1")
        self.sizes = list(sizes)
        self.at_once = at_once
        self._first = list(accumulate(self.sizes, initial=0))
        self._epochs: OrderedDict[tuple[int, int], tuple[list[int], list[int]]] = OrderedDict()
        self._shards: OrderedDict[tuple[int, int, int], torch.Tensor] = OrderedDict()

    def __len__(self) -> int:
        return self._first[-1]

    def numbers(self, seed: int, start: int, stop: int, *, global_batch: int) -> list[tuple[int, int]]:
        """The epoch and the sample's number for each position of the stream from `start` to `stop`."""
        count = min(self.at_once, global_batch)
        starts = [-(-section * global_batch // count) for section in range(count + 1)]  # of the sections, in a step
        found: list[tuple[int, int]] = []
        while start < stop:
            epoch = start // len(self)
            section = bisect_right(starts, start % global_batch) - 1
            end = min(stop, start - start % global_batch + starts[section + 1], (epoch + 1) * len(self))
            place = self._place(epoch, start, starts[section], starts[section + 1], global_batch)
            found += [(epoch, number) for number in self._numbers(seed, epoch, place, place + end - start)]
            start = end
        return found

    def _place(self, epoch: int, position: int, low: int, high: int, global_batch: int) -> int:
        """In the epoch's sequence of samples, of the section that has the places `low` to `high` of each step."""
        begin, end = epoch * len(self), (epoch + 1) * len(self)

        def before(at: int, place: int) -> int:
            """Positions below `at` that have a lower place than this in their step."""
            step, inside = divmod(at, global_batch)
            return step * place + min(inside, place)

        # Sections follow each other in the sequence: those before this one in full, and what this one has had.
        ahead = before(end, low) - before(begin, low)
        done = before(position, high) - before(position, low) - (before(begin, high) - before(begin, low))
        return ahead + done

    def _numbers(self, seed: int, epoch: int, start: int, stop: int) -> Iterator[int]:
        """The samples at these places of the epoch's sequence."""
        shards, ends = self._epoch(seed, epoch)
        while start < stop:
            at = bisect_right(ends, start)
            shard, end = shards[at], min(stop, ends[at])
            inside = ends[at] - self.sizes[shard]
            first = self._first[shard]
            yield from (first + number for number in self._shard(seed, epoch, shard)[start - inside : end - inside].tolist())
            start = end

    def _epoch(self, seed: int, epoch: int) -> tuple[list[int], list[int]]:
        """The shards in their order, and the places at which they end."""
        found = self._epochs.get((seed, epoch))
        if found is None:
            shards: list[int] = _shuffled(len(self.sizes), mix(seed, epoch)).tolist()
            found = self._epochs[seed, epoch] = shards, list(accumulate(self.sizes[shard] for shard in shards))
            if len(self._epochs) > 2:  # a step touches two, unless an epoch is smaller than it
                self._epochs.popitem(last=False)
        return found

    def _shard(self, seed: int, epoch: int, shard: int) -> torch.Tensor:
        key = (seed, epoch, shard)
        found = self._shards.get(key)
        if found is None:
            found = self._shards[key] = _shuffled(self.sizes[shard], mix(seed, epoch, shard))
            if len(self._shards) > max(_KEPT, 2 * self.at_once):
                self._shards.popitem(last=False)
        self._shards.move_to_end(key)
        return found


def _shuffled(size: int, seed: int) -> torch.Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
