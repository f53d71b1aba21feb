"""The loop of a run, put together from what the run has found: its stream, its report, its plan and its input.

loop = make_loop(config, group, notice=notice, checkpointing=checkpointing, loader=loader, ...)     # before the first step
plan_of(config, group, stream, checkpointing, loader, first_step=step, limit=limit, pod=pod)        # in every generation
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ebb.elastic.data.order import Stream
from ebb.elastic.data.tuning import Watched
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.checkpointing import Checkpointing
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.gradients import Gradients
from ebb.elastic.runtime.loading import Fetched, Loader
from ebb.elastic.runtime.loop import Follows, Loop, WeightsGuard
from ebb.elastic.runtime.metrics import Progress
from ebb.elastic.runtime.micro_batch import FILE, device_name, read_limit
from ebb.elastic.runtime.plan import MicroBatchPlan
from ebb.elastic.runtime.pod import Pod
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.profiling import Profiler
from ebb.elastic.runtime.report import Report, SampleLedger
from ebb.elastic.runtime.watchdog import Watchdog


def make_loop(
    config: RunConfig,
    group: Group,
    *,
    notice: Notice,
    watchdog: Watchdog,
    checkpointing: Checkpointing,
    loader: Loader,
    generation: int,
    models: list[torch.nn.Module],
    gradients: Gradients,
    listeners: list[Callable[[Progress], None]],
    follows: Follows | None = None,
    names: list[str] | None = None,
    pod: Pod | None = None,
) -> Loop:
    """Raises DataError when the checkpoint is of other data."""
    stream = Stream(
        dataset_size=len(loader),
        epochs=config.epochs,
        global_batch=config.global_batch,
        seed=config.seed,
        sections=loader.sections,
    )
    first = checkpointing.first_step(loader.facts, stream)
    report = Report.open(
        config,
        group,
        generation=generation,
        resumed_step=first,
        stream=stream,
        saved=checkpointing.saved.get("account"),
        listeners=listeners,
    )
    report.say(
        f"generation {generation}: {group.world_size} ranks, {checkpointing.origin.words}; {stream.total_steps} steps in all"
    )
    if (skipped := checkpointing.skipped(first, stream)) > 0:
        report.say(
            f"the job was at its end already, in a step that was {skipped} samples short: they are left out of the next epoch"
        )
    limit = read_limit(config, group.device)
    limit = limit if pod is None else pod.least(limit)
    plan = plan_of(config, group, stream, checkpointing, loader, first_step=first, limit=limit, pod=pod)
    if config.virtual_workers and config.virtual_workers < group.world_size:
        report.say(f"{group.world_size} ranks for {config.virtual_workers} virtual workers: the last ones have nothing to do")

    def read(plan: MicroBatchPlan) -> Watched[Fetched]:
        return loader.start(plan, group.device, say=report.advise)

    if plan.max_micro_batch < config.max_micro_batch:
        report.say(
            f"at most {plan.max_micro_batch} samples at once: more ran out of memory on {device_name(group.device)} "
            f"({config.output / FILE}; without that file {config.max_micro_batch} are tried again)"
        )
    newest_on_disk = checkpointing.origin.checkpoint_step
    loop = Loop(
        group=group,
        notice=notice,
        stream=stream,
        plan=plan,
        gradients=gradients,
        source=read(plan),
        read=read,
        output=config.output,
        saver=checkpointing.saver,
        state=lambda: checkpointing.state(
            loop.step, stream, loader.facts, report.account, evaluation_pending=loop.resumes_with_evaluation
        ),
        report=report,
        watchdog=watchdog,
        ledger=_ledger(config, group, checkpointing, stream, generation) if config.ledger else None,
        step=first,
        checkpoint_step=first if newest_on_disk is None else newest_on_disk,
        log_every=config.log_every,
        min_step_seconds=config.min_step_seconds,
        lag=1 if group.device.type == "cuda" and not group.awaits_gpus else 0,
        mark=WeightsGuard([each for model in models for each in model.parameters()]),
        follows=follows,
        pod=pod,
        snapshots=checkpointing.snapshots,
        profiler=Profiler(config.output, group.device, say=report.say),
        names=names,
        evaluation_pending=bool(checkpointing.saved.get("evaluation_pending", False)),
    )
    checkpointing.kept.optimizer.register_step_post_hook(loop.updated)
    for model in models:
        model.train()
    return loop


def plan_of(
    config: RunConfig,
    group: Group,
    stream: Stream,
    checkpointing: Checkpointing,
    loader: Loader,
    *,
    first_step: int,
    limit: int,
    pod: Pod | None,
) -> MicroBatchPlan:
    """This rank's in its generation."""
    return MicroBatchPlan(
        stream=stream,
        first_step=first_step,
        rank=group.rank,
        world_size=group.world_size,
        max_micro_batch=limit,
        virtual_workers=config.virtual_workers,
        equal_passes=pod is not None,
        together=loader.together,
        in_pairs=checkpointing.kept.in_pairs,
    )


def _ledger(config: RunConfig, group: Group, checkpointing: Checkpointing, stream: Stream, generation: int) -> SampleLedger:
    header = {
        "generation": generation,
        "resumed_step": checkpointing.first_step({}, stream),
        "resumed_generation": checkpointing.origin.generation,
        "rank": group.rank,
        "world_size": group.world_size,
        "dataset_size": stream.dataset_size,
        "global_batch": stream.global_batch,
        "epochs": stream.epochs,
    }
    return SampleLedger(config.output / "ledger", header)
