"""Shows how busy a job's GPUs are in its status, and warns of one that is hardly used. Pure."""

from dataclasses import replace

from ebb.api import contract as names
from ebb.api.status import IDLE_SECONDS, MOST_GPUS, GpuUse
from ebb.controller.reconciler.types import JobView, PlanBuilder


def note(view: JobView, draft: PlanBuilder) -> None:
    """Take in what the launchers say; where none does, as just after a controller has started, running workers keep theirs."""
    if draft.status.ended:
        return
    running = {worker.index for worker in view.running}
    read = view.observed.gpus or tuple(use for use in draft.status.gpus if use.worker in running)
    idle = [use for use in read if use.is_idle]
    if idle and not any(use.is_idle for use in draft.status.gpus):
        draft.event(names.REASON_GPU_IDLE, _warning(idle, len(read)), warning=True)
    least = sorted(read, key=lambda use: (not use.is_idle, use.utilization or 0))[:MOST_GPUS]
    shown = tuple(sorted(least, key=lambda use: (use.worker, use.gpu)))
    draft.status = replace(draft.status, gpus=shown)


def still(use: GpuUse) -> GpuUse:
    """It without what moves by itself."""
    return replace(use, utilization=None, memory_used_bytes=None, idle_seconds=IDLE_SECONDS if use.is_idle else 0)


def _warning(idle: list[GpuUse], there: int) -> str:
    first = idle[0]
    ranks = f" (rank {', '.join(map(str, first.ranks))})" if first.ranks else ""
    others = f", as are {len(idle) - 1} others of {there}" if len(idle) > 1 else ""
    return (
        f"GPU {first.gpu} of worker {first.worker}{ranks} is below 10 % for {IDLE_SECONDS // 60} minutes{others}. It costs as "
        "much as one that works: ebb status shows all of them."
    )
