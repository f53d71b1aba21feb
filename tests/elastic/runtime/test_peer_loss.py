"""Survivors of a loss: one of them saves what all hold, at once and whoever it is."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ebb.elastic.checkpoint import FileFence
from ebb.elastic.checkpoint.cadence import Cadence
from ebb.elastic.checkpoint.saver import Saver
from ebb.elastic.notices.notice import Notice
from ebb.elastic.notices.relay import Relay
from ebb.elastic.runtime.peer_loss import save_after_loss
from ebb.elastic.runtime.process_group import Group
from tests.elastic.checkpoint.making import both, claimed, files, folder, state


def survivor(output: Path, rank: int, *, step: int = 7, whole: bool = True) -> tuple[Group, Any]:
    cadence = Cadence(shortest_seconds=1.0, longest_seconds=1.0, overhead=0.01)
    loop = SimpleNamespace(
        saver=Saver(folder(output), FileFence(output, 1), cadence=cadence, writer=rank),
        step=step,
        whole=whole,
        at_boundary=False,
        state=lambda: state(step),
        pod=None,
        notice=Notice(Relay(output)),
    )
    return Group(rank, 8, torch.device("cpu")), loop


def test_without_rank_zero_the_first_saves_at_once(tmp_path: Path) -> None:
    """They waited 5 s for rank 0's word before, and were killed after 5 s; and beyond rank 2 none saved."""
    claimed(tmp_path)
    started = time.monotonic()
    for rank, whole in ((4, False), (5, True), (3, True)):
        save_after_loss(*survivor(tmp_path, rank, whole=whole))
    assert time.monotonic() - started < 4
    assert [name for name in files(tmp_path) if not name.startswith(".")] == both("g00001-s00000007-r5")


def test_a_write_that_is_under_way_has_its_time_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher heard of a save only after it, and the others were cut off only then."""
    claimed(tmp_path)
    group, loop = survivor(tmp_path, 0)
    seen: list[str] = []
    finish = loop.saver.finish

    def finish_slowly() -> None:
        seen.append("saving" if Relay(tmp_path).is_saving(os.getpid()) else "idle")
        finish()

    monkeypatch.setattr(loop.saver, "finish", finish_slowly)
    monkeypatch.setattr(group, "abandon", lambda: seen.append("abandoned"))
    save_after_loss(group, loop)
    assert seen[:2] == ["abandoned", "saving"]
    assert not Relay(tmp_path).is_saving(os.getpid())


def test_one_that_is_ahead_saves_too(tmp_path: Path) -> None:
    place, _ = claimed(tmp_path)
    for rank, step in ((1, 7), (2, 8)):
        save_after_loss(*survivor(tmp_path, rank, step=step))
    found = place.newest()
    assert found is not None
    assert found.manifest.step == 8


def test_claims_go_with_the_next_generation(tmp_path: Path) -> None:
    claimed(tmp_path)
    save_after_loss(*survivor(tmp_path, 1))
    claimed(tmp_path)
    assert files(tmp_path) == both("g00001-s00000007-r1")
