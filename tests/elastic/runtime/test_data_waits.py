"""Which rank waits most for data: known to all, said by one."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from ebb import elastic
from ebb.elastic.data.order import Stream
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.config import resolve
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.report import DataWait, DataWaits, Report
from tests.elastic.runtime.ranks import together


def test_the_longest_wait_of_a_step_and_the_rank_that_waited_most_since_the_last_line() -> None:
    waited = [0.0, 0.0, 0.0]
    ranks = [DataWaits(rank, 3, lambda rank=rank: waited[rank]) for rank in range(3)]  # type: ignore[misc]

    def line(*before_the_step: float, step: tuple[float, ...]) -> list[DataWait]:
        for rank, seconds in enumerate(before_the_step):
            waited[rank] += seconds
        for each in ranks:
            each.begin_step()
        for rank, seconds in enumerate(step):
            waited[rank] += seconds
        sums = [sum(column) for column in zip(*(each.mine() for each in ranks), strict=True)]
        return [each.of_all(sums) for each in ranks]

    assert line(0, 8, 0, step=(1, 2, 3)) == [DataWait(3, 1)] * 3
    assert line(0, 0, 0, step=(0, 0, 0.5)) == [DataWait(0.5, 2)] * 3  # what was before the last line is no more
    assert line(2, 1, 0, step=(0, 0, 1)) == [DataWait(1, 0)] * 3


class Slow(Dataset[torch.Tensor]):
    """Slow where `rank` reads it, by a wait that is its own."""

    def __init__(self, mine: bool) -> None:
        self.mine = mine

    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> torch.Tensor:
        if self.mine:
            torch.randn(400_000).sort()
        return torch.ones(1)


def reading(output: Path) -> list[float]:
    lines: list[float] = []
    config = resolve(os.environ, output=output, global_batch=4, epochs=1, workers=0, log_every=1)
    with elastic.start(config, notice=Notice()) as run:
        model = run.distribute(torch.nn.Linear(1, 1))
        run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
        run.on_progress(lambda line: lines.append(line.data_seconds))
        for step in run.steps(run.loader(Slow(run.rank == 1))):
            for batch in step:
                step.backward(model(batch).sum())
    return lines


def test_the_line_of_rank_zero_tells_the_wait_of_another(tmp_path: Path) -> None:
    lines = together(reading, 2, tmp_path)[0]
    assert min(lines[1:]) > 0.02  # two sorts; its own samples take microseconds. A first batch is not counted


@pytest.mark.parametrize(("rank", "said"), [(0, ""), (1, "rank 1: turn a knob\n")])
def test_the_advice_is_that_ranks(rank: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts: dict[str, Any] = {"generation": 1, "resumed_step": 0, "saved": None, "listeners": []}
    stream = Stream(dataset_size=10, epochs=1, global_batch=2, seed=0)
    report = Report.open(resolve({}, output=tmp_path), Group(rank, 2, torch.device("cpu")), stream=stream, **facts)
    report.slowest = 1
    report.advise("turn a knob")
    report.close()
    assert capsys.readouterr().out == said
