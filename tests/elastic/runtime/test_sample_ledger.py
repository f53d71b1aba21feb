"""The ledger of samples on a disk that is full for a while, or to the end."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ebb.elastic.runtime import report
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.report import SampleLedger
from tests.elastic.checkpoint.making import full_disk

HEADER: dict[str, Any] = {"generation": 1, "rank": 0, "world_size": 1, "resumed_step": 0, "resumed_generation": 0}


def steps(path: Path) -> list[int]:
    """Behind the header."""
    return [json.loads(line)["step"] for line in path.read_text().splitlines()[1:]]


def test_a_full_disk_does_not_end_the_training_and_what_was_not_written_comes_later(tmp_path: Path) -> None:
    """Said once, also where the next generation finds it full again."""
    said: list[str] = []
    ledger = SampleLedger(tmp_path, HEADER, say=said.append)
    ledger.write(0, [1, 2])
    path = tmp_path / "g1-r0.jsonl"
    size = path.stat().st_size
    with full_disk(size + 10):
        ledger.write(1, [3, 4])  # ten bytes of it
        ledger.write(2, [5, 6])
    assert path.stat().st_size == size + 10
    ledger.write(3, [7, 8])
    assert steps(path) == [0, 1, 2, 3]
    following = ledger.next(generation=2, resumed_step=4, resumed_generation=1, group=Group(1, 3, torch.device("cpu")))
    with full_disk(0):
        following.write(4, [9])
    following.close()
    assert steps(tmp_path / "g2-r1.jsonl") == [4], "the end of the generation has written it"
    (line,) = said
    assert line.startswith(f"{path} cannot be written: File too large; training goes on")


def test_a_folder_that_cannot_be_made_is_made_later(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "ledger").touch()
    ledger = SampleLedger(tmp_path / "ledger" / "here", HEADER, say=said.append)
    ledger.write(0, [1])
    assert len(said) == 1
    (tmp_path / "ledger").unlink()
    ledger.write(1, [2])
    ledger.close()
    assert steps(tmp_path / "ledger" / "here" / "g1-r0.jsonl") == [0, 1]


def test_a_disk_that_stays_full_costs_a_bounded_part_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_MOST_WAITING", 1000)
    said: list[str] = []
    ledger = SampleLedger(tmp_path, HEADER, say=said.append)
    with full_disk(0):
        for step in range(100):
            ledger.write(step, [step] * 10)
        ledger.close()
    assert len(ledger._waiting) < 1200
    assert len(said) == 1


def test_a_second_writer_of_the_same_rank_and_generation_is_refused(tmp_path: Path) -> None:
    SampleLedger(tmp_path, HEADER).close()
    with pytest.raises(FileExistsError):
        SampleLedger(tmp_path, HEADER)
