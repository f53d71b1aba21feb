"""What a run says while it runs: a line of text, a line of metrics.jsonl, Prometheus, and whoever else wants to know.

report = Report.open(config, group, generation=7, resumed_step=120, stream=stream, saved=saved["account"])
report.begin(); report.step(seconds); report.line(step=130, loss=0.7, ...)
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from ebb.elastic.data.order import Stream
from ebb.elastic.runtime import metrics
from ebb.elastic.runtime.account import Account
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.metrics import Progress
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.waits import Waited


@dataclass(kw_only=True)
class Report:
    """Of one rank; only rank 0 writes and speaks, and the first rank of a machine answers Prometheus."""

    group: Group
    generation: int
    stream: Stream
    account: Account
    lines: metrics.MetricLines
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
        lines = metrics.MetricLines(config.output / "metrics.jsonl")
        report = cls(
            group=group,
            generation=generation,
            stream=stream,
            account=Account.resume(saved, resumed_step=resumed_step, last=lines.last),
            lines=lines,
            listeners=listeners,
        )
        if config.metrics_port and config.place.local_rank == 0:
            metrics.serve(report.board, config.metrics_port)
        return report

    def begin(self) -> None:
        """The first step of this generation starts."""
        self.account.begin(time.time())

    def step(self, seconds: float) -> None:
        self.account.useful_seconds += seconds

    def line(
        self,
        *,
        step: int,
        loss: float,
        samples: int,
        step_seconds: float,
        waits: Waited,
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
            figures={name: round(value, 5) for name, value in figures.items()},
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


def sentence(progress: Progress) -> str:
    figures = "".join(f"  {name} {value:.4f}" for name, value in progress.figures.items())
    return (
        f"step {progress.step}/{progress.total_steps}  epoch {progress.epoch:.2f}  loss {progress.loss:.4f}{figures}  "
        f"{progress.samples_per_second:.0f} samples/s  step {progress.step_seconds:.3f} s  data {progress.data_seconds:.3f} s  "
        f"world {progress.world_size}  generation {progress.generation}"
    )
