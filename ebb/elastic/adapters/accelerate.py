"""A loop of one's own on Hugging Face's Accelerate, on machines that come and go.

    elastic = Elastic(accelerator, output="out", global_batch=64, epochs=3)             # before accelerator.prepare()
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)        # without the loader
    for batch in elastic.batches(DataLoader(dataset, batch_size=8)):                    # all epochs; instead of two loops
        with accelerator.accumulate(model):
            ...                                         # accelerator.backward(loss), optimizer.step(), schedule.step(): unchanged

The loader's batch size is the largest micro-batch. What accelerator.prepare() and register_for_checkpointing() know is in the
checkpoints, by accelerator.save_state(). The gradient is the mean over the step's samples. docs/adapters.md has the promises; a
loop of one's own that is written with ebb.elastic itself has more of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch.utils.data import DataLoader

from ebb.elastic.adapters.batches import load
from ebb.elastic.adapters.job import AdaptedJob, is_loss, output_folder
from ebb.elastic.runtime.config import ConfigError
from ebb.elastic.runtime.loading import moved

_ALLOWED = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


class Elastic:
    """Of one process. `step` is the number of optimizer steps that are done, `epoch` that of the present batch's epoch."""

    def __init__(self, accelerator: Accelerator, *, output: str, global_batch: int, epochs: int, seed: int = 0) -> None:
        """Raises ConfigError."""
        if accelerator.distributed_type not in _ALLOWED:
            raise ConfigError(
                f"Elastic() is for models that each rank holds whole, not for {accelerator.distributed_type}; for large ones "
                "write the loop with run.distribute(model, shard=True)"
            )
        if accelerator.project_configuration.automatic_checkpoint_naming:
            raise ConfigError("automatic_checkpoint_naming is True; Elastic() allows False: it gives the names")
        self._accelerator = accelerator
        self._given = {"global_batch": global_batch, "epochs": epochs, "seed": seed}
        self._place = output_folder(output)
        self.step = 0
        # else a prepared schedule makes a step for each rank: its length would follow the number of machines
        accelerator.dataloader_config.split_batches = True
        self._factor = 1.0
        given = accelerator.backward

        def backward(loss: torch.Tensor, **more: Any) -> None:
            # Accelerate gives equal parts to micro-batches and ranks, which need not have equal parts here
            with self._going_on_after_a_loss():
                given(loss * (self._factor * accelerator.gradient_accumulation_steps), **more)

        accelerator.backward = backward
        # DistributedDataParallel's names are there with several ranks, and not with one
        accelerator.register_save_state_pre_hook(_use_plain_names)
        accelerator.register_load_state_pre_hook(lambda models, _folder: _replace(models, map(accelerator.unwrap_model, models)))

    @property
    def epoch(self) -> int:
        return self.step // self._job.plan.steps_per_epoch

    def batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """The micro-batches of this rank, from where the job stands to the end of its last epoch, on its device.

        Between two steps checkpoints are written, and the program ends (GracefulExit, code 138) when a machine was told to leave.
        """
        job = self._job = self._begin(loader)
        plan, accelerator = job.plan, self._accelerator
        accelerator.gradient_accumulation_steps = plan.passes
        if job.found:
            accelerator.load_state(str(job.found))
        self.step, total = job.resumed_step, plan.steps_per_epoch * job.config.epochs
        workers = loader.num_workers
        source = load(
            plan,
            loader.dataset,
            lambda: self.step,
            collate_fn=loader.collate_fn,
            num_workers=workers,
            prefetch_factor=loader.prefetch_factor if workers else None,
        )
        accelerator.step = 0  # of its own count of micro-batches: a step begins
        for each in accelerator._optimizers:
            each.optimizer.register_step_post_hook(lambda *_: setattr(job, "whole", False))
        with self._going_on_after_a_loss():
            while self.step < total:
                for number, (batch, factor) in enumerate(job.deal(source, lambda: self.step)):
                    self._factor = factor
                    yield moved(batch, accelerator.device)
                    if (number + 1) % plan.passes == 0:
                        self._end_step(job, last=self.step + 1 == total)
            job.finish(self.step)

    def _begin(self, loader: Any) -> AdaptedJob:
        if not isinstance(loader, DataLoader) or not hasattr(loader.dataset, "__len__") or loader.batch_size is None:
            raise ConfigError("batches() needs a torch DataLoader with a batch_size over a dataset with a length, not prepared")
        return AdaptedJob.begin(
            output=Path(os.environ.get("EBB_OUTPUT_DIR") or self._place),
            dataset_size=len(loader.dataset),
            micro_batch=loader.batch_size,
            place=self._place,
            **self._given,
        )

    def _end_step(self, job: AdaptedJob, *, last: bool) -> None:
        self.step += 1
        agreed = job.end_step(self.step, last=last)
        if agreed.saves:
            with job.saving(self.step) as folder:
                self._accelerator.save_state(str(folder))
        if agreed.leaves:
            job.leave()

    @contextlib.contextmanager
    def _going_on_after_a_loss(self) -> Iterator[None]:
        """In a backward pass, and between two steps. Elsewhere in the loop's body a loss ends the process as in any script: the
        last checkpoint counts."""
        try:
            yield
        except Exception as error:
            if self._job.ranks.world_size > 1 and is_loss(error):
                self._job.after_loss(error, self.step, self._save_alone)
            raise

    def _save_alone(self, folder: Path) -> None:
        """On this rank, with no other one."""
        if not self._accelerator.is_local_main_process:
            raise OSError("one rank of a machine saves for it")
        self._accelerator.project_configuration.save_on_each_node = True
        self._accelerator.save_state(str(folder))


def _use_plain_names(_models: list[Any], weights: list[dict[str, Any]], _folder: str) -> None:
    _replace(weights, ({name.removeprefix("module."): each for name, each in found.items()} for found in list(weights)))


def _replace(items: list[Any], others: Iterable[Any]) -> None:
    items[:] = list(others)
