"""The order of order.py for programs that have a training loop of their own: a batch_sampler for torch's DataLoader.

    sampler = ElasticBatchSampler(dataset, global_batch=512, epochs=90, seed=0)
    loader = DataLoader(Seeded(dataset, seed=0), batch_sampler=sampler, num_workers=8, persistent_workers=True)
    for batch in loader:                                  # goes on from where the run stands to the end of the epoch
        now = sampler.take()                              # counts the batch
        (criterion(network(images), labels) * now.weight).backward()
        if now.last: optimizer.step(); save({..., "data": sampler.state_dict()})

loader.ElasticLoader is all of that in one. There is no set_epoch: a run stands at a number of samples, and that is its state,
with the seed, the size of the dataset and the global batch. How many ranks there are is not in it. What loader processes have
fetched ahead and nobody used is not in it either: it is fetched again.

Every rank gets the same number of batches, since collectives need it. Where a rank has no sample (a last step with fewer samples
than ranks), it gets one that weighs nothing: `now.weight` is 0 and `now.num_samples` too.
"""

from collections.abc import Iterator, Mapping, Sized
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.utils.data import Sampler

from ebb.elastic.data.order import Piece, Sample, samples, share
from ebb.elastic.data.sealed import DataError


class MicroBatch(NamedTuple):
    """The part of one rank in one forward pass."""

    step: Piece  # of all ranks
    piece: Piece  # of this rank; may be empty
    last: bool  # the optimizer's step follows
    world_size: int

    @property
    def num_samples(self) -> int:
        return self.piece.size

    @property
    def weight(self) -> float:
        """Times the mean loss of this batch, summed over a step's batches and averaged over ranks (which DistributedDataParallel
        does), is the mean loss over the global batch: whatever the shares are."""
        return self.piece.size * self.world_size / self.step.size

    @property
    def fetched(self) -> Piece:
        """The positions that are read: a batch cannot be empty."""
        return self.piece if self.piece.size else Piece(self.step.start, self.step.start + 1)


class Course:
    """The place of a run in the stream of all its epochs, and what comes next. `samples` counts those that were used, over all
    ranks and epochs."""

    def __init__(
        self,
        dataset_size: int,
        *,
        global_batch: int,
        epochs: int,
        seed: int = 0,
        max_micro_batch: int = 0,  # samples in one forward pass; a larger share is accumulated; 0: any
        rank: int | None = None,  # None: of torch.distributed, at the start of each pass
        world_size: int | None = None,
    ) -> None:
        for name, value, low in (
            ("the dataset's size", dataset_size, 1),
            ("global_batch", global_batch, 1),
            ("epochs", epochs, 1),
            ("max_micro_batch", max_micro_batch, 0),
        ):
            if value < low:
                raise ValueError(f"{name} is {value!r}; it must be at least {low}")
        if (rank is None) != (world_size is None):
            raise ValueError(f"rank is {rank!r} and world_size {world_size!r}: give both or none")
        self.dataset_size = dataset_size
        self.global_batch = global_batch
        self.epochs = epochs
        self.seed = seed
        self.max_micro_batch = max_micro_batch
        self.rank = rank
        self.world_size = world_size
        self.now: MicroBatch | None = None  # the batch that was taken last
        self.samples = 0
        # Of the pass that began last: where it began, the rank and the world size. In shared memory, for loader processes that
        # outlive a pass; not `samples` itself, which has moved on when a slow process begins to read
        self._pass = torch.tensor([0, 0, 1]).share_memory_()  # type: ignore[no-untyped-call]
        self._expected: Iterator[MicroBatch] = iter(())
        self._given_at = -1  # where the run stood when all of an epoch was read
        self.begin()

    @property
    def epoch(self) -> int:
        """Of the next sample; `epochs` when all are done."""
        return self.samples // self.dataset_size

    @property
    def total_samples(self) -> int:
        return self.epochs * self.dataset_size

    def begin(self) -> None:
        """A pass over the rest of the epoch begins here, with the ranks that there are now."""
        rank, world_size = self.rank, self.world_size
        if rank is None or world_size is None:
            together = dist.is_available() and dist.is_initialized()
            rank, world_size = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
        self._pass[:] = torch.tensor([self.samples, rank, world_size])
        self._expected = self.micro_batches()
        self._given_at = -1

    def take(self) -> MicroBatch:
        """Count the batch that the loader has just given. Raises RuntimeError for one more than there are."""
        self.now = next(self._expected, None)
        if self.now is None:
            raise RuntimeError("take() was called more often than the loader has given batches: call it once for each")
        if self.now.last:
            self.samples = self.now.step.stop
        return self.now

    def micro_batches(self) -> Iterator[MicroBatch]:
        """This rank's in the pass that began last, to the end of the epoch that it began in; the same number on every rank."""
        start, rank, world_size = map(int, self._pass.tolist())
        end = self._end_of_epoch(start)
        while start < end:
            step = Piece(start, min(start + self.global_batch, self.total_samples))
            mine, count = share(step, rank, world_size), self._micro_batches_in(step.size, world_size)
            for number in range(count):
                yield MicroBatch(step, share(mine, number, count), number == count - 1, world_size)
            start = step.stop

    def largest_micro_batch(self) -> int:
        """Samples in one forward pass of this rank, in the pass that began last."""
        largest_share = -(-self.global_batch // int(self._pass[2]))
        return -(-largest_share // self._micro_batches_in(self.global_batch, int(self._pass[2])))

    def batches_left(self) -> int:
        """In the epoch that the run stands in."""
        world_size = int(self._pass[2])
        steps = -(-(self._end_of_epoch(self.samples) - self.samples) // self.global_batch)
        if not steps:
            return 0
        final = min(self.global_batch, self.total_samples - self.samples - (steps - 1) * self.global_batch)
        whole = self._micro_batches_in(self.global_batch, world_size)
        return (steps - 1) * whole + self._micro_batches_in(final, world_size)

    def state_dict(self) -> dict[str, int]:
        """To be asked for after an optimizer step: a step whose last batch was taken counts as done."""
        return {
            "seed": self.seed,
            "dataset_size": self.dataset_size,
            "global_batch": self.global_batch,
            "samples": self.samples,
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from there, on however many ranks. The global batch is that of the state: it is part of what was trained.

        Raises DataError when the state is of another dataset or order.
        """
        for name, found in (("seed", self.seed), ("dataset_size", self.dataset_size)):
            if state[name] != found:
                raise DataError(
                    f"the saved order has {name} {state[name]!r} and this program {found!r}: samples would be lost and repeated. "
                    "Use the same data and seed, or start afresh without this state"
                )
        self.global_batch = state["global_batch"]
        self.samples = state["samples"]
        self.begin()

    def _end_of_epoch(self, start: int) -> int:
        return min((start // self.dataset_size + 1) * self.dataset_size, self.total_samples)

    def _micro_batches_in(self, step_size: int, world_size: int) -> int:
        largest_share = -(-step_size // world_size)
        return -(-largest_share // self.max_micro_batch) if self.max_micro_batch else 1


class ElasticBatchSampler(Course, Sampler[list[Sample]]):
    """The batches of this rank, as lists of sample numbers, for any map-style dataset; see the module's text."""

    def __init__(
        self,
        dataset: Sized | int,
        *,
        global_batch: int,
        epochs: int,
        seed: int = 0,
        max_micro_batch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(
            dataset if isinstance(dataset, int) else len(dataset),
            global_batch=global_batch,
            epochs=epochs,
            seed=seed,
            max_micro_batch=max_micro_batch,
            rank=rank,
            world_size=world_size,
        )

    def __len__(self) -> int:
        return self.batches_left()

    def __iter__(self) -> Iterator[list[Sample]]:
        if self._given_at == self.samples < self.total_samples:
            raise RuntimeError(
                "an epoch was read and none of its batches was counted, so the same epoch would come again: call take() for each "
                "batch, or use ebb.elastic.data.ElasticLoader, which does"
            )
        self.begin()
        start = self.samples
        for batch in self.micro_batches():
            yield samples(self.seed, self.dataset_size, batch.fetched)
        self._given_at = start


class InOrder(Sampler[int]):
    """Validation: this rank's samples of a map-style dataset, in their order. Nothing is padded or left out, so ranks may have
    different numbers of batches: run the plain network, not the one in DistributedDataParallel, and add up sums and counts."""

    def __init__(self, dataset: Sized | int, *, rank: int, world_size: int) -> None:
        self._part = share(Piece(0, dataset if isinstance(dataset, int) else len(dataset)), rank, world_size)

    def __len__(self) -> int:
        return self._part.size

    def __iter__(self) -> Iterator[int]:
        return iter(range(*self._part))
