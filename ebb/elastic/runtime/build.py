"""A Loop is put together: the order of the samples, the plan of this rank, the report, the ledger."""

from collections.abc import Callable

import torch

from ebb.elastic.data.order import Stream
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.checkpointing import Keeping
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.gradients import Averaged
from ebb.elastic.runtime.ledger import Ledger
from ebb.elastic.runtime.loading import Loader
from ebb.elastic.runtime.loop import Loop
from ebb.elastic.runtime.mark import Mark
from ebb.elastic.runtime.metrics import Progress
from ebb.elastic.runtime.plan import Plan
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.report import Report
from ebb.elastic.runtime.watchdog import Watchdog


def make_loop(
    config: RunConfig,
    group: Group,
    *,
    notice: Notice,
    watchdog: Watchdog,
    keeping: Keeping,
    loader: Loader,
    generation: int,
    models: list[torch.nn.Module],
    listeners: list[Callable[[Progress], None]],
) -> Loop:
    """Raises DataError when the checkpoint is of other data."""
    stream = Stream(dataset_size=len(loader), epochs=config.epochs, global_batch=config.global_batch, seed=config.seed)
    first = keeping.first_step(loader.facts, stream)
    report = Report.open(
        config,
        group,
        generation=generation,
        resumed_step=first,
        stream=stream,
        saved=keeping.saved.get("account"),
        listeners=listeners,
    )
    report.say(f"generation {generation}: {group.world_size} ranks, {keeping.origin.words}; {stream.total_steps} steps in all")
    if (skipped := keeping.skipped(first, stream)) > 0:
        report.say(
            f"the job was at its end already, in a step that was {skipped} samples short: they are left out of the next epoch"
        )
    plan = Plan(
        stream=stream,
        first_step=first,
        rank=group.rank,
        world_size=group.world_size,
        max_micro_batch=config.max_micro_batch,
        virtual_workers=config.virtual_workers,
        together=loader.together,
        in_pairs=keeping.kept.in_pairs,
    )
    if config.virtual_workers and config.virtual_workers < group.world_size:
        report.say(f"{group.world_size} ranks for {config.virtual_workers} virtual workers: the last ones have nothing to do")
    loop = Loop(
        group=group,
        notice=notice,
        stream=stream,
        plan=plan,
        gradients=keeping.virtual or Averaged(models, group.world_size),
        source=loader.start(plan, group.device, say=report.advise),
        saver=keeping.saver,
        state=lambda: keeping.state(loop.step, stream, loader.facts, report.account, evaluation_pending=loop.evaluation_pending),
        report=report,
        watchdog=watchdog,
        ledger=_ledger(config, group, keeping, stream, generation) if config.ledger else None,
        step=first,
        checkpoint_step=first,
        log_every=config.log_every,
        min_step_seconds=config.min_step_seconds,
        lag=1 if group.device.type == "cuda" else 0,
        mark=Mark([each for model in models for each in model.parameters()]),
        evaluation_pending=bool(keeping.saved.get("owes_evaluation", False)),
    )
    keeping.kept.optimizer.register_step_post_hook(loop.updated)
    for model in models:
        model.train()
    return loop


def _ledger(config: RunConfig, group: Group, keeping: Keeping, stream: Stream, generation: int) -> Ledger:
    header = {
        "generation": generation,
        "resumed_step": keeping.first_step({}, stream),
        "resumed_generation": keeping.origin.generation,
        "rank": group.rank,
        "world_size": group.world_size,
        "dataset_size": stream.dataset_size,
        "global_batch": stream.global_batch,
        "epochs": stream.epochs,
    }
    return Ledger(config.output / "ledger", header)
