"""One rank of a job whose loop is a library's: its generation, its notice, its ledger, and the ranks' agreement after each step.

    job = AdaptedJob.begin(output=folder, global_batch=64, epochs=3, dataset_size=1000, micro_batch=8, seed=0)
    job.found                                       # the checkpoint folder to go on from, or None
    job.begin_step(step)                            # seeds what the step draws from, writes the ledger
    job.end_step(step)                              # all ranks get the same answer: .leaves, .saves
    with job.saving(step) as folder: ...            # all ranks write; rank 0 commits
    job.finish(step)                                # result.json

What ends a rank: GracefulExit (138) after the checkpoint of a notice; `after_loss` (75) when a peer is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ebb.compat import Never
from ebb.elastic.adapters.batches import EpochPlan
from ebb.elastic.adapters.folders import CheckpointFolders
from ebb.elastic.checkpoint.cadence import Cadence, Cost
from ebb.elastic.checkpoint.errors import CheckpointError, FenceUnreachable, NotWritten, Stale
from ebb.elastic.checkpoint.fence import Fence
from ebb.elastic.contract import EXIT_PEER_LOST
from ebb.elastic.data.order import mix
from ebb.elastic.notices.notice import Notice, install
from ebb.elastic.progress_log import log
from ebb.elastic.runtime.config import ConfigError, RunConfig, resolve
from ebb.elastic.runtime.loading import Fetched
from ebb.elastic.runtime.loop import GracefulExit
from ebb.elastic.runtime.process_group import is_loss
from ebb.elastic.runtime.report import SampleLedger, write_result
from ebb.elastic.runtime.start import Start, join
from ebb.elastic.runtime.step import seed_everything


class Ranks:
    """The process group that the library has made; its part that start.join() needs, and an agreement. Alone: no group."""

    def __init__(self) -> None:
        self.together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if self.together else 0
        self.world_size = dist.get_world_size() if self.together else 1
        # of the CPU: hosts agree without waiting for their GPUs
        self._group: Any = dist.new_group(backend="gloo") if self.world_size > 1 else None

    def hand_out_facts(self, facts: Any) -> Any:
        """Rank 0's, on every rank."""
        if self.world_size == 1:
            return facts
        box = [facts]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def any_of(self, *flags: bool) -> list[bool]:
        """For each of them, True on all ranks if it is on one."""
        if self.world_size == 1:
            return list(flags)
        values = torch.tensor([float(each) for each in flags])
        dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self._group)
        return [each > 0 for each in values.tolist()]

    def barrier(self) -> None:
        if self.world_size > 1:
            dist.barrier(group=self._group)


class Agreed(NamedTuple):
    """After a step, the same on all ranks."""

    leaves: bool
    saves: bool


class AdaptedJob:
    """`found` is the folder to go on from, `resumed_step` the step after which it was written."""

    def __init__(self, config: RunConfig, notice: Notice, ranks: Ranks, plan: EpochPlan, *, place: Path) -> None:
        self.config, self.ranks, self.plan, self.place = config, ranks, plan, place
        self._notice = notice
        self._start, self._fence = join(config, ranks)  # type: ignore[arg-type]  # it needs no more of a group
        identity = {"dataset_size": plan.dataset_size, "global_batch": plan.global_batch, "seed": plan.seed}
        self._folders = CheckpointFolders(place, owner=self._start.folder, identity=identity)
        self.found, self.resumed_step, generation = self._find(self._start, self._fence)
        self._ledger = self._open_ledger(generation) if config.ledger else None
        self._numbers: list[int] = []
        self._cadence = Cadence(
            shortest_seconds=config.checkpoint_min_seconds,
            longest_seconds=config.checkpoint_seconds,
            overhead=config.checkpoint_overhead,
        )
        self._saved_at, self._save_seconds = time.monotonic(), 0.0
        self._stepped_at: float | None = None
        self.whole = True  # the state is that after the last step, not in the middle of an update
        self.leaves = False

    @classmethod
    def begin(
        cls, *, output: Path, global_batch: int, epochs: int, dataset_size: int, micro_batch: int, seed: int, place: Path
    ) -> AdaptedJob:
        """Raises ConfigError, RefusedError."""
        if global_batch < 1:
            raise ConfigError(f"global_batch is {global_batch}; it must be at least 1")
        values = {"output": output, "global_batch": global_batch, "epochs": epochs, "seed": seed, "max_micro_batch": micro_batch}
        config = resolve(os.environ, **values)
        notice = install()
        notice.leave_within(config.leave_seconds, EXIT_PEER_LOST)
        ranks = Ranks()
        plan = EpochPlan(
            dataset_size=dataset_size,
            global_batch=global_batch,
            micro_batch=micro_batch,
            rank=ranks.rank,
            world_size=ranks.world_size,
            seed=seed,
        )
        return cls(config, notice, ranks, plan, place=place)

    @property
    def generation(self) -> int:
        return self._start.generation

    def _find(self, start: Start, fence: Fence) -> tuple[Path | None, int, int]:
        """With the generation that wrote it; 0: none did."""
        if self.ranks.rank == 0:
            try:
                named = fence.newest()
            except FenceUnreachable:
                named = None  # the folder's listing decides
            self._folders.prepare(start.generation, named)
            found = self._folders.newest()
            facts: Any = (str(found.path), found.manifest.step, found.manifest.generation) if found else (None, 0, 0)
            words = f"goes on after step {facts[1]}, from {facts[0]}" if found else "begins"
            print(f"generation {start.generation}, {self.ranks.world_size} ranks: {words}", flush=True)
        else:
            facts = None
        path, step, generation = self.ranks.hand_out_facts(facts)
        return Path(path) if path else None, step, generation

    def _open_ledger(self, resumed_generation: int) -> SampleLedger:
        header = {
            "generation": self.generation,
            "resumed_step": self.resumed_step,
            "resumed_generation": resumed_generation,
            "rank": self.ranks.rank,
            "world_size": self.ranks.world_size,
            "dataset_size": self.plan.dataset_size,
            "global_batch": self.plan.global_batch,
            "epochs": self.config.epochs,
            "epochs_apart": True,
        }
        return SampleLedger(self.config.output / "ledger", header)

    def begin_step(self, step: int) -> None:
        """`step` steps are done."""
        seed_everything(mix(self.plan.seed, step, self.ranks.rank))
        self._numbers = []

    def use(self, numbers: list[int]) -> None:
        """Samples of the step under way, before its gradients are shared."""
        self._numbers += numbers

    def write_down(self, step: int) -> None:
        """All of the step's samples are in use()."""
        if self._ledger is not None:
            self._ledger.write(step, self._numbers)

    def deal(self, loader: Iterable[Fetched], step: Callable[[], int]) -> Iterator[tuple[Any, float]]:
        """Each micro-batch of the loader, with the weight of its mean loss (EpochPlan.factor). `step`: steps that are done."""
        for number, fetched in enumerate(loader):
            now, place = step(), number % self.plan.passes
            if place == 0:
                self.begin_step(now)
            self.use(fetched.numbers)
            if place == self.plan.passes - 1:  # its backward pass shares the gradients
                self.write_down(now)
            yield fetched.batch, self.plan.factor(now, len(fetched.numbers))

    def end_step(self, step: int, *, last: bool) -> Agreed:
        """`step` steps are done. Raises what torch raises where a peer is gone."""
        self.whole = True
        now = time.monotonic()
        due = now - self._saved_at >= self._cadence.seconds_between(Cost(stall_seconds=self._save_seconds))
        wish = self._notice.take_wish()
        leaves, saves = self.ranks.any_of(self._notice.seen, (due and self.ranks.rank == 0) or wish)
        self.leaves = leaves and not last
        self._tell(step, now)
        return Agreed(self.leaves, saves or leaves or last)

    def _tell(self, step: int, now: float) -> None:
        seconds, self._stepped_at = (now - self._stepped_at if self._stepped_at else None), now
        rate = {"samples_per_second": self.plan.whole(step - 1).size / seconds} if seconds else {}
        epochs = step / self.plan.steps_per_epoch
        log(step=step, **{"total_steps": self.plan.steps_per_epoch * self.config.epochs, "epoch": epochs, **rate})

    @contextlib.contextmanager
    def saving(self, step: int, **facts: Any) -> Iterator[Path]:
        """All ranks write into the folder, and rank 0 commits it; `facts` are those of CheckpointFolders.commit. A full disk
        costs the checkpoint, not the training."""
        began = time.monotonic()
        working = self._folders.working(self.generation, step)
        with self._notice.saving():
            full: Exception | None = None
            try:
                yield working
            except Exception as error:
                if not (isinstance(error, OSError) or _FULL.search(str(error))):
                    raise
                full = error
            (failed,) = self.ranks.any_of(full is not None)
            told = ""
            if self.ranks.rank == 0:
                told = str(full or "") if failed else self._commit(working, step, **facts)
            told = self.ranks.hand_out_facts(told)
        if told == _STALE:
            peer_is_gone("a newer generation of the job exists")
        if (failed or told) and self.ranks.rank == 0:
            print(
                f"step {step} has no checkpoint: {told or 'another rank could not write its part'}", file=sys.stderr, flush=True
            )
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - began

    def _commit(self, working: Path, step: int, **facts: Any) -> str:
        """The reason why it is not committed, "" if it is."""
        try:
            self._folders.commit(working, self._fence, step=step, **facts)
        except Stale:
            return _STALE
        except NotWritten as error:
            return str(error)
        return ""

    def final_place(self, step: int) -> Path:
        """Of a checkpoint that is committed."""
        return self.place / self._folders.working(self.generation, step).name

    def leave(self) -> Never:
        self.close()
        raise GracefulExit

    def after_loss(self, error: BaseException, step: int, save: Callable[[Path], None] | None) -> Never:
        """A peer is gone: the first survivor whose state is whole saves it, and all meet again. `save` asks no other rank.

        On GPUs the last steps may be of a broken collective: the last checkpoint counts.
        """
        with self._notice.saving(), contextlib.suppress(CheckpointError, OSError):
            on_cpu = not torch.cuda.is_available()
            if save is not None and self.whole and on_cpu and step > self.resumed_step and self._fence_is_ours():
                writer = self.ranks.rank
                working = self._folders.working(self.generation, step, writer)
                if not self.final_place(step).exists() and self._folders.claim(self.generation, step):
                    save(working)
                    self._folders.commit(working, self._fence, step=step, writer=writer)
                    print(f"rank {writer} has saved step {step} after the loss of a peer", flush=True)
        peer_is_gone(str(error).partition("\n")[0][:200])

    def _fence_is_ours(self) -> bool:
        return not self._fence.is_replaced()

    def finish(self, step: int, **figures: Any) -> None:
        """Trained to the end."""
        if self.ranks.rank == 0:
            result = {**figures, "step": step, "generation": self.generation, "epochs": self.config.epochs}
            write_result(self.config.output, {**result, "finished_at": time.time()})
        self.ranks.barrier()
        self.close()

    def close(self) -> None:
        """The ledger is complete."""
        if self._ledger is not None:
            self._ledger.close()


_STALE = "stale"
_FULL = re.compile(r"No space left|PytorchStreamWriter failed")  # torch and safetensors have errors of their own for it


def output_folder(given: str) -> Path:
    """The program's own folder for checkpoints; below the job's output where it is a relative path, since only that outlives a
    machine."""
    return Path(os.environ.get("EBB_OUTPUT_DIR", "")) / given


def peer_is_gone(words: str) -> Never:
    """End this process, to meet the others again."""
    print(f"a peer is gone ({words})", flush=True)
    sys.stderr.flush()
    os._exit(EXIT_PEER_LOST)


__all__ = ["AdaptedJob", "Agreed", "Ranks", "is_loss", "output_folder"]
