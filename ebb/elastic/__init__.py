"""Elastic, exact and checkpointed training for a loop of one's own.

    from ebb import elastic

    with elastic.start(global_batch=256, epochs=90, output="/mnt/output/job") as run:
        model = run.distribute(resnet50())
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30)
        run.register_state(model=model, optimizer=optimizer, schedule=schedule)       # the newest checkpoint is loaded here
        for step in run.steps(run.loader(train_set, workers=4)):            # goes on where the job stands
            for images, labels in step:                                     # this rank's micro-batches
                step.backward(criterion(model(images), labels))             # the mean over the micro-batch; weight=tokens
            optimizer.step(); optimizer.zero_grad()
            if step.ends_epoch:
                schedule.step()
                run.best(run.evaluate(val_set, measure)["top1"])            # last: a notice in it ends the step here

What it guarantees, on any number of ranks that come and go: a step is the gradient of the mean loss over `global_batch` samples;
each sample is used once per epoch, with the same random transforms; all ranks leave at the same step boundary, with a checkpoint
of it; what goes on is the newest checkpoint that is whole and of this program. With virtual_workers=V the weights are the same to
the last bit. Where a micro-batch does not fit into memory, the step is repeated with smaller ones (Step.within_memory). An
evaluation that a notice has cut short is repeated by a program that asks `run.evaluation_pending` before its next step. Run it
alone, or on many machines: `python -m ebb.elastic.launch --nnodes=1:8 ... script.py`.

The names below are the public API of a training program, together with those of ebb.elastic.data, ebb.elastic.speed,
ebb.elastic.report and ebb.elastic.checkpoint. A program with flags and exit codes of its own defines a RunConfig with `option`,
reads it with `parse` and runs under `run_program`. To read on: data/order.py (the samples of each step), checkpoint/ (what
survives), notices/ (how a reclaim is heard), runtime/ (the loop), launch/ (the process that a pod starts).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebb.elastic.contract import ENV_PLANNED_WORKERS
    from ebb.elastic.data.streams.mds import mds
    from ebb.elastic.data.streams.parquet import parquet
    from ebb.elastic.data.streams.tokens import tokens
    from ebb.elastic.data.streams.webdataset import webdataset
    from ebb.elastic.notices.notice import Notice
    from ebb.elastic.runtime.config import ConfigError, Parser, RunConfig, add_flags, complete, option, parse
    from ebb.elastic.runtime.loading import Loader
    from ebb.elastic.runtime.loop import GracefulExit
    from ebb.elastic.runtime.main import end_process, run_program, run_rank
    from ebb.elastic.runtime.metrics import Progress
    from ebb.elastic.runtime.run import Run, start
    from ebb.elastic.runtime.step import Step

__all__ = [
    "ENV_PLANNED_WORKERS",
    "ConfigError",
    "GracefulExit",
    "Loader",
    "Notice",
    "Parser",
    "Progress",
    "Run",
    "RunConfig",
    "Step",
    "add_flags",
    "complete",
    "end_process",
    "mds",
    "option",
    "parquet",
    "parse",
    "run_program",
    "run_rank",
    "start",
    "tokens",
    "webdataset",
]

_MODULES = {
    "contract": ("ENV_PLANNED_WORKERS",),
    **{f"data.streams.{name}": (name,) for name in ("mds", "parquet", "tokens", "webdataset")},
    "notices.notice": ("Notice",),
    "runtime.config": ("ConfigError", "Parser", "RunConfig", "add_flags", "complete", "option", "parse"),
    "runtime.loading": ("Loader",),
    "runtime.loop": ("GracefulExit",),
    "runtime.main": ("end_process", "run_program", "run_rank"),
    "runtime.metrics": ("Progress",),
    "runtime.run": ("Run", "start"),
    "runtime.step": ("Step",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used.

    The launcher must listen for signals before torch is imported, and every import of ebb.elastic comes through this file.
    """
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
