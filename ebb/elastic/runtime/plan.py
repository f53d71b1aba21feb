"""Which samples one rank of one generation reads: the micro-batches of each step, from the first that is to be done to the last.

    plan = Plan(stream=stream, first_step=120, rank=1, world_size=3, max_micro_batch=256)
    plan.micro_batches(120); for samples in plan: ...           # the batch_sampler of the rank's DataLoader

A step is cut into one share per worker. Usually the workers are the ranks. With `virtual_workers` they are a fixed number of
virtual ones, each of which lives on one rank: what a worker computes then depends on no world size.
"""

from collections.abc import Iterator

from ebb.compat import dataclass
from ebb.elastic.data.order import Piece, Sample, Stream, share, split


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """The samples of one forward pass."""

    worker: int
    piece: Piece  # positions of the stream; empty where a rank has no share and must take part in a collective all the same
    first: bool  # of its worker in this step
    last: bool

    @property
    def num_samples(self) -> int:
        return self.piece.size


@dataclass(frozen=True, kw_only=True)
class MicroBatchPlan:
    stream: Stream
    first_step: int
    rank: int
    world_size: int
    max_micro_batch: int
    virtual_workers: int = 0
    equal_passes: bool = False  # all ranks have as many micro-batches: the passes of a sharded model are collectives of its pod
    together: int = 1  # neighbours of a step that are always in one micro-batch, counted from its start
    in_pairs: bool = (
        False  # a sample that is alone comes twice: BatchNorm needs two values per channel, and a mean stays the same
    )

    def micro_batches(self, step: int) -> list[MicroBatch]:
        """Of this rank, worker after worker; at least one unless the workers are virtual."""
        whole = self.stream.step(step)
        shares = {worker: share(whole, worker, self.num_workers, self.together) for worker in self.workers}
        if self.virtual_workers:
            return [each for worker, piece in shares.items() for each in self._of(worker, self._pieces(piece))]
        pieces = self._pieces(shares[self.rank])
        wanted = len(self._pieces(share(whole, 0, self.world_size, self.together))) if self.equal_passes else 1  # the largest
        pieces += [Piece(whole.start, whole.start)] * (wanted - len(pieces))
        return self._of(self.rank, pieces)

    @property
    def num_workers(self) -> int:
        return self.virtual_workers or self.world_size

    @property
    def workers(self) -> range:
        """Those that live on this rank."""
        return (
            workers_of(self.rank, self.world_size, self.virtual_workers)
            if self.virtual_workers
            else range(self.rank, self.rank + 1)
        )

    def _pieces(self, piece: Piece) -> list[Piece]:
        return split(piece, self.max_micro_batch, self.together)

    def _of(self, worker: int, pieces: list[Piece]) -> list[MicroBatch]:
        last = len(pieces) - 1
        return [MicroBatch(worker=worker, piece=each, first=not at, last=at == last) for at, each in enumerate(pieces)]

    def samples(self, micro_batch: MicroBatch) -> list[Sample]:
        """The samples that are read for it: one sample, which weighs nothing, for an empty piece."""
        piece = micro_batch.piece if micro_batch.num_samples else Piece(micro_batch.piece.start, micro_batch.piece.start + 1)
        found = self.stream.samples(piece)
        return found * 2 if self.in_pairs and len(found) == 1 else found

    def __iter__(self) -> Iterator[list[Sample]]:
        for step in range(self.first_step, self.stream.total_steps):
            for each in self.micro_batches(step):
                yield self.samples(each)


def workers_of(rank: int, world_size: int, virtual_workers: int) -> range:
    """The virtual workers of a rank: neighbours, and numbers differ by one at most; none where ranks are more than workers."""
    return range(*share(Piece(0, virtual_workers), rank, world_size))
