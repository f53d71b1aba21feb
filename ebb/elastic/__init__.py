"""Elastic, exact and checkpointed training for a loop of one's own.

    from ebb import elastic

    with elastic.start(global_batch=256, epochs=90, output="/mnt/output/job") as run:
        model = run.distribute(resnet50())
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30)
        run.keep(model=model, optimizer=optimizer, schedule=schedule)       # the newest checkpoint is loaded here
        for step in run.steps(run.loader(train_set, workers=4)):            # goes on where the job stands
            for images, labels in step:                                     # this rank's micro-batches
                step.backward(criterion(model(images), labels))             # the mean over the micro-batch
            optimizer.step(); optimizer.zero_grad()
            if step.ends_epoch:
                schedule.step()
                run.best(run.evaluate(val_set, measure)["top1"])            # last: a notice in it ends the step here

What it guarantees, on any number of ranks that come and go: a step is the gradient of the mean loss over `global_batch` samples;
each sample is used once per epoch, with the same random transforms; all ranks leave at the same step boundary, with a checkpoint
of it; what goes on is the newest checkpoint that is whole and of this program. With virtual_workers=V the weights are the same to
the last bit. An evaluation that a notice has cut short is made again by a program that asks `run.owes_evaluation` before its next
step. Run it alone, or on many machines: `python -m ebb.elastic.launch --nnodes=1:8 ... script.py`.

The names below are the whole public surface; runtime/ stands behind them. To read on: data/order.py (which sample belongs to
which step), checkpoint/ (what survives), notices/ (how a reclaim is heard), runtime/ (the loop), launch/ (the process that a pod
starts).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebb.elastic.runtime.config import ConfigError, RunConfig, add_flags
    from ebb.elastic.runtime.loading import Loader
    from ebb.elastic.runtime.loop import Left
    from ebb.elastic.runtime.metrics import Progress
    from ebb.elastic.runtime.run import Run, start
    from ebb.elastic.runtime.step import Step

__all__ = ["ConfigError", "Left", "Loader", "Progress", "Run", "RunConfig", "Step", "add_flags", "start"]

_MODULES = {
    "ConfigError": "config",
    "Left": "loop",
    "Loader": "loading",
    "Progress": "metrics",
    "Run": "run",
    "RunConfig": "config",
    "Step": "step",
    "add_flags": "config",
    "start": "run",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is asked for: the launcher must hear a signal before torch is imported, and all of
    ebb.elastic comes through here."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.runtime.{_MODULES[name]}"), name)
