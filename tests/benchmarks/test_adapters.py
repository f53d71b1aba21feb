"""The judge of make prove-adapters, and the number of lines that its scripts need."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapters.__main__ import judge
from benchmarks.adapters.history import PROGRAMS, _reached, changed_lines, kills_at_epoch_ends

GOOD: dict[str, Any] = {
    "samples_lost": 0,
    "samples_repeated": 0,
    "steps_of_other_size": 0,
    "steps_redone": 1,
    "kills_at_epoch_ends": 0,
    "problems": [],
    "exit_codes": [138, 0, 0],
    "weights_difference": 1e-6,
    "checkpoint": ["adapter_model.safetensors", "optimizer.pt"],
    "tracker_runs": 1,
    "changed_lines": 3,
}


def test_a_history_that_keeps_the_promises() -> None:
    assert judge({"trainer": GOOD, "trl": GOOD}) == []


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("samples_lost", 1),
        ("samples_repeated", 1),
        ("steps_of_other_size", 1),
        ("steps_redone", 3),
        ("problems", ["generation 2, step 7: nothing written by rank 1 of 2"]),
        ("exit_codes", [75, 0, 0]),
        ("weights_difference", float("nan")),
        ("weights_difference", 0.1),
        ("checkpoint", ["adapter_model.safetensors", "model.safetensors"]),
        ("tracker_runs", 2),
        ("changed_lines", 6),
    ],
)
def test_each_promise_can_be_broken(figure: str, value: Any) -> None:
    (broken,) = judge({"trl": {**GOOD, figure: value}})
    assert broken.startswith("trl: ")


def test_only_with_lightning_a_kill_at_an_epochs_end_may_cost_more() -> None:
    ended = {**GOOD, "steps_redone": 9, "kills_at_epoch_ends": 1}
    assert judge({"lightning": ended}) == []
    assert len(judge({"lightning": {**ended, "steps_redone": 10}, "trainer": ended})) == 2


def test_kills_at_epoch_ends_are_those_after_the_last_step_of_an_epoch(tmp_path: Path) -> None:
    def write(generation: int, resumed: int, last: int) -> None:
        header = {"resumed_step": resumed, "dataset_size": 50, "global_batch": 8}
        lines = [header, *({"step": step} for step in range(resumed, last + 1))]
        (tmp_path / f"g{generation}-r0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    write(9, 0, 13)  # epochs of 7 steps
    write(10, 12, 14)
    write(11, 14, 17)
    write(12, 16, 139)
    assert kills_at_epoch_ends(tmp_path, [9, 11]) == 1
    assert kills_at_epoch_ends(tmp_path, [10]) == 1, "the first step of the next epoch had begun: seen with Lightning"


@pytest.mark.parametrize(("program", "lines"), [("clm.py", 2), ("sft.py", 2), ("lit.py", 3), ("loop.py", 4)])
def test_scripts_need_at_most_five_lines(program: str, lines: int) -> None:
    assert changed_lines(PROGRAMS / program) == lines <= 5


def test_the_history_waits_for_steps_of_the_newest_generation(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.mkdir()

    def write(generation: int, world_size: int, steps: int) -> None:
        lines = [{"world_size": world_size}, *({"step": step} for step in range(steps))]
        (ledger / f"g{generation}-r0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert not _reached(tmp_path, 2)
    write(9, 2, 10)
    assert _reached(tmp_path, 2)
    write(10, 1, 3)
    assert not _reached(tmp_path, 2)
    assert not _reached(tmp_path, 1)
    write(10, 1, 4)
    assert _reached(tmp_path, 1)
