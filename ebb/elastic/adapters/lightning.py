"""Lightning's Trainer on machines that come and go.

    trainer = L.Trainer(max_epochs=8, **trainer_options())                      # devices and machines as they are now
    fit(trainer, module, DataLoader(dataset, batch_size=8), global_batch=64)    # instead of trainer.fit(module, DataLoader(...))

Of the loader the dataset, the batch size (here the largest micro-batch), the collate function and the number of processes are
taken. Automatic optimization alone, and models that each rank holds whole. The gradient is the mean over the step's samples.
docs/adapters.md has the promises.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from ebb.elastic.adapters.batches import load
from ebb.elastic.adapters.job import AdaptedJob, is_loss
from ebb.elastic.progress_log import log
from ebb.elastic.runtime.config import ConfigError

_FILE = "state.ckpt"
_PROGRESS = "epoch_loop.batch_progress"


def trainer_options() -> dict[str, Any]:
    """Arguments of L.Trainer for the machines that are there now."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    return {
        "devices": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "num_nodes": int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        "strategy": "ddp" if world_size > 1 else "auto",
        "use_distributed_sampler": False,
    }


def fit(
    trainer: L.Trainer, module: L.LightningModule, train_loader: DataLoader[Any], val_loaders: Any = None, *, global_batch: int
) -> None:
    """As trainer.fit(), from the job's newest checkpoint, with `global_batch` samples a step on any number of ranks.

    Raises ConfigError.
    """
    _check(trainer, module, train_loader)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():  # Lightning takes the group that is there
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    output = Path(os.environ.get("EBB_OUTPUT_DIR") or trainer.default_root_dir)
    job = AdaptedJob.begin(
        output=output,
        global_batch=global_batch,
        epochs=trainer.max_epochs or 1,
        dataset_size=len(train_loader.dataset),  # type: ignore[arg-type]
        micro_batch=train_loader.batch_size or 1,
        seed=int(os.environ.get("PL_GLOBAL_SEED", "0")),
        place=output,
    )
    trainer.accumulate_grad_batches = job.plan.passes
    batches = _Batches(job, train_loader, trainer)
    trainer.callbacks.append(_Boundary(job, batches))
    # weights_only: it is this job's own file, and its sha256 was compared
    found = str(job.found / _FILE) if job.found else None
    trainer.fit(module, batches, val_loaders, ckpt_path=found, weights_only=False)
    job.finish(trainer.global_step)


def _check(trainer: L.Trainer, module: L.LightningModule, loader: Any) -> None:
    if not isinstance(loader, DataLoader) or not hasattr(loader.dataset, "__len__"):
        raise ConfigError(
            "fit() needs a torch DataLoader over a dataset with a length: a stream cannot be gone on from at a sample"
        )
    if not module.automatic_optimization:
        raise ConfigError("fit() needs a module with automatic_optimization: steps of one that optimizes by itself are not known")
    if loader.batch_size is None:
        raise ConfigError(
            "fit() needs a DataLoader with a batch_size, the largest micro-batch; batch samplers have an order of their own"
        )
    if (kind := type(trainer.strategy).__name__) not in ("DDPStrategy", "SingleDeviceStrategy"):
        raise ConfigError(f"fit() is for a model that each rank holds whole, not for {kind}: use L.Trainer(**trainer_options())")
    if trainer.max_epochs is None or trainer.max_epochs < 1:
        raise ConfigError(f"L.Trainer(max_epochs={trainer.max_epochs}): fit() needs the number of epochs, 1 or more")


class _Batches:
    """The micro-batches of this rank; each pass is an epoch, or the rest of it. No DataLoader, which Lightning would change."""

    def __init__(self, job: AdaptedJob, given: DataLoader[Any], trainer: L.Trainer) -> None:
        self._job, self._trainer = job, trainer
        workers = given.num_workers
        self._loader = load(
            job.plan,
            given.dataset,
            lambda: trainer.global_step,
            collate_fn=given.collate_fn,
            num_workers=workers,
            pin_memory=given.pin_memory,
            prefetch_factor=given.prefetch_factor if workers else None,
        )
        self.factor = 1.0  # of the micro-batch that was given last

    def __len__(self) -> int:
        return self._job.plan.steps_per_epoch * self._job.plan.passes

    def __iter__(self) -> Iterator[Any]:
        for batch, factor in self._job.deal(self._loader, lambda: self._trainer.global_step):
            self.factor = factor
            yield batch


class _Boundary(L.Callback):
    """Between two steps: agree, report, save, leave."""

    def __init__(self, job: AdaptedJob, batches: _Batches) -> None:
        self._job, self._batches = job, batches
        self._step = job.resumed_step
        self._saves = False

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        given, strategy = trainer.strategy.backward, trainer.strategy

        def backward(closure_loss: torch.Tensor, *arguments: Any, **more: Any) -> Any:
            # Lightning gives equal parts to micro-batches and ranks, which need not have equal parts here
            return given(closure_loss * (self._batches.factor * self._job.plan.passes), *arguments, **more)

        strategy.backward = backward

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # Lightning's own handler ends the training without our checkpoint; the notice hears the signal beside it
        signal.signal(signal.SIGTERM, lambda _number, _frame: None)

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Any) -> None:
        self._job.whole = False

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        job, step = self._job, trainer.global_step
        if step == self._step:
            return
        self._step = step
        last = step >= job.plan.steps_per_epoch * job.config.epochs
        agreed = job.end_step(step, last=last)
        if step % trainer.log_every_n_steps == 0 and isinstance(outputs, dict) and "loss" in outputs:
            log(step=step, loss=float(outputs["loss"]))
        self._saves = agreed.saves
        if step % job.plan.steps_per_epoch:  # an epoch's end comes after its validation and its hooks
            self._save(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._save(trainer)

    def _save(self, trainer: L.Trainer) -> None:
        if self._saves:
            self._saves = False
            with self._job.saving(trainer.global_step) as folder:
                trainer.save_checkpoint(folder / _FILE)
        if self._job.leaves:
            self._job.leave()

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Lightning counts micro-batches, of which a step has another number now."""
        plan, step = self._job.plan, int(checkpoint["global_step"])
        progress = checkpoint["loops"]["fit_loop"][_PROGRESS]
        inside = step % plan.steps_per_epoch
        for name, count in (("total", step * plan.passes), ("current", (inside or plan.steps_per_epoch) * plan.passes)):
            # as a checkpoint at the end of a batch has it: it is complete when the training goes on
            progress[name].update(ready=count, started=count, processed=count, completed=count - (1 if inside else 0))
        progress["is_last_batch"] = not inside

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        job = self._job
        if not (job.ranks.world_size > 1 and is_loss(exception)):
            return
        inside = self._step % job.plan.steps_per_epoch  # at an epoch's end hooks and validation are under way

        def save(folder: Path) -> None:
            folder.mkdir(parents=True)
            torch.save(trainer._checkpoint_connector.dump_checkpoint(False), folder / _FILE)

        job.after_loss(exception, self._step, save if inside else None)
