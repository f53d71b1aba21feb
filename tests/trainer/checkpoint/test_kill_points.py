"""A writer that is killed anywhere leaves a valid newest checkpoint: the short form, and that the proof can fail."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.checkpoint import kill_points
from trainer.checkpoint import CheckpointFolder, Manifest


def test_sixty_kill_points(tmp_path: Path) -> None:
    verdict = kill_points.prove(tmp_path, points=60, seed=1)
    assert (verdict["kill_points"], verdict["wrong"]) == (60, [])


@pytest.mark.e2e
def test_a_thousand_kill_points(tmp_path: Path) -> None:
    verdict = kill_points.prove(tmp_path, points=1000, seed=0)
    assert (verdict["kill_points"], verdict["wrong"]) == (1000, [])


def test_a_writer_that_makes_room_first_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CheckpointFolder.write

    def careless(self: CheckpointFolder, *arguments: Any, **facts: Any) -> Manifest:
        for name in self.disk.names(self.place):
            self.disk.remove(self.place / name)
        return honest(self, *arguments, **facts)

    monkeypatch.setattr(CheckpointFolder, "write", careless)
    verdict = kill_points.prove(tmp_path, points=30, seed=1)
    assert verdict["wrong"]
