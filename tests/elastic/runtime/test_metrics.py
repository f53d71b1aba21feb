"""Metrics: the exact text, a server that answers, and files that survive a kill in the middle of a line."""

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ebb.elastic.runtime.metrics import Board, MetricLines, prometheus_text, serve
from testing.ports import free_port
from tests.elastic.checkpoint.making import full_disk
from tests.elastic.runtime.test_time_account import progress

TEXT = """\
# HELP ebb_step Optimizer steps done.
# TYPE ebb_step gauge
ebb_step 50
# HELP ebb_total_steps Optimizer steps of the whole run.
# TYPE ebb_total_steps gauge
ebb_total_steps 100
# HELP ebb_epoch Epochs done, with the part of the current one.
# TYPE ebb_epoch gauge
ebb_epoch 1.0
# HELP ebb_loss Mean loss of the last logged step over its global batch.
# TYPE ebb_loss gauge
ebb_loss 0.5
# HELP ebb_samples_per_second Samples trained on per second, all machines together.
# TYPE ebb_samples_per_second gauge
ebb_samples_per_second 100.0
# HELP ebb_world_size Ranks that train together now.
# TYPE ebb_world_size gauge
ebb_world_size 2
# HELP ebb_generation Number of the present membership; it only grows.
# TYPE ebb_generation gauge
ebb_generation 1
# HELP ebb_checkpoint_step Step of the newest checkpoint; 0 before the first.
# TYPE ebb_checkpoint_step gauge
ebb_checkpoint_step 45
# HELP ebb_useful_seconds_total Seconds spent in steps that count.
# TYPE ebb_useful_seconds_total counter
ebb_useful_seconds_total 50.0
# HELP ebb_lost_seconds_total Seconds spent in recoveries and in steps that were done again.
# TYPE ebb_lost_seconds_total counter
ebb_lost_seconds_total 3.0
# HELP ebb_steps_redone_total Optimizer steps that were done again.
# TYPE ebb_steps_redone_total counter
ebb_steps_redone_total 1
# HELP ebb_checkpoint_seconds_total Seconds for which the training stood still for checkpoints.
# TYPE ebb_checkpoint_seconds_total counter
ebb_checkpoint_seconds_total 0.5
"""


def test_the_text() -> None:
    assert prometheus_text(progress(checkpoint_step=45)) == TEXT
    assert prometheus_text(None) == ""


def test_the_server_answers_with_what_was_shown_last() -> None:
    board = Board()
    port = free_port()
    server = serve(board, port)
    assert server is not None
    try:
        board.show(progress(checkpoint_step=45))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"
            assert answer.read().decode() == TEXT
        with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(f"http://127.0.0.1:{port}/"):
            pass
        refused.value.close()
        assert refused.value.code == 404
    finally:
        server.shutdown()
        server.server_close()


def test_a_busy_port_costs_the_metrics_only(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        assert serve(Board(), port) is None
    assert (
        f"metrics are not served: port {port}: Address already in use; choose another with --metrics-port"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("before", "last_step", "lines"),
    [
        pytest.param(None, None, [7], id="no-file"),
        pytest.param("", None, [7], id="empty"),
        pytest.param("whole", 50, [50, 7], id="whole"),
        pytest.param("torn", 50, [50, 7], id="killed-in-a-line"),
    ],
)
def test_lines_survive_a_kill(tmp_path: Path, before: str | None, last_step: int | None, lines: list[int]) -> None:
    path = tmp_path / "metrics.jsonl"
    if before is not None:
        path.write_text("")
    if before in ("whole", "torn"):
        first = MetricLines(path)
        first.write(progress())
        first.close()
    if before == "torn":
        with path.open("a") as file:
            file.write('{"time": 1001.0, "st')
    writer = MetricLines(path)
    assert (writer.last.step if writer.last else None) == last_step
    writer.write(progress(step=7))
    writer.close()
    read = []
    for line in path.read_text().splitlines():
        try:
            read.append(json.loads(line)["step"])
        except ValueError:
            assert before == "torn"
    assert read == lines


def test_a_full_disk_costs_lines_and_not_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricLines(path)
    writer.write(progress(step=1))
    with full_disk(path.stat().st_size + 10):
        writer.write(progress(step=2))  # ten bytes of it
        writer.write(progress(step=3))
        writer.write(progress(step=4))
    writer.write(progress(step=5))
    writer.close()
    first, torn_line, last = path.read_text().splitlines()
    assert (json.loads(first)["step"], json.loads(last)["step"], len(torn_line)) == (1, 5, 10)
    assert capsys.readouterr().err == f"{path} cannot be written: File too large; training goes on\n"


def test_a_line_of_an_earlier_version_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = {key: value for key, value in vars(progress()).items() if key != "checkpoint_step"}
    path.write_text(json.dumps(line) + "\n")
    writer = MetricLines(path)
    writer.close()
    assert writer.last == progress(checkpoint_step=0)
