"""Hugging Face's Trainer, and TRL's trainers that are one (SFT, DPO, reward), on machines that come and go.

    trainer = SFTTrainer(model=..., args=..., train_dataset=...)
    make_elastic(trainer, global_batch=64)              # the one new line
    trainer.train()                                     # goes on by itself where the job stands

Trainer keeps its loop, its evaluation, its optimizer and its checkpoints; args.per_device_train_batch_size is the largest
micro-batch, and gradient accumulation follows the number of ranks. What is overridden are the hooks that Trainer leaves to its
subclasses (get_train_dataloader, get_batch_samples, training_step, _save_checkpoint, train) and one that it does not document,
_maybe_log_save_evaluate, where a rank that was told to leave does so after its checkpoint. docs/adapters.md has the promises.

The gradient is that of the whole batch: Trainer divides a loss by the tokens of all ranks where it counts them, and this one's
samples weigh alike where it does not.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import SaveStrategy

from ebb.elastic.adapters.batches import load
from ebb.elastic.adapters.job import AdaptedJob, is_loss, output_folder
from ebb.elastic.progress_log import log
from ebb.elastic.runtime.config import ConfigError

_IGNORED = -100  # the label of a token that counts nothing
_OWN_ORDER = ("get_train_dataloader", "_get_train_sampler")
_STATE = "trainer_state.json"
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin", "adapter_model*")
_PENDING = "ebb-evaluation-pending"  # in a checkpoint: an evaluation was due at its step, and the machines left instead


def make_elastic(trainer: Trainer, *, global_batch: int) -> None:
    """Let a Trainer go on where its job stands, with `global_batch` samples a step on any number of ranks.

    Raises ConfigError for a trainer or a setting with which the promises cannot be kept.
    """
    _check(trainer, global_batch)
    kind = type(trainer)
    trainer.__class__ = type(f"Elastic{kind.__name__}", (_Elastic, kind), {"__module__": kind.__module__})
    trainer._begin_job(global_batch)


def _check(trainer: Trainer, global_batch: int) -> None:
    kind, args = type(trainer), trainer.args
    name = kind.__name__
    for hook in _OWN_ORDER:
        if getattr(kind, hook) is not getattr(Trainer, hook):
            raise ConfigError(
                f"make_elastic() cannot give {name} its samples: it overrides {hook}(), for an order of its own. Allowed: "
                "Trainer, and trainers that leave the order to it, as TRL's SFTTrainer, DPOTrainer and RewardTrainer"
            )
    if trainer.train_dataset is None or not hasattr(trainer.train_dataset, "__len__"):
        raise ConfigError("make_elastic() needs a train_dataset with a length: a stream cannot be gone on from at a sample")
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise ConfigError(
            "make_elastic() is for a model that each rank holds whole: leave out --fsdp and --deepspeed, or write a loop with "
            "run.distribute(model, shard=True)"
        )
    wrong = [
        (args.n_gpu > 1, "n_gpu", args.n_gpu, "one GPU a process: start it with `python -m ebb.elastic.launch`"),
        (args.auto_find_batch_size, "auto_find_batch_size", True, "False, with a per_device_train_batch_size that fits"),
        (args.save_only_model, "save_only_model", True, "False: nothing could be gone on from"),
        (not args.average_tokens_across_devices, "average_tokens_across_devices", False, "True: shares may be uneven"),
        (args.dataloader_drop_last, "dataloader_drop_last", True, "False: every sample counts"),
        (
            args.train_sampling_strategy != "random",
            "train_sampling_strategy",
            args.train_sampling_strategy,
            "'random', in Ebb's order",
        ),
        (global_batch < 1, "global_batch", global_batch, "1 or more"),
    ]
    for is_wrong, setting, value, allowed in wrong:
        if is_wrong:
            raise ConfigError(f"{setting} is {value!r}; make_elastic() allows {allowed}")


class _Elastic(Trainer):
    """The class that make_elastic() puts before a trainer's own."""

    def _begin_job(self, global_batch: int) -> None:
        args = self.args
        place = output_folder(args.output_dir)
        args.output_dir = str(place)
        job = self._job = AdaptedJob.begin(
            output=Path(os.environ.get("EBB_OUTPUT_DIR") or place),
            global_batch=global_batch,
            epochs=max(1, math.ceil(args.num_train_epochs)),
            dataset_size=len(self.train_dataset),
            micro_batch=args.per_device_train_batch_size,
            seed=args.data_seed if args.data_seed is not None else args.seed,
            place=place,
        )
        args.gradient_accumulation_steps = job.plan.passes
        args.ignore_data_skip = False
        self._counts: list[int] = []  # of the samples of each micro-batch of the step under way
        self.add_callback(_Boundary(self))

    def train(self, resume_from_checkpoint: Any = None, *arguments: Any, **more: Any) -> Any:
        """From the job's newest checkpoint; `resume_from_checkpoint` counts where there is none yet."""
        job = self._job
        found = str(job.found) if job.found else resume_from_checkpoint
        evaluates, self.args.eval_on_start = self.args.eval_on_start, bool(job.found and (job.found / _PENDING).exists())
        self.args.eval_on_start |= evaluates and not job.found
        self._remember_mlflow_run()
        try:
            result = super().train(found, *arguments, **more)
        except Exception as error:
            if job.ranks.world_size > 1 and is_loss(error):
                job.after_loss(error, self.state.global_step, self._save_alone)
            raise
        job.finish(self.state.global_step, **{name: value for name, value in result.metrics.items() if value is not None})
        return result

    def get_train_dataloader(self) -> Any:
        stock = super().get_train_dataloader()  # for its dataset and collate function, which trainers change in ways of their own
        workers = self.args.dataloader_num_workers
        return load(
            self._job.plan,
            stock.dataset,
            lambda: self.state.global_step,
            collate_fn=stock.collate_fn,
            skips=False,  # Trainer does, by skip_first_batches
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
            prefetch_factor=self.args.dataloader_prefetch_factor if workers else None,
        )

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        """All micro-batches of a step."""
        job = self._job
        found = [next(epoch_iterator) for _ in range(num_batches)]
        self._counts = [len(each.numbers) for each in found]
        for each in found:
            job.use(each.numbers)
            if not each.numbers and (self.model_accepts_loss_kwargs or self.compute_loss_func is not None):
                _blank(each.batch)
        job.write_down(self.state.global_step)
        return super().get_batch_samples(iter([each.batch for each in found]), num_batches, device)

    def training_step(self, *arguments: Any, **more: Any) -> Any:
        # Trainer divides by it where it counts no tokens: by the number of micro-batches, which need not have equal parts here
        factor = self._job.plan.factor(self.state.global_step, self._counts.pop(0))
        self.current_gradient_accumulation_steps = 1 / factor if factor else math.inf
        return super().training_step(*arguments, **more)

    def _maybe_log_save_evaluate(self, *arguments: Any, **more: Any) -> None:
        super()._maybe_log_save_evaluate(*arguments, **more)
        if self._job.leaves:
            self._job.leave()

    def _get_output_dir(self, trial: Any) -> str:
        """The place of checkpoints; while one is written, aside."""
        return self._aside or super()._get_output_dir(trial)

    _aside = ""
    _evaluation_pending = False

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        job, step = self._job, self.state.global_step
        best = self.state.best_model_checkpoint
        facts = {"asked": self._asked, "most_asked": self.args.save_total_limit, "protected": Path(best) if best else None}
        with job.saving(step, **facts) as folder:
            try:
                self._aside = str(folder.parent)
                super()._save_checkpoint(model, trial)
            finally:
                self._aside = ""
            self._mend(folder)

    _asked = False

    def _mend(self, folder: Path) -> None:
        """The paths in Trainer's state are those that hold when the checkpoint counts."""
        if not self.args.should_save:
            return
        if (number := self.state.best_global_step) is not None:
            best = self._job.place / f"checkpoint-{number}"
            if best.exists() or best.name == folder.name:
                self.state.best_model_checkpoint = str(best)
        self.state.save_to_json(str(folder / _STATE))
        if self._evaluation_pending:
            (folder / _PENDING).touch()

    def _save_alone(self, folder: Path) -> None:
        """On this rank, with no other one."""
        args = self.args
        kept = args.save_strategy, args.save_on_each_node, args.push_to_hub
        args.save_strategy, args.save_on_each_node, args.push_to_hub = SaveStrategy.NO, True, False
        self.store_flos = lambda: None  # it sums over the ranks
        # Transformers 5.24's save_pretrained() writes nothing elsewhere than on rank 0, whatever it is told
        self.accelerator.unwrap_model(self.model).should_save_on_this_rank = lambda is_main_process: is_main_process
        try:
            if not args.should_save:
                raise OSError("one rank of a machine saves for it")
            self._aside = str(folder.parent)
            super()._save_checkpoint(self.model_wrapped, None)
            if not any(path for kind in _WEIGHTS for path in folder.rglob(kind)):
                raise OSError(f"{folder} has no weights")
            self._mend(folder)
        finally:
            self._aside = ""
            args.save_strategy, args.save_on_each_node, args.push_to_hub = kept

    def _remember_mlflow_run(self) -> None:
        """MLflow makes the id of a run; the next process goes on with the same one."""
        place = self._job.config.output / "mlflow-run"
        if "MLFLOW_RUN_ID" not in os.environ and place.exists():
            os.environ["MLFLOW_RUN_ID"] = place.read_text(encoding="ascii").strip()


class _Boundary(TrainerCallback):
    """Between two steps: agree, report, save, leave."""

    def __init__(self, trainer: _Elastic) -> None:
        self._trainer = trainer
        self._job = trainer._job

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        mlflow = sys.modules.get("mlflow")
        if mlflow is not None and self._job.ranks.rank == 0 and (run := mlflow.active_run()) is not None:
            (self._job.config.output / "mlflow-run").write_text(run.info.run_id, encoding="ascii")

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._job.begin_step(state.global_step)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._job.whole = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        trainer, job = self._trainer, self._job
        last = state.global_step >= state.max_steps
        agreed = job.end_step(state.global_step, last=last)
        trainer._asked = control.should_save
        if agreed.leaves:
            trainer._evaluation_pending = control.should_evaluate or self._epoch_ends(args, state)
            control.should_evaluate = False  # there is no time for it: the next generation begins with it
        control.should_save |= agreed.saves
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        self._trainer._asked = control.should_save
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))}
        known = {name: float(numbers[name]) for name in ("loss", "learning_rate", "grad_norm") if name in numbers}
        known.update((name, float(value)) for name, value in numbers.items() if name.startswith("eval_"))
        with contextlib.suppress(ValueError):  # a name that ebb.log() does not take
            log(step=state.global_step, **known)

    def _epoch_ends(self, args: Any, state: Any) -> bool:
        return bool(args.eval_strategy == "epoch" and state.global_step % self._job.plan.steps_per_epoch == 0)


def _blank(batch: Any) -> None:
    """No token of it counts."""
    for name in ("labels", "shift_labels"):
        if name in batch and isinstance(batch[name], torch.Tensor):
            batch[name] = torch.full_like(batch[name], _IGNORED)
