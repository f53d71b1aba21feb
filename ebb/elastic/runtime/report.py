"""Everything a run reports: lines of text, metrics.jsonl, Prometheus, result.json, its ledger of samples and account of time.

    report = Report.open(config, group, generation=7, resumed_step=120, stream=stream, saved=saved["account"])
    report.begin(); report.step(121, seconds); report.line(step=130, loss=0.7, ...)

TimeAccount says where the time of a job went, over all its generations. DataWaits: a step is as slow as the slowest rank, which
knows which knob to turn; the ranks add up vectors in which each has places of its own, so that every rank knows all of them.

SampleLedger (with --ledger alone; testing/exactness.py checks it) has one file a rank and generation,
ledger/g<generation>-r<rank>.jsonl: a header, then a line per step. The ids are those that came out of the loader with the batch,
not what the order says they should be. A line is written and flushed before the step's gradients are shared: so there is no
checkpoint that holds a step whose lines are missing, whenever a process is killed. A line may therefore belong to a step that was
never finished; the lineage of the checkpoints says which ones count. A disk that is full costs the training nothing: the
lines wait in memory for room, and one sentence says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ebb.compat import Self, dataclass, zip
from ebb.elastic.checkpoint.sharded import DTensor
from ebb.elastic.data.order import Stream
from ebb.elastic.progress_log import take_figures, yield_to_loop
from ebb.elastic.room import with_room
from ebb.elastic.runtime import metrics
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.metrics import Progress
from ebb.elastic.runtime.process_group import Group


@dataclass(kw_only=True)
class TimeAccount:
    """`useful_seconds` goes back with the weights when steps are done again; what it loses is added to `lost_seconds`."""

    useful_seconds: float = 0.0
    lost_seconds: float = 0.0
    steps_redone: int = 0
    checkpoint_seconds: float = 0.0
    _last_time: float | None = None

    @classmethod
    def resume(
        cls,
        saved: dict[str, Any] | None,
        *,
        resumed_step: int,
        last: Progress | None,
        last_step: metrics.LastStep | None = None,
    ) -> TimeAccount:
        """`saved` is what the checkpoint holds, `last` the last line of metrics of any generation; `last_step` knows the steps
        after it."""
        account = cls._of_line(saved, resumed_step, last)
        if last_step is not None:  # whichever has seen more: a machine that loses its power takes what was not on the disk yet
            seen = last_step.steps_redone + max(0, last_step.step - resumed_step)
            account.steps_redone = max(account.steps_redone, seen)
        return account

    @classmethod
    def _of_line(cls, saved: dict[str, Any] | None, resumed_step: int, last: Progress | None) -> TimeAccount:
        useful = float(saved["useful_seconds"]) if saved else 0.0
        if last is None:
            return cls(**saved) if saved else cls()
        return cls(
            useful_seconds=useful,
            lost_seconds=last.lost_seconds + max(0.0, last.useful_seconds - useful),
            steps_redone=last.steps_redone + max(0, last.step - resumed_step),
            checkpoint_seconds=last.checkpoint_seconds,
            _last_time=last.time,
        )

    def begin(self, now: float) -> None:
        """The first step of this generation starts: the time since the last step of the one before was lost."""
        if self._last_time is not None:
            self.lost_seconds += max(0.0, now - self._last_time)

    def saved(self) -> dict[str, Any]:
        """The part that a checkpoint keeps."""
        return {name: value for name, value in asdict(self).items() if not name.startswith("_")}


class DataWait(NamedTuple):
    seconds: float  # the longest wait of any rank in this step
    rank: int  # that has waited most since the last line


@dataclass(kw_only=True)
class Report:
    """Of one rank; only rank 0 writes and speaks, and the first rank of a machine answers Prometheus."""

    group: Group
    generation: int
    stream: Stream
    account: TimeAccount
    lines: metrics.MetricLines
    last_step: metrics.LastStep
    resumed_step: int
    board: metrics.Board = field(default_factory=metrics.Board)
    listeners: list[Callable[[Progress], None]] = field(default_factory=list)
    slowest: int = 0  # the rank that has waited most for data of late, as all ranks know it

    @classmethod
    def open(
        cls,
        config: RunConfig,
        group: Group,
        *,
        generation: int,
        resumed_step: int,
        stream: Stream,
        saved: dict[str, Any] | None,
        listeners: list[Callable[[Progress], None]],
    ) -> Self:
        yield_to_loop()
        lines = metrics.MetricLines(config.output / "metrics.jsonl")
        last_step = metrics.LastStep(config.output / "last-step")
        report = cls(
            group=group,
            generation=generation,
            stream=stream,
            account=TimeAccount.resume(saved, resumed_step=resumed_step, last=lines.last, last_step=last_step),
            lines=lines,
            last_step=last_step,
            resumed_step=resumed_step,
            listeners=listeners,
        )
        if config.metrics_port and config.place.local_rank == 0:
            metrics.serve(report.board, config.metrics_port)
        return report

    def begin(self) -> None:
        """The first step of this generation starts."""
        self.account.begin(time.time())
        self._note(self.resumed_step)

    def enter(self, generation: int, *, resumed_step: int) -> None:
        """A new generation of the same process."""
        self.generation, self.resumed_step, self.slowest = generation, resumed_step, 0

    def step(self, number: int, seconds: float) -> None:
        """`number` steps are done."""
        self.account.useful_seconds += seconds
        self._note(number)

    def _note(self, step: int) -> None:
        if self.group.rank == 0:
            self.last_step.write(step, self.account.steps_redone)

    def line(
        self,
        *,
        step: int,
        loss: float,
        samples: int,
        step_seconds: float,
        waits: DataWait,
        figures: dict[str, float],
        checkpoint_step: int,
        checkpoint_seconds: float,
    ) -> None:
        """All numbers are of all ranks, but for the step's own seconds, which are this one's."""
        self.slowest = waits.rank
        self.account.checkpoint_seconds += checkpoint_seconds
        used = min(step * self.stream.global_batch, self.stream.total_samples)
        progress = Progress(
            time=time.time(),
            step=step,
            total_steps=self.stream.total_steps,
            epoch=round(used / self.stream.dataset_size, 3),
            loss=round(loss, 5),
            samples_per_second=round(samples / step_seconds, 1),
            world_size=self.group.world_size,
            generation=self.generation,
            useful_seconds=round(self.account.useful_seconds, 3),
            lost_seconds=round(self.account.lost_seconds, 3),
            steps_redone=self.account.steps_redone,
            checkpoint_seconds=round(self.account.checkpoint_seconds, 3),
            checkpoint_step=checkpoint_step,
            step_seconds=round(step_seconds, 4),
            data_seconds=round(waits.seconds, 4),
            samples=used,
            figures={name: round(value, 5) for name, value in {**figures, **take_figures()}.items()},
        )
        self.board.show(progress)
        if self.group.rank == 0:
            self.lines.write(progress)
            for listener in self.listeners:
                listener(progress)
        self.say(sentence(progress))

    def say(self, text: str) -> None:
        if self.group.rank == 0:
            print(text, flush=True)

    def advise(self, text: str) -> None:
        """About the data of this rank: said by the rank that waits most, and by no other."""
        if self.group.rank == self.slowest:
            print(f"rank {self.group.rank}: {text}" if self.group.world_size > 1 else text, flush=True)

    def close(self) -> None:
        self.lines.close()
        self.last_step.close()


def sentence(progress: Progress) -> str:
    figures = "".join(f"  {name} {value:.4f}" for name, value in progress.figures.items())
    return (
        f"step {progress.step}/{progress.total_steps}  epoch {progress.epoch:.2f}  loss {progress.loss:.4f}{figures}  "
        f"{progress.samples_per_second:.0f} samples/s  step {progress.step_seconds:.3f} s  data {progress.data_seconds:.3f} s  "
        f"world {progress.world_size}  generation {progress.generation}"
    )


class DataWaits:
    """Of one rank in one generation."""

    def __init__(self, rank: int, world_size: int, seconds: Callable[[], float]) -> None:
        self._rank, self._world_size, self._seconds = rank, world_size, seconds
        self._before = 0.0  # this step
        self._told = [0.0] * world_size  # by each rank at the last line, since the start

    def begin_step(self) -> None:
        self._before = self._seconds()

    def mine(self) -> list[float]:
        """Two numbers for each rank: its wait in this step, and since the start."""
        found = [0.0] * (2 * self._world_size)
        found[2 * self._rank : 2 * self._rank + 2] = [self._seconds() - self._before, self._seconds()]
        return found

    def of_all(self, sums: list[float]) -> DataWait:
        """From the sum over the ranks of mine()."""
        of_step, since_start = sums[::2], sums[1::2]
        since_line = [now - before for now, before in zip(since_start, self._told, strict=True)]
        self._told = since_start
        return DataWait(max(of_step), since_line.index(max(since_line)))


_MOST_WAITING = 64 * 2**20  # bytes of a ledger that has no room: days of steps


class SampleLedger:
    """The writer of one rank in one generation."""

    def __init__(self, folder: Path, header: dict[str, Any], *, say: Callable[[str], None] = metrics.complain) -> None:
        """Raises FileExistsError where this rank has a ledger in this generation."""
        self._folder, self._header, self._say = folder, header, say
        self._path = folder / f"g{header['generation']}-r{header['rank']}.jsonl"
        self._file: io.FileIO | None = None
        self._waiting = bytearray()  # lines, perhaps the rest of one
        self._told = False
        self._write(header)

    def next(self, *, generation: int, resumed_step: int, resumed_generation: int, group: Group) -> SampleLedger:
        """The one of the next generation, which goes on from memory."""
        self.close()
        present = {"generation": generation, "resumed_step": resumed_step, "resumed_generation": resumed_generation}
        header = {**self._header, **present, "rank": group.rank, "world_size": group.world_size}
        following = SampleLedger(self._folder, header, say=self._say)
        following._told |= self._told
        return following

    def write(self, step: int, ids: list[int]) -> None:
        self._write({"step": step, "time": time.time(), "ids": ids})

    def _write(self, line: dict[str, Any]) -> None:
        if len(self._waiting) < _MOST_WAITING:
            self._waiting += json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            self._write_waiting()
        except FileExistsError:
            raise
        except OSError as error:
            if not self._told:
                self._say(
                    f"{self._path} cannot be written: {error.strerror}; training goes on, and the ledger's lines wait in memory "
                    "for room. While some are missing testing.exactness takes their samples for lost"
                )
            self._told = True

    def _write_waiting(self) -> None:
        """Raises OSError."""
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = io.FileIO(self._path, "x")
        while self._waiting:
            del self._waiting[: self._file.write(self._waiting)]

    def close(self) -> None:
        """With what waits, if there is room now."""
        with contextlib.suppress(OSError):
            self._write_waiting()
        if self._file is not None:
            self._file.close()


def weights_sha256(network: torch.nn.Module) -> str:
    """Of the names and bytes of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor  # with the pod's other ranks
        digest.update(whole.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def write_result(output: Path, content: dict[str, Any]) -> None:
    """Write result.json. Room on a full disk is waited for, as for the last checkpoint; then OSError is raised."""
    temporary = output / f".tmp-result.json-{os.getpid()}"

    def write() -> None:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        temporary.rename(output / "result.json")  # its entry in the folder may need room, too

    with_room(write, f"{output} is full: result.json")
