"""The samples of a step: the rule for -b and --global-batch, and a job's own number found again.

    kept = kept_global_batch(config.output)
    sizes = batch_sizes(batch_size=32, global_batch=0, largest=0, processes=8, kept=kept)       # 256 samples, 32 in one pass

In the original example -b is the batch of a process, so each machine that comes or goes changes the global batch, and with it
what the learning rate means. Here it is fixed at the first start, as b times the processes that the job wants, and kept: every
checkpoint has it in its identity. Fewer processes take larger shares, and accumulate them in passes of at most b, which is what
fits into their memory.
"""

from pathlib import Path
from typing import NamedTuple

from ebb.elastic.checkpoint import newest_manifest

PER_PROCESS = 32  # the original example's default
_LARGEST = 256  # in one pass, where only --global-batch says anything


class BatchSizes(NamedTuple):
    global_batch: int  # samples per optimizer step
    largest: int  # samples in one pass of a process; a larger share of a step is accumulated
    why: str


def batch_sizes(*, batch_size: int, global_batch: int, largest: int, processes: int, kept: int | None) -> BatchSizes:
    """The rule. The first three are the user's (0: not said); `processes` are those that the job wants, not those that happen to
    be there; `kept` is the global batch that the job began with. A --global-batch that contradicts it is refused with the
    checkpoint, whose identity it is part of: learning rate, schedule and the order of samples belong to it.
    """
    assert processes >= 1, processes
    each = batch_size or (_LARGEST if global_batch else PER_PROCESS)
    largest = min((limit for limit in (batch_size, largest) if limit), default=each)
    if global_batch:
        return BatchSizes(global_batch, largest, f"global batch {global_batch}, as asked for")
    if kept is not None:
        return BatchSizes(kept, largest, f"global batch {kept}, as at the first start")
    return BatchSizes(each * processes, largest, f"global batch {each * processes}: {each} for each of {processes} processes")


def processes_wanted(*, planned_workers: int, local_world_size: int, world_size: int) -> int:
    """The job's wish, as far as this process was told: the workers that the controller plans, each with the processes of this
    one; without a controller, those that met."""
    return planned_workers * local_world_size or world_size


def kept_global_batch(output: Path) -> int | None:
    """Of the newest checkpoint in a job's folder, by its manifest alone; None before the first. All of a job's have the same."""
    newest = newest_manifest(output)
    return None if newest is None else int(newest.identity["global_batch"])
