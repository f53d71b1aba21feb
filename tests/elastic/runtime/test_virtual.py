"""Virtual workers: the same bits whatever machines came and went; and without them the bits do differ."""

from pathlib import Path
from typing import Any

import pytest

from testing import exactness as ledger
from tests.elastic.runtime import programs
from tests.elastic.runtime.programs import Program
from tests.elastic.runtime.ranks import together

History = list[tuple[int, int | None]]  # world sizes, and the step in which a notice comes; None: to the end

HISTORIES: dict[str, History] = {
    "one": [(1, None)],
    "grows": [(1, 2), (3, 5), (5, None)],
    "shrinks": [(4, 3), (2, 7), (1, None)],
    "more-ranks-than-workers": [(6, 4), (2, None)],
}


def play(history: History, output: Path, **settings: Any) -> str:
    """The weights at the end, of rank 0."""
    weights: list[str] = []
    for world_size, leave_at in history:
        answers = together(programs.train, world_size, Program(output=output, leave_at=leave_at, settings=settings))
        assert {answer["left"] for answer in answers} == {leave_at is not None}
        weights = [answer.get("weights", "") for answer in answers]
    assert len(set(weights)) == 1 or "virtual_workers" not in settings
    return weights[0]  # without virtual workers each rank has statistics of its own


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return play(HISTORIES["one"], tmp_path_factory.mktemp("calm"), virtual_workers=5, max_micro_batch=2)


@pytest.mark.parametrize("history", [name for name in HISTORIES if name != "one"])
def test_the_bits_do_not_depend_on_the_history(tmp_path: Path, calm: str, history: str) -> None:
    assert play(HISTORIES[history], tmp_path, virtual_workers=5, max_micro_batch=2) == calm
    assert ledger.check(tmp_path).exact


def test_without_virtual_workers_they_do(tmp_path: Path, calm: str) -> None:
    """So the tests above can fail: BatchNorm, dropout and sums follow the ranks."""
    found = {play(history, tmp_path / name, max_micro_batch=2) for name, history in HISTORIES.items()}
    assert len(found) > 1
    assert calm not in found


def test_a_rank_that_is_lost_changes_no_bit(tmp_path: Path, calm: str) -> None:
    settings = {"virtual_workers": 5, "max_micro_batch": 2}
    together(programs.train, 3, Program(output=tmp_path, vanish_at=4, leaver=2, settings=settings))
    (answer,) = together(programs.train, 1, Program(output=tmp_path, settings=settings))
    assert answer["steps"][0] == 4  # the survivors kept what they had
    assert answer["weights"] == calm
