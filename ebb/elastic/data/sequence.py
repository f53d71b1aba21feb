"""A dataset made of files that can only be read from their start: compressed lines, archives, streams.

    shards = [("part-000.jsonl.gz", 20000), ...]                    # each file with the number of its samples
    dataset = ShardSequence(shards, lines, decode=json.loads, global_batch=512, epochs=3, seed=0)
    for batch in ElasticLoader(dataset, num_workers=4): ...

The same promise as for map-style datasets: each sample once per epoch, a step's samples are the same on any number of ranks, and
the state is a few numbers. In an epoch the files come in a random order, one after the other; that sequence is cut into `lanes`
of equal length, and the samples are taken from all lanes in turn. A step so mixes samples of as many files as there are lanes,
and a rank reads its own lanes and no others, each from front to back. Inside a file the order stays: shuffle the samples once,
when the files are made. To start in the middle of a file, what is before is read and thrown away, unless `read` can do better.
The loader processes of a rank read the same lanes, each for its own batches; only what it uses does each of them decode.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset, default_collate, get_worker_info

from ebb.elastic.data.index import first_of_each
from ebb.elastic.data.order import Piece, by_epoch, permutation, share
from ebb.elastic.data.sampler import Course, MicroBatch
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.seeding import seeded

MOST_LANES = 240  # divisible by 1 to 6, 8, 10, 12, 15, 16, 20, 24, 30, 40, 48, 60, 80: ranks that then read no lane together

Shard = tuple[str | Path, int]
Read = Callable[[str | Path, int], Iterable[Any]]


class ShardSequence(Course, IterableDataset[Any]):
    """Gives whole batches of this rank, collated.

    `read(path, start)` gives the samples of a file from number `start` on, undecoded; `decode(raw)` makes a sample of one, and
    may draw random numbers, which depend on (seed, epoch, sample number) alone.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        read: Read,
        *,
        global_batch: int,
        epochs: int,
        seed: int = 0,
        max_micro_batch: int = 0,
        decode: Callable[[Any], Any] = lambda raw: raw,
        collate: Callable[[list[Any]], Any] = default_collate,
        lanes: int = 0,  # 0: one per file, 240 at most
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(
            sum(count for _, count in shards),
            global_batch=global_batch,
            epochs=epochs,
            seed=seed,
            max_micro_batch=max_micro_batch,
            rank=rank,
            world_size=world_size,
        )
        self.lanes = min(lanes or min(len(shards), MOST_LANES), self.dataset_size)
        self._shards = list(shards)
        self._first = first_of_each(count for _, count in shards)
        self._read, self._decode, self._collate = read, decode, collate

    def __iter__(self) -> Iterator[Any]:
        """One loader process's batches: every n-th, which torch's DataLoader puts in order again."""
        process = get_worker_info()
        if process is None:
            self.begin()
        number, processes = (process.id, process.num_workers) if process else (0, 1)
        open_lanes: dict[tuple[int, int], _Lane] = {}
        for place, batch in enumerate(self.micro_batches()):
            if place % processes == number:
                yield self._collate([self._sample(slot, open_lanes) for slot in self._slots(batch)])

    def state_dict(self) -> dict[str, int]:
        return super().state_dict() | {"lanes": self.lanes}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Raises DataError when the state is of another dataset or order."""
        if state["lanes"] != self.lanes:
            raise DataError(
                f"the saved order has {state['lanes']} lanes and this program {self.lanes}: samples would be lost and repeated. "
                f"Give it the same files, and lanes={state['lanes']}"
            )
        super().load_state_dict(state)

    def _slots(self, batch: MicroBatch) -> list[tuple[int, int, int]]:
        """(epoch, lane, row) of the batch's samples. A step's positions are dealt out lane by lane, not in their order."""
        slots = [
            (epoch, lane, row)
            for epoch, inside in by_epoch(batch.step, self.dataset_size)
            for lane in range(self.lanes)
            for row in range(_row(inside.start, lane, self.lanes), _row(inside.stop, lane, self.lanes))
        ]
        return slots[batch.fetched.start - batch.step.start : batch.fetched.stop - batch.step.start]

    def _sample(self, slot: tuple[int, int, int], open_lanes: dict[tuple[int, int], "_Lane"]) -> Any:
        epoch, lane, row = slot
        if (epoch, lane) not in open_lanes:
            for old in [key for key in open_lanes if key[0] < epoch - 1]:
                del open_lanes[old]
            open_lanes[epoch, lane] = self._lane(epoch, lane)
        number, raw = open_lanes[epoch, lane].get(row)
        with seeded(self.seed, epoch, number):
            return self._decode(raw)

    def _lane(self, epoch: int, lane: int) -> "_Lane":
        order = permutation(self.seed, epoch, len(self._shards)).tolist()
        return _Lane(
            [(self._shards[number], self._first[number]) for number in order],
            share(Piece(0, self.dataset_size), lane, self.lanes),
            self._read,
        )


def _row(offset: int, lane: int, lanes: int) -> int:
    """The number of samples of a lane among the first `offset` of an epoch."""
    return (offset - lane + lanes - 1) // lanes


class _Lane:
    """Reads forward through one piece of the files' sequence."""

    def __init__(self, shards: list[tuple[Shard, int]], piece: Piece, read: Read) -> None:
        self._shards = shards  # in the order of the epoch, each with the number of its first sample
        self._starts = first_of_each(count for (_, count), _ in shards)
        self._piece = piece
        self._read = read
        self._at = -1  # place in the sequence of what `_rest` gives next
        self._open = -1  # which file is open
        self._rest: Iterator[Any] = iter(())

    def get(self, row: int) -> tuple[int, Any]:
        """The number and the raw content of the lane's sample `row`."""
        place = self._piece.start + row
        at = bisect_right(self._starts, place) - 1
        (path, count), first = self._shards[at]
        if at != self._open or place < self._at:
            self._rest, self._open, self._at = iter(self._read(path, place - self._starts[at])), at, place
        for raw in islice(self._rest, place - self._at, None):
            self._at = place + 1
            return first + place - self._starts[at], raw
        raise DataError(f"{path} has fewer samples than the {count} that the program said: count them again")


def lines(path: str | Path, start: int) -> Iterator[bytes]:
    """A `read` for files of lines; those whose names end in .gz are compressed."""
    import gzip  # noqa: PLC0415 - for those who need it

    name = Path(path)
    with gzip.open(name) if name.suffix == ".gz" else name.open("rb") as file:
        yield from islice(file, start, None)
