"""The loader for a loop of one's own: torch's DataLoader over this rank's share of each global batch.

loader = ElasticLoader(dataset, global_batch=512, epochs=90, num_workers=8, pin_memory=True)
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from ebb.elastic.cores import cores_of_this_rank
from ebb.elastic.data.batching import with_processes
from ebb.elastic.data.order import Sample
from ebb.elastic.data.sampler import Course, ElasticBatchSampler, MicroBatch
from ebb.elastic.data.seeding import Seeded
from ebb.elastic.data.sequence import ShardSequence
from ebb.elastic.data.tuning import measured_workers, workers_beside_cpu_training


class ElasticLoader:
    """In the place of torch's DataLoader, its sampler and its set_epoch: same arguments, but for the global batch and epochs.

    loader = ElasticLoader(dataset, global_batch=512, epochs=90, seed=0, num_workers=8, pin_memory=True)
    if resumed: loader.load_state_dict(checkpoint["data"])
    for epoch in range(loader.epoch, 90):
        for images, labels in loader:
            (criterion(network(images), labels) * loader.now.weight).backward()
            if loader.now.last:
                optimizer.step(); optimizer.zero_grad()           # from here on loader.state_dict() counts this step

    A pass goes on from where the run stands to the end of its epoch. `dataset` is map-style, with random transforms of its own
    (they are seeded per sample), or a ShardSequence, which knows its batches itself. num_workers=-1 measures for some seconds how
    many loader processes are best (tuning.py), once per kind of machine where `tuned_in` names a folder of the job.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        global_batch: int = 0,
        epochs: int = 0,
        seed: int = 0,
        max_micro_batch: int = 0,
        tuned_in: Path | None = None,
        **options: Any,  # of torch's DataLoader: num_workers, pin_memory, collate_fn, ...
    ) -> None:
        measured = options.get("num_workers", 0) < 0
        taken = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"} & set(options)
        if taken:
            raise ValueError(f"{', '.join(sorted(taken))}: the order is this loader's own; give global_batch, epochs and seed")
        self.dataset = dataset
        if isinstance(dataset, ShardSequence):
            if global_batch or epochs or seed or max_micro_batch:
                raise ValueError("global_batch, epochs, seed and max_micro_batch are set at the ShardSequence")
            if measured:
                raise ValueError("num_workers is -1; a ShardSequence only reads bytes, which is not worth measuring: 2 are usual")
            self.course: Course = dataset
            self._loader: DataLoader[Any] = DataLoader(dataset, batch_size=None, **with_processes(options))
            return
        sampler = ElasticBatchSampler(
            dataset, global_batch=global_batch, epochs=epochs, seed=seed, max_micro_batch=max_micro_batch
        )
        self.course = sampler
        if measured:
            options["num_workers"] = self._measured(sampler, tuned_in, options)
        self._loader = DataLoader(Seeded(dataset, seed=seed), batch_sampler=sampler, **with_processes(options))

    def _measured(self, sampler: ElasticBatchSampler, tuned_in: Path | None, options: dict[str, Any]) -> int:
        """On a GPU. On the CPU the loader and the network share the cores, so what is best for the loader alone is not."""
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        cores = cores_of_this_rank(os.environ, ranks)
        if not torch.cuda.is_available():
            return workers_beside_cpu_training(cores)

        def start(workers: int, plan: Iterable[list[Sample]]) -> Iterator[Any]:
            chosen = with_processes(options | {"num_workers": workers, "persistent_workers": False})
            return iter(DataLoader(Seeded(self.dataset, seed=sampler.seed), batch_sampler=plan, **chosen))

        micro_batch = sampler.largest_micro_batch()
        return measured_workers(self.dataset, start, micro_batch=micro_batch, cores=cores, ranks=ranks, kept_in=tuned_in)

    @property
    def now(self) -> MicroBatch:
        """The facts of the batch that was given last: its weight in the loss, and whether the optimizer's step follows."""
        assert self.course.now is not None, "no batch was given yet"
        return self.course.now

    @property
    def epoch(self) -> int:
        return self.course.epoch

    def __len__(self) -> int:
        """Batches left in this epoch."""
        return self.course.batches_left()

    def __iter__(self) -> Iterator[Any]:
        self.course.begin()
        for batch in self._loader:
            self.course.take()
            yield batch

    def state_dict(self) -> dict[str, int]:
        return self.course.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Raises DataError when the state is of another dataset or order."""
        self.course.load_state_dict(state)
