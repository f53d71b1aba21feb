"""Progress by the lines of rank 0, as the launcher reads them."""

import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

from ebb.elastic.contract import ENV_OUTPUT_DIR, ENV_PROGRESS_REGEX
from ebb.elastic.launch.logs import LogPipes
from ebb.elastic.launch.logs.lines import Batch
from ebb.elastic.launch.logs.progress import LineProgress
from ebb.elastic.launch.logs.specs import Piped
from ebb.elastic.progress_log import ProgressLog
from testing.ports import free_port
from tests.elastic.launch.logs.test_logs import run

REGEX = r"step (?P<step>\d+).*loss (?P<loss>[\d.]+)(?:.*acc (?P<acc>\S+))?"


def read(folder: Path, *batches: tuple[str, str], regex: str = REGEX) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines of metrics.jsonl, and what the launcher said."""
    told: list[str] = []
    progress = LineProgress.of({ENV_OUTPUT_DIR: str(folder), ENV_PROGRESS_REGEX: regex}, told.append)
    if progress is not None:
        progress.renew(2)
        for tag, text in batches:
            progress.read(Batch(tag=tag, text=text.encode()))
        progress.close()
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [], told


def test_lines_of_rank_zero_say_how_far_the_program_is(tmp_path: Path) -> None:
    found, _ = read(tmp_path, ("0.0.err", "hello\nstep 12: loss 0.5 acc 0.25\nbye\n"), ("1.1.out", "step 9 loss 9\n"))
    assert [(each["step"], each["loss"], each["figures"], each["world_size"]) for each in found] == [(12, 0.5, {"acc": 0.25}, 2)]


def test_a_line_that_writes_over_itself_is_read_as_several(tmp_path: Path) -> None:
    found, _ = read(tmp_path, ("0.0.err", "step 1 loss 0.5\rstep 2 loss 0.25\rdone\n"))
    assert [(each["step"], each["loss"]) for each in found] == [(1, 0.5), (2, 0.25)]


def test_groups_that_are_no_numbers_are_told_once(tmp_path: Path) -> None:
    found, told = read(tmp_path, ("0.0.out", "step 1 loss 0.5 acc good\n" * 3 + "step 2 loss 0.5 acc 1\n"))
    assert [each["step"] for each in found] == [2]
    assert len(told) == 1
    assert "groups are no numbers: {'step': '1', 'loss': '0.5', 'acc': 'good'}" in told[0]


def test_no_expression_reads_nothing_and_a_wrong_one_is_said(tmp_path: Path) -> None:
    assert LineProgress.of({}, pytest.fail) is None
    found, told = read(tmp_path, ("0.0.out", "step 1 loss 0.5\n"), regex="(")
    assert found == []
    assert "no regular expression" in told[0]


def test_nobody_hears_of_a_run_that_is_over_while_the_volume_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    log = ProgressLog({ENV_OUTPUT_DIR: str(tmp_path)}, world_size=2, shows=False)
    log.report(7, {})
    monkeypatch.setattr(log, "begin_again", lambda _: hangs.wait(60))
    progress = LineProgress(re.compile(REGEX), log, pytest.fail)
    progress.renew(2)
    assert log.board.progress is None
    monkeypatch.undo()
    hangs.set()
    progress.close()


class Heard(LogPipes):
    """Pipes that know how they were renewed."""

    works = True

    def renew(self, world_size: int | None = None) -> None:
        self.world_size = world_size

    def pipe(self, tag: str, stream: int) -> str:
        return tag


def test_the_launcher_knows_how_many_ranks_its_workers_are_of(tmp_path: Path) -> None:
    pipes = Heard(None)
    Piped(DefaultLogsSpecs(log_dir=str(tmp_path)), pipes, forked=True).reify({0: {"RANK": "2", "WORLD_SIZE": "4"}})
    assert pipes.world_size == 4


def test_the_launcher_serves_what_the_lines_say(tmp_path: Path) -> None:
    """And nothing any more when the workers start anew, perhaps with rank 0 elsewhere."""
    port = free_port()
    text = f"""
import time, urllib.request
def ask():
    try:
        return urllib.request.urlopen("http://127.0.0.1:{port}/metrics").read().decode()
    except OSError:
        return None
with open(pipes.pipe("0.0.out", 1), "wb") as file: file.write(b"step 7 loss 0.5\\n")
while not ask(): time.sleep(0.01)
page = ask()
pipes.renew(3)
print("served", "ebb_step 7" in page, "ebb_loss 0.5" in page, "then", repr(ask()))
"""
    done = run(tmp_path, text, **{ENV_PROGRESS_REGEX: REGEX, "EBB_METRICS_PORT": str(port)})
    assert "served True True then ''" in done.stdout
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 7
    assert "EBB_PROGRESS_REGEX" not in os.environ
