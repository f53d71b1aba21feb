"""One change of ours and one of stock torchrun, timed for real."""

import json

import pytest

from benchmarks.recovery.__main__ import BROKEN, KEPT, main

pytestmark = pytest.mark.e2e


def test_a_killed_process_of_ours_and_of_torchrun(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--only", "ours,c10d_best", "--events", "kill_process", "--repeat", "1"])
    told = capsys.readouterr().out
    figures = json.loads(told.splitlines()[-1])
    assert status in (KEPT, BROKEN), told  # which of both is quicker is for the benchmark, on a machine that does nothing else
    assert figures["reasons"] == {}
    ours, stock = (figures[name]["kill_process"] for name in ("ours", "c10d_best"))
    assert ours["median_seconds"] > 0
    assert stock["median_seconds"] > 0
    assert (ours["samples_lost"], stock["samples_lost"]) == (0, 0)
    assert ours["steps_redone"] <= 1
