"""The program under the launcher, two ranks on loopback: what it prints is what the client reads."""

import os
import subprocess
import sys

import pytest
import torch

from ebb.client.diagnostics.network import NetworkReading
from ebb.elastic.netcheck import __main__ as program
from ebb.elastic.netcheck.bandwidth import OPERATIONS
from ebb.elastic.netcheck.measure import _holds
from ebb.elastic.notices.notice import Notice


def test_a_result_is_right_only_in_all_of_its_numbers() -> None:
    numbers = torch.full((1000,), 3.0)
    assert _holds(numbers, 3.0)
    for wrong in (2.0, 4.0, float("nan")):
        numbers[999] = wrong
        assert not _holds(numbers, 3.0)


def test_one_operation_may_be_asked_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(program, "check", lambda _, __, operations: asked.append(operations))
    monkeypatch.setattr(program, "install", Notice)
    assert program.main([]) == program.main(["--operation", "all-reduce"]) == 0
    assert asked == [OPERATIONS, ("all-reduce",)]


@pytest.mark.e2e
def test_two_ranks_measure_all_operations_and_their_results_are_right() -> None:
    command = [
        "-m",
        "ebb.elastic.launch",
        "--standalone",
        "--nproc-per-node=2",
        "-m",
        "ebb.elastic.netcheck",
        "--largest",
        "2097152",
    ]
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    reading = NetworkReading()
    assert sum(reading.feed(line) for line in done.stdout.splitlines()) == 27
    assert (reading.is_complete, reading.skipped) == (True, [])
    assert [(each.worker, each.network) for each in reading.machines()] == [(0, "sockets")]
    places = {(figure.operation, figure.bytes) for figure in reading.figures}
    assert {(name, 2**21) for name in ("all-reduce", "all-gather", "send-receive")} <= places
    assert all(figure.wrong == 0 and figure.seconds > 0 for figure in reading.figures)
    largest = next(one for one in reading.figures if (one.operation, one.bytes) == ("all-gather", 2**21))
    assert largest.bus_gb_s == pytest.approx(largest.algorithm_gb_s / 2)  # of two ranks
