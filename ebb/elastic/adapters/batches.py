"""The samples of each step where a library's loop decides how many micro-batches a step has: the same number on every rank.

    plan = EpochPlan(dataset_size=1000, global_batch=64, micro_batch=8, rank=0, world_size=3, seed=0)
    plan.passes                                    # micro-batches of a rank in every step: its gradient accumulation
    loader = load(plan, dataset, step=lambda: 120, collate_fn=collate, num_workers=2)
    for numbers, batch in loader: ...              # from step 120 to the end of its epoch; then, from the next epoch's first

Unlike in Ebb's own loop (runtime/plan.py) no step crosses an epoch's end, since libraries count, evaluate and schedule by epochs:
the last step of an epoch has the samples that are left. A micro-batch without samples carries one that weighs nothing, `Idle`:
each pass of DistributedDataParallel's last one is a collective of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset, default_collate

from ebb.compat import dataclass
from ebb.elastic.data.order import Piece, Sample, samples, share
from ebb.elastic.data.seeding import Seeded
from ebb.elastic.runtime.loading import Fetched


class Idle(Sample):
    """A sample that is read so that there is a batch; it counts nothing."""

    def __reduce__(self) -> tuple[type[Idle], tuple[int, int]]:
        return Idle, (self.epoch, int(self))


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """Of one rank in one generation."""

    dataset_size: int
    global_batch: int
    micro_batch: int  # the largest
    rank: int
    world_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.dataset_size // self.global_batch)

    @property
    def passes(self) -> int:
        """Micro-batches of each rank in each step."""
        largest_share = -(-min(self.global_batch, self.dataset_size) // self.world_size)
        return -(-largest_share // self.micro_batch)

    def whole(self, step: int) -> Piece:
        """The positions of a step in the stream of all epochs."""
        epoch, number = divmod(step, self.steps_per_epoch)
        start = epoch * self.dataset_size
        return Piece(start + number * self.global_batch, start + min((number + 1) * self.global_batch, self.dataset_size))

    def pieces(self, step: int) -> list[Piece]:
        """Of this rank; some may be empty."""
        mine = share(self.whole(step), self.rank, self.world_size)
        return [share(mine, number, self.passes) for number in range(self.passes)]

    def factor(self, step: int, num_samples: int) -> float:
        """The weight of the mean over so many samples, where the gradient is then the mean of the ranks' sums: as one large batch
        would have it."""
        return num_samples * self.world_size / self.whole(step).size

    def micro_batches(self, step: int) -> list[list[Sample]]:
        """Of this rank; one without samples has one Idle."""
        return [self._samples(piece, self.whole(step)) for piece in self.pieces(step)]

    def _samples(self, piece: Piece, whole: Piece) -> list[Sample]:
        if piece.size:
            return samples(self.seed, self.dataset_size, piece)
        first = samples(self.seed, self.dataset_size, Piece(whole.start, whole.start + 1))[0]
        return [Idle(first.epoch, first.number)]


class EpochBatches:
    """A batch sampler of torch's DataLoader: each pass over it is the epoch of the step that is then the next one, or what is
    left of it if `skips`; otherwise the caller skips what is done."""

    def __init__(self, plan: EpochPlan, step: Callable[[], int], *, skips: bool) -> None:
        self._plan, self._step, self._skips = plan, step, skips

    def __len__(self) -> int:
        return self._plan.steps_per_epoch * self._plan.passes

    def __iter__(self) -> Iterator[list[Sample]]:
        now, steps = self._step(), self._plan.steps_per_epoch
        first = now - now % steps
        for step in range(now if self._skips else first, first + steps):
            yield from self._plan.micro_batches(step)


class Numbered(Dataset[tuple[Sample, Any]]):
    """A map-style dataset that gives each sample's number with it, and draws its random transforms by the sample alone."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset = Seeded(dataset, seed=seed)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, sample: Sample) -> tuple[Sample, Any]:
        return sample, self.dataset[sample]


class Collate:
    """A library's collate function, with the numbers of the samples that count."""

    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self._collate_fn = collate_fn

    def __call__(self, items: list[tuple[Sample, Any]]) -> Fetched:
        numbers = [int(sample) for sample, _ in items if not isinstance(sample, Idle)]
        return Fetched(numbers, self._collate_fn([item for _, item in items]))


def load(
    plan: EpochPlan,
    dataset: Any,
    step: Callable[[], int],
    *,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    skips: bool = True,
    **options: Any,
) -> DataLoader[Any]:
    """One Fetched for each micro-batch. `step`: the number of steps that are done; `options` are those of torch's DataLoader."""
    return DataLoader(
        Numbered(dataset, plan.seed),
        batch_sampler=EpochBatches(plan, step, skips=skips),
        collate_fn=Collate(collate_fn or default_collate),
        **options,
    )
