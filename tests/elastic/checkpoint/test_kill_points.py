"""A writer that is killed anywhere leaves a valid newest checkpoint: the short forms, the full one, and that it can fail.

The full one by itself: python -m tests.elastic.checkpoint.kill_points
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.checkpoint import CheckpointFolder, Manifest
from tests.elastic.checkpoint import kill_points


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: 46 ms a kill instead of 163 (2026-11-22), most of it the flushing of a disk, which SIGKILL does not test."""
    with tempfile.TemporaryDirectory(dir=kill_points.MEMORY if kill_points.MEMORY.is_dir() else None) as name:
        yield Path(name)


def test_sixty_kill_points(folder: Path) -> None:
    verdict = kill_points.prove(folder, points=60, seed=1)
    assert (verdict["kill_points"], verdict["wrong"]) == (60, [])


@pytest.mark.e2e
@pytest.mark.parametrize("seed", [11, 22, 33, 44])
def test_seventy_kill_points_of_other_histories(folder: Path, seed: int) -> None:
    verdict = kill_points.prove(folder, points=70, seed=seed)
    assert (verdict["kill_points"], verdict["wrong"]) == (70, [])


@pytest.mark.proof
def test_a_thousand_kill_points(folder: Path) -> None:
    verdict = kill_points.prove(folder, points=1000, seed=0)
    assert (verdict["kill_points"], verdict["wrong"]) == (1000, [])


def test_a_writer_that_makes_room_first_is_found_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CheckpointFolder.write

    def careless(self: CheckpointFolder, *arguments: Any, **facts: Any) -> Manifest:
        for name in self.disk.names(self.place):
            self.disk.remove(self.place / name)
        return honest(self, *arguments, **facts)

    monkeypatch.setattr(CheckpointFolder, "write", careless)
    verdict = kill_points.prove(folder, points=30, seed=1)
    assert verdict["wrong"]
